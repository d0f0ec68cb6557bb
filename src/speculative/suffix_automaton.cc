#include "speculative/suffix_automaton.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace pelton::speculative {
namespace {

constexpr int32_t kNone = -1;

// A text of n tokens has at most 2n states, and n edges beyond one a state: 3n in all.
size_t states_for(int tokens_max) {
  return 2 * static_cast<size_t>(tokens_max) + 1;
}

size_t edges_for(int tokens_max) {
  return std::bit_ceil(static_cast<size_t>(tokens_max) * 3 / 2 + 4);
}

}  // namespace

SuffixAutomaton::SuffixAutomaton(int tokens_max) : tokens_max_(tokens_max) {
  CHECK(tokens_max > 0);
  states_.reserve(states_for(tokens_max));
  first_edge_.reserve(states_for(tokens_max));
  edges_.resize(edges_for(tokens_max));
  next_edge_.resize(edges_.size());
  clear();
}

int64_t SuffixAutomaton::bytes_for(int tokens_max) {
  return static_cast<int64_t>(states_for(tokens_max) * (sizeof(State) + sizeof(int32_t)) +
                              edges_for(tokens_max) * (sizeof(Edge) + sizeof(int32_t)));
}

int64_t SuffixAutomaton::bytes() const {
  return static_cast<int64_t>(
      states_.capacity() * sizeof(State) + first_edge_.capacity() * sizeof(int32_t) +
      edges_.capacity() * sizeof(Edge) + next_edge_.capacity() * sizeof(int32_t));
}

// The table of edges is large and mostly empty behind a short text: only what was used of it.
void SuffixAutomaton::clear() {
  for (int32_t at : first_edge_) {
    for (; at != kNone; at = next_edge_[static_cast<size_t>(at)]) {
      edges_[static_cast<size_t>(at)] = {};
    }
  }
  states_.clear();
  first_edge_.clear();
  size_ = 0;
  match_ = {};
  last_ = add_state({});
}

int SuffixAutomaton::add_state(const State& state) {
  states_.push_back(state);
  first_edge_.push_back(kNone);
  return static_cast<int>(states_.size()) - 1;
}

void SuffixAutomaton::extend(TokenId token) {
  CHECK(size_ < tokens_max_, "a suffix automaton that is full");
  ++size_;
  const int whole = add_state({.length = size_, .end = size_});
  int state = last_;
  int next = kNone;
  for (; state != kNone && (next = successor(state, token)) == kNone;
       state = states_[static_cast<size_t>(state)].link) {
    set_successor(state, token, whole);
  }
  int link = 0;
  if (state != kNone) {
    const int length = states_[static_cast<size_t>(state)].length + 1;
    link = next;
    if (states_[static_cast<size_t>(next)].length != length) {
      // `next` also stands for longer ones, which do not end here: the shorter ones get a state.
      State shorter = states_[static_cast<size_t>(next)];
      shorter.length = length;
      shorter.token = kNone;
      shorter.successor = kNone;
      link = add_state(shorter);
      copy_successors(next, link);
      states_[static_cast<size_t>(next)].link = link;
      for (; state != kNone && successor(state, token) == next;
           state = states_[static_cast<size_t>(state)].link) {
        set_successor(state, token, link);
      }
    }
  }
  states_[static_cast<size_t>(whole)].link = link;
  last_ = whole;
  match_ = {.length = states_[static_cast<size_t>(link)].length,
            .end = states_[static_cast<size_t>(link)].end};
  for (int i = 0; i < kLinksRenewed && link > 0; ++i) {
    states_[static_cast<size_t>(link)].end = size_;
    link = states_[static_cast<size_t>(link)].link;
  }
}

int SuffixAutomaton::successor(int state, TokenId token) const {
  const State& from = states_[static_cast<size_t>(state)];
  if (from.successor == kNone) return kNone;
  if (from.token == token) return from.successor;
  if (first_edge_[static_cast<size_t>(state)] == kNone) return kNone;
  return edges_[edge_at(state, token)].successor;
}

void SuffixAutomaton::set_successor(int state, TokenId token, int successor) {
  State& from = states_[static_cast<size_t>(state)];
  if (from.successor == kNone || from.token == token) {
    from.token = token;
    from.successor = successor;
    return;
  }
  const size_t at = edge_at(state, token);
  if (edges_[at].successor == kNone) {
    next_edge_[at] = first_edge_[static_cast<size_t>(state)];
    first_edge_[static_cast<size_t>(state)] = static_cast<int32_t>(at);
  }
  edges_[at] = {.state = state, .token = token, .successor = successor};
}

void SuffixAutomaton::copy_successors(int from, int to) {
  const State& state = states_[static_cast<size_t>(from)];
  if (state.successor != kNone) set_successor(to, state.token, state.successor);
  for (int32_t at = first_edge_[static_cast<size_t>(from)]; at != kNone;
       at = next_edge_[static_cast<size_t>(at)]) {
    const Edge& edge = edges_[static_cast<size_t>(at)];
    set_successor(to, edge.token, edge.successor);
  }
}

// Where that edge is, or would be.
size_t SuffixAutomaton::edge_at(int state, TokenId token) const {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 | static_cast<uint32_t>(token);
  const size_t mask = edges_.size() - 1;
  size_t at = base::mix64(key) & mask;
  while (edges_[at].successor != kNone &&
         (edges_[at].state != state || edges_[at].token != token)) {
    at = (at + 1) & mask;
  }
  return at;
}

}  // namespace pelton::speculative
