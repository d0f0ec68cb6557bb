// A deterministic automaton as a table over numbered letters: what ByteDfa (letters: classes of
// bytes) and the regex compiler (letters: classes of code points) both stand on. State 0 is dead:
// nothing accepts from it, and it leads only to itself. A plain value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/compile_deadline.h"

namespace pelton::grammar {

using DfaState = uint32_t;
inline constexpr DfaState kDeadState = 0;

// What building an automaton may cost. Work is counted, not timed, so that the same input ends the
// same way on every machine; the default is some tenths of a second.
struct DfaLimits {
  uint32_t states_max = 20'000;
  uint64_t cells_max = 1'000'000;  // states times letters, in any one table: 4 MB
  uint64_t work_max = 30'000'000;  // elementary steps of one operation
  // Of the request whose format this is a part of; null: none.
  const CompileDeadline* deadline = nullptr;

  // An operation's loop over states asks at each; the clock is read at one in sixteen.
  Result<void> in_time(uint32_t state) const {
    if (deadline == nullptr || state % 16 != 0 || !deadline->passed()) return {};
    return Error{ErrorCode::kDoesNotFit, "compiling takes too long", ""};
  }
};

struct DfaTable {
  uint32_t letter_count = 0;
  DfaState start = kDeadState;
  std::vector<DfaState> next;      // [state * letter_count + letter]
  std::vector<uint8_t> accepting;  // [state]

  // A table of `letters` columns with the dead state alone.
  static DfaTable with_letters(uint32_t letters);

  uint32_t state_count() const { return static_cast<uint32_t>(accepting.size()); }
  DfaState& at(DfaState state, uint32_t letter) {
    return next[static_cast<size_t>(state) * letter_count + letter];
  }
  DfaState at(DfaState state, uint32_t letter) const {
    return next[static_cast<size_t>(state) * letter_count + letter];
  }

  // A new state whose every letter leads to the dead state.
  DfaState add_state();
};

// The states of a minimal automaton in classes: those of one lead to the same answers (no text,
// a beginning, a text) on all texts of up to `length_max` letters. Empty: each is its own, or the
// automaton is small or would take more than `work_left`, as counted repeats of thousands of states
// alone gain; or the deadline (null: none) has passed.
std::vector<uint32_t> alike_states(const DfaTable& table, uint32_t length_max, uint64_t& work_left,
                                   const CompileDeadline* deadline);

// The smallest automaton of the same language: what cannot be reached or cannot accept is gone,
// what accepts the same is one. States are numbered in the order in which a walk by breadth meets
// them, so equal languages (over the same letters) give equal tables. n log n in the living
// transitions.
DfaTable minimised(const DfaTable& table);

}  // namespace pelton::grammar
