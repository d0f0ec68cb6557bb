// Proposes what stood behind the latest earlier place of the longest end of a sequence that stood
// in it before (SAM decoding, Hu et al. 2024): right wherever an answer copies from its prompt,
// from itself or from a predicted output. A longer match is worth more guesses, as in
// SuffixDecoding (Oliaro et al. 2024).
#pragma once

#include <vector>

#include "speculative/proposer.h"
#include "speculative/suffix_automaton.h"

namespace pelton::speculative {

class Suffix final : public Proposer {
 public:
  struct Options {
    int slot_count = 0;
    int tokens_max = 16'384;  // of a sequence that are looked at; of a longer one the latest
    double guesses_per_matched_token = 1.0;
  };

  explicit Suffix(const Options& options);
  static int64_t bytes_for(const Options& options);

  std::string_view name() const override { return "suffix"; }
  void begin(const NewSequence& sequence) override;
  void append(int slot, std::span<const TokenId> tokens, size_t first_new) override;
  Result<void> draft(std::span<DraftRequest> requests) override;
  int64_t bytes() const override;

 private:
  // A match of one token says little.
  static constexpr int kMatchMin = 2;
  static constexpr TokenId kSeparator = -1;

  // What the automaton reads: the sequence from `first` on; and where its prompt ends a separator,
  // the prediction and another one, so that the prediction is later than the prompt and earlier
  // than the answer.
  struct Slot {
    explicit Slot(int tokens_max) : automaton(tokens_max) {}

    SuffixAutomaton automaton;
    size_t first = 0;
    size_t prompt_count = 0;
    std::vector<TokenId> prediction;
    size_t predicted_from = 0;  // tokens read before it
    bool is_predicted = false;  // it was read
  };

  void read(Slot& slot, std::span<const TokenId> tokens, size_t first_new) const;
  void read_prediction(Slot& slot) const;
  void read_latest(Slot& slot, std::span<const TokenId> tokens) const;
  void draft(const Slot& slot, DraftRequest& request) const;

  const Options options_;
  std::vector<Slot> slots_;
};

}  // namespace pelton::speculative
