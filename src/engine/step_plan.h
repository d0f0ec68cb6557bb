// What one step computes: the scheduler writes it, an executor carries it out. Plain values;
// ragged: each sequence brings its own number of tokens, so prefill chunks and decodes mix freely.
// Flat: rows name slices of arrays that all rows of a plan share, so that a plan costs the same
// few allocations whatever the number of its rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/grammar_state.h"
#include "kv/block_hash.h"
#include "kv/block_id.h"
#include "kv/group.h"
#include "request/generation_request.h"

namespace pelton::engine {

// Speculation: who guesses, at most so many (ExecutorCapacity::proposers).
inline constexpr size_t kProposersMax = 4;

// A sequence's slot, 0 .. slot_count()-1. The executor keeps per-slot state (sampling history).
using Slot = int32_t;
using kv::BlockId;
using kv::kNoBlock;

// A part of one of the arrays below.
struct Slice {
  int32_t first = 0;
  int32_t count = 0;

  template <typename T>
  std::span<const T> of(const std::vector<T>& array) const {
    return std::span(array).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }
};

// Appends and says where.
template <typename T>
Slice append(std::vector<T>& array, std::span<const T> more) {
  const Slice slice{static_cast<int32_t>(array.size()), static_cast<int32_t>(more.size())};
  if (!more.empty()) array.insert(array.end(), more.begin(), more.end());
  return slice;
}

// The content of one block becomes that of another of the same group: out to a further tier and
// back when sequences make room for each other, and within the device when answers to one prompt
// part in the middle of a block.
struct BlockCopy {
  int32_t group = 0;
  kv::Tier from_tier = kv::kDevice;
  kv::Tier to_tier = kv::kDevice;
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
};

// Sent in the first step after a sequence took its slot (again after a preemption): what to sample
// with, and every token known so far, those that later prefill chunks will bring included.
// `prompt_count` of `history` are the caller's prompt; the rest was generated before a preemption.
// From here on only sampled tokens are added to the history, by whoever samples them.
struct Arrival {
  request::SamplingParams sampling;
  std::vector<TokenId> history;  // empty unless sampling.reads_history() or there is a guide
  int prompt_count = 0;          // also set without a history
  float mirostat_bound = 0.0f;   // as it stands; of sampling.mirostat
  // Of the rows that follow, all tokens are one prompt of which an embedding is made.
  std::optional<request::Pooling> pooling;
  std::vector<TokenId> label_tokens;  // as GenerationRequest's
  int second_text = 0;                // likewise
  // As it stands at the prompt's end: whoever samples goes over what of the history was generated.
  std::optional<grammar::GrammarState> guide;
  std::string tenant;               // whose work the guide's is; empty without one
  std::vector<TokenId> prediction;  // what the caller expects to come; where guesses are computed
  // Who may share what is computed of it: those with the same (BlockHasher::root).
  kv::BlockHash origin;
  // What its rows are computed with beside the model; null: nothing. Its request holds it until no
  // submitted step names the sequence.
  const request::AdapterWeights* adapter = nullptr;
  int32_t adapter_from = 0;  // rows at positions before it are the model's own
};

inline constexpr int32_t kNoArrival = -1;
inline constexpr TokenId kNotForced = -1;

struct ScheduledRow {
  Slot slot = 0;
  int32_t arrival = kNoArrival;  // index into StepPlan::arrivals
  int32_t start = 0;             // position of the first token computed in this step
  // Of StepPlan::tokens: known inputs; empty: one token, the one the step before sampled here.
  Slice tokens;
  // Of StepPlan::tokens: what follows each of the row's first tokens in the prompt, whose
  // log-probabilities are wanted. One less than `tokens`, or as many: then the last one comes
  // later.
  Slice targets;
  // Of StepPlan::banned: not to be sampled at positions before `banned_end`; stop tokens before
  // min_new_tokens.
  Slice banned;
  int32_t banned_end = INT32_MAX;
  TokenId forced = kNotForced;  // to be sampled, whatever the logits say
  bool sample = false;          // sample after the last token (its position is start + count)
  bool embed = false;  // the last token is the prompt's last: give the embedding; never samples
  // Speculation: so many guesses may be computed behind the row's tokens, which are all named then.
  // Its block tables have room for them.
  int32_t draft_max = 0;

  // Of StepPlan::table_updates: one for each of its block tables that has changed.
  Slice table_updates;

  int32_t token_count() const { return tokens.count == 0 ? 1 : tokens.count; }
};

// What is new in a sequence's block table in one group, indexed by position / block_tokens: the
// entries from `first` on. Those before stand as earlier rows gave them; an arrival gives all.
// Entries before `begin` have left the window and are kNoBlock.
struct TableUpdate {
  int32_t group = 0;
  int32_t first = 0;
  int32_t begin = 0;
  Slice blocks;  // of StepPlan::blocks
};

struct StepPlan {
  int64_t step = 0;
  // Carried out first, one after the other in this order: a later one may read what an earlier one
  // wrote, and write what it read.
  std::vector<BlockCopy> copies;
  std::vector<ScheduledRow> sequences;  // may be none beside copies

  std::vector<TokenId> tokens;
  std::vector<TokenId> banned;
  std::vector<TableUpdate> table_updates;
  std::vector<BlockId> blocks;
  std::vector<Arrival> arrivals;

  bool empty() const { return sequences.empty() && copies.empty(); }

  const Arrival* arrival_of(const ScheduledRow& row) const {
    return row.arrival == kNoArrival ? nullptr : &arrivals[static_cast<size_t>(row.arrival)];
  }
};

struct SampledToken {
  TokenId token = 0;
  float logprob = 0.0f;  // natural logarithm, of the raw distribution (before temperature and cuts)
  std::vector<std::pair<TokenId, float>> top;  // best first, if asked for
  float surprise = -1.0f;                      // of sampling.mirostat; negative: none
};

// A guide may leave no choice behind a sampled token. Then what must follow may be emitted with it,
// so many tokens at most, and is computed with the next row. A row that was planned meanwhile, for
// the first of these, emits none.
inline constexpr int kJumpTokensMax = 16;

// A token of the prompt, and how the model had predicted it.
struct PromptToken {
  SampledToken scored;
  int32_t rank = 0;  // 1: nothing is likelier; of equals the lower id comes first
};

// Why a row that samples has no token yet: what its guide allows takes longer to find out than a
// step may wait. The row counts as not sampled; it is planned again once this is over, and gets the
// token that it would have got.
struct Deferral {
  std::atomic<bool> is_over{false};
};

struct SequenceResult {
  Slot slot = 0;
  // Of StepResult::tokens: none for a prefill chunk; otherwise 1 + accepted, and what a guide
  // leaves no choice about behind them.
  Slice tokens;
  int32_t drafted = 0;   // guesses that were computed, at most draft_max
  int32_t accepted = 0;  // of these the first so many, each of which is what was sampled there
  bool from_prediction = false;  // they are the caller's
  uint8_t proposer = 0;          // whose they are: an index into ExecutorCapacity::proposers
  Slice embedding;               // of StepResult::floats: embedding_size of them if it was wanted
  Slice scored;                  // of StepResult::prompt_tokens: one for each of the row's targets
  std::unique_ptr<Error> error;  // instead of an answer: this sequence alone cannot go on
  std::shared_ptr<const Deferral> deferral;  // instead of a token
};

struct StepResult {
  int64_t step = 0;
  std::vector<SequenceResult> sequences;  // in the plan's order
  std::vector<SampledToken> tokens;
  std::vector<float> floats;
  std::vector<PromptToken> prompt_tokens;
  int64_t elapsed_ns = 0;   // of the step; set by whoever drives the engine
  int64_t draft_ns = 0;     // of these, spent on guessing
  int64_t catch_up_ns = 0;  // of these, for tokens that a proposer had not seen as it was not asked
  std::array<int64_t, kProposersMax> proposer_ns{};  // of these, by who was asked
  int64_t compute_ns = 0;  // from when the executor began it until it was done; 0: not known
  // From the result before to this one, less that: planning, handing on, what no step overlaps
  // with. Set by whoever drives the engine; 0: not known.
  int64_t beside_ns = 0;
  // The whole step failed: no sequence advanced, and what its copies wrote is unknown.
  std::optional<Error> error;
};

}  // namespace pelton::engine
