// A nondeterministic automaton over bytes, to build a ByteDfa from parts: sequences, alternatives
// and repeats of other automata, ranges of bytes, empty steps. Grows as its owner adds; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace pelton::grammar {

class ByteNfa {
 public:
  using State = uint32_t;

  State add_state();
  void add_range(State from, uint8_t low, uint8_t high, State to);
  void add_empty_step(State from, State to);
  // Ways from `from` to `to` that spell a text of `dfa`.
  void add_language(State from, const ByteDfa& dfa, State to);
  void add_text(State from, std::string_view text, State to);

  uint32_t state_count() const { return static_cast<uint32_t>(states_.size()); }

  // What leads from `start` to `end`.
  Result<ByteDfa> determinised(State start, State end, const DfaLimits& limits) const;

 private:
  struct Arrow {
    uint8_t low, high;
    State to;
  };
  struct Node {
    std::vector<Arrow> arrows;
    std::vector<State> empty_steps;
  };
  class Subsets;

  std::vector<Node> states_;
};

inline constexpr uint64_t kNoMaximum = UINT64_MAX;

struct RepeatBounds {
  uint64_t least = 0;
  uint64_t most = kNoMaximum;
};

Result<ByteDfa> sequence_of(std::span<const ByteDfa> parts, const DfaLimits& limits);
Result<ByteDfa> alternatives_of(std::span<const ByteDfa> parts, const DfaLimits& limits);
Result<ByteDfa> repeat_of(const ByteDfa& part, RepeatBounds bounds, const DfaLimits& limits);

}  // namespace pelton::grammar
