#include "tokenizer/harmony_tokens.h"

#include <string_view>

#include <fmt/format.h>

namespace pelton::tokenizer {
namespace {

constexpr std::string_view kNames[kHarmonyControlTokenCount] = {
    "<|startoftext|>",
    "<|endoftext|>",
    "<|reserved_200000|>",
    "<|reserved_200001|>",
    "<|return|>",
    "<|constrain|>",
    "<|reserved_200004|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|reserved_200009|>",
    "<|reserved_200010|>",
    "<|reserved_200011|>",
    "<|call|>",
    "<|reserved_200013|>",
    "<|reserved_200014|>",
    "<|reserved_200015|>",
    "<|reserved_200016|>",
    "<|reserved_200017|>",
    "<|endofprompt|>",
};

}  // namespace

std::vector<ControlToken> harmony_control_tokens(TokenId first_id) {
  std::vector<ControlToken> tokens;
  for (const std::string_view name : kNames) {
    tokens.push_back({first_id + static_cast<TokenId>(tokens.size()), std::string(name)});
  }
  return tokens;
}

std::vector<ControlToken> harmony_control_tokens_with_reserved() {
  std::vector<ControlToken> tokens = harmony_control_tokens(kHarmonyFirstControlId);
  for (TokenId id = tokens.back().id + 1; id < kHarmonyVocabularySize; ++id) {
    tokens.push_back({id, fmt::format("<|reserved_{}|>", id)});
  }
  return tokens;
}

}  // namespace pelton::tokenizer
