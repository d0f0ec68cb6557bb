#include "grammar/schema_tables.h"

#include <algorithm>

namespace pelton::grammar {
namespace {

constexpr size_t kValuesMax = 100'000;
constexpr size_t kWitnessesMax = 4;
constexpr uint64_t kPrefixMax = 10'000;

Error too_complex(const std::string& pointer, std::string what) {
  return {ErrorCode::kDoesNotFit, std::move(what), pointer};
}

const std::shared_ptr<const StringDfa>& any_string() {
  static const std::shared_ptr<const StringDfa> kAny = std::make_shared<StringDfa>(*any_text());
  return kAny;
}

// The sets that most numbers of most schemas are of.
std::shared_ptr<const NumberDfa> fixed_number(const Language& language) {
  static const Language kLanguages[] = {fit_for_doubles(all_numbers(), Doubles::kFinite),
                                        fit_for_doubles(all_numbers(), Doubles::kDistinct),
                                        fit_for_doubles(integers(), Doubles::kFinite)};
  static const std::shared_ptr<const NumberDfa> kNumbers[] = {
      std::make_shared<NumberDfa>(*kLanguages[0]), std::make_shared<NumberDfa>(*kLanguages[1]),
      std::make_shared<NumberDfa>(*kLanguages[2])};
  for (size_t i = 0; i < 3; ++i) {
    if (language == kLanguages[i]) return kNumbers[i];
  }
  return nullptr;
}

}  // namespace

SchemaTables::SchemaTables(SchemaGraph& graph, CompileBudget& budget)
    : graph_(graph), budget_(budget), terms_(graph, budget) {}

Result<std::unique_ptr<JsonTables>> SchemaTables::build(NodeId root, uint16_t whitespace_max) {
  tables_ = std::make_unique<JsonTables>();
  tables_->whitespace_max = whitespace_max;
  tables_->root = value_of({holds(root)});
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (!budget_.step(16) || waiting_.size() > kValuesMax) {
      return too_complex("", "the schema is too complex");
    }
    const std::pair<ValueId, Literals> next = std::move(waiting_[i]);
    TRY(build_value(next.first, next.second));
  }
  for (bool is_done = false; !is_done;) {
    find_possible();
    if (budget_.exhausted) return too_complex("", "the schema is too complex");
    if (possible_[tables_->root] == 0) {
      return Error{ErrorCode::kInvalidArgument, "no value satisfies the schema", ""};
    }
    take_out();
    TRY_ASSIGN(const bool any_without, count_contains());
    bool any_lacks_keys = false;
    for (uint32_t object = 0; object < drafts_.size() && !any_lacks_keys; ++object) {
      any_lacks_keys = drafts_[object].keys_max != kNoBound && !possible(object);
    }
    // What was possible while it held what has been taken out.
    const auto holds_impossible = [&](const ValueSpec& value) {
      return std::ranges::any_of(value.arrays,
                                 [&](uint32_t array) { return !possible(tables_->arrays[array]); });
    };
    is_done =
        !any_without && !any_lacks_keys && std::ranges::none_of(tables_->values, holds_impossible);
    if (!is_done || !graph_.uses_unique()) continue;
    count_values();
    TRY_ASSIGN(const bool any, empty_unique());
    is_done = !any;
  }
  TRY(measure());
  return std::move(tables_);
}

// A value that nothing satisfies has a row as well, an empty one.
ValueId SchemaTables::value_of(const Literals& literals) {
  std::optional<Literals> canonical = terms_.canonical(literals);
  if (!canonical) canonical = Literals{holds(kFalseSchema)};
  const auto [found, is_new] =
      known_.try_emplace(*canonical, static_cast<ValueId>(tables_->values.size()));
  if (is_new) {
    tables_->values.push_back({});
    budget_.take(sizeof(ValueSpec) + 160 + canonical->size() * 8);
    waiting_.push_back({found->second, std::move(*canonical)});
  }
  return found->second;
}

Result<void> SchemaTables::build_value(ValueId id, const Literals& literals) {
  ValueSpec value;
  if (literals.size() == 1 && literals[0] == holds(kFalseSchema)) return {};
  for (int i = 0; i < kTypeCount; ++i) {
    const TypeBits type = static_cast<TypeBits>(1 << i);
    TRY_ASSIGN(const std::vector<Term> terms, terms_.expand(literals, type));
    if (terms.empty()) continue;
    switch (type) {
      case kNullType:
        value.null_ = true;
        break;
      case kTrueType:
        value.true_ = true;
        break;
      case kFalseType:
        value.false_ = true;
        break;
      case kNumberType:
        TRY(add_numbers(value, terms));
        break;
      case kStringType:
        TRY(add_strings(value, terms));
        break;
      case kArrayType:
        for (const Term& term : terms) TRY(add_array(value, term));
        break;
      default:
        for (const Term& term : terms) TRY(add_object(value, term));
        break;
    }
  }
  tables_->values[id] = std::move(value);
  return {};
}

std::shared_ptr<const StringDfa> SchemaTables::string_dfa(const Language& language) {
  if (language == any_text()) return any_string();
  std::shared_ptr<const StringDfa>& known = strings_[language.get()];
  if (!known) {
    known = std::make_shared<StringDfa>(*language);
    kept_.push_back(language);
    budget_.take(known->bytes_held());
    budget_.step(known->table.next.size() / 16);
  }
  return known;
}

std::shared_ptr<const NumberDfa> SchemaTables::number_dfa(const Language& language) {
  if (auto fixed = fixed_number(language); fixed) return fixed;
  std::shared_ptr<const NumberDfa>& known = numbers_[language.get()];
  if (!known) {
    known = std::make_shared<NumberDfa>(*language);
    kept_.push_back(language);
    budget_.take(known->bytes_held());
  }
  return known;
}

Result<void> SchemaTables::add_numbers(ValueSpec& value, const std::vector<Term>& terms) {
  Language all;
  for (const Term& term : terms) {
    TRY_ASSIGN(const Language exact, numbers_of(term, budget_));
    const bool distinct = term.multiples || !term.not_numbers.empty();
    const Language one = fit_for_doubles(exact, graph_.uses_unique() ? Doubles::kUnique
                                                : distinct           ? Doubles::kDistinct
                                                                     : Doubles::kFinite);
    if (one->is_empty()) continue;
    if (!all) {
      all = one;
    } else if (one != all) {
      TRY_ASSIGN(ByteDfa both, union_of(*all, *one, limits_of(budget_)));
      all = std::make_shared<const ByteDfa>(std::move(both));
    }
  }
  if (all) value.number = number_dfa(all);
  return {};
}

// Those of one length are one automaton.
Result<void> SchemaTables::add_strings(ValueSpec& value, const std::vector<Term>& terms) {
  struct Group {
    uint64_t min, max;
    Language language;
  };
  std::vector<Group> groups;
  for (const Term& term : terms) {
    TRY_ASSIGN(const Language one, texts_of(term, budget_));
    if (one->is_empty()) continue;
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.min == term.chars_min && group.max == term.chars_max;
    });
    if (found == groups.end()) {
      groups.push_back({term.chars_min, term.chars_max, one});
    } else if (found->language != one) {
      TRY_ASSIGN(ByteDfa both, union_of(*found->language, *one, limits_of(budget_)));
      found->language = std::make_shared<const ByteDfa>(std::move(both));
    }
  }
  for (Group& group : groups) {
    // A length that a finite language may fall short of is part of the language: then no text that
    // can only end too early is begun.
    const std::optional<uint64_t> longest = group.language->longest_length();
    if (group.min > 0 && longest && *longest < 4096) {
      TRY_ASSIGN(const Language fitting, texts_with_length(group.min, kNoBound));
      TRY_ASSIGN(ByteDfa both, intersection(*group.language, *fitting, limits_of(budget_)));
      group.language = std::make_shared<const ByteDfa>(std::move(both));
      group.min = 0;
      if (group.language->is_empty()) continue;
    }
    StringSpec spec = {
        .text = string_dfa(group.language), .chars_min = group.min, .chars_max = group.max};
    if (!is_impossible(spec)) value.strings.push_back(std::move(spec));
  }
  return {};
}

bool SchemaTables::is_impossible(const StringSpec& text) {
  return text.chars_min > text.chars_max ||
         text.text->chars_to_end[text.text->table.start] > text.chars_max;
}

Result<void> SchemaTables::collect_contains(const Term& term, ArraySpec& array,
                                            std::vector<SchemaNode::Contains>& contains) {
  for (const NodeId view : term.views) {
    const SchemaNode& node = graph_.node(view);
    if (node.repeated) {
      return Error{ErrorCode::kUnsupported, "the opposite of uniqueItems is not supported",
                   node.pointer};
    }
    for (const SchemaNode::Contains& one : node.contains) {
      const bool known = std::any_of(contains.begin(), contains.end(), [&](const auto& other) {
        return other.item == one.item && other.min == one.min && other.max == one.max &&
               other.from == one.from;
      });
      if (known) continue;
      if (contains.size() == kCountersMax || one.min >= 0xffff ||
          (one.max != kNoBound && one.max >= 0xffff)) {
        return Error{ErrorCode::kUnsupported, "too many `contains` at once, or too large a count",
                     node.pointer};
      }
      contains.push_back(one);
      array.counters.push_back(
          {.min = static_cast<uint32_t>(one.min),
           .max = one.max == kNoBound ? 0xffffu : static_cast<uint32_t>(one.max)});
    }
  }
  return {};
}

Choices SchemaTables::item_choices(const Term& term, uint64_t index,
                                   const std::vector<SchemaNode::Contains>& contains) {
  Literals base;
  for (const NodeId view : term.views) {
    const SchemaNode& node = graph_.node(view);
    if (index < node.prefix.size()) {
      base.push_back(holds(node.prefix[index]));
    } else if (node.items != kNoSchema) {
      base.push_back(holds(node.items));
    }
  }
  uint32_t applicable = 0;
  for (size_t i = 0; i < contains.size(); ++i) {
    if (index >= contains[i].from) applicable |= 1u << i;
  }
  Choices choices;
  for (uint32_t set = 0; set < 1u << contains.size(); ++set) {
    if ((set & ~applicable) != 0) continue;
    Literals literals = base;
    for (size_t i = 0; i < contains.size(); ++i) {
      if ((applicable >> i & 1) == 0) continue;
      if ((set >> i & 1) != 0) {
        literals.push_back(holds(contains[i].item));
      } else if (contains[i].max != kNoBound) {
        literals.push_back(fails(contains[i].item));
      }
    }
    choices.push_back({.value = value_of(literals), .counts = set});
  }
  return choices;
}

Result<void> SchemaTables::add_array(ValueSpec& value, const Term& term) {
  ArraySpec array;
  array.items_min = term.size_min;
  array.items_max = term.size_max;
  array.unique = term.unique;
  std::vector<SchemaNode::Contains> contains;
  TRY(collect_contains(term, array, contains));
  uint64_t prefix = 0;
  for (const NodeId view : term.views) {
    prefix = std::max<uint64_t>(prefix, graph_.node(view).prefix.size());
  }
  for (const SchemaNode::Contains& one : contains) prefix = std::max(prefix, one.from);
  if (prefix > kPrefixMax) return too_complex("", "an array's prefix is longer than 10000");
  for (uint64_t i = 0; i < std::min(prefix, array.items_max); ++i) {
    array.prefix.push_back(item_choices(term, i, contains));
  }
  if (prefix < array.items_max) array.rest = item_choices(term, prefix, contains);
  if (!budget_.take(sizeof(ArraySpec) + array.prefix.size() * 48)) {
    return too_complex("", "the schema is too large");
  }
  value.arrays.push_back(static_cast<uint32_t>(tables_->arrays.size()));
  tables_->arrays.push_back(std::move(array));
  return {};
}

// The texts of a schema for names, their lengths included.
Result<Language> SchemaTables::texts_of_schema(const Literals& literals) {
  Language all = std::make_shared<const ByteDfa>();
  const std::optional<Literals> canonical = terms_.canonical(literals);
  if (!canonical) return all;
  TRY_ASSIGN(const std::vector<Term> terms, terms_.expand(*canonical, kStringType));
  for (const Term& term : terms) {
    TRY_ASSIGN(Language one, texts_of(term, budget_));
    if (term.chars_min > 0 || term.chars_max != kNoBound) {
      TRY_ASSIGN(const Language fitting, texts_with_length(term.chars_min, term.chars_max));
      TRY_ASSIGN(ByteDfa both, intersection(*one, *fitting, limits_of(budget_)));
      one = std::make_shared<const ByteDfa>(std::move(both));
    }
    TRY_ASSIGN(ByteDfa both, union_of(*all, *one, limits_of(budget_)));
    all = std::make_shared<const ByteDfa>(std::move(both));
  }
  return all;
}

Result<void> SchemaTables::collect_names(const Term& term, std::vector<Language>& names,
                                         std::vector<Witness>& witnesses) {
  for (const NodeId view : term.views) {
    const SchemaNode& node = graph_.node(view);
    if (node.names != kNoSchema) {
      TRY_ASSIGN(Language texts, texts_of_schema({holds(node.names)}));
      names.push_back(std::move(texts));
    }
    for (const SchemaNode::Pattern& witness : node.witnesses) {
      witnesses.push_back({witness.keys, witness.value});
    }
    if (node.bad_name != kNoSchema) {
      TRY_ASSIGN(Language texts, texts_of_schema({fails(node.bad_name)}));
      witnesses.push_back({std::move(texts), kTrueSchema});
    }
  }
  if (witnesses.size() > kWitnessesMax) {
    return too_complex("", "more than 4 members that must not be as a schema says");
  }
  return {};
}

// `witnesses`: those whose keys this is one of, or null; `bits` says which are there.
Choices SchemaTables::member_choices(Literals literals,
                                     const std::vector<const Witness*>& witnesses, uint32_t bits) {
  Choices choices;
  const size_t count = witnesses.size();
  for (uint32_t set = 0; set < 1u << count; ++set) {
    if ((set & ~bits) != 0) continue;
    Literals with = literals;
    for (size_t i = 0; i < count; ++i) {
      if ((set >> i & 1) != 0) with.push_back(holds(witnesses[i]->value));
    }
    choices.push_back({.value = value_of(with), .counts = set});
  }
  return choices;
}

Result<void> SchemaTables::add_object(ValueSpec& value, const Term& term) {
  ObjectSpec object;
  object.members_min = term.size_min;
  object.members_max = term.size_max;
  std::vector<Language> names;
  std::vector<Witness> witnesses;
  TRY(collect_names(term, names, witnesses));
  object.witnesses = (1u << witnesses.size()) - 1;
  std::vector<const Witness*> all_witnesses;
  for (const Witness& witness : witnesses) all_witnesses.push_back(&witness);

  std::set<std::string> keys = term.required;
  for (const NodeId view : term.views) {
    for (const auto& [key, schema] : graph_.node(view).properties) keys.insert(key);
    for (const auto& [key, needed] : graph_.node(view).needs) {
      keys.insert(key);
      keys.insert(needed.begin(), needed.end());
    }
  }
  KeyDraft draft;
  TRY(add_other_keys(term, witnesses, names, draft));
  std::map<std::string, Choices> few;
  if (std::optional<std::map<std::string, Choices>> all = few_keys(draft)) {
    few = *std::move(all);
    draft = {};
    for (const std::string& key : keys) few.erase(key);
    for (const auto& [key, choices] : few) keys.insert(key);
  }
  for (const std::string& key : keys) {
    if (!budget_.step(4) || !budget_.take(sizeof(ObjectSpec::Property) + key.size() * 24)) {
      return too_complex("", "the schema is too large");
    }
    ObjectSpec::Property property = {.key = key};
    const bool allowed = std::all_of(names.begin(), names.end(), [&](const Language& language) {
      return language->accepts(key);
    });
    if (const auto other = few.find(key); other != few.end()) {
      property.choices = std::move(other->second);
    } else if (allowed) {
      uint32_t bits = 0;
      for (size_t i = 0; i < witnesses.size(); ++i) {
        if (witnesses[i].keys->accepts(key)) bits |= 1u << i;
      }
      property.choices = member_choices(terms_.member_literals(term, key), all_witnesses, bits);
    }
    object.properties.push_back(std::move(property));
  }
  const size_t words = std::max<size_t>(1, (object.properties.size() + 63) / 64);
  object.required.resize(words, 0);
  object.forbidden.resize(words, 0);
  for (size_t i = 0; i < object.properties.size(); ++i) {
    if (term.required.count(object.properties[i].key) == 0) continue;
    object.required[i / 64] |= uint64_t{1} << (i % 64);
    ++object.required_count;
  }
  set_needs(term, object);
  value.objects.push_back(static_cast<uint32_t>(tables_->objects.size()));
  tables_->objects.push_back(std::move(object));
  drafts_.push_back(std::move(draft));
  return {};
}

void SchemaTables::set_needs(const Term& term, ObjectSpec& object) {
  const auto index_of = [&](const std::string& key) {
    const auto found = std::lower_bound(object.properties.begin(), object.properties.end(), key,
                                        [](const ObjectSpec::Property& property,
                                           const std::string& k) { return property.key < k; });
    return static_cast<uint32_t>(found - object.properties.begin());
  };
  for (const NodeId view : term.views) {
    for (const auto& [key, needed] : graph_.node(view).needs) {
      std::vector<uint32_t>& needs = object.properties[index_of(key)].needs;
      for (const std::string& name : needed) needs.push_back(index_of(name));
      object.has_needs = object.has_needs || !needed.empty();
    }
  }
  if (!object.has_needs) return;
  // What is needed by what is needed: then one look is enough while matching.
  std::vector<std::vector<uint32_t>> all(object.properties.size());
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<uint8_t> met(object.properties.size(), 0);
    std::vector<uint32_t> todo = object.properties[i].needs;
    while (!todo.empty()) {
      const uint32_t next = todo.back();
      todo.pop_back();
      if (met[next] != 0 || !budget_.step(1)) continue;
      met[next] = 1;
      all[i].push_back(next);
      const std::vector<uint32_t>& more = object.properties[next].needs;
      todo.insert(todo.end(), more.begin(), more.end());
    }
    budget_.step(met.size() / 8);
    budget_.take(all[i].size() * sizeof(uint32_t));
  }
  const auto require = [&](uint32_t property) {
    const uint64_t bit = uint64_t{1} << (property % 64);
    if ((object.required[property / 64] & bit) == 0) ++object.required_count;
    object.required[property / 64] |= bit;
  };
  const std::vector<uint64_t> required = object.required;
  for (uint32_t i = 0; i < all.size(); ++i) {
    object.properties[i].needs = std::move(all[i]);
    if ((required[i / 64] >> (i % 64) & 1) == 0) continue;
    for (const uint32_t needed : object.properties[i].needs) require(needed);
  }
}

}  // namespace pelton::grammar
