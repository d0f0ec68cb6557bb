// Proposes what stood behind a sequence's end in earlier answers of the same salt and adapter
// (SuffixDecoding, Oliaro et al. 2024): right where many requests are answered alike, as agents'
// and templates' are. Of several places the most frequent continuation is taken, as far as its
// share makes it likely.
//
// An answer enters the pool when its slot is taken by the next sequence, and a long one in pieces.
#pragma once

#include <vector>

#include "speculative/answer_pool.h"
#include "speculative/proposer.h"

namespace pelton::speculative {

class SuffixShared final : public Proposer {
 public:
  struct Options {
    int slot_count = 0;
    AnswerPool::Options pool = {};
    double guesses_per_matched_token = 1.0;
    double probability_min = 0.1;  // that all guesses up to one are right, by counting
  };

  explicit SuffixShared(const Options& options);
  static int64_t bytes_for(const Options& options);

  std::string_view name() const override { return "suffix_shared"; }
  void begin(const NewSequence& sequence) override;
  void append(int slot, std::span<const TokenId> tokens, size_t first_new) override;
  Result<void> draft(std::span<DraftRequest> requests) override;
  int64_t bytes() const override;

 private:
  static constexpr size_t kPieceTokens = 1024;

  struct Slot {
    kv::BlockHash origin = {};
    std::vector<TokenId> answer;  // since it began here, or since the last piece
  };

  void keep(Slot& slot);
  void draft(const Slot& slot, DraftRequest& request);
  TokenId most_frequent(int ahead, int& count);

  const Options options_;
  AnswerPool pool_;
  std::vector<Slot> slots_;
  AnswerPool::Found found_;                         // scratch
  std::vector<std::pair<TokenId, int>> frequency_;  // scratch
};

}  // namespace pelton::speculative
