// The part of lookahead decoding (Fu et al. 2024) that takes no rows of its own: what the target
// drew behind wrong guesses. Of a step that computed the guesses c d e behind a token
//
//   drawn at the rows   c' d' e' f'      c' is not c: the sequence has c', the rest was in vain
//
// d' e' f' are a Jacobi iterate, each drawn at its own position behind a token that did not come.
// They are the next guesses at their positions, and "behind c comes d'" is an n-gram to be kept.
// So a sequence has guesses where its text never stood before. State by slot: a table of what came
// behind one token and behind two, of the text and of what was drawn, and the latest iterate.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "speculative/proposer.h"

namespace pelton::speculative {

class Lookahead final : public Proposer {
 public:
  explicit Lookahead(int slot_count);
  static int64_t bytes_for(int slot_count);

  std::string_view name() const override { return "lookahead"; }
  void begin(const NewSequence& sequence) override;
  void append(int slot, std::span<const TokenId> tokens, size_t first_new) override;
  Result<void> draft(std::span<DraftRequest> requests) override;
  bool wants_rejected() const override { return true; }
  void see_rejected(const RejectedRows& rows) override;
  int64_t bytes() const override;

 private:
  // N-grams of a slot, the latest ones: an entry has one place that it can be in.
  static constexpr size_t kPlaces = size_t{1} << 12;

  struct NGram {
    uint32_t key = 0;  // of the hash, what the place does not say; 0: the place is empty
    TokenId next = 0;
    bool is_text = false;  // it stood in the sequence; otherwise it was drawn in vain
  };
  struct Slot {
    std::vector<NGram> ngrams;
    std::vector<TokenId> iterate;
    size_t iterate_at = 0;  // position of its first token
  };

  static void keep(Slot& slot, std::span<const TokenId> before, TokenId next, bool is_text);
  static std::optional<TokenId> next_of(const Slot& slot, std::span<const TokenId> before);
  static void draft(const Slot& slot, DraftRequest& request);

  std::vector<Slot> slots_;
};

}  // namespace pelton::speculative
