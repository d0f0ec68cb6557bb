// Which tokens may come next in an answer that is more than one text: segments, each free or after
// a grammar of its own, and the control tokens that lead from one to the next. What the segments
// are is a chat format's business; this only follows them. Where more than one way is open,
// all are followed until the tokens decide.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

// Of every exit: masks are bounded, whatever a vocabulary says.
inline constexpr TokenId kExitTokenMax = 1 << 24;

// Immutable once built, shared; any thread.
class GrammarFsm {
 public:
  struct Exit {
    TokenId token = 0;
    // The segments that may begin behind it; none: the answer is over.
    std::vector<int> to;
  };
  struct Segment {
    enum class Text : uint8_t { kNone, kFree, kGrammar };
    Text text = Text::kNone;
    std::shared_ptr<const TokenGrammar> grammar;  // kGrammar: it may be left when that may end
    std::vector<Exit> exits;
  };
  struct Parts {
    std::shared_ptr<const TokenTrie> trie;
    std::vector<Segment> segments;
    std::vector<int> starts;
    int vocab_size = 0;  // ids of all exits are below it
  };

  explicit GrammarFsm(Parts parts);

  const TokenTrie& trie() const { return *parts_.trie; }
  const Segment& segment(int index) const { return parts_.segments[static_cast<size_t>(index)]; }
  const std::vector<int>& starts() const { return parts_.starts; }
  size_t mask_words() const { return mask_words_; }
  // Of a free segment, alone: no text depends on what stood before.
  std::span<const uint64_t> free_mask(int index) const {
    return free_masks_[static_cast<size_t>(index)];
  }

 private:
  const Parts parts_;
  size_t mask_words_ = 0;
  std::vector<std::vector<uint64_t>> free_masks_;  // by segment; empty: it is not free
};

// Where an answer stands. A value: a copy is a fork, an older copy the way back. One thread at a
// time; forks are independent.
class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<const GrammarFsm> network);

  // As a Matcher's: what takes a budget means nothing if that is exhausted afterwards, and the
  // guide stays where it was; what takes none has no limit.

  // The tokens that may come next, bit t % 64 of word t / 64; in `room` (a buffer to reuse) or in
  // the network, until either changes. Empty: any token, as the answer is over.
  std::span<const uint64_t> mask(std::vector<uint64_t>& room, WorkBudget& budget) const;
  std::span<const uint64_t> mask(std::vector<uint64_t>& room) const;

  // Goes over the token. False, and stays, if it may not come.
  [[nodiscard]] bool accept(TokenId token, WorkBudget& budget);
  [[nodiscard]] bool accept(TokenId token);

  // The tokens that come next whatever is chosen, at most so many: control tokens where nothing
  // else may come, and the canonical tokens of bytes that must. Of the latter not the last one
  // where text may follow, which might have made a longer token of it. What they cost is no mask,
  // so it may be asked for after each token.
  std::vector<TokenId> forced(size_t tokens_max) const;
  // The same, and goes over them.
  std::vector<TokenId> accept_forced(size_t tokens_max, WorkBudget& budget);

  // Nothing is asked of what follows.
  bool over() const { return ways_.empty(); }

 private:
  struct Way {
    int segment = 0;
    std::optional<Matcher> matcher;
  };
  void begin(std::span<const int> segments, std::vector<Way>& ways) const;
  bool add_forced(size_t tokens_max, std::vector<TokenId>& tokens, WorkBudget& budget);

  std::shared_ptr<const GrammarFsm> network_;
  std::vector<Way> ways_;
};

// Whether a mask allows a token besides these.
bool allows_other(std::span<const uint64_t> mask, std::span<const TokenId> tokens);
// Whether this one is; an empty mask allows all.
inline bool may_be(std::span<const uint64_t> mask, TokenId token) {
  if (mask.empty()) return true;
  const auto bit = static_cast<size_t>(token);
  return token >= 0 && bit / 64 < mask.size() && (mask[bit / 64] >> (bit % 64) & 1) != 0;
}

}  // namespace pelton::grammar
