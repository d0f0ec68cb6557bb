// Rules of a context-free grammar as a network: each rule is a small automaton whose edges are
// bytes, texts of an automaton, JSON values, or calls of other rules. ebnf.h writes it, the machine
// runs it.
// What whoever writes it answers for: no left recursion (not even through rules that may be empty;
// the machine would not end), every called rule exists, every state leads to an accepting one.
// A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/byte_dfa.h"
#include "grammar/json_tables.h"

namespace pelton::grammar {

struct RuleNetwork {
  struct ByteEdge {
    uint8_t low = 0;  // any byte from low to high, both included
    uint8_t high = 0;
    uint32_t to = 0;
  };
  // Some text of dfas[dfa], then on at `to`. The empty text is no such text: write that as an edge
  // of its own (accepting states, or a second path around).
  struct DfaEdge {
    uint32_t dfa = 0;
    uint32_t to = 0;
  };
  struct CallEdge {
    uint32_t rule = 0;
    uint32_t to = 0;
  };
  // A JSON value of the tables that stand beside the rules.
  struct ValueEdge {
    ValueId value = kNoValue;
    uint32_t to = 0;
  };
  struct State {
    std::vector<ByteEdge> bytes;
    std::vector<DfaEdge> dfas;
    std::vector<ValueEdge> values;
    std::vector<CallEdge> calls;
    bool accepting = false;  // the rule may end here
    bool reads() const {
      return !bytes.empty() || !dfas.empty() || !values.empty() || !calls.empty();
    }
  };

  std::vector<State> states;
  std::vector<ByteDfa> dfas;
  std::vector<uint32_t> rule_starts;  // by rule: its first state; rule 0 is the root
};

}  // namespace pelton::grammar
