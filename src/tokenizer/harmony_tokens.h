// The control tokens of o200k_harmony, by name and id. Immutable; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/token_id.h"

namespace pelton::tokenizer {

inline constexpr TokenId kHarmonyFirstControlId = 199998;  // as many tokens are ordinary
inline constexpr int kHarmonyControlTokenCount = 21;       // those that Hugging Face's file names
inline constexpr int kHarmonyVocabularySize = 201088;      // rows of gpt-oss' embedding

struct ControlToken {
  TokenId id;
  std::string text;
};

// The 21 named tokens, the first at `first_id` (199998 in gpt-oss itself).
std::vector<ControlToken> harmony_control_tokens(TokenId first_id);

// The same at gpt-oss' ids, then <|reserved_N|> for every further N below kHarmonyVocabularySize.
std::vector<ControlToken> harmony_control_tokens_with_reserved();

}  // namespace pelton::tokenizer
