// What a text must look like, compiled: a JSON schema (json_schema.h), a regular expression, a
// choice, rules (ebnf.h), or rules with JSON in them (structural_tag.h), as the tables that the
// machine runs. Knows bytes, no tokens. Immutable
// once built, shared by everyone who matches it; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"
#include "grammar/rules.h"

namespace pelton::grammar {

struct JsonTables;  // json_tables.h

class Grammar {
 public:
  // Exactly the texts of `dfa`, as a rule of one edge. Error: kInvalidArgument if there is none.
  static Result<std::shared_ptr<const Grammar>> from_dfa(ByteDfa dfa);
  // Exactly the texts of rule 0.
  static Result<std::shared_ptr<const Grammar>> from_rules(RuleNetwork rules);
  // The same, where the rules speak of values of `tables` (null: of none).
  static Result<std::shared_ptr<const Grammar>> from_rules(RuleNetwork rules,
                                                           std::unique_ptr<JsonTables> tables);
  // The JSON values of tables.root.
  static std::shared_ptr<const Grammar> from_json_tables(std::unique_ptr<JsonTables> tables);

  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // Null: the text is a JSON value.
  const RuleNetwork* rules() const { return rules_.rule_starts.empty() ? nullptr : &rules_; }
  // Null: no JSON in it.
  const JsonTables* json() const { return json_.get(); }
  // Nothing follows in that automaton of rules().
  bool is_final(uint32_t dfa, DfaState state) const { return final_[dfa][state] != 0; }

  // The kinds of characters that all lead back to that state of an automaton of rules().
  uint8_t loops(uint32_t dfa, DfaState state) const { return loops_[dfa][state]; }

  size_t bytes_held() const { return bytes_held_; }

 private:
  Grammar();

  RuleNetwork rules_;
  std::vector<std::vector<uint8_t>> final_;  // by automaton and state
  std::vector<std::vector<uint8_t>> loops_;  // likewise
  std::unique_ptr<JsonTables> json_;
  size_t bytes_held_ = 0;
};

}  // namespace pelton::grammar
