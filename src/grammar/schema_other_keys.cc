// The keys that have no name of their own: which patterns match them, run side by side as one
// automaton whose labels say what the value must be.
//
// "patternProperties": {"^a": null}, "additionalProperties": boolean: the product of "any text" and
// "^a" is in the state (valid so far, not yet matched) for the empty key, whose label is 0, and
// behind an a in (valid, matched), label 1; classes are {boolean}, {null}. Where "propertyNames" is
// {"enum": ["x", "y"]}, the keys are so few that they become properties instead (few_keys).
#include <algorithm>
#include <map>

#include "grammar/schema_tables.h"

namespace pelton::grammar {
namespace {

constexpr size_t kStatesMax = 20'000;
constexpr size_t kPatternsMax = 32;

struct Sources {
  std::vector<const ByteDfa*> dfas;
  ByteDfa::ByteClasses class_of{};
  std::vector<uint8_t> byte_of_class;
};

// Bytes that none of the automata distinguishes.
void find_classes(Sources& sources) {
  std::map<std::u32string, uint8_t> known;
  for (int byte = 0; byte < 256; ++byte) {
    std::u32string columns;
    for (const ByteDfa* dfa : sources.dfas) {
      columns.push_back(dfa->class_of(static_cast<uint8_t>(byte)));
    }
    const auto [found, is_new] =
        known.try_emplace(std::move(columns), static_cast<uint8_t>(known.size()));
    if (is_new) sources.byte_of_class.push_back(static_cast<uint8_t>(byte));
    sources.class_of[static_cast<size_t>(byte)] = found->second;
  }
}

}  // namespace

Result<void> SchemaTables::add_other_keys(const Term& term, const std::vector<Witness>& witnesses,
                                          const std::vector<Language>& names, KeyDraft& draft) {
  std::vector<const Witness*> all_witnesses;
  for (const Witness& witness : witnesses) all_witnesses.push_back(&witness);
  Sources sources;
  sources.dfas.push_back(any_text().get());
  for (const Language& language : names) sources.dfas.push_back(language.get());
  const size_t patterns_begin = sources.dfas.size();
  for (const NodeId view : term.views) {
    for (const SchemaNode::Pattern& pattern : graph_.node(view).patterns) {
      sources.dfas.push_back(pattern.keys.get());
    }
  }
  const size_t witnesses_begin = sources.dfas.size();
  for (const Witness& witness : witnesses) sources.dfas.push_back(witness.keys.get());

  // `accepted`, by source: the class of a key with just these.
  const auto choices_of = [&](const std::vector<DfaState>& states) {
    Literals literals;
    size_t source = patterns_begin;
    for (const NodeId view : term.views) {
      const SchemaNode& node = graph_.node(view);
      bool named = false;
      for (const SchemaNode::Pattern& pattern : node.patterns) {
        if (sources.dfas[source]->accepts(states[source])) {
          literals.push_back(holds(pattern.value));
          named = true;
        }
        ++source;
      }
      if (!named && node.additional != kNoSchema) literals.push_back(holds(node.additional));
    }
    uint32_t bits = 0;
    for (size_t i = 0; i < witnesses.size(); ++i) {
      const size_t at = witnesses_begin + i;
      if (sources.dfas[at]->accepts(states[at])) bits |= 1u << i;
    }
    return member_choices(std::move(literals), all_witnesses, bits);
  };

  if (sources.dfas.size() == 1) {
    draft.any = true;
    draft.classes.push_back(choices_of({any_text()->start()}));
    return {};
  }
  if (sources.dfas.size() > kPatternsMax) {
    return Error{ErrorCode::kDoesNotFit, "more than 32 patterns for the keys of one object",
                 graph_.node(term.views.front()).pointer};
  }
  find_classes(sources);
  draft.class_of = sources.class_of;
  draft.table = DfaTable::with_letters(static_cast<uint32_t>(sources.byte_of_class.size()));
  draft.label.push_back(-1);
  std::map<std::vector<DfaState>, DfaState> known;
  std::vector<const std::vector<DfaState>*> order = {nullptr};
  std::map<Choices, int32_t, bool (*)(const Choices&, const Choices&)> classes(
      [](const Choices& a, const Choices& b) {
        return std::lexicographical_compare(
            a.begin(), a.end(), b.begin(), b.end(), [](const Choice& x, const Choice& y) {
              return x.value != y.value ? x.value < y.value : x.counts < y.counts;
            });
      });
  const auto state_of = [&](std::vector<DfaState> states) -> DfaState {
    // No text of any kind, or a name that is not allowed: dead.
    for (size_t i = 0; i < patterns_begin; ++i) {
      if (states[i] == kDeadState) return kDeadState;
    }
    const auto [found, is_new] = known.try_emplace(std::move(states), 0);
    if (!is_new) return found->second;
    found->second = draft.table.add_state();
    order.push_back(&found->first);
    bool accepted = true;
    for (size_t i = 0; i < patterns_begin; ++i) {
      accepted = accepted && sources.dfas[i]->accepts(found->first[i]);
    }
    int32_t label = -1;
    if (accepted) {
      Choices choices = choices_of(found->first);
      const auto [row, is_new_row] =
          classes.try_emplace(choices, static_cast<int32_t>(draft.classes.size()));
      if (is_new_row) draft.classes.push_back(std::move(choices));
      label = row->second;
    }
    draft.label.push_back(label);
    return found->second;
  };
  std::vector<DfaState> start;
  for (const ByteDfa* dfa : sources.dfas) start.push_back(dfa->start());
  draft.table.start = state_of(std::move(start));
  for (DfaState state = 1; state < draft.table.state_count(); ++state) {
    const size_t row = sources.byte_of_class.size() * sizeof(DfaState);
    if (!budget_.step(8) || !budget_.take(row + sources.dfas.size() * 8 + 96) ||
        draft.table.state_count() > kStatesMax) {
      return Error{ErrorCode::kDoesNotFit, "the patterns for keys are too complex together",
                   graph_.node(term.views.front()).pointer};
    }
    const std::vector<DfaState> from = *order[state];
    for (uint32_t letter = 0; letter < sources.byte_of_class.size(); ++letter) {
      std::vector<DfaState> to;
      to.reserve(from.size());
      for (size_t i = 0; i < from.size(); ++i) {
        to.push_back(sources.dfas[i]->next(from[i], sources.byte_of_class[letter]));
      }
      const DfaState target = state_of(std::move(to));
      draft.table.at(state, letter) = target;
    }
  }
  return {};
}

std::optional<std::map<std::string, Choices>> SchemaTables::few_keys(const KeyDraft& draft) {
  constexpr size_t kFewKeys = 64;
  if (draft.any) return std::nullopt;
  const ValueId never = value_of({holds(kFalseSchema)});
  const auto choices_at = [&](DfaState state) -> const Choices* {
    if (draft.label[state] < 0) return nullptr;
    const Choices& choices = draft.classes[static_cast<size_t>(draft.label[state])];
    const bool any = std::any_of(choices.begin(), choices.end(),
                                 [&](const Choice& choice) { return choice.value != never; });
    return any ? &choices : nullptr;
  };
  DfaTable allowed = draft.table;
  for (DfaState state = 1; state < allowed.state_count(); ++state) {
    allowed.accepting[state] = choices_at(state) != nullptr ? 1 : 0;
  }
  const ByteDfa keys(draft.class_of, allowed);
  std::map<std::string, Choices> few;
  if (keys.is_empty()) return few;
  if (!keys.longest_length()) return std::nullopt;
  struct Place {
    std::string text;
    DfaState state;        // of `keys`
    DfaState draft_state;  // of the draft
  };
  std::vector<Place> todo = {{"", keys.start(), allowed.start}};
  while (!todo.empty()) {
    const Place at = std::move(todo.back());
    todo.pop_back();
    if (!budget_.step(256) || todo.size() > 256 * kFewKeys) return std::nullopt;
    if (keys.accepts(at.state)) few.emplace(at.text, *choices_at(at.draft_state));
    if (few.size() > kFewKeys) return std::nullopt;
    for (int byte = 0; byte < 256; ++byte) {
      const DfaState next = keys.next(at.state, static_cast<uint8_t>(byte));
      if (next == kDeadState) continue;
      const uint32_t letter = draft.class_of[static_cast<size_t>(byte)];
      todo.push_back({at.text + static_cast<char>(byte), next, allowed.at(at.draft_state, letter)});
    }
  }
  return few;
}

}  // namespace pelton::grammar
