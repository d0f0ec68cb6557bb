// What one step computes: the scheduler writes it, an executor carries it out. Plain values;
// ragged: each sequence brings its own number of tokens, so prefill chunks and decodes mix freely.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "kv/block_id.h"
#include "request/generation_request.h"

namespace pelton::engine {

// A sequence's seat, 0 .. sequences_max-1. The executor keeps per-seat state (sampling history).
using Seat = int32_t;
using kv::BlockId;
using kv::kNoBlock;

struct PlannedSequence {
  Seat seat = 0;

  // Set in the first step after the sequence took this seat (again after a preemption): what to
  // sample with, and every token known so far, those that later prefill chunks will bring included.
  // `prompt_count` of `history` are the caller's prompt; the rest was generated before a
  // preemption. From here on only sampled tokens are added to the history, by whoever samples them.
  struct Arrival {
    request::SamplingParams sampling;
    std::vector<TokenId> history;  // empty unless sampling.has_penalties()
    int prompt_count = 0;          // also set without a history
  };
  std::optional<Arrival> arrival;

  int32_t start = 0;  // position of the first token computed in this step
  std::vector<TokenId>
      tokens;           // known inputs; empty: one token, the one the step before sampled here
  bool sample = false;  // sample after the last token (its position is start + count)
  std::vector<TokenId> banned;  // not to be sampled in this step: stop tokens before min_new_tokens

  // What is new in the seat's block tables, which are indexed by position / block_tokens: their
  // entries from `..._first` on. Those before stand as the seat's earlier rows told them; an
  // arrival tells all. Window entries before `window_begin` have left the window and are kNoBlock.
  int32_t full_first = 0;
  int32_t window_first = 0;
  int32_t window_begin = 0;
  std::vector<BlockId> full_blocks;
  std::vector<BlockId> window_blocks;

  int32_t token_count() const { return tokens.empty() ? 1 : static_cast<int32_t>(tokens.size()); }
};

struct StepPlan {
  int64_t step = 0;
  std::vector<PlannedSequence> sequences;

  bool empty() const { return sequences.empty(); }
};

struct SampledToken {
  TokenId token = 0;
  float logprob = 0.0f;  // natural logarithm, of the raw distribution (before temperature and cuts)
  std::vector<std::pair<TokenId, float>> top;  // best first, if asked for
};

struct SequenceResult {
  Seat seat = 0;
  std::vector<SampledToken> tokens;  // 0: a prefill chunk; 1; more with speculation
  std::optional<Error> error;        // instead of a token: this sequence alone cannot go on
};

struct StepResult {
  int64_t step = 0;
  std::vector<SequenceResult> sequences;  // in the plan's order
  std::optional<Error> error;             // the whole step failed; no sequence advanced
};

}  // namespace pelton::engine
