#include "chat/format.h"

#include <utility>

namespace pelton::chat {

std::vector<TokenId> ChatFormat::render(Conversation conversation) const {
  const Thinking thinking = conversation.thinking;
  const std::unique_ptr<PromptPieces> pieces = this->pieces(std::move(conversation));
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < pieces->pieces().size(); ++i) pieces->append(i, tokens);
  tokens.insert(tokens.end(), turn_start_.begin(), turn_start_.end());
  const std::vector<TokenId> opening = turn_opening(thinking);
  tokens.insert(tokens.end(), opening.begin(), opening.end());
  return tokens;
}

}  // namespace pelton::chat
