#include "grammar/dfa_table.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

namespace pelton::grammar {
namespace {

// Elements 0..n-1 in blocks that only ever split; a block is a segment of `order_`. Marked elements
// stand at the front of their block.
class Partition {
 public:
  // All in one block, unless there are none.
  explicit Partition(uint32_t count)
      : order_(count), position_(count), block_(count, 0), marked_() {
    std::iota(order_.begin(), order_.end(), 0);
    std::iota(position_.begin(), position_.end(), 0);
    if (count > 0) open_block(0, count);
  }

  // One block for each value of `key`, which is below `keys`.
  Partition(const std::vector<uint32_t>& key, uint32_t keys) : Partition(0) {
    const uint32_t count = static_cast<uint32_t>(key.size());
    order_.resize(count);
    position_.resize(count);
    block_.resize(count);
    std::vector<uint32_t> starts(keys + 1, 0);
    for (const uint32_t k : key) ++starts[k + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    std::vector<uint32_t> fill(starts.begin(), starts.end() - 1);
    for (uint32_t i = 0; i < count; ++i) {
      position_[i] = fill[key[i]]++;
      order_[position_[i]] = i;
    }
    for (uint32_t k = 0; k < keys; ++k) {
      if (starts[k] == starts[k + 1]) continue;
      for (uint32_t at = starts[k]; at < starts[k + 1]; ++at) block_[order_[at]] = block_count();
      open_block(starts[k], starts[k + 1]);
    }
  }

  uint32_t block_count() const { return static_cast<uint32_t>(begin_.size()); }
  uint32_t block_of(uint32_t element) const { return block_[element]; }
  uint32_t begin(uint32_t block) const { return begin_[block]; }
  uint32_t end(uint32_t block) const { return end_[block]; }
  uint32_t element(uint32_t at) const { return order_[at]; }

  void mark(uint32_t element) {
    const uint32_t block = block_[element];
    const uint32_t at = position_[element];
    const uint32_t front = begin_[block] + marked_[block];
    if (at < front) return;
    std::swap(order_[at], order_[front]);
    position_[order_[at]] = at;
    position_[order_[front]] = front;
    if (marked_[block]++ == 0) touched_.push_back(block);
  }

  // Every block that is partly marked becomes two; the smaller one is the new one.
  void split() {
    for (const uint32_t block : touched_) {
      const uint32_t middle = begin_[block] + marked_[block];
      marked_[block] = 0;
      if (middle == end_[block]) continue;
      const uint32_t fresh = block_count();
      if (middle - begin_[block] <= end_[block] - middle) {
        open_block(begin_[block], middle);
        begin_[block] = middle;
      } else {
        open_block(middle, end_[block]);
        end_[block] = middle;
      }
      for (uint32_t at = begin_[fresh]; at < end_[fresh]; ++at) block_[order_[at]] = fresh;
    }
    touched_.clear();
  }

 private:
  void open_block(uint32_t from, uint32_t to) {
    begin_.push_back(from);
    end_.push_back(to);
    marked_.push_back(0);
  }

  std::vector<uint32_t> order_, position_, block_;
  std::vector<uint32_t> begin_, end_, marked_;
  std::vector<uint32_t> touched_;
};

// The transitions between living states.
struct Arrows {
  std::vector<uint32_t> tail, letter, head;
};

// Which states accept something, seen backwards from those that accept.
std::vector<uint8_t> living_states(const DfaTable& table) {
  const uint32_t states = table.state_count();
  std::vector<uint32_t> starts(states + 1, 0);
  for (size_t i = 0; i < table.next.size(); ++i) ++starts[table.next[i] + 1];
  // The dead state leads nowhere that lives, and most arrows lead to it: they are left out.
  starts[kDeadState + 1] = 0;
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<uint32_t> from(starts[states]);
  std::vector<uint32_t> fill(starts.begin(), starts.end() - 1);
  for (uint32_t s = 0; s < states; ++s) {
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      const DfaState to = table.at(s, letter);
      if (to != kDeadState) from[fill[to]++] = s;
    }
  }
  std::vector<uint8_t> living(states, 0);
  std::vector<uint32_t> todo;
  for (uint32_t s = 0; s < states; ++s) {
    if (table.accepting[s] != 0) {
      living[s] = 1;
      todo.push_back(s);
    }
  }
  while (!todo.empty()) {
    const uint32_t s = todo.back();
    todo.pop_back();
    for (uint32_t i = starts[s]; i < starts[s + 1]; ++i) {
      if (living[from[i]] != 0) continue;
      living[from[i]] = 1;
      todo.push_back(from[i]);
    }
  }
  return living;
}

// Only what is reached through living states, in the order of a walk by breadth.
DfaTable trimmed(const DfaTable& table) {
  const std::vector<uint8_t> living = living_states(table);
  DfaTable out = DfaTable::with_letters(table.letter_count);
  if (living[table.start] == 0) return out;
  std::vector<DfaState> number(table.state_count(), kDeadState);
  std::vector<DfaState> order = {table.start};
  number[table.start] = 1;
  for (size_t i = 0; i < order.size(); ++i) {
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      const DfaState to = table.at(order[i], letter);
      if (living[to] == 0 || number[to] != kDeadState) continue;
      order.push_back(to);
      number[to] = static_cast<DfaState>(order.size());
    }
  }
  out.start = 1;
  out.accepting.reserve(order.size() + 1);
  out.next.resize((order.size() + 1) * table.letter_count, kDeadState);
  for (size_t i = 0; i < order.size(); ++i) {
    out.accepting.push_back(table.accepting[order[i]]);
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      out.next[(i + 1) * table.letter_count + letter] = number[table.at(order[i], letter)];
    }
  }
  return out;
}

Arrows living_arrows(const DfaTable& table) {
  Arrows arrows;
  const auto living = static_cast<size_t>(
      std::count_if(table.next.begin(), table.next.end(), [](DfaState s) { return s != 0; }));
  for (std::vector<uint32_t>* column : {&arrows.tail, &arrows.letter, &arrows.head}) {
    column->reserve(living);
  }
  for (uint32_t s = 1; s < table.state_count(); ++s) {
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      const DfaState to = table.at(s, letter);
      if (to == kDeadState) continue;
      arrows.tail.push_back(s);
      arrows.letter.push_back(letter);
      arrows.head.push_back(to);
    }
  }
  return arrows;
}

// Blocks of states that accept the same: Hopcroft's refinement, driven by a partition of the arrows
// as in Valmari, "Fast brief practical DFA minimization" (2012), so that missing arrows cost
// nothing. Of ab | bb as a tree, with the states 1 start, 2 behind a, 3 behind b, 4 behind ab, 5
// behind bb, of which 4 and 5 accept:
//   blocks {0} {1 2 3} {4 5}; arrows by letter: a {1->2}, b {1->3 2->4 3->5}
//   the tails of a's arrows split {1 2 3} into {1} and {2 3}; arrows by the block they lead to: b
//   becomes {1->3} and {2->4 3->5}
//   their tails {1} and {2 3} split nothing more: 2 and 3 are one, 4 and 5 are one
Partition equivalent_states(const DfaTable& table, const Arrows& arrows) {
  const uint32_t states = table.state_count();
  const uint32_t arrow_count = static_cast<uint32_t>(arrows.tail.size());
  std::vector<uint32_t> key(states);
  for (uint32_t s = 0; s < states; ++s) key[s] = s == kDeadState ? 0 : 1 + table.accepting[s];
  Partition blocks(key, 3);
  Partition cords(arrows.letter, std::max(table.letter_count, 1u));

  std::vector<uint32_t> starts(states + 1, 0);
  for (const uint32_t head : arrows.head) ++starts[head + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<uint32_t> into(arrow_count);
  std::vector<uint32_t> fill(starts.begin(), starts.end() - 1);
  for (uint32_t a = 0; a < arrow_count; ++a) into[fill[arrows.head[a]]++] = a;

  // Beyond its first block every block of states has sorted the arrows into it once.
  uint32_t blocks_done = 1;
  for (uint32_t cord = 0; cord < cords.block_count(); ++cord) {
    for (uint32_t at = cords.begin(cord); at < cords.end(cord); ++at) {
      blocks.mark(arrows.tail[cords.element(at)]);
    }
    blocks.split();
    for (; blocks_done < blocks.block_count(); ++blocks_done) {
      for (uint32_t at = blocks.begin(blocks_done); at < blocks.end(blocks_done); ++at) {
        const uint32_t s = blocks.element(at);
        for (uint32_t i = starts[s]; i < starts[s + 1]; ++i) cords.mark(into[i]);
      }
      cords.split();
    }
  }
  return blocks;
}

}  // namespace

DfaTable DfaTable::with_letters(uint32_t letters) {
  DfaTable table;
  table.letter_count = letters;
  table.add_state();
  return table;
}

DfaState DfaTable::add_state() {
  next.resize(next.size() + letter_count, kDeadState);
  accepting.push_back(0);
  return static_cast<DfaState>(accepting.size() - 1);
}

DfaTable minimised(const DfaTable& table) {
  const DfaTable lean = trimmed(table);
  if (lean.start == kDeadState) return lean;
  const Arrows arrows = living_arrows(lean);
  const Partition blocks = equivalent_states(lean, arrows);
  if (blocks.block_count() == lean.state_count()) return lean;

  DfaTable merged = DfaTable::with_letters(lean.letter_count);
  merged.next.resize(static_cast<size_t>(blocks.block_count()) * lean.letter_count, kDeadState);
  merged.accepting.resize(blocks.block_count(), 0);
  // The dead state is alone in block 0: no living state is in its company.
  for (uint32_t block = 1; block < blocks.block_count(); ++block) {
    const DfaState s = blocks.element(blocks.begin(block));
    merged.accepting[block] = lean.accepting[s];
    for (uint32_t letter = 0; letter < lean.letter_count; ++letter) {
      merged.at(block, letter) = blocks.block_of(lean.at(s, letter));
    }
  }
  merged.start = blocks.block_of(lean.start);
  return trimmed(merged);
}

// Moore's refinement, stopped after `length_max` rounds: two states are in one class if they are it
// so far, and each letter leads them into one class. Of a{1000}, where state k still needs 1000 - k
// letters, with length_max 2:
//   before    dead | 0 .. 999 | 1000
//   round 1   dead | 0 .. 998 | 999 | 1000
//   round 2   dead | 0 .. 997 | 998 | 999 | 1000
// All tokens of up to two bytes are alike to 0 and 997, so these share one mask.
std::vector<uint32_t> alike_states(const DfaTable& table, uint32_t length_max, uint64_t& work_left,
                                   const CompileDeadline* deadline) {
  constexpr uint32_t kStatesMin = 256;
  const uint32_t states = table.state_count();
  const uint64_t round_work = uint64_t{states} * (table.letter_count + 1);
  if (states < kStatesMin || round_work * length_max > work_left) return {};
  std::vector<uint32_t> classes(states), finer(states);
  for (DfaState state = 0; state < states; ++state) {
    classes[state] = state == kDeadState ? 0 : 1u + table.accepting[state];
  }
  uint32_t count = static_cast<uint32_t>(std::set<uint32_t>(classes.begin(), classes.end()).size());
  for (uint32_t round = 0; round < length_max; ++round) {
    work_left -= round_work;
    // By what a state is, and what each letter makes of it.
    std::unordered_map<std::string, uint32_t> numbers;
    std::string key;
    for (DfaState state = 0; state < states; ++state) {
      if (deadline != nullptr && state % 256 == 0 && deadline->passed()) return {};
      key.assign(reinterpret_cast<const char*>(&classes[state]), sizeof(uint32_t));
      for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
        const uint32_t next = classes[table.at(state, letter)];
        key.append(reinterpret_cast<const char*>(&next), sizeof(next));
      }
      finer[state] = numbers.emplace(key, static_cast<uint32_t>(numbers.size())).first->second;
    }
    classes.swap(finer);
    const auto found = static_cast<uint32_t>(numbers.size());
    if (found == count) break;  // nothing distinguishes more of them
    count = found;
  }
  if (count == states) return {};
  return classes;
}

}  // namespace pelton::grammar
