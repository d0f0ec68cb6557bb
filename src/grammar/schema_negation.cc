// Negation, and the question whether two schemas can hold at once.
#include <algorithm>
#include <tuple>

#include "grammar/schema_terms.h"

namespace pelton::grammar {
namespace {

constexpr size_t kDisjointTerms = 32;

SchemaNode of_type(TypeBits type) {
  SchemaNode node;
  node.types = node.constrained = type;
  return node;
}

}  // namespace

NodeId SchemaTerms::not_node(NodeId node) {
  if (node == kTrueSchema) return kFalseSchema;
  if (node == kFalseSchema) return kTrueSchema;
  const auto found = not_nodes_.find(node);
  if (found != not_nodes_.end()) return found->second;
  SchemaNode opposite;
  opposite.pointer = graph_.node(node).pointer;
  opposite.not_ = node;
  return not_nodes_[node] = graph_.add(std::move(opposite));
}

NodeId SchemaTerms::key_forbidden(const std::string& key) {
  const auto found = forbidden_.find(key);
  if (found != forbidden_.end()) return found->second;
  SchemaNode node = of_type(kObjectType);
  node.properties[key] = kFalseSchema;
  return forbidden_[key] = graph_.add(std::move(node));
}

NodeId SchemaTerms::key_required(const std::string& key) {
  const auto found = required_.find(key);
  if (found != required_.end()) return found->second;
  SchemaNode node = of_type(kObjectType);
  node.required.push_back(key);
  return required_[key] = graph_.add(std::move(node));
}

// The ways in which a node may not hold. Of an object with "required": ["a"], "properties": {"b":
// integer}: one without "a" (properties {a: false}), or one with a "b" that is no integer (required
// b, properties {b: not integer}).
SchemaTerms::Disjunction SchemaTerms::negation(Search& search, NodeId id) {
  Disjunction alternatives;
  if ((graph_.node(id).constrained & search.type) != 0) {
    for (const NodeId other : leaf_negations(id, search.type))
      alternatives.push_back({holds(other)});
  }
  const SchemaNode node = graph_.node(id);  // a copy: below, nodes are added
  if (node.has_enum) {
    if ((search.type & (kNullType | kTrueType | kFalseType)) != 0) {
      if ((node.enum_literals & search.type) == 0) alternatives.push_back({});
    } else if (search.type == kStringType || search.type == kNumberType) {
      SchemaNode other = of_type(search.type);
      if (search.type == kStringType && node.enum_texts) other.not_texts.push_back(node.enum_texts);
      if (search.type == kNumberType && node.enum_numbers) {
        other.not_numbers.push_back(node.enum_numbers);
      }
      alternatives.push_back({holds(graph_.add(std::move(other)))});
    } else {
      Literals none;
      for (const NodeId child : node.enum_nodes) {
        if ((graph_.node(child).types & search.type) != 0) none.push_back(fails(child));
      }
      alternatives.push_back(std::move(none));
    }
  }
  for (const NodeId child : node.all_of) alternatives.push_back({fails(child)});
  for (const auto& list : node.any_of) {
    Literals none;
    for (const NodeId child : list) none.push_back(fails(child));
    alternatives.push_back(std::move(none));
  }
  for (const auto& list : node.one_of) {
    Literals none;
    for (const NodeId child : list) none.push_back(fails(child));
    alternatives.push_back(std::move(none));
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t k = i + 1; k < list.size(); ++k) {
        alternatives.push_back({holds(list[i]), holds(list[k])});
      }
    }
  }
  if (node.not_ != kNoSchema) alternatives.push_back({holds(node.not_)});
  if (node.if_ != kNoSchema) {
    alternatives.push_back({holds(node.if_), fails(node.then_)});
    alternatives.push_back({fails(node.if_), fails(node.else_)});
  }
  if (search.type == kObjectType) {
    for (const auto& [key, schema] : node.dependent) {
      alternatives.push_back({holds(key_required(key)), fails(schema)});
    }
  }
  return alternatives;
}

const std::vector<NodeId>& SchemaTerms::leaf_negations(NodeId id, TypeBits type) {
  const auto [found, is_new] = leaf_negations_.try_emplace({id, type});
  std::vector<NodeId>& out = found->second;
  if (!is_new) return out;
  const SchemaNode node = graph_.node(id);
  budget_.take(sizeof(SchemaNode) * 2);
  const auto add = [&](SchemaNode other) {
    other.pointer = node.pointer;
    out.push_back(graph_.add(std::move(other)));
  };
  switch (type) {
    case kStringType:
      for (const Language& text : node.texts) {
        SchemaNode other = of_type(type);
        other.not_texts.push_back(text);
        add(std::move(other));
      }
      for (const Language& text : node.not_texts) {
        SchemaNode other = of_type(type);
        other.texts.push_back(text);
        add(std::move(other));
      }
      if (node.chars_min > 0) {
        SchemaNode other = of_type(type);
        other.chars_max = node.chars_min - 1;
        add(std::move(other));
      }
      if (node.chars_max != kNoBound) {
        SchemaNode other = of_type(type);
        other.chars_min = node.chars_max + 1;
        add(std::move(other));
      }
      break;
    case kNumberType:
      for (const Language& number : node.numbers) {
        SchemaNode other = of_type(type);
        other.not_numbers.push_back(number);
        add(std::move(other));
      }
      for (const Language& number : node.not_numbers) {
        SchemaNode other = of_type(type);
        other.numbers.push_back(number);
        add(std::move(other));
      }
      break;
    case kArrayType:
      negate_array(node, out);
      break;
    case kObjectType:
      negate_object(node, out);
      break;
    default:
      break;
  }
  // The map may have grown meanwhile, but its elements stay.
  return out;
}

void SchemaTerms::negate_object(const SchemaNode& node, std::vector<NodeId>& out) {
  for (const std::string& key : node.required) out.push_back(key_forbidden(key));
  for (const auto& [key, value] : node.properties) {
    if (value == kTrueSchema) continue;
    SchemaNode other = of_type(kObjectType);
    other.required.push_back(key);
    other.properties[key] = not_node(value);
    out.push_back(graph_.add(std::move(other)));
  }
  const auto witness = [&](Language keys, NodeId value) {
    SchemaNode other = of_type(kObjectType);
    other.witnesses.push_back({.keys = std::move(keys), .value = value});
    out.push_back(graph_.add(std::move(other)));
  };
  for (const SchemaNode::Pattern& pattern : node.patterns) {
    if (pattern.value != kTrueSchema) witness(pattern.keys, not_node(pattern.value));
  }
  if (node.additional != kNoSchema && node.additional != kTrueSchema) {
    // A key that neither a name nor a pattern takes.
    std::vector<std::string> names;
    for (const auto& [key, value] : node.properties) names.push_back(key);
    ByteDfa rest = *any_text();
    bool possible = true;
    const auto subtract = [&](const ByteDfa& dfa) {
      Result<ByteDfa> left = difference(rest, dfa, limits_of(budget_));
      possible = possible && left.ok();
      if (left.ok()) rest = std::move(*left);
    };
    if (!names.empty()) {
      const Result<ByteDfa> named = ByteDfa::any_of(names, limits_of(budget_));
      possible = named.ok();
      if (named.ok()) subtract(*named);
    }
    for (const SchemaNode::Pattern& pattern : node.patterns) subtract(*pattern.keys);
    if (!possible) {
      budget_.exhausted = true;
      return;
    }
    witness(std::make_shared<const ByteDfa>(std::move(rest)), not_node(node.additional));
  }
  for (const SchemaNode::Pattern& seen : node.witnesses) {
    SchemaNode other = of_type(kObjectType);
    other.patterns.push_back({.keys = seen.keys, .value = not_node(seen.value)});
    out.push_back(graph_.add(std::move(other)));
  }
  if (node.names != kNoSchema) {
    SchemaNode other = of_type(kObjectType);
    other.bad_name = node.names;
    out.push_back(graph_.add(std::move(other)));
  }
  for (const auto& [key, needed] : node.needs) {
    for (const std::string& name : needed) {
      SchemaNode other = of_type(kObjectType);
      other.required.push_back(key);
      other.properties[name] = kFalseSchema;
      out.push_back(graph_.add(std::move(other)));
    }
  }
  if (node.members_min > 0) {
    SchemaNode other = of_type(kObjectType);
    other.members_max = node.members_min - 1;
    out.push_back(graph_.add(std::move(other)));
  }
  if (node.members_max != kNoBound) {
    SchemaNode other = of_type(kObjectType);
    other.members_min = node.members_max + 1;
    out.push_back(graph_.add(std::move(other)));
  }
}

void SchemaTerms::negate_array(const SchemaNode& node, std::vector<NodeId>& out) {
  for (size_t i = 0; i < node.prefix.size(); ++i) {
    if (node.prefix[i] == kTrueSchema) continue;
    SchemaNode other = of_type(kArrayType);
    other.items_min = i + 1;
    other.prefix.assign(i, kTrueSchema);
    other.prefix.push_back(not_node(node.prefix[i]));
    out.push_back(graph_.add(std::move(other)));
  }
  if (node.items != kNoSchema && node.items != kTrueSchema) {
    SchemaNode other = of_type(kArrayType);
    other.contains.push_back({.item = not_node(node.items), .min = 1, .from = node.prefix.size()});
    out.push_back(graph_.add(std::move(other)));
  }
  for (const SchemaNode::Contains& contains : node.contains) {
    if (contains.min > 0) {
      SchemaNode other = of_type(kArrayType);
      other.contains.push_back(
          {.item = contains.item, .min = 0, .max = contains.min - 1, .from = contains.from});
      out.push_back(graph_.add(std::move(other)));
    }
    if (contains.max != kNoBound) {
      SchemaNode other = of_type(kArrayType);
      other.contains.push_back(
          {.item = contains.item, .min = contains.max + 1, .from = contains.from});
      out.push_back(graph_.add(std::move(other)));
    }
  }
  if (node.items_min > 0) {
    SchemaNode other = of_type(kArrayType);
    other.items_max = node.items_min - 1;
    out.push_back(graph_.add(std::move(other)));
  }
  if (node.items_max != kNoBound) {
    SchemaNode other = of_type(kArrayType);
    other.items_min = node.items_max + 1;
    out.push_back(graph_.add(std::move(other)));
  }
  if (node.unique) {
    SchemaNode other = of_type(kArrayType);
    other.repeated = true;
    out.push_back(graph_.add(std::move(other)));
  }
}

// Whether we can see that no value of `type` is of both.
bool SchemaTerms::disjoint(NodeId a, NodeId b, TypeBits type, int depth) {
  if (a > b) std::swap(a, b);
  if (a == b || depth <= 0) return false;
  const auto [found, is_new] = disjoint_.try_emplace({a, b, type}, false);
  if (!is_new) return found->second;
  bool& answer = found->second;
  if (disjoint_depth_ > 3) return false;
  ++disjoint_depth_;
  std::vector<Term> terms;
  Search search = {.type = type, .out = &terms, .terms_max = kDisjointTerms, .pointer = {}};
  const bool complete = go(search, {}, {holds(a), holds(b)}, {}, {}, 0);
  answer = complete && std::all_of(terms.begin(), terms.end(), [&](const Term& term) {
             return surely_empty(term, type, depth);
           });
  --disjoint_depth_;
  return answer;
}

bool SchemaTerms::surely_empty(const Literals& literals, int depth) {
  if (depth <= 0) return false;
  const std::optional<Literals> known = canonical(literals);
  if (!known) return true;
  if (known->empty()) return false;
  for (int i = 0; i < kTypeCount; ++i) {
    const TypeBits type = static_cast<TypeBits>(1 << i);
    std::vector<Term> terms;
    Search search = {.type = type, .out = &terms, .terms_max = kDisjointTerms, .pointer = {}};
    if (!go(search, {}, *known, {}, {}, 0)) return false;
    for (const Term& term : terms) {
      if (!surely_empty(term, type, depth)) return false;
    }
  }
  return true;
}

bool SchemaTerms::surely_empty(const Term& term, TypeBits type, int depth) {
  switch (type) {
    case kStringType: {
      if (term.texts.empty() && term.not_texts.empty()) return false;
      const Result<Language> texts = texts_of(term, budget_);
      if (!texts.ok()) return false;
      if ((*texts)->is_empty()) return true;
      return StringDfa(**texts).chars_to_end[(*texts)->start()] > term.chars_max;
    }
    case kNumberType: {
      if (term.numbers.empty() && term.not_numbers.empty()) return false;
      const Result<Language> numbers = numbers_of(term, budget_);
      return numbers.ok() && (*numbers)->is_empty();
    }
    case kObjectType:
      for (const std::string& key : term.required) {
        if (surely_empty(member_literals(term, key), depth - 1)) return true;
      }
      return false;
    case kArrayType:
      for (uint64_t i = 0; i < std::min<uint64_t>(term.size_min, 8); ++i) {
        Literals literals;
        for (const NodeId view : term.views) {
          const SchemaNode& node = graph_.node(view);
          if (i < node.prefix.size()) {
            literals.push_back(holds(node.prefix[i]));
          } else if (node.items != kNoSchema) {
            literals.push_back(holds(node.items));
          }
        }
        if (surely_empty(literals, depth - 1)) return true;
      }
      return false;
    default:
      return false;
  }
}

namespace {

Result<Language> combined(const std::vector<Language>& all, const std::vector<Language>& none,
                          const Language& universe, CompileBudget& budget) {
  const auto failed = [&](const Error& error) { return error; };
  std::vector<Language> distinct;
  for (const Language& language : all) {
    const bool known = std::any_of(distinct.begin(), distinct.end(), [&](const Language& other) {
      return other == language || *other == *language;
    });
    if (!known) distinct.push_back(language);
  }
  // The smallest first: what comes of it stays small.
  std::sort(distinct.begin(), distinct.end(),
            [](const Language& a, const Language& b) { return a->states() < b->states(); });
  Language result = distinct.empty() ? universe : distinct[0];
  for (size_t i = 1; i < distinct.size(); ++i) {
    Result<ByteDfa> both = intersection(*result, *distinct[i], limits_of(budget));
    if (!both.ok()) return failed(both.error());
    result = std::make_shared<const ByteDfa>(std::move(*both));
    budget.step(result->states());
  }
  for (const Language& language : none) {
    Result<ByteDfa> rest = difference(*result, *language, limits_of(budget));
    if (!rest.ok()) return failed(rest.error());
    result = std::make_shared<const ByteDfa>(std::move(*rest));
    budget.step(result->states());
  }
  return result;
}

}  // namespace

Result<Language> texts_of(const Term& term, CompileBudget& budget) {
  return combined(term.texts, term.not_texts, any_text(), budget);
}

Result<Language> numbers_of(const Term& term, CompileBudget& budget) {
  std::vector<Language> all = term.numbers;
  // One number is spelled in many ways with an exponent; without, what differs in text differs.
  if (!term.not_numbers.empty()) all.push_back(plain_numbers());
  return combined(all, term.not_numbers, all_numbers(), budget);
}

}  // namespace pelton::grammar
