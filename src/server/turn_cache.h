// The exact tokens of the model's own recent turns. A client sends a turn back as words; rendered
// anew they are rarely the tokens that were sampled (another order in the header, other splits, the
// reasoning left out), so what was computed for them would not be found again, and a model amid its
// tool calls would lose its reasoning. A turn is found by all that stands before it, the salt, and
// the words that the client saw; what differs in any of these is another turn.
//
// Owned by the Server. Any thread. Bounded: the turn that was not asked for longest goes first.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/token_id.h"

namespace pelton::server {

// A name for a sequence of symbols: two polynomials over the prime 2^61 - 1 at secret points, which
// for any two different sequences of n symbols agree with probability n^2 / 2^122 at most. A value.
class RollingHash {
 public:
  using Points = std::array<uint64_t, 2>;

  explicit RollingHash(const Points& points) : points_(points) {}

  void add(uint64_t symbol);  // below 2^61 - 1
  void add_tokens(std::span<const TokenId> tokens);
  void add_bytes(std::string_view bytes);  // and where they end
  const Points& value() const { return sums_; }

 private:
  Points points_;
  Points sums_{1, 1};
};

class TurnCache {
 public:
  struct Options {
    int64_t tokens_max = int64_t{1} << 22;  // of all turns together; 0: nothing is kept
    uint64_t seed = 0;                      // of the names; not to be guessed
  };

  // A turn as its client was sent it, and sends it back.
  struct Words {
    std::string_view content;
    std::string_view reasoning;  // empty: not reported
    // Name and arguments. These are the same if they are the same JSON (clients write it
    // anew), its numbers digit by digit: a double would take two long ones for one.
    std::optional<std::pair<std::string_view, std::string_view>> call;
  };

  explicit TurnCache(const Options& options);

  // What stands before a turn: to be given all tokens up to where the turn begins.
  RollingHash history(std::string_view salt) const;

  // `tokens`: from after the turn's start to what closes the turn in a prompt.
  void keep(const RollingHash& history, const Words& words, std::vector<TokenId> tokens);

  // Without reasoning in `words` any reasoning will do; otherwise it must be the one that was sent.
  std::optional<std::vector<TokenId>> find(const RollingHash& history, const Words& words);

  struct Counts {
    int64_t turns = 0;
    int64_t tokens = 0;
    int64_t asked = 0;
    int64_t found = 0;
  };
  Counts counts() const;

 private:
  using Name = RollingHash::Points;

  struct Turn {
    Name name;
    Name reasoning;
    std::vector<TokenId> tokens;
  };
  struct NameHash {
    size_t operator()(const Name& name) const { return name[0]; }
  };

  static Name name_of(RollingHash history, const Words& words);
  void forget_last();

  const Options options_;
  const RollingHash::Points points_;

  mutable std::mutex mutex_;
  std::list<Turn> turns_;  // the one asked for last stands first
  std::unordered_map<Name, std::list<Turn>::iterator, NameHash> by_name_;
  Counts counts_;
};

}  // namespace pelton::server
