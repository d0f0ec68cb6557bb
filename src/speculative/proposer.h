// Speculation: who guesses which tokens come next. A guess changes when a token is emitted, never
// which: the executor computes guesses behind a sequence's row and keeps those that it samples
// itself (executor/row_sampler.h). So a proposer may be wrong, stale or empty-handed, and no answer
// depends on it. Owned by the executor; its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "kv/block_hash.h"
#include "request/generation_request.h"

namespace pelton::speculative {

// A sequence that takes a slot, with all that is known of it.
struct NewSequence {
  int slot = 0;
  std::span<const TokenId> tokens;  // the prompt, and what was generated before it made room
  int prompt_count = 0;
  // What its tokens are sampled with; gone behind the call. Null: not known.
  const request::SamplingParams* sampling = nullptr;
  std::span<const TokenId> prediction = {};  // what the caller expects to come; may be empty
  // State may be taken over from a sequence with the same, and from no other: who shares neither
  // salt nor adapter must not learn by timing what others have asked. Zero: from none.
  kv::BlockHash origin = {};
};

struct DraftRequest {
  int slot = 0;
  std::span<const TokenId> tokens;  // all that are known, the newest last
  int tokens_max = 0;               // guesses wanted at most, 1 or more
  // The answer: from the caller's prediction; behind so many tokens that stood in the text before
  // (0: not from the text); of which of the proposer's parts.
  bool is_predicted = false;
  int matched = 0;
  int part = 0;
  std::vector<TokenId> guesses = {};  // the answer: what may come behind `tokens`, in order
};

// What a step has computed of one sequence, once its tokens are known.
struct ComputedRows {
  int slot = 0;
  int first_row = 0;                // among the rows of the step
  int start = 0;                    // position of the first
  int count = 0;                    // whose input was the sequence's, wrong guesses left out
  std::span<const TokenId> tokens;  // all that are known; at least one behind these rows
};

// The rows behind a wrong guess: what the target drew at each, had its input been the sequence's.
struct RejectedRows {
  int slot = 0;
  size_t position = 0;               // of the first token drawn
  std::span<const TokenId> guesses;  // their inputs; the first is the first wrong guess
  std::span<const TokenId> drawn;    // as many
};

inline constexpr size_t kPartsMax = 4;

class Proposer {
 public:
  virtual ~Proposer() = default;

  virtual std::string_view name() const = 0;
  // Those that it asks, by DraftRequest::part, at most kPartsMax; literals.
  virtual std::vector<std::string_view> part_names() const { return {name()}; }

  // The slot's earlier sequence is forgotten.
  virtual void begin(const NewSequence& sequence) = 0;

  // The slot's sequence goes on: all its tokens, of which those from `first_new` on are new.
  virtual void append(int slot, std::span<const TokenId> tokens, size_t first_new) = 0;

  // Guesses for the sequences of one step. An error: none of them counts.
  virtual Result<void> draft(std::span<DraftRequest> requests) = 0;

  // What each part took of the last draft(), in ns, by DraftRequest::part; empty: it is one part.
  virtual std::span<const int64_t> part_ns() const { return {}; }

  // Of the last draft(), for tokens that would have been computed before had it been asked always.
  virtual int64_t catch_up_ns() const { return 0; }

  // Boundaries of the target's layers whose residual stream it wants to see in each step, k: behind
  // k layers; none: it does not look at the target.
  virtual std::span<const int> taps() const { return {}; }
  // During a step, of each tap: x, float (rows of the step, hidden).
  virtual void see(size_t /*tap*/, const float* /*x*/, int /*rows*/) {}
  // Behind the step: whose rows these were. In the order of the step, each slot once at most.
  virtual void observe(std::span<const ComputedRows> /*rows*/) {}

  // Whether it wants what is drawn behind wrong guesses: a draw for each, otherwise not made.
  virtual bool wants_rejected() const { return false; }
  // Behind the step, and behind append().
  virtual void see_rejected(const RejectedRows& /*rows*/) {}

  // What whoever starts it should know; empty: nothing.
  virtual std::string warning() const { return ""; }

  // What it has allocated.
  virtual int64_t bytes() const = 0;
};

}  // namespace pelton::speculative
