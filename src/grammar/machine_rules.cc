// The machine inside rules (rules.h, rule_scratch.h).
//
// With the states of ebnf_network.h's example, root ::= "a" root "b" | "c":
//   behind a    state 1 only calls: the top kRule at 4, on kCall (to return to 3), on kRoot
//   behind ac   state 6 accepts: back to the kCall, which goes on at 3: kRule at 3, on kRoot
//   behind acb  state 2 accepts, its parent is kRoot: kDone
#include <algorithm>

#include "grammar/machine.h"

namespace pelton::grammar {
namespace {

constexpr size_t kRuleWorkMax = 1 << 18;  // arrivals and returns at one place
constexpr size_t kRecentCalls = 256;

uint32_t place_of_call(uint32_t state, uint32_t parent) {
  const uint32_t hash = (state * 0x9e3779b1u) ^ (parent * 0x85ebca77u);
  return (hash ^ hash >> 15) % kRecentCalls;
}

}  // namespace

void Machine::arrive(uint32_t state, uint32_t parent) {
  spend(1);
  if (overflowed_) return;
  if (ways_.todo.size() < kRuleWorkMax) {
    ways_.todo.emplace_back(state, parent);
  } else {
    overflowed_ = true;
  }
}

void Machine::step_rule(const Frame& from, uint8_t byte, std::vector<uint32_t>& out,
                        size_t out_begin) {
  if (from.kind == FrameKind::kRule) {
    for (const RuleNetwork::ByteEdge& edge : rules_->states[from.spec].bytes) {
      if (byte < edge.low || byte > edge.high) continue;
      for_parents(from, [&](uint32_t parent) { arrive(edge.to, parent); });
    }
    return;
  }
  const ByteDfa& dfa = rules_->dfas[from.spec];
  Frame frame = from;
  frame.state = dfa.next(from.state, byte);
  if (frame.state == kDeadState) return;
  if (!grammar_.is_final(from.spec, frame.state)) push_top(frame, out, out_begin);
  if (!dfa.accepts(frame.state)) return;
  for_parents(from, [&](uint32_t parent) { arrive(from.aux, parent); });
}

void Machine::leave_lexeme(uint32_t top, std::vector<uint32_t>& out) {
  const Frame from = frames_[top];
  overflowed_ = budget_.exhausted();
  ways_.clear();
  for_parents(from, [&](uint32_t parent) { arrive(from.aux, parent); });
  follow_rules(out, 0);
  if (overflowed_) out.clear();
}

// Where all that waits in ways_.todo leads without another byte.
void Machine::follow_rules(std::vector<uint32_t>& out, size_t out_begin) {
  for (size_t work = 0; !ways_.todo.empty() && !overflowed_; ++work) {
    if (work >= kRuleWorkMax) overflowed_ = true;
    const auto [state, parent] = ways_.todo.back();
    ways_.todo.pop_back();
    if (!ways_.known.find_or_put(state, parent, 0).is_new) continue;
    if (state == RuleScratch::kReturn) {
      return_to(parent, out, out_begin);
    } else {
      add_parent(state, parent);
    }
  }
  for (uint32_t i = 0; i < ways_.arrivals.size() && !overflowed_; ++i) {
    const uint32_t state = ways_.arrivals[i].state;
    const RuleNetwork::State& at = rules_->states[state];
    spend(1);
    if (at.bytes.empty() && at.dfas.empty() && at.values.empty()) continue;
    const uint32_t parent = parent_of_arrival(i);
    if (overflowed_) return;
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
    for (const RuleNetwork::ValueEdge& edge : at.values) {
      const uint32_t below = returns_at_once(edge.to) ? parent : call_frame(edge.to, parent);
      push_top({.parent = below, .kind = FrameKind::kValue, .spaces = kNoSpace, .spec = edge.value},
               out, out_begin);
    }
  }
}

// One more caller of a rule that is at `state` here.
void Machine::add_parent(uint32_t state, uint32_t parent) {
  const RuleNetwork::State& at = rules_->states[state];
  const auto is_last = [&](const RuleNetwork::CallEdge& edge) { return returns_at_once(edge.to); };
  const auto next = static_cast<uint32_t>(ways_.arrivals.size());
  const PairMap::Found found = ways_.places.find_or_put(state, 0, next);
  if (found.is_new) {
    const auto first = static_cast<uint32_t>(ways_.calls.size());
    for (const RuleNetwork::CallEdge& edge : at.calls) {
      if (is_last(edge)) continue;
      const auto call = static_cast<uint32_t>(ways_.calls.size());
      ways_.calls.push_back({.arrival = next, .to = edge.to});
      arrive(rules_->rule_starts[edge.rule], call | RuleScratch::kCallBit);
    }
    ways_.arrivals.push_back({.state = state,
                              .calls_begin = first,
                              .calls_end = static_cast<uint32_t>(ways_.calls.size())});
  }
  RuleScratch::Arrival& arrival = ways_.arrivals[found.value];
  const auto link = static_cast<uint32_t>(ways_.parent_links.size());
  ways_.parent_links.push_back({parent, arrival.parents});
  arrival.parents = link;
  // A last call returns where we would return: right recursion costs no depth.
  for (const RuleNetwork::CallEdge& edge : at.calls) {
    if (is_last(edge)) arrive(rules_->rule_starts[edge.rule], parent);
  }
  for (uint32_t call = arrival.calls_begin; call < arrival.calls_end; ++call) {
    if (ways_.calls[call].has_returned) arrive(ways_.calls[call].to, parent);
  }
  if (at.accepting) arrive(RuleScratch::kReturn, parent);
}

// What `parent` called is done.
void Machine::return_to(uint32_t parent, std::vector<uint32_t>& out, size_t out_begin) {
  if ((parent & RuleScratch::kCallBit) != 0) {
    RuleScratch::Call& call = ways_.calls[parent & ~RuleScratch::kCallBit];
    call.has_returned = true;
    uint32_t link = ways_.arrivals[call.arrival].parents;
    for (; link != RuleScratch::kNone; link = ways_.parent_links[link].next) {
      arrive(call.to, ways_.parent_links[link].parent);
    }
    return;
  }
  resume(parent, 0, out, out_begin);
}

// The parents of an arrival as a frame holds them.
uint32_t Machine::parent_of_arrival(uint32_t index) {
  RuleScratch::Arrival& arrival = ways_.arrivals[index];
  if (arrival.parent == RuleScratch::kPending) overflowed_ = true;  // left recursion
  if (arrival.parent != RuleScratch::kNone || overflowed_) return arrival.parent;
  arrival.parent = RuleScratch::kPending;
  std::vector<uint32_t> parents;
  uint32_t link = arrival.parents;
  for (; link != RuleScratch::kNone && !overflowed_; link = ways_.parent_links[link].next) {
    const uint32_t parent = ways_.parent_links[link].parent;
    const bool is_call = (parent & RuleScratch::kCallBit) != 0;
    spend(1);
    parents.push_back(is_call ? frame_of_call(parent & ~RuleScratch::kCallBit) : parent);
  }
  if (overflowed_) return 0;
  std::sort(parents.begin(), parents.end());
  return arrival.parent = parents.size() == 1 ? parents[0] : add_links(parents);
}

uint32_t Machine::frame_of_call(uint32_t index) {
  RuleScratch::Call& call = ways_.calls[index];
  if (call.frame != RuleScratch::kNone) return call.frame;
  if (depth_ >= kRuleDepthMax) overflowed_ = true;
  if (overflowed_) return 0;
  ++depth_;
  const uint32_t parent = parent_of_arrival(call.arrival);
  --depth_;
  if (overflowed_) return 0;
  return call.frame = call_frame(call.to, parent);
}

// Calls that return to the same state of the same callers are one, wherever in the text they were
// made: so repeats of rules that may be read in many ways do not pile up.
uint32_t Machine::call_frame(uint32_t state, uint32_t parent) {
  if (ways_.recent_calls.empty()) note_calls();
  uint32_t& recent = ways_.recent_calls[place_of_call(state, parent)];
  if (recent < frames_.size()) {
    const Frame& known = frames_[recent];
    if (known.kind == FrameKind::kCall && known.spec == state && known.parent == parent) {
      return recent;
    }
  }
  return recent = push({.parent = parent, .kind = FrameKind::kCall, .spec = state});
}

void Machine::note_calls() {
  ways_.recent_calls.assign(kRecentCalls, 0);
  spend(frames_.size() / 8);
  for (uint32_t i = 0; i < frames_.size(); ++i) {
    if (frames_[i].kind != FrameKind::kCall) continue;
    ways_.recent_calls[place_of_call(frames_[i].spec, frames_[i].parent)] = i;
  }
}

}  // namespace pelton::grammar
