// An executor without a model: it keeps, where keys and values would lie, which token of which
// position was written, reads it back through the block tables as attention would, and lets a
// function choose the next token from what was seen. CHECKs the promises a plan makes. For tests,
// for the simulator and for serving without weights. One thread at a time, as any executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "engine/executor.h"
#include "engine/seat_tables.h"
#include "kv/block_transfers.h"

namespace pelton::engine {

class ModelledExecutor final : public Executor, private kv::BlockTransfers {
 public:
  static constexpr TokenId kUnseen = -1;

  // What a sampled position attended to.
  struct Seen {
    // All tokens of the sequence, read through the table of the widest group; where that one
    // slides, those that no query sees any more are kUnseen.
    std::span<const TokenId> tokens;
    // Of these the last ones, as far as each group sees, read through its table.
    kv::PerGroup<std::span<const TokenId>> by_group;
    int prompt_count = 0;
    const request::SamplingParams& sampling;
    std::span<const TokenId> banned;
    std::span<const uint64_t> allowed;  // bit t % 64 of word t / 64; empty: all tokens
    Slot slot = 0;
    int64_t arrival = 0;  // whose turn in that slot it is: another number for each
  };
  using TokenFunction = std::function<TokenId(const Seen&)>;
  // Of a token after those before it that it sees, with `top` alternatives.
  using ScoreFunction =
      std::function<PromptToken(std::span<const TokenId> before, TokenId token, int top)>;
  // Of a prompt, or what of it the last token sees. Writes embedding_size numbers.
  using EmbeddingFunction = std::function<void(
      std::span<const TokenId> prompt, request::Pooling pooling, std::span<float> embedding)>;

  // How long steps take. `pass` lets so many nanoseconds go by on `clock`: by sleeping, or by
  // turning a virtual clock.
  struct Timing {
    const base::Clock* clock = nullptr;
    std::function<int64_t(const StepPlan&)> step_ns;
    std::function<void(int64_t)> pass;
  };

  struct Options {
    ExecutorCapacity capacity;
    TokenFunction next_token;
    EmbeddingFunction embed;                                         // unset: word_vectors()
    ScoreFunction score;                                             // unset: checksum_scores()
    std::optional<Timing> timing;                                    // none: steps take no time
    std::function<std::optional<Error>(const StepPlan&)> fail_step;  // unset: no step fails
    // What becomes of a transfer to or from the disk; unset: all are done, at once.
    std::function<kv::TransferResult::Outcome(const kv::BlockTransfer&)> transfer_outcome;
    // For rows with a guide that sample; null: this one is not deferred. Unset: none is.
    std::function<std::shared_ptr<const Deferral>(const ScheduledRow&)> defer;
    // What a plan promises is CHECKed, and all is read back from its blocks at every sample.
    bool checks = true;
    // Without checks, where no answer depends on what was seen: blocks hold nothing, and
    // Seen::tokens is what was submitted of a sequence itself, without a prefix that was found.
    bool blocks_hold_tokens = true;
    // What a guide leaves no choice about is emitted with the token before it, so many at most.
    int jump_tokens_max = 0;
    // Speculation: each row has as many guesses as it may, and each is right with this probability,
    // a matter of `draft_seed` and its position.
    double draft_acceptance = 0.0;
    // Or with one of its own, by the sequence's seed and its place behind the row, from 0 on.
    std::function<double(uint64_t seed, int place)> draft_acceptance_of;
    uint64_t draft_seed = 0;
  };

  explicit ModelledExecutor(Options options);

  const ExecutorCapacity& capacity() const override { return options_.capacity; }
  void submit(StepPlan plan) override;
  StepResult collect() override;
  kv::BlockTransfers* disk() override { return has_disk_ ? this : nullptr; }

  // What another one holds in a block it has offered comes to lie in a block of the host's.
  void take_over(ModelledExecutor& from, const kv::PeerOffer::Block& block, kv::BlockId host);

 private:
  struct Cell {
    TokenId token = -1;
    int32_t position = -1;
  };
  struct Occupant {
    request::SamplingParams sampling;
    int prompt_count = 0;
    std::vector<TokenId> history;  // as it was submitted, and what was sampled since
    SlotTables tables;
    std::optional<request::Pooling> pooling;
    int label_count = 0;  // of Pooling::kTokens
    std::optional<grammar::GrammarState> guide;
    int32_t first = 0;  // what was computed before this slot was taken
    int32_t computed = 0;
    TokenId sampled = 0;
    int64_t sampled_in = -1;  // the step that sampled it
    int64_t planned_in = -1;  // the last step that had a row for this slot
    int32_t known = 0;  // tokens of it that were submitted, if a jump was ahead of what is computed
    std::shared_ptr<const Deferral> deferral;  // of its last row
    bool lost = true;                          // nobody sits here, or a failed step left it unknown
    int64_t arrival = 0;
    std::vector<TokenId> seen;  // what was read of the widest group, or submitted
  };
  bool holds() const { return options_.checks || options_.blocks_hold_tokens; }
  std::vector<Cell>& cells(int group, kv::Tier tier) {
    return cells_[static_cast<size_t>(tier)][group];
  }
  int group_count() const { return options_.capacity.groups.size(); }
  const kv::GroupSpec& spec(int group) const { return options_.capacity.groups[group].spec; }
  struct Pending {
    StepResult result;
    int64_t ready_ns = 0;
  };

  // The disk: what was there before there is none.
  const std::vector<Kept>& kept() const override { return kept_; }
  uint64_t owner_of(std::string_view tenant) const override { return base::fnv1a64(tenant); }
  void begin(std::vector<kv::BlockTransfer> transfers) override;
  std::vector<kv::TransferResult> take_results() override {
    return std::exchange(transferred_, {});
  }
  void erase(std::optional<uint64_t>, Erased done) override {
    if (done) done({});
  }
  bool outlives_process() const override { return false; }

  void check_plan(const StepPlan& plan);
  void check_row(const ScheduledRow& row) const;
  void copy_blocks(const StepPlan& plan, bool failed);
  void check_unshared(const StepPlan& plan) const;
  void seat_arrivals(const StepPlan& plan);
  void compute(const StepPlan& plan, const ScheduledRow& row, StepResult& result);
  const SlotTables& tables(const ScheduledRow& row) const {
    return slots_[static_cast<size_t>(row.slot)].tables;
  }
  void write(const ScheduledRow& row, int32_t start, std::span<const TokenId> tokens);
  void report(const Occupant& occupant, int top, SampledToken& sampled) const;
  void sample_row(const StepPlan& plan, const ScheduledRow& row, Occupant& occupant,
                  StepResult& result);
  bool is_right(const Occupant& occupant, int place) const;
  // The tokens of positions [begin, end), into into[begin ...].
  void read(std::vector<TokenId>& into, int group, const SlotTables& tables, int32_t begin,
            int32_t end);
  void read_seen(Occupant& occupant, int32_t start);
  void check_groups_agree(const Occupant& occupant);
  // What the query at the end of `tokens` sees of them, in the widest group.
  std::span<const TokenId> visible(std::span<const TokenId> tokens) const;
  TokenId sample(const StepPlan& plan, const ScheduledRow& row, Occupant& occupant,
                 SequenceResult& reported);
  static void defer(std::shared_ptr<const Deferral> deferral, StepResult& result);
  void jump(const ScheduledRow& row, Occupant& occupant, StepResult& result);
  void score(const StepPlan& plan, const ScheduledRow& row, Occupant& occupant, StepResult& result);
  int vector_size(const Occupant& occupant) const;
  void embed(const ScheduledRow& row, Occupant& occupant, std::span<float> embedding);

  const Options options_;
  const int widest_;
  // [block * block_tokens + offset], by tier and group
  kv::PerTier<kv::PerGroup<std::vector<Cell>>> cells_;
  std::vector<Occupant> slots_;
  std::vector<Pending> pending_;  // at most two
  bool has_disk_ = false;
  const std::vector<Kept> kept_;
  std::vector<kv::TransferResult> transferred_;
  std::vector<TokenId> seen_again_;
  std::vector<uint64_t> mask_;
  int64_t busy_until_ns_ = 0;
  int64_t arrivals_ = 0;
};

// A token below `vocabulary` (at least 2) that depends on every token and position seen, on the
// seed and, like real sampling, never is a banned one or one that may not come.
ModelledExecutor::TokenFunction checksum_tokens(int vocabulary);

// Log-probabilities that depend on every token before, of prompts and of what is sampled: what is
// likelier has the higher one, and the alternatives' ids are below `vocabulary`.
ModelledExecutor::ScoreFunction checksum_scores(int vocabulary);

// A pseudo-random vector for each token; the mean of the prompt's, to which kLast adds the last
// one's: prompts that share tokens are near each other.
ModelledExecutor::EmbeddingFunction word_vectors();

// Answers by the book: `scripts[seed]`, token by token; its last token again and again at its end.
ModelledExecutor::TokenFunction scripted_tokens(std::map<uint64_t, std::vector<TokenId>> scripts);

}  // namespace pelton::engine
