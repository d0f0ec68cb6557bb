#include "chat/format.h"

#include <utility>

namespace pelton::chat {

Result<RenderedPrompt> ChatFormat::render(Conversation conversation) const {
  const Thinking thinking = conversation.thinking;
  TRY_ASSIGN(const std::unique_ptr<PromptPieces> pieces, this->pieces(std::move(conversation)));
  RenderedPrompt prompt{.tokens = {}, .opening = pieces->opening()};
  const std::vector<TokenId> opening = turn_opening(thinking);
  prompt.opening.insert(prompt.opening.end(), opening.begin(), opening.end());
  for (size_t i = 0; i < pieces->pieces().size(); ++i) pieces->append(i, prompt.tokens);
  prompt.tokens.insert(prompt.tokens.end(), turn_start_.begin(), turn_start_.end());
  prompt.tokens.insert(prompt.tokens.end(), prompt.opening.begin(), prompt.opening.end());
  return prompt;
}

}  // namespace pelton::chat
