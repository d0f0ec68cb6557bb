// Several proposers as one: those without weights are always asked, which costs next to nothing,
// one with weights only where it is worth its time.
//
//   kLongMatch  ("suffix+eagle3")  guesses behind a long match of text, otherwise the other's
//   kBest       ("auto")           for each sequence whoever gains most, by what was measured
//
// Gain of guesses with survival s_1 s_2 ...: (1 + sum of s_j) / (1 + D / T), D: what asking takes,
// T: a step. Survival is the product of acceptances, which are counted by proposer and by how much
// text matched, times a factor of the sequence's own. What a proposer without weights guessed is
// compared with what was emitted even where another's guesses were computed: free evidence. One
// with weights that is not chosen is asked now and then. Executor thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "speculative/proposer.h"

namespace pelton::speculative {

class Combined final : public Proposer {
 public:
  enum class Rule : uint8_t { kLongMatch, kBest };
  struct Part {
    std::shared_ptr<Proposer> proposer;
    bool has_weights = false;
  };
  struct Options {
    std::string_view name;  // a literal
    Rule rule = Rule::kBest;
    int slot_count = 0;
  };

  // parts: those without weights first, at most one with them, last. `clock` outlives it.
  Combined(const Options& options, std::vector<Part> parts, const base::Clock& clock);

  std::string_view name() const override { return options_.name; }
  std::vector<std::string_view> part_names() const override;
  void begin(const NewSequence& sequence) override;
  void append(int slot, std::span<const TokenId> tokens, size_t first_new) override;
  Result<void> draft(std::span<DraftRequest> requests) override;
  std::span<const int64_t> part_ns() const override {
    return std::span(part_ns_).first(parts_.size());
  }
  int64_t catch_up_ns() const override { return parts_.back().proposer->catch_up_ns(); }
  std::span<const int> taps() const override { return parts_.back().proposer->taps(); }
  void see(size_t tap, const float* x, int rows) override {
    parts_.back().proposer->see(tap, x, rows);
  }
  void observe(std::span<const ComputedRows> rows) override;
  std::string warning() const override { return parts_.back().proposer->warning(); }
  int64_t bytes() const override;

  // Tokens of text that must match for kLongMatch.
  static constexpr int kLongMatch = 5;

 private:
  static constexpr size_t kMatchKinds = 5;   // none (weights), and 1-2, 3-4, 5-8, more tokens
  static constexpr int kTryAgainAfter = 32;  // drafts of a sequence in which weights were not asked

  // How often guesses were right, of those whose earlier ones were.
  struct Share {
    double tried = 4;
    double hit = 2.4;
    void add(double tries, double hits);
  };
  // What a part guessed for a slot, until what was emitted is known.
  struct Guessed {
    std::vector<TokenId> tokens;
    size_t kind = 0;
  };
  struct Slot {
    std::array<double, kPartsMax> factor{};  // of its acceptance, to everybody's
    std::array<Guessed, kPartsMax> guessed;
    int not_asked = 0;  // drafts without asking the part with weights
  };

  struct Choice {
    size_t part = 0;   // parts_.size(): none
    double right = 0;  // guesses that will be, in the mean
    int matched = 0;
  };

  static size_t kind_of(int matched);
  double expected(size_t part, const Slot& slot, size_t kind, size_t guesses) const;
  void ask(size_t part, std::span<const DraftRequest> requests, std::span<const size_t> wanted);
  Choice best_free(const std::array<DraftRequest, kPartsMax>& answers, const Slot& slot) const;
  bool wants_weights(const DraftRequest& request, const Choice& free, Slot& slot) const;
  void give(DraftRequest& request, const std::array<DraftRequest, kPartsMax>& answers, size_t part);
  void note(size_t part, Slot& slot, std::span<const TokenId> emitted);

  const Options options_;
  const std::vector<Part> parts_;
  const base::Clock& clock_;
  std::array<std::array<Share, kMatchKinds>, kPartsMax> shares_;
  std::vector<Slot> slots_;
  std::array<int64_t, kPartsMax> part_ns_{};  // of the last draft
  double asking_ns_ = 0;                      // of the part with weights, a draft; 0: not known
  double step_ns_ = 0;                        // from a draft to what it gave
  int64_t drafted_at_ns_ = 0;                 // 0: that has been heard of
  std::vector<std::array<DraftRequest, kPartsMax>> answers_;  // by request of the draft at hand
  std::vector<DraftRequest> asked_;                           // scratch
};

}  // namespace pelton::speculative
