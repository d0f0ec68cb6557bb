// The last stage of compiling a schema: sets of schemas become rows of JsonTables, each set once.
// What cannot be satisfied is taken out at the end, so that the machine never walks into it. One
// thread, for one compilation.
//
// {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false}: the
// root's set {node 2 holds} is value 0, which waits to be built. Its term for objects becomes
// object 0, whose property "next" has the set of what its $ref comes to: {node 2 holds} again,
// known as value 0. So there is one object, and it is its own property's value.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/compile_budget.h"
#include "grammar/json_tables.h"
#include "grammar/schema_graph.h"
#include "grammar/schema_terms.h"

namespace pelton::grammar {

class SchemaTables {
 public:
  SchemaTables(SchemaGraph& graph, CompileBudget& budget);

  // Error: kInvalidArgument if nothing satisfies `root`; what SchemaTerms says.
  Result<std::unique_ptr<JsonTables>> build(NodeId root, uint16_t whitespace_max);

 private:
  // Other keys while their classes are still open to change.
  struct KeyDraft {
    ByteDfa::ByteClasses class_of{};
    DfaTable table;
    std::vector<int32_t> label;
    std::vector<Choices> classes;
    bool any = false;              // one class, all texts
    uint64_t keys_max = kNoBound;  // so many keys, if they have been counted
  };

  ValueId value_of(const Literals& literals);
  Result<void> build_value(ValueId id, const Literals& literals);
  Result<void> add_numbers(ValueSpec& value, const std::vector<Term>& terms);
  Result<void> add_strings(ValueSpec& value, const std::vector<Term>& terms);
  Result<void> add_array(ValueSpec& value, const Term& term);
  Result<void> add_object(ValueSpec& value, const Term& term);

  Result<void> collect_contains(const Term& term, ArraySpec& array,
                                std::vector<SchemaNode::Contains>& contains);
  Choices item_choices(const Term& term, uint64_t index,
                       const std::vector<SchemaNode::Contains>& contains);

  struct Witness {
    Language keys;
    NodeId value;
  };
  Choices member_choices(Literals literals, const std::vector<const Witness*>& witnesses,
                         uint32_t bits);
  Result<void> add_other_keys(const Term& term, const std::vector<Witness>& witnesses,
                              const std::vector<Language>& names, KeyDraft& draft);
  // The other keys by name, if there are so few of them that each can be a property.
  std::optional<std::map<std::string, Choices>> few_keys(const KeyDraft& draft);
  Result<void> collect_names(const Term& term, std::vector<Language>& names,
                             std::vector<Witness>& witnesses);
  Result<Language> texts_of_schema(const Literals& literals);
  void set_needs(const Term& term, ObjectSpec& object);

  std::shared_ptr<const StringDfa> string_dfa(const Language& language);
  std::shared_ptr<const NumberDfa> number_dfa(const Language& language);

  // Taking out what cannot be.
  void find_possible();
  bool possible(const Choices& choices) const;
  bool possible(const ArraySpec& array) const;
  bool possible(uint32_t object) const;
  void take_out();
  void take_out(ArraySpec& array);
  void take_out(uint32_t object);
  static std::shared_ptr<const StringDfa> live_keys(const KeyDraft& draft);
  static bool is_impossible(const StringSpec& text);
  uint64_t distinct_values(const Choices& choices) const;
  uint64_t unique_items_max(const ArraySpec& array) const;
  // By an automaton's content, and whether it is of numbers: how many values it accepts.
  mutable std::map<std::pair<uint64_t, bool>, uint64_t> counted_;
  Result<void> measure();

  // Fills ArraySpec::items_needed; whether an array became impossible (schema_contains.cc).
  Result<bool> count_contains();

  // Of arrays of unique items (schema_unique.cc).
  std::shared_ptr<const TextCounts> text_counts(const std::shared_ptr<const StringDfa>& text);
  void count_values();
  uint64_t values_at_least(const Choices& choices) const;
  uint64_t values_at_least(const ArraySpec& array) const;
  uint64_t values_at_least(const ObjectSpec& object) const;
  // Makes arrays impossible that cannot have as many items as they must; whether there were any.
  Result<bool> empty_unique();
  Result<bool> lacks_items(const ArraySpec& array);
  Result<bool> lacks_counted_items(const ArraySpec& array);
  Result<void> check_places(const ArraySpec& array);
  Result<uint64_t> values_of(const Choices& choices, uint64_t most);
  bool has_many_everywhere(const ArraySpec& array) const;
  std::map<const StringDfa*, std::shared_ptr<const TextCounts>> text_counts_;
  std::vector<std::shared_ptr<const StringDfa>> texts_counted_;  // keep those addresses alive

  SchemaGraph& graph_;
  CompileBudget& budget_;
  SchemaTerms terms_;
  std::unique_ptr<JsonTables> tables_;
  std::vector<KeyDraft> drafts_;   // by object
  std::vector<uint8_t> possible_;  // by value
  std::map<Literals, ValueId> known_;
  std::vector<std::pair<ValueId, Literals>> waiting_;
  std::map<const ByteDfa*, std::shared_ptr<const StringDfa>> strings_;
  std::map<const ByteDfa*, std::shared_ptr<const NumberDfa>> numbers_;
  std::vector<Language> kept_;  // alive as long as their addresses are keys
};

}  // namespace pelton::grammar
