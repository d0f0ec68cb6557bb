// Sampled tokens of one choice as they travel in a kTokens frame: their ids and, where they are
// asked for, log-probabilities. A gateway keeps the frames of a worker as they came and hands them
// to the next one.
//
//   u32 index of the first token in its choice's output, u8 with log-probabilities (0 or 1),
//   then for each token: u32 id [, f32 log-probability, u16 count, count x (u32 id, f32)]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace pelton::cluster {

struct WireToken {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;
  friend bool operator==(const WireToken&, const WireToken&) = default;
};

struct TokenList {
  uint32_t first = 0;
  bool with_logprobs = false;
  std::vector<WireToken> tokens;
  friend bool operator==(const TokenList&, const TokenList&) = default;
};

std::string encode(const TokenList& list);
// kInvalidArgument: cut off, a negative id, or bytes behind the end.
Result<TokenList> decode_token_list(std::string_view payload);

}  // namespace pelton::cluster
