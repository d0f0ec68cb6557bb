#include "grammar/letters.h"

#include <algorithm>

#include <fmt/format.h>

#include "grammar/list_interner.h"

namespace pelton::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;

// Bytes after the first are distinguished by the same few bounds again and again, so UTF-8 is cut
// into a tree of blocks: a block of level 0 is 64 code points that share all but the last byte, one
// of level 1 is 64 blocks of level 0, and so on. Equal blocks are one.
//
// Of [U+00E0-U+00FF], letter 1, and all else, letter 0: the lead byte C3 has the block of U+00C0 to
// U+00FF, whose first 32 columns (80 to 9F) are letter 0 and whose last 32 (A0 to BF) letter 1; all
// other leads of two bytes share the block of nothing but letter 0. So the columns are of two
// classes, and the automaton over bytes is start -C3-> inside -A0..BF-> end.
class Utf8Blocks {
 public:
  explicit Utf8Blocks(std::span<const Letters::Run> runs) : runs_(runs) {
    for (uint32_t lead = 0xC2; lead <= 0xDF; ++lead) {
      leads_[lead] = block(0, (lead & 0x1F) << 6, 0x80);
    }
    for (uint32_t lead = 0xE0; lead <= 0xEF; ++lead) {
      leads_[lead] = block(1, (lead & 0x0F) << 12, 0x800);
    }
    for (uint32_t lead = 0xF0; lead <= 0xF4; ++lead) {
      leads_[lead] = block(2, (lead & 0x07) << 18, 0x10000);
    }
    put_columns_in_classes();
  }

  uint32_t block_of_lead(size_t byte) const { return leads_[byte]; }
  uint32_t block_count() const { return static_cast<uint32_t>(levels_.size()); }
  int level(uint32_t block) const { return levels_[block]; }
  // What stands at a continuation byte's class: a letter at level 0, else a block below.
  uint32_t entry(uint32_t block, uint32_t column_class) const {
    return static_cast<uint32_t>(interner_.list(block)[representative_[column_class] + 1]);
  }
  uint32_t column_class(size_t byte) const { return class_of_column_[byte - 0x80]; }
  uint32_t column_classes() const { return static_cast<uint32_t>(representative_.size()); }

 private:
  uint32_t letter_at(uint32_t point) {
    // Blocks are asked for in order, nearly: the last run is where to look first.
    if (runs_[run_].first > point) run_ = 0;
    while (run_ + 1 < runs_.size() && runs_[run_ + 1].first <= point) ++run_;
    return runs_[run_].letter;
  }

  // Whether [first, last] is all one letter, or all outside of texts; says which.
  bool is_uniform(uint32_t first, uint32_t last, uint32_t lowest, uint32_t& letter) {
    if (last < lowest || first > kLastCodePoint ||
        (first >= kFirstSurrogate && last <= kLastSurrogate)) {
      letter = kNoLetter;
      return true;
    }
    if (first < lowest || last > kLastCodePoint ||
        (first <= kLastSurrogate && last >= kFirstSurrogate)) {
      return false;
    }
    letter = letter_at(first);
    return run_ + 1 == runs_.size() || last < runs_[run_ + 1].first;
  }

  uint32_t block(int level, uint32_t first, uint32_t lowest) {
    const uint32_t size = 64u << (6 * level);
    uint64_t list[65];
    list[0] = static_cast<uint64_t>(level);
    uint32_t letter = 0;
    if (is_uniform(first, first + size - 1, lowest, letter)) {
      std::fill(list + 1, list + 65, level == 0 ? letter : uniform_block(level - 1, letter));
    } else {
      const uint32_t step = size / 64;
      for (uint32_t i = 0; i < 64; ++i) {
        const uint32_t at = first + i * step;
        if (is_uniform(at, at + step - 1, lowest, letter)) {
          list[i + 1] = level == 0 ? letter : uniform_block(level - 1, letter);
        } else {
          list[i + 1] = block(level - 1, at, lowest);
        }
      }
    }
    return number_of(level, list);
  }

  uint32_t uniform_block(int level, uint32_t letter) {
    if (last_uniform_[level].letter == letter && last_uniform_[level].known) {
      return last_uniform_[level].block;
    }
    uint64_t list[65];
    list[0] = static_cast<uint64_t>(level);
    std::fill(list + 1, list + 65, level == 0 ? letter : uniform_block(level - 1, letter));
    const uint32_t block = number_of(level, list);
    last_uniform_[level] = {letter, block, true};
    return block;
  }

  uint32_t number_of(int level, const uint64_t (&list)[65]) {
    const uint32_t number = interner_.number_of(list);
    if (number == levels_.size()) levels_.push_back(level);
    return number;
  }

  void put_columns_in_classes() {
    uint32_t classes = 1;
    uint32_t split_into[64];
    uint64_t value_of[64];
    for (uint32_t b = 0; b < block_count(); ++b) {
      // Within an old class, each new value opens a class; the first keeps the old one's number.
      const std::span<const uint64_t> list = interner_.list(b);
      const uint32_t old_classes = classes;
      std::fill(split_into, split_into + 64, 0);
      uint32_t parent[64];
      for (uint32_t c = 0; c < old_classes; ++c) parent[c] = c;
      bool seen[64] = {};
      for (uint32_t column = 0; column < 64; ++column) {
        const uint32_t old = class_of_column_[column];
        const uint64_t value = list[column + 1];
        if (!seen[old]) {
          seen[old] = true;
          value_of[old] = value;
          continue;
        }
        if (value_of[old] == value) continue;
        uint32_t c = old_classes;
        while (c < classes && (parent[c] != old || value_of[c] != value)) ++c;
        if (c == classes) {
          parent[c] = old;
          value_of[c] = value;
          ++classes;
        }
        class_of_column_[column] = c;
      }
    }
    representative_.assign(classes, 0);
    for (uint32_t column = 64; column-- > 0;) representative_[class_of_column_[column]] = column;
  }

  struct Uniform {
    uint32_t letter = 0;
    uint32_t block = 0;
    bool known = false;
  };

  std::span<const Letters::Run> runs_;
  size_t run_ = 0;
  ListInterner interner_;
  std::vector<int> levels_;
  Uniform last_uniform_[3];
  uint32_t leads_[256] = {};
  uint32_t class_of_column_[64] = {};
  std::vector<uint32_t> representative_;
};

// Writes the table over bytes: each state of the table over letters, and after it the states within
// a code point, shared among all states that lead to the same places.
class ByteTable {
 public:
  ByteTable(const DfaTable& table, std::span<const Letters::Run> runs, const DfaLimits& limits)
      : table_(table), blocks_(runs), limits_(limits) {
    give_classes(runs);
    // Letters past ASCII, in a list: what they lead to decides the states within a code point.
    std::vector<uint8_t> seen(table.letter_count, 0);
    for (size_t i = 0; i < runs.size(); ++i) {
      const uint32_t end = i + 1 < runs.size() ? runs[i + 1].first : kLastCodePoint + 1;
      if (end <= 0x80 || seen[runs[i].letter] != 0) continue;
      seen[runs[i].letter] = 1;
      beyond_ascii_.push_back(runs[i].letter);
    }
  }

  Result<ByteDfa> build() {
    out_ = DfaTable::with_letters(class_count_);
    for (DfaState s = 1; s < table_.state_count(); ++s) {
      out_.accepting[out_.add_state()] = table_.accepting[s];
    }
    out_.start = table_.start;
    for (DfaState s = 1; s < table_.state_count(); ++s) {
      TRY(limits_.in_time(s));
      for (const auto& [byte_class, letter] : ascii_classes_) {
        out_.at(s, byte_class) = table_.at(s, letter);
      }
      TRY(write_beyond_ascii(s));
    }
    return ByteDfa(class_of_, out_);
  }

 private:
  void give_classes(std::span<const Letters::Run> runs) {
    std::vector<uint32_t> class_of_letter(table_.letter_count, kNoLetter);
    size_t run = 0;
    for (uint32_t byte = 0; byte < 0x80; ++byte) {
      while (run + 1 < runs.size() && runs[run + 1].first <= byte) ++run;
      const uint32_t letter = runs[run].letter;
      if (class_of_letter[letter] == kNoLetter) {
        class_of_letter[letter] = class_count_;
        ascii_classes_.emplace_back(class_count_++, letter);
      }
      class_of_[byte] = static_cast<uint8_t>(class_of_letter[letter]);
    }
    first_column_class_ = class_count_;
    class_count_ += blocks_.column_classes();
    for (size_t byte = 0x80; byte < 0xC0; ++byte) {
      class_of_[byte] = static_cast<uint8_t>(first_column_class_ + blocks_.column_class(byte));
    }
    const uint32_t never = class_count_++;
    std::vector<std::pair<uint32_t, uint32_t>> class_of_block;
    for (size_t byte = 0xC0; byte < 0x100; ++byte) {
      class_of_[byte] = static_cast<uint8_t>(never);
      if (byte < 0xC2 || byte > 0xF4) continue;
      const uint32_t block = blocks_.block_of_lead(byte);
      const auto known = std::find_if(class_of_block.begin(), class_of_block.end(),
                                      [&](const auto& pair) { return pair.first == block; });
      if (known == class_of_block.end()) {
        class_of_[byte] = static_cast<uint8_t>(class_count_);
        class_of_block.emplace_back(block, class_count_++);
      } else {
        class_of_[byte] = static_cast<uint8_t>(known->second);
      }
    }
    lead_classes_ = std::move(class_of_block);
  }

  Result<void> write_beyond_ascii(DfaState s) {
    std::vector<uint64_t> targets;
    bool any = false;
    for (const uint32_t letter : beyond_ascii_) {
      targets.push_back(table_.at(s, letter));
      any = any || targets.back() != kDeadState;
    }
    if (!any) return {};
    const uint32_t known = seen_targets_.number_of(targets);
    if (known == lead_states_.size()) {
      TRY_ASSIGN(std::vector<DfaState> states, within_code_points(s));
      lead_states_.push_back(std::move(states));
    }
    for (size_t i = 0; i < lead_classes_.size(); ++i) {
      out_.at(s, lead_classes_[i].second) = lead_states_[known][i];
    }
    return {};
  }

  // A state for each lead class, with all that stands below it, leading to where `s` leads.
  Result<std::vector<DfaState>> within_code_points(DfaState s) {
    std::vector<DfaState> state_of_block(blocks_.block_count(), kDeadState);
    // Blocks are numbered after those they consist of.
    for (uint32_t b = 0; b < blocks_.block_count(); ++b) {
      std::vector<uint64_t> row(blocks_.column_classes());
      bool any = false;
      for (uint32_t c = 0; c < row.size(); ++c) {
        const uint32_t entry = blocks_.entry(b, c);
        const bool letter = blocks_.level(b) == 0;
        row[c] = !letter              ? state_of_block[entry]
                 : entry == kNoLetter ? kDeadState
                                      : table_.at(s, entry);
        any = any || row[c] != kDeadState;
      }
      if (!any) continue;
      const uint32_t known = rows_.number_of(row);
      if (known == row_states_.size()) {
        if (out_.state_count() >= limits_.states_max || out_.next.size() > limits_.cells_max) {
          return Error{ErrorCode::kDoesNotFit,
                       fmt::format("the automaton over bytes would need more than {} states or {} "
                                   "cells",
                                   limits_.states_max, limits_.cells_max),
                       ""};
        }
        const DfaState fresh = out_.add_state();
        row_states_.push_back(fresh);
        for (uint32_t c = 0; c < row.size(); ++c) {
          out_.at(fresh, first_column_class_ + c) = static_cast<DfaState>(row[c]);
        }
      }
      state_of_block[b] = row_states_[known];
    }
    std::vector<DfaState> out;
    for (const auto& [block, byte_class] : lead_classes_) out.push_back(state_of_block[block]);
    return out;
  }

  const DfaTable& table_;
  const Utf8Blocks blocks_;
  const DfaLimits& limits_;
  ByteDfa::ByteClasses class_of_{};
  uint32_t class_count_ = 0;
  uint32_t first_column_class_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> ascii_classes_;  // byte class, letter
  std::vector<std::pair<uint32_t, uint32_t>> lead_classes_;   // block, byte class
  std::vector<uint32_t> beyond_ascii_;
  DfaTable out_;
  ListInterner seen_targets_;
  std::vector<std::vector<DfaState>> lead_states_;  // by number in seen_targets_
  ListInterner rows_;
  std::vector<DfaState> row_states_;  // by number in rows_
};

}  // namespace

Result<Letters> Letters::of_sets(std::span<const CodePointSet> sets, uint64_t work_max) {
  std::vector<uint32_t> bounds = {0};
  for (const CodePointSet& set : sets) {
    for (const CodePointRange& range : set.ranges()) {
      bounds.push_back(range.first);
      bounds.push_back(range.last + 1);
    }
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  if (bounds.back() > kLastCodePoint) bounds.pop_back();

  // Every set splits the classes that it covers in part, or renames those that it covers whole.
  std::vector<uint32_t> class_of(bounds.size(), 0);
  std::vector<uint32_t> renamed = {kNoLetter};
  uint64_t work = bounds.size();
  const auto pieces_of = [&](const CodePointSet& set, const auto& visit) {
    for (const CodePointRange& range : set.ranges()) {
      auto at = static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), range.first) -
                                    bounds.begin());
      for (; at < bounds.size() && bounds[at] <= range.last; ++at, ++work) visit(at);
    }
  };
  for (const CodePointSet& set : sets) {
    const uint32_t old_count = static_cast<uint32_t>(renamed.size());
    std::vector<uint32_t> touched;
    pieces_of(set, [&](size_t at) {
      const uint32_t old = class_of[at];
      if (renamed[old] == kNoLetter) {
        renamed[old] = static_cast<uint32_t>(renamed.size());
        renamed.push_back(kNoLetter);
        touched.push_back(old);
      }
      class_of[at] = renamed[old];
    });
    for (const uint32_t old : touched) renamed[old] = kNoLetter;
    work += renamed.size() - old_count;
    if (work > work_max) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("the sets of characters have more than {} pieces", work_max), ""};
    }
  }

  Letters letters;
  std::vector<uint32_t> number(renamed.size(), kNoLetter);
  for (size_t at = 0; at < bounds.size(); ++at) {
    uint32_t& letter = number[class_of[at]];
    if (letter == kNoLetter) letter = letters.count_++;
    class_of[at] = letter;
    if (letters.runs_.empty() || letters.runs_.back().letter != letter) {
      letters.runs_.push_back({bounds[at], letter});
    }
  }
  std::vector<uint32_t> last_set(letters.count_, kNoLetter);
  letters.of_set_.resize(sets.size());
  for (uint32_t i = 0; i < sets.size(); ++i) {
    pieces_of(sets[i], [&](size_t at) {
      if (last_set[class_of[at]] == i) return;
      last_set[class_of[at]] = i;
      letters.of_set_[i].push_back(class_of[at]);
    });
  }
  return letters;
}

Result<ByteDfa> Letters::to_bytes(const DfaTable& table, const DfaLimits& limits) const {
  return ByteTable(table, runs_, limits).build();
}

}  // namespace pelton::grammar
