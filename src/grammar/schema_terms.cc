#include "grammar/schema_terms.h"

#include <algorithm>

namespace pelton::grammar {
namespace {

// Alternatives of one place. The machine follows all of them at once, so many would be slow as
// well.
constexpr size_t kTermsMax = 512;
constexpr int kDepthMax = 400;
constexpr int kTruthDepth = 6;
constexpr int kDisjointDepth = 3;

bool contains(const Literals& sorted, Literal literal) {
  return std::binary_search(sorted.begin(), sorted.end(), literal);
}

void insert_sorted(Literals& sorted, Literal literal) {
  sorted.insert(std::lower_bound(sorted.begin(), sorted.end(), literal), literal);
}

}  // namespace

DfaLimits limits_of(const CompileBudget& budget) {
  DfaLimits limits;
  const uint64_t bytes = budget.bytes_left > 0 ? static_cast<uint64_t>(budget.bytes_left) : 0;
  limits.cells_max = std::min<uint64_t>(limits.cells_max, bytes / 8 + 1);
  limits.deadline = budget.deadline;
  return limits;
}

std::optional<Literals> SchemaTerms::canonical(Literals literals) const {
  Literals result;
  for (int round = 0; !literals.empty() && round < 1000; ++round) {
    Literals next;
    for (const Literal literal : literals) {
      const NodeId id = node_of(literal);
      if (id == kTrueSchema || id == kFalseSchema) {
        if ((id == kTrueSchema) == is_negative(literal)) return std::nullopt;
        continue;
      }
      const SchemaNode& node = graph_.node(id);
      if (!is_negative(literal) && node.only_all_of()) {
        for (const NodeId child : node.all_of) next.push_back(holds(child));
      } else if (is_negative(literal) && node.only_all_of() && node.all_of.size() == 1) {
        next.push_back(fails(node.all_of[0]));
      } else if (is_negative(literal) && node.only_all_of() && node.all_of.empty()) {
        return std::nullopt;
      } else {
        result.push_back(literal);
      }
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    literals = std::move(next);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  for (size_t i = 1; i < result.size(); ++i) {
    if (result[i] == opposite(result[i - 1])) return std::nullopt;
  }
  return result;
}

Result<std::vector<Term>> SchemaTerms::expand(const Literals& literals, TypeBits type) {
  std::vector<Term> terms;
  Search search = {.type = type, .out = &terms, .terms_max = kTermsMax, .pointer = {}};
  if (!literals.empty()) search.pointer = graph_.node(node_of(literals.front())).pointer;
  const bool done = go(search, {}, literals, {}, {}, 0);
  if (!done) {
    return Error{ErrorCode::kDoesNotFit,
                 search.too_many ? "too many alternatives come together here (the limit is 512)"
                                 : "the schema is too complex",
                 search.pointer};
  }
  return terms;
}

// False: gave up. Every alternative found is in search.out.
bool SchemaTerms::go(Search& search, Term term, Literals todo, Literals done,
                     std::vector<Disjunction> open, int depth) {
  if (depth > kDepthMax) return false;
  while (!todo.empty()) {
    if (!budget_.step(1)) return false;
    const Literal literal = todo.back();
    todo.pop_back();
    if (contains(done, literal)) continue;
    if (contains(done, opposite(literal))) return true;
    insert_sorted(done, literal);
    if (!apply(search, literal, term, todo, open)) return !budget_.exhausted && !search.too_many;
  }
  // What has become decided needs no branch.
  for (size_t i = 0; i < open.size();) {
    bool satisfied = false;
    Disjunction& alternatives = open[i];
    for (size_t k = 0; k < alternatives.size();) {
      bool dead = false;
      bool all_hold = true;
      for (const Literal literal : alternatives[k]) {
        dead = dead || contains(done, opposite(literal));
        all_hold = all_hold && contains(done, literal);
      }
      satisfied = satisfied || all_hold;
      if (dead) {
        alternatives.erase(alternatives.begin() + static_cast<long>(k));
      } else {
        ++k;
      }
    }
    if (satisfied) {
      open.erase(open.begin() + static_cast<long>(i));
      continue;
    }
    if (alternatives.empty()) return true;
    ++i;
  }
  if (open.empty()) {
    if (term.size_min > term.size_max || term.chars_min > term.chars_max) return true;
    if (term.required.size() > term.size_max && search.type == kObjectType) return true;
    if (search.out->size() >= search.terms_max) {
      search.too_many = true;
      return false;
    }
    search.out->push_back(std::move(term));
    return budget_.take(sizeof(Term));
  }
  size_t fewest = 0;
  for (size_t i = 1; i < open.size(); ++i) {
    if (open[i].size() < open[fewest].size()) fewest = i;
  }
  const Disjunction alternatives = std::move(open[fewest]);
  open.erase(open.begin() + static_cast<long>(fewest));
  for (const Literals& alternative : alternatives) {
    if (!go(search, term, alternative, done, open, depth + 1)) return false;
  }
  return true;
}

// False: this cannot hold, or we gave up.
bool SchemaTerms::apply(Search& search, Literal literal, Term& term, Literals& todo,
                        std::vector<Disjunction>& open) {
  const NodeId id = node_of(literal);
  if (!is_negative(literal)) return apply_node(search, id, term, todo, open);
  if (id == kTrueSchema) return false;
  if (id == kFalseSchema || (graph_.node(id).types & search.type) == 0) return true;
  Disjunction alternatives = negation(search, id);
  if (!prune(search, alternatives)) return true;
  if (alternatives.empty()) return false;
  if (alternatives.size() == 1) {
    todo.insert(todo.end(), alternatives[0].begin(), alternatives[0].end());
  } else {
    open.push_back(std::move(alternatives));
  }
  return true;
}

// Takes out what cannot hold. False: one of them holds anyway.
bool SchemaTerms::prune(Search& search, Disjunction& alternatives) {
  Disjunction kept;
  for (Literals& alternative : alternatives) {
    bool all = true;
    bool none = false;
    for (const Literal literal : alternative) {
      const Truth truth = this->truth(literal, search.type, 0);
      all = all && truth == Truth::kYes;
      none = none || truth == Truth::kNo;
    }
    if (all) return false;
    if (none) continue;
    std::sort(alternative.begin(), alternative.end());
    if (std::find(kept.begin(), kept.end(), alternative) == kept.end()) {
      kept.push_back(std::move(alternative));
    }
  }
  alternatives = std::move(kept);
  return true;
}

// What can be said at once.
SchemaTerms::Truth SchemaTerms::truth(Literal literal, TypeBits type, int depth) const {
  const auto turned = [&](Truth truth) {
    if (!is_negative(literal) || truth == Truth::kMaybe) return truth;
    return truth == Truth::kYes ? Truth::kNo : Truth::kYes;
  };
  const SchemaNode& node = graph_.node(node_of(literal));
  if ((node.types & type) == 0) return turned(Truth::kNo);
  if (depth > kTruthDepth) return Truth::kMaybe;
  Truth result = Truth::kYes;
  const auto both = [&](Truth other) {
    if (other == Truth::kNo) result = Truth::kNo;
    if (other == Truth::kMaybe && result == Truth::kYes) result = Truth::kMaybe;
  };
  if ((node.constrained & type) != 0) both(Truth::kMaybe);
  if (node.has_enum) {
    if ((type & (kNullType | kTrueType | kFalseType)) != 0) {
      both((node.enum_literals & type) != 0 ? Truth::kYes : Truth::kNo);
    } else if (type == kStringType) {
      both(node.enum_texts ? Truth::kMaybe : Truth::kNo);
    } else if (type == kNumberType) {
      both(node.enum_numbers ? Truth::kMaybe : Truth::kNo);
    } else {
      both(node.enum_nodes.empty() ? Truth::kNo : Truth::kMaybe);
    }
  }
  for (const NodeId child : node.all_of) both(truth(holds(child), type, depth + 1));
  for (const auto& list : node.any_of) {
    Truth any = Truth::kNo;
    for (const NodeId child : list) {
      const Truth one = truth(holds(child), type, depth + 1);
      if (one == Truth::kYes) any = Truth::kYes;
      if (one == Truth::kMaybe && any == Truth::kNo) any = Truth::kMaybe;
    }
    both(any);
  }
  for (const auto& list : node.one_of) {
    int yes = 0;
    int maybe = 0;
    for (const NodeId child : list) {
      const Truth one = truth(holds(child), type, depth + 1);
      yes += one == Truth::kYes ? 1 : 0;
      maybe += one == Truth::kMaybe ? 1 : 0;
    }
    both(yes > 1 ? Truth::kNo : maybe > 0 ? Truth::kMaybe : yes == 1 ? Truth::kYes : Truth::kNo);
  }
  if (node.not_ != kNoSchema) both(truth(fails(node.not_), type, depth + 1));
  if (node.if_ != kNoSchema) {
    const Truth condition = truth(holds(node.if_), type, depth + 1);
    if (condition == Truth::kYes) {
      both(truth(holds(node.then_), type, depth + 1));
    } else if (condition == Truth::kNo) {
      both(truth(holds(node.else_), type, depth + 1));
    } else {
      both(Truth::kMaybe);
    }
  }
  if (!node.dependent.empty() && type == kObjectType) both(Truth::kMaybe);
  return turned(result);
}

bool SchemaTerms::apply_node(Search& search, NodeId id, Term& term, Literals& todo,
                             std::vector<Disjunction>& open) {
  if (id == kTrueSchema) return true;
  if ((graph_.node(id).types & search.type) == 0) return false;
  if (!apply_leaf(search, id, term)) return false;
  // A copy: what follows adds nodes, which moves them.
  const std::vector<NodeId> all_of = graph_.node(id).all_of;
  for (const NodeId child : all_of) todo.push_back(holds(child));
  if (graph_.node(id).has_enum && !apply_enum(search, graph_.node(id), term, open)) return false;

  const auto any = [&](const Disjunction& given) {
    Disjunction alternatives = given;
    if (!prune(search, alternatives)) return true;
    if (alternatives.empty()) return false;
    if (alternatives.size() == 1) {
      todo.insert(todo.end(), alternatives[0].begin(), alternatives[0].end());
    } else {
      open.push_back(std::move(alternatives));
    }
    return true;
  };
  const std::vector<std::vector<NodeId>> any_of = graph_.node(id).any_of;
  for (const std::vector<NodeId>& list : any_of) {
    Disjunction alternatives;
    for (const NodeId child : list) alternatives.push_back({holds(child)});
    if (!any(alternatives)) return false;
  }
  const std::vector<std::vector<NodeId>> one_of = graph_.node(id).one_of;
  for (const std::vector<NodeId>& list : one_of) {
    std::vector<Disjunction> made;
    add_one_of(search, list, made);
    if (budget_.exhausted) return false;
    for (const Disjunction& alternatives : made) {
      if (!any(alternatives)) return false;
    }
  }
  const SchemaNode& node = graph_.node(id);
  if (node.not_ != kNoSchema) todo.push_back(fails(node.not_));
  if (node.if_ != kNoSchema) {
    if (!any({{holds(node.if_), holds(node.then_)}, {fails(node.if_), holds(node.else_)}})) {
      return false;
    }
  }
  if (search.type == kObjectType) {
    const std::map<std::string, NodeId> dependent = graph_.node(id).dependent;
    for (const auto& [key, schema] : dependent) {
      const NodeId absent = key_forbidden(key);
      const NodeId present = key_required(key);
      if (!any({{holds(absent)}, {holds(present), holds(schema)}})) return false;
    }
  }
  return true;
}

// Each branch with the negation of those others that might hold as well. No text is of both ^a and
// ^b, so the terms of these patterns are just they; of ^a and b$: {^a, not b$} and {b$, not ^a}.
void SchemaTerms::add_one_of(Search& search, const std::vector<NodeId>& nodes,
                             std::vector<Disjunction>& open) {
  std::vector<NodeId> possible;
  int sure = 0;
  for (const NodeId node : nodes) {
    const Truth truth = this->truth(holds(node), search.type, 0);
    if (truth == Truth::kNo) continue;
    sure += truth == Truth::kYes ? 1 : 0;
    possible.push_back(node);
  }
  if (possible.empty() || sure > 1) {
    open.push_back({});
    return;
  }
  Disjunction alternatives;
  for (size_t i = 0; i < possible.size(); ++i) {
    Literals one = {holds(possible[i])};
    for (size_t k = 0; k < possible.size(); ++k) {
      if (i == k) continue;
      if (budget_.exhausted) return;
      if (!disjoint(possible[i], possible[k], search.type, kDisjointDepth)) {
        one.push_back(fails(possible[k]));
      }
    }
    alternatives.push_back(std::move(one));
  }
  open.push_back(std::move(alternatives));
}

bool SchemaTerms::apply_enum(const Search& search, const SchemaNode& node, Term& term,
                             std::vector<Disjunction>& open) {
  if ((search.type & (kNullType | kTrueType | kFalseType)) != 0) {
    return (node.enum_literals & search.type) != 0;
  }
  if (search.type == kStringType) {
    if (node.enum_texts) term.texts.push_back(node.enum_texts);
    return node.enum_texts != nullptr;
  }
  if (search.type == kNumberType) {
    if (node.enum_numbers) term.numbers.push_back(node.enum_numbers);
    return node.enum_numbers != nullptr;
  }
  Disjunction alternatives;
  for (const NodeId child : node.enum_nodes) {
    if ((graph_.node(child).types & search.type) != 0) alternatives.push_back({holds(child)});
  }
  if (alternatives.empty()) return false;
  open.push_back(std::move(alternatives));
  return true;
}

bool SchemaTerms::apply_leaf(const Search& search, NodeId id, Term& term) {
  const SchemaNode& node = graph_.node(id);
  if ((node.constrained & search.type) == 0) return true;
  switch (search.type) {
    case kStringType:
      term.texts.insert(term.texts.end(), node.texts.begin(), node.texts.end());
      term.not_texts.insert(term.not_texts.end(), node.not_texts.begin(), node.not_texts.end());
      term.chars_min = std::max(term.chars_min, node.chars_min);
      term.chars_max = std::min(term.chars_max, node.chars_max);
      return term.chars_min <= term.chars_max;
    case kNumberType:
      term.multiples = term.multiples || node.multiples;
      term.numbers.insert(term.numbers.end(), node.numbers.begin(), node.numbers.end());
      term.not_numbers.insert(term.not_numbers.end(), node.not_numbers.begin(),
                              node.not_numbers.end());
      return true;
    case kArrayType:
      term.views.push_back(id);
      term.size_min = std::max(term.size_min, node.items_min);
      term.size_max = std::min(term.size_max, node.items_max);
      term.unique = term.unique || node.unique;
      return term.size_min <= term.size_max;
    case kObjectType:
      term.views.push_back(id);
      term.required.insert(node.required.begin(), node.required.end());
      term.size_min = std::max(term.size_min, node.members_min);
      term.size_max = std::min(term.size_max, node.members_max);
      return term.size_min <= term.size_max && term.required.size() <= term.size_max;
    default:
      return true;
  }
}

Literals SchemaTerms::member_literals(const Term& term, const std::string& key) const {
  Literals literals;
  for (const NodeId view : term.views) {
    const SchemaNode& node = graph_.node(view);
    bool named = false;
    if (const auto found = node.properties.find(key); found != node.properties.end()) {
      literals.push_back(holds(found->second));
      named = true;
    }
    for (const SchemaNode::Pattern& pattern : node.patterns) {
      if (!pattern.keys->accepts(key)) continue;
      literals.push_back(holds(pattern.value));
      named = true;
    }
    if (!named && node.additional != kNoSchema) literals.push_back(holds(node.additional));
  }
  return literals;
}

}  // namespace pelton::grammar
