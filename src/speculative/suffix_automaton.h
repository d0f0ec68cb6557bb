// A suffix automaton of a text that grows token by token: which is the longest end of the text that
// stood in it before, and where? Online and amortised O(1) a token (Blumer et al. 1985); as a
// proposer's memory: SAM decoding (Hu et al. 2024). Its memory is taken at once and bounded: a text
// of `tokens_max`. Owned by one proposer; its thread.
//
// A state stands for all parts of the text that end at the same positions; `length` is that of the
// longest one, `link` leads to the state of the longest end that also stands elsewhere. So the link
// of the state of the whole text is the match that is asked for:
//
//   text  a b c x a b      the longest end that stood there before: a b, behind which c came
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/token_id.h"

namespace pelton::speculative {

class SuffixAutomaton {
 public:
  explicit SuffixAutomaton(int tokens_max);

  static int64_t bytes_for(int tokens_max);
  int64_t bytes() const;

  void clear();
  bool full() const { return size_ == tokens_max_; }
  int size() const { return size_; }

  // The text goes on with this token; it must not be full.
  void extend(TokenId token);

  struct Match {
    int length = 0;  // of the longest end of the text that stood in it before; 0: none
    // Tokens of the text up to and with an earlier place of it. The latest one, unless the match is
    // nested in many others (kLinksRenewed), as in a text that repeats one token.
    int end = 0;
  };
  Match match() const { return match_; }

  // When a token comes, so many of the shorter ends are noted as standing here now: a bound on
  // the work of a token.
  static constexpr int kLinksRenewed = 16;

 private:
  struct State {
    int32_t length = 0;
    int32_t link = -1;
    int32_t end = 0;         // of one of its places
    TokenId token = -1;      // most states have one successor, by this token;
    int32_t successor = -1;  // negative: none
  };
  // The further successors of states: an open hash table.
  struct Edge {
    int32_t state = -1;
    TokenId token = -1;
    int32_t successor = -1;
  };

  int add_state(const State& state);
  int successor(int state, TokenId token) const;
  void set_successor(int state, TokenId token, int successor);
  void copy_successors(int from, int to);
  size_t edge_at(int state, TokenId token) const;

  const int tokens_max_;
  int size_ = 0;
  int last_ = 0;  // the state of the whole text
  Match match_;
  std::vector<State> states_;
  // By state: the first of its further successors' tokens, as a list through edges_.
  std::vector<Edge> edges_;
  std::vector<int32_t> next_edge_;   // by edge: the next one of the same state
  std::vector<int32_t> first_edge_;  // by state
};

}  // namespace pelton::speculative
