// The machine inside rules (rules.h).
#include "grammar/machine.h"

namespace pelton::grammar {

// At `state` of a rule that returns to `parent`: reads on here, in the rules called here, and, if
// the rule may end, in what called it.
void Machine::enter_rule(uint32_t state, uint32_t parent, std::vector<uint32_t>& out,
                         size_t out_begin) {
  if (overflowed_ || depth_ >= kRuleDepthMax) {
    overflowed_ = true;
    return;
  }
  ++depth_;
  const RuleNetwork::State& at = rules_->states[state];
  if (!at.bytes.empty()) {
    push_top({.parent = parent, .kind = FrameKind::kRule, .spec = state}, out, out_begin);
  }
  for (const RuleNetwork::DfaEdge& edge : at.dfas) {
    push_top({.parent = parent,
              .kind = FrameKind::kLexeme,
              .spec = edge.dfa,
              .state = rules_->dfas[edge.dfa].start(),
              .aux = edge.to},
             out, out_begin);
  }
  for (const RuleNetwork::CallEdge& edge : at.calls) {
    const RuleNetwork::State& after = rules_->states[edge.to];
    // A last call returns where we would return: right recursion costs no depth.
    const bool last =
        after.accepting && after.bytes.empty() && after.dfas.empty() && after.calls.empty();
    const uint32_t back =
        last ? parent : push({.parent = parent, .kind = FrameKind::kCall, .spec = edge.to});
    enter_rule(rules_->rule_starts[edge.rule], back, out, out_begin);
  }
  if (at.accepting) resume(parent, 0, out, out_begin);
  --depth_;
}

void Machine::step_rule(const Frame& from, uint8_t byte, std::vector<uint32_t>& out,
                        size_t out_begin) {
  std::vector<uint32_t> parents;
  for (const RuleNetwork::ByteEdge& edge : rules_->states[from.spec].bytes) {
    if (byte < edge.low || byte > edge.high) continue;
    if (parents.empty()) for_parents(from, [&](uint32_t parent) { parents.push_back(parent); });
    for (const uint32_t parent : parents) enter_rule(edge.to, parent, out, out_begin);
  }
}

void Machine::step_lexeme(const Frame& from, uint8_t byte, std::vector<uint32_t>& out,
                          size_t out_begin) {
  const ByteDfa& dfa = rules_->dfas[from.spec];
  Frame frame = from;
  frame.state = dfa.next(from.state, byte);
  if (frame.state == kDeadState) return;
  if (!grammar_.is_final(from.spec, frame.state)) push_top(frame, out, out_begin);
  if (!dfa.accepts(frame.state)) return;
  std::vector<uint32_t> parents;
  for_parents(from, [&](uint32_t parent) { parents.push_back(parent); });
  for (const uint32_t parent : parents) enter_rule(from.aux, parent, out, out_begin);
}

}  // namespace pelton::grammar
