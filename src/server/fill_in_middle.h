// Prompts whose answer stands between two texts (fill in the middle: Bavarian et al. 2022), for
// models whose vocabulary has control tokens for it. Pure functions; any thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "tokenizer/tokenizer.h"

namespace pelton::server {

struct FillInMiddle {
  // Of "<fim_prefix>BEFORE<fim_suffix>AFTER<fim_middle>", in the order of the vocabulary's format.
  std::vector<TokenId> prompt;
  // What ends the answer beside the model's own ends: it opens another text.
  std::vector<TokenId> stops;
};

// `before`, `after`: the texts as ordinary tokens. Error kInvalidArgument, naming 'suffix': the
// vocabulary has no such control tokens.
Result<FillInMiddle> fill_in_middle(const tokenizer::Tokenizer& tokenizer,
                                    const std::vector<TokenId>& before,
                                    const std::vector<TokenId>& after);

}  // namespace pelton::server
