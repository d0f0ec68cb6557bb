// Takes what nothing satisfies out of the tables.
#include <algorithm>
#include <iterator>
#include <set>

#include "grammar/schema_tables.h"

namespace pelton::grammar {
namespace {

constexpr uint64_t kDistinctMax = 100'000;

// How many texts an automaton accepts, at most `most` + 1.
uint64_t count_texts(const StringDfa& dfa, uint64_t most) {
  const uint32_t states = dfa.table.state_count();
  if (states > 2000) return most + 1;
  // No loop in a finite language: by length, the ways to each state.
  std::vector<uint64_t> ways(states, 0);
  ways[dfa.table.start] = 1;
  std::vector<uint32_t> bytes(dfa.table.letter_count, 0);
  for (const uint8_t c : dfa.class_of) ++bytes[c];
  uint64_t total = 0;
  for (uint32_t length = 0; length <= states; ++length) {
    std::vector<uint64_t> next(states, 0);
    bool any = false;
    for (DfaState state = 1; state < states; ++state) {
      if (ways[state] == 0) continue;
      if (dfa.accepts(state)) total += ways[state];
      for (uint32_t letter = 0; letter < dfa.table.letter_count; ++letter) {
        const DfaState to = dfa.table.at(state, letter);
        if (to == kDeadState) continue;
        any = true;
        next[to] = std::min(most + 1, next[to] + ways[state] * bytes[letter]);
      }
    }
    if (total > most) return most + 1;
    if (!any) return total;
    ways = std::move(next);
  }
  return most + 1;
}

}  // namespace

bool SchemaTables::possible(const Choices& choices) const {
  return std::any_of(choices.begin(), choices.end(),
                     [&](const Choice& choice) { return possible_[choice.value] != 0; });
}

bool SchemaTables::possible(const ArraySpec& array) const {
  for (uint64_t i = 0; i < std::min<uint64_t>(array.items_min, array.prefix.size()); ++i) {
    if (!possible(array.prefix[i])) return false;
  }
  uint64_t most = array.items_max;
  for (uint64_t i = 0; i < array.prefix.size(); ++i) {
    if (!possible(array.prefix[i])) most = std::min(most, i);
  }
  if (!possible(array.rest)) most = std::min<uint64_t>(most, array.prefix.size());
  if (array.unique) most = std::min(most, unique_items_max(array));
  if (most < array.items_min) return false;
  for (size_t counter = 0; counter < array.counters.size(); ++counter) {
    // An upper bound is kept by choices that do not count; those stand there too.
    uint64_t reachable = 0;
    Choices counting;
    const auto counts = [&](const Choices& choices) {
      const size_t before = counting.size();
      std::copy_if(choices.begin(), choices.end(), std::back_inserter(counting),
                   [&](const Choice& choice) {
                     return (choice.counts >> counter & 1) != 0 && possible_[choice.value] != 0;
                   });
      return counting.size() > before;
    };
    for (uint64_t i = 0; i < std::min<uint64_t>(most, array.prefix.size()); ++i) {
      reachable += counts(array.prefix[i]) ? 1 : 0;
    }
    if (most > array.prefix.size() && counts(array.rest)) {
      reachable = most == kNoBound ? kNoBound : reachable + (most - array.prefix.size());
    }
    if (array.unique) reachable = std::min(reachable, distinct_values(counting));
    if (reachable < array.counters[counter].min) return false;
  }
  return true;
}

bool SchemaTables::possible(uint32_t index) const {
  const ObjectSpec& object = tables_->objects[index];
  const KeyDraft& draft = drafts_[index];
  uint64_t most = 0;
  uint32_t witnesses = 0;
  const auto note = [&](const Choices& choices) {
    for (const Choice& choice : choices) {
      if (possible_[choice.value] != 0) witnesses |= choice.counts;
    }
  };
  for (size_t i = 0; i < object.properties.size(); ++i) {
    const ObjectSpec::Property& property = object.properties[i];
    // With what it brings with it, which must be possible, too, and have room. It may need itself.
    uint64_t members = 1;
    bool has_needed = true;
    for (const uint32_t needed : property.needs) {
      members += needed == i ? 0 : 1;
      has_needed = has_needed && possible(object.properties[needed].choices);
    }
    has_needed = has_needed && members <= object.members_max;
    if (has_needed && possible(property.choices)) {
      ++most;
      note(property.choices);
    } else if ((object.required[i / 64] >> (i % 64) & 1) != 0) {
      return false;
    }
  }
  bool others = false;
  for (const Choices& choices : draft.classes) {
    others = others || possible(choices);
    note(choices);
  }
  if (others) most = draft.keys_max == kNoBound ? kNoBound : most + draft.keys_max;
  if (most < object.members_min) return false;
  return object.required_count <= object.members_max &&
         (witnesses & object.witnesses) == object.witnesses;
}

// The least set of values that has what satisfies it: round after round, until nothing is added. An
// object that requires a "next" of its own schema is never added, as no text of it ends; where
// "next" is null or that, "next" is added first and the object then.
void SchemaTables::find_possible() {
  possible_.assign(tables_->values.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    // What is needed by others tends to come after them.
    for (size_t i = tables_->values.size(); i-- > 0;) {
      if (possible_[i] != 0) continue;
      if (!budget_.step(4)) return;
      const ValueSpec& value = tables_->values[i];
      const bool now =
          value.null_ || value.true_ || value.false_ || value.number || !value.strings.empty() ||
          std::any_of(value.arrays.begin(), value.arrays.end(),
                      [&](uint32_t array) { return possible(tables_->arrays[array]); }) ||
          std::any_of(value.objects.begin(), value.objects.end(),
                      [&](uint32_t object) { return possible(object); });
      if (!now) continue;
      possible_[i] = 1;
      changed = true;
    }
  }
}

void SchemaTables::take_out() {
  for (ValueSpec& value : tables_->values) {
    std::erase_if(value.arrays, [&](uint32_t array) { return !possible(tables_->arrays[array]); });
    std::erase_if(value.objects, [&](uint32_t object) { return !possible(object); });
  }
  for (ArraySpec& array : tables_->arrays) take_out(array);
  for (uint32_t object = 0; object < tables_->objects.size(); ++object) take_out(object);
}

void SchemaTables::take_out(ArraySpec& array) {
  const auto impossible = [&](const Choice& choice) { return possible_[choice.value] == 0; };
  for (size_t i = 0; i < array.prefix.size(); ++i) {
    std::erase_if(array.prefix[i], impossible);
    if (array.prefix[i].empty()) array.items_max = std::min<uint64_t>(array.items_max, i);
  }
  std::erase_if(array.rest, impossible);
  if (array.rest.empty())
    array.items_max = std::min<uint64_t>(array.items_max, array.prefix.size());
  if (array.unique) array.items_max = std::min(array.items_max, unique_items_max(array));
}

// So many items an array can have that are all different, as far as that can be counted: each of
// the first k is one of the values that those k places offer.
uint64_t SchemaTables::unique_items_max(const ArraySpec& array) const {
  constexpr size_t kPrefixMax = 64;
  if (array.prefix.size() > kPrefixMax) return kNoBound;
  Choices offered;
  for (size_t i = 0; i < array.prefix.size(); ++i) {
    offered.insert(offered.end(), array.prefix[i].begin(), array.prefix[i].end());
    if (distinct_values(offered) < i + 1) return i;
  }
  offered.insert(offered.end(), array.rest.begin(), array.rest.end());
  return distinct_values(offered);
}

// How many different values there are at most, if they can be counted.
uint64_t SchemaTables::distinct_values(const Choices& choices) const {
  uint64_t count = 0;
  bool null = false, yes = false, no = false;
  std::set<std::pair<uint64_t, bool>> seen;
  const auto add = [&](std::pair<uint64_t, bool> language, const auto& count_them) {
    if (count == kNoBound || !seen.insert(language).second) return;
    const auto [known, is_new] = counted_.try_emplace(language, 0);
    if (is_new) known->second = count_them();
    count = known->second > kDistinctMax ? kNoBound : count + known->second;
  };
  for (const Choice& choice : choices) {
    const ValueSpec& value = tables_->values[choice.value];
    if (!value.arrays.empty() || !value.objects.empty()) return kNoBound;
    null = null || value.null_;
    yes = yes || value.true_;
    no = no || value.false_;
    if (value.number) {
      add({value.number->content, true}, [&] { return value.number->count_values(kDistinctMax); });
    }
    for (const StringSpec& text : value.strings) {
      add({text.text->content, false}, [&] { return count_texts(*text.text, kDistinctMax); });
    }
  }
  if (count == kNoBound) return kNoBound;
  return count + (null ? 1 : 0) + (yes ? 1 : 0) + (no ? 1 : 0);
}

// Without the states from which no key that is allowed can be reached; null: none is.
std::shared_ptr<const StringDfa> SchemaTables::live_keys(const KeyDraft& draft) {
  DfaTable table = draft.table;
  std::vector<int32_t> label = draft.label;
  const uint32_t states = table.state_count();
  std::vector<std::vector<DfaState>> into(states);
  std::vector<DfaState> todo;
  std::vector<uint8_t> live(states, 0);
  for (DfaState state = 1; state < states; ++state) {
    if (label[state] >= 0 && draft.classes[static_cast<size_t>(label[state])].empty()) {
      label[state] = -1;
    }
    table.accepting[state] = label[state] >= 0 ? 1 : 0;
    if (table.accepting[state] != 0) {
      live[state] = 1;
      todo.push_back(state);
    }
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      into[table.at(state, letter)].push_back(state);
    }
  }
  while (!todo.empty()) {
    const DfaState state = todo.back();
    todo.pop_back();
    for (const DfaState from : into[state]) {
      if (live[from] != 0) continue;
      live[from] = 1;
      todo.push_back(from);
    }
  }
  for (DfaState& next : table.next) {
    if (live[next] == 0) next = kDeadState;
  }
  if (table.start == kDeadState || live[table.start] == 0) return nullptr;
  return std::make_shared<StringDfa>(draft.class_of, std::move(table), std::move(label));
}

void SchemaTables::take_out(uint32_t index) {
  ObjectSpec& object = tables_->objects[index];
  KeyDraft& draft = drafts_[index];
  const auto impossible = [&](const Choice& choice) { return possible_[choice.value] == 0; };
  for (size_t i = 0; i < object.properties.size(); ++i) {
    std::erase_if(object.properties[i].choices, impossible);
    if (object.properties[i].choices.empty()) {
      object.forbidden[i / 64] |= uint64_t{1} << (i % 64);
    }
  }
  // A property that needs one that cannot be there cannot be there either.
  for (bool changed = object.has_needs; changed;) {
    changed = false;
    for (size_t i = 0; i < object.properties.size(); ++i) {
      const uint64_t bit = uint64_t{1} << (i % 64);
      if ((object.forbidden[i / 64] & bit) != 0) continue;
      for (const uint32_t needed : object.properties[i].needs) {
        if ((object.forbidden[needed / 64] >> (needed % 64) & 1) == 0) continue;
        object.forbidden[i / 64] |= bit;
        changed = true;
      }
    }
  }
  build_key_trie(object);
  object.others = nullptr;
  for (Choices& choices : draft.classes) std::erase_if(choices, impossible);
  if (std::all_of(draft.classes.begin(), draft.classes.end(),
                  [](const Choices& choices) { return choices.empty(); })) {
    return;
  }
  const std::shared_ptr<OtherKeys> others = std::make_shared<OtherKeys>();
  others->classes = draft.classes;
  if (draft.any) {
    others->dfa = string_dfa(any_text());
  } else {
    others->dfa = live_keys(draft);
    if (!others->dfa) return;
    budget_.take(others->dfa->bytes_held());
  }
  others->counts = text_counts(others->dfa);
  if (!others->counts->has_enough() && object.members_min > object.properties.size()) {
    draft.keys_max = count_texts(*others->dfa, kDistinctMax);
  }
  object.others = others;
}

// Contents of scalars, for masks that all grammars share; and what all this takes.
Result<void> SchemaTables::measure() {
  size_t bytes = sizeof(JsonTables);
  for (ValueSpec& value : tables_->values) {
    bytes += sizeof(value) + value.strings.capacity() * sizeof(StringSpec);
    for (const StringSpec& text : value.strings) bytes += text.text->bytes_held();
    if (value.number) bytes += value.number->bytes_held();
    if (!value.arrays.empty() || !value.objects.empty()) continue;
    uint64_t content = 0x5ca1a2;
    const auto mix = [&](uint64_t part) {
      content = (content ^ part) * 0xff51afd7ed558ccd;
      content ^= content >> 33;
    };
    mix(static_cast<uint64_t>(value.null_) | static_cast<uint64_t>(value.true_) << 1 |
        static_cast<uint64_t>(value.false_) << 2);
    mix(value.number ? value.number->content : 0);
    for (const StringSpec& text : value.strings) {
      mix(text.text->content);
      mix(text.chars_min);
      mix(text.chars_max);
    }
    value.content = content | 1;
  }
  for (const ArraySpec& array : tables_->arrays) {
    bytes += sizeof(array) + array.prefix.capacity() * 48;
  }
  for (const ObjectSpec& object : tables_->objects) {
    bytes += object.bytes_held();
    if (object.others) bytes += object.others->dfa->bytes_held();
  }
  tables_->bytes_held = bytes;
  if (budget_.exhausted) {
    return Error{ErrorCode::kDoesNotFit, "the schema is too complex", ""};
  }
  return {};
}

}  // namespace pelton::grammar
