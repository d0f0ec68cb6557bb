// Where an automaton stays where it is on all characters of a kind (token_trie.h): there whole
// subtrees of the vocabulary are decided at once. `Dfa` has next(state, byte). Pure functions.
#pragma once

#include <cstdint>

#include "grammar/dfa_table.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

// Whether every way to spell one character above ASCII leads from `state` to where `end` says.
template <typename Dfa, typename End>
bool takes_wide(const Dfa& dfa, DfaState state, const End& end) {
  const auto all = [&](DfaState from, int low, int high, const auto& then) {
    DfaState seen = kDeadState;
    for (int byte = low; byte <= high; ++byte) {
      const DfaState to = dfa.next(from, static_cast<uint8_t>(byte));
      if (to == seen) continue;
      if (to == kDeadState || !then(to)) return false;
      seen = to;
    }
    return true;
  };
  const auto one = [&](DfaState s) { return all(s, 0x80, 0xBF, end); };
  const auto two = [&](DfaState s) { return all(s, 0x80, 0xBF, one); };
  const auto three = [&](DfaState s) { return all(s, 0x80, 0xBF, two); };
  const auto after = [&](int lead, int low, int high, const auto& then) {
    const DfaState to = dfa.next(state, static_cast<uint8_t>(lead));
    return to != kDeadState && all(to, low, high, then);
  };
  return all(state, 0xC2, 0xDF, one) && after(0xE0, 0xA0, 0xBF, one) &&
         all(state, 0xE1, 0xEC, two) && after(0xED, 0x80, 0x9F, one) &&
         all(state, 0xEE, 0xEF, two) && after(0xF0, 0x90, 0xBF, two) &&
         all(state, 0xF1, 0xF3, three) && after(0xF4, 0x80, 0x8F, two);
}

// The kinds of characters that all lead from `state` back to it. The start of [a-z0-9]* has
// kLowerKind and kDigitKind; that of [a-y]* has none, for a z leads away; that of any_utf8() has
// all eight.
template <typename Dfa>
uint8_t loops_of(const Dfa& dfa, DfaState state) {
  uint8_t loops = 0x7f;
  for (int byte = 0x20; byte < 0x80; ++byte) {
    if (dfa.next(state, static_cast<uint8_t>(byte)) != state) {
      loops &= static_cast<uint8_t>(~kind_of_ascii(static_cast<uint8_t>(byte)));
    }
  }
  if (takes_wide(dfa, state, [&](DfaState to) { return to == state; })) loops |= kWideKind;
  return loops;
}

}  // namespace pelton::grammar
