#include "grammar/grammar.h"

#include "grammar/char_loops.h"
#include "grammar/json_tables.h"

namespace pelton::grammar {

Grammar::Grammar() = default;
Grammar::~Grammar() = default;

Result<std::shared_ptr<const Grammar>> Grammar::from_dfa(ByteDfa dfa) {
  if (dfa.is_empty()) return Error{ErrorCode::kInvalidArgument, "no text matches"};
  RuleNetwork rules;
  rules.states.resize(2);
  rules.states[0].accepting = dfa.accepts(dfa.start());
  rules.states[0].dfas.push_back({.dfa = 0, .to = 1});
  rules.states[1].accepting = true;
  rules.dfas.push_back(std::move(dfa));
  rules.rule_starts = {0};
  return from_rules(std::move(rules));
}

Result<std::shared_ptr<const Grammar>> Grammar::from_rules(RuleNetwork rules) {
  return from_rules(std::move(rules), nullptr);
}

Result<std::shared_ptr<const Grammar>> Grammar::from_rules(RuleNetwork rules,
                                                           std::unique_ptr<JsonTables> tables) {
  if (rules.rule_starts.empty()) return Error{ErrorCode::kInvalidArgument, "no rule"};
  std::shared_ptr<Grammar> grammar(new Grammar());
  size_t bytes = rules.states.capacity() * sizeof(RuleNetwork::State);
  for (const RuleNetwork::State& state : rules.states) {
    bytes += state.bytes.capacity() * sizeof(RuleNetwork::ByteEdge) +
             state.dfas.capacity() * sizeof(RuleNetwork::DfaEdge) +
             state.values.capacity() * sizeof(RuleNetwork::ValueEdge) +
             state.calls.capacity() * sizeof(RuleNetwork::CallEdge);
  }
  for (const ByteDfa& dfa : rules.dfas) {
    bytes += dfa.bytes_held();
    std::vector<uint8_t>& final = grammar->final_.emplace_back(dfa.states(), 1);
    std::vector<uint8_t>& loops = grammar->loops_.emplace_back(dfa.states(), 0);
    bytes += final.size() + loops.size();
    for (DfaState state = 1; state < dfa.states(); ++state) {
      bool any_loop = false;
      for (uint32_t c = 0; c < dfa.class_count(); ++c) {
        const DfaState next = dfa.next_by_class(state, c);
        if (next != kDeadState) final[state] = 0;
        any_loop = any_loop || next == state;
      }
      if (any_loop) loops[state] = loops_of(dfa, state);
    }
  }
  if (tables) bytes += tables->bytes_held;
  grammar->rules_ = std::move(rules);
  grammar->json_ = std::move(tables);
  grammar->bytes_held_ = bytes;
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

std::shared_ptr<const Grammar> Grammar::from_json_tables(std::unique_ptr<JsonTables> tables) {
  std::shared_ptr<Grammar> grammar(new Grammar());
  grammar->bytes_held_ = tables->bytes_held;
  grammar->json_ = std::move(tables);
  return grammar;
}

}  // namespace pelton::grammar
