// Which two workers a request would be split between, and what that costs, in seconds and by the
// terms of gateway/cost_router.h: p computes the prompt, says the first token and goes on until the
// keys and values are at d, which says the rest. No threshold: a prompt is split where that is
// cheaper than one worker. Pure; the simulator links the same.
//
//   first   = p's bias x p's first, with p's hit
//   over    = distance + d's wait + fetched x seconds for each + u / r + s     until d is warm
//   t       = s / (1 - phi p)                         a further token, prompts between them
//   m       = over / p's t, at most o - 1                     tokens that p says meanwhile
//   rest    = m x p's t + (o - 1 - m) x d's t, each with its bias, + distance + d's s for the cut
//   harm    = p's, of the prompt and of m + 1 tokens; d's, of u tokens and of the others
//   room    = p's + d's
//   u: what d computes, as no whole block has it
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "gateway/cost_router.h"
#include "gateway/split_config.h"

namespace pelton::gateway {

struct SplitRequest {
  CostRequest request;
  int64_t block_tokens = 0;  // of the prompt, in whole blocks: these can be fetched
  // For each token that d fetches, as measured lately; none: as long as computing it there.
  std::optional<double> fetch_token_s = {};
  SplitConfig::Handoff handoff = SplitConfig::Handoff::kWarm;
};

struct SplitTerms {
  double first_s = 0;
  double over_s = 0;
  double rest_s = 0;
  double harm_s = 0;
  double room_s = 0;
  double total_s = 0;
};

SplitTerms cost_of(const SplitRequest& request, const CostCandidate& prefill,
                   const CostCandidate& decode);

// By the places of workers: what each of them would be as p and as d. Those of equal `exchange`
// have what the others compute; 0: nobody's.
struct SplitSides {
  std::span<const CostCandidate> prefill;
  std::span<const CostCandidate> decode;
  std::span<const uint32_t> exchange;
  // For each token that a d fetches from a p; unset: the request's, between all.
  std::function<std::optional<double>(size_t p, size_t d)> fetch_token_s = {};
};

struct SplitPair {
  size_t prefill = 0;
  size_t decode = 0;
  SplitTerms terms;
};

// The cheapest of the four best of each side, those of the nearest zone with room. Those within 2 %
// or a millisecond are equal, and one of them is drawn. None: no two workers may exchange.
std::optional<SplitPair> choose_pair(const SplitRequest& request, const SplitSides& sides,
                                     uint64_t draw);

// Whether a request goes to the pair: always, or where that is cheaper than the best worker alone;
// null: there is none.
bool is_split(SplitConfig::Mode mode, const SplitPair& pair, const CostRequest& request,
              const CostCandidate* whole);

// Once its first token is said: whether its rest is sooner at d, with what p has by then. The
// prompts that wait at p (and have come since it was chosen) are computed before that rest; whoever
// goes on is chosen now, and computes none. With a warm hand-over only.
//
//   stay = (o - 1) t + phi x p's waiting tokens / r + rows slowed by its row
//   go   = what p says until d is warm, (o - 1 - m) x d's t, the cut; d's harm, and its room less
//   p's
bool is_left(const SplitRequest& request, const CostCandidate& prefill,
             const CostCandidate& decode);

}  // namespace pelton::gateway
