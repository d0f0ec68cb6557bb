// Sets of schemas that must hold together, brought into a form that a machine can follow: for one
// type, a list of alternatives, each a plain conjunction of what one value of that type must be
// (a disjunctive normal form, made lazily, place by place). Negation is pushed inwards by nodes of
// our own; oneOf asks for the others' negation only where two branches may both hold. Bounded by
// the budget. One thread, for one compilation.
//
// {"type": "string", "anyOf": [{"minLength": 3}, {"maxLength": 1}], "not": {"const": "x"}}, asked
// for strings, is two terms: {chars_min 3, not_texts {x}} and {chars_max 1, not_texts {x}}; asked
// for numbers, none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/compile_budget.h"
#include "grammar/schema_graph.h"

namespace pelton::grammar {

// A node, or that it does not hold. A list of them: all hold; sorted, each once.
using Literal = uint32_t;
using Literals = std::vector<Literal>;
inline Literal holds(NodeId node) {
  return node << 1;
}
inline Literal fails(NodeId node) {
  return node << 1 | 1;
}
inline NodeId node_of(Literal literal) {
  return literal >> 1;
}
inline bool is_negative(Literal literal) {
  return (literal & 1) != 0;
}
inline Literal opposite(Literal literal) {
  return literal ^ 1;
}

// One alternative. Only what speaks of its type is filled.
struct Term {
  std::vector<Language> texts;
  std::vector<Language> not_texts;
  uint64_t chars_min = 0;
  uint64_t chars_max = kNoBound;

  std::vector<Language> numbers;
  std::vector<Language> not_numbers;
  bool multiples = false;

  // Nodes whose properties, patterns, additional, names and witnesses hold; or whose prefix, items
  // and contains do.
  std::vector<NodeId> views;
  std::set<std::string> required;
  uint64_t size_min = 0;  // members or items
  uint64_t size_max = kNoBound;
  bool unique = false;
};

class SchemaTerms {
 public:
  SchemaTerms(SchemaGraph& graph, CompileBudget& budget) : graph_(graph), budget_(budget) {}

  // What is left of `literals` when what says nothing is dropped and what only refers is followed.
  // Empty: nothing can hold.
  std::optional<Literals> canonical(Literals literals) const;

  // The alternatives for a value of `type`. Error: the budget, or too many of them.
  Result<std::vector<Term>> expand(const Literals& literals, TypeBits type);

  // What must hold for the member `key`, for a key of which just these patterns match, for an item.
  Literals member_literals(const Term& term, const std::string& key) const;

 private:
  using Disjunction = std::vector<Literals>;
  enum class Truth { kYes, kNo, kMaybe };
  // One expansion: bounded in alternatives, so that it may give up early where any will do.
  struct Search {
    TypeBits type;
    std::vector<Term>* out;
    size_t terms_max;
    std::string pointer;
    bool too_many = false;
  };

  bool go(Search& search, Term term, Literals todo, Literals done, std::vector<Disjunction> open,
          int depth);
  bool apply(Search& search, Literal literal, Term& term, Literals& todo,
             std::vector<Disjunction>& open);
  bool apply_node(Search& search, NodeId id, Term& term, Literals& todo,
                  std::vector<Disjunction>& open);
  bool apply_leaf(const Search& search, NodeId id, Term& term);
  bool apply_enum(const Search& search, const SchemaNode& node, Term& term,
                  std::vector<Disjunction>& open);
  void add_one_of(Search& search, const std::vector<NodeId>& nodes, std::vector<Disjunction>& open);
  Disjunction negation(Search& search, NodeId id);
  // Nodes that together say: the node's own keywords for this type do not all hold.
  const std::vector<NodeId>& leaf_negations(NodeId id, TypeBits type);
  void negate_object(const SchemaNode& node, std::vector<NodeId>& out);
  void negate_array(const SchemaNode& node, std::vector<NodeId>& out);
  bool prune(Search& search, Disjunction& alternatives);

  Truth truth(Literal literal, TypeBits type, int depth) const;
  NodeId not_node(NodeId node);
  NodeId key_forbidden(const std::string& key);
  NodeId key_required(const std::string& key);

  bool disjoint(NodeId a, NodeId b, TypeBits type, int depth);
  bool surely_empty(const Literals& literals, int depth);
  bool surely_empty(const Term& term, TypeBits type, int depth);

  SchemaGraph& graph_;
  CompileBudget& budget_;
  std::map<std::pair<NodeId, TypeBits>, std::vector<NodeId>> leaf_negations_;
  std::unordered_map<NodeId, NodeId> not_nodes_;
  std::map<std::string, NodeId> forbidden_;
  std::map<std::string, NodeId> required_;
  std::map<std::tuple<NodeId, NodeId, TypeBits>, bool> disjoint_;
  int disjoint_depth_ = 0;
};

// The texts of a term, its length aside; null: none.
Result<Language> texts_of(const Term& term, CompileBudget& budget);
Result<Language> numbers_of(const Term& term, CompileBudget& budget);
// How much an automaton may grow under what is left of the budget.
DfaLimits limits_of(const CompileBudget& budget);

}  // namespace pelton::grammar
