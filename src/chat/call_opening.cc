#include "chat/call_opening.h"

#include <string>

namespace pelton::chat {

std::vector<TokenId> call_opening(const tokenizer::Tokenizer& tokenizer,
                                  const HarmonyTokens& tokens, std::string_view function_name) {
  std::vector<TokenId> opening;
  if (function_name.empty()) {
    // Without the dot: it belongs to the name's first token (".get").
    tokenizer.encode(" to=functions", opening);
    return opening;
  }
  tokenizer.encode(" to=functions." + std::string(function_name), opening);
  opening.push_back(tokens.channel);
  tokenizer.encode("commentary ", opening);
  opening.push_back(tokens.constrain);
  tokenizer.encode("json", opening);
  opening.push_back(tokens.message);
  return opening;
}

}  // namespace pelton::chat
