// Where a text stands in a grammar, and which tokens may come next. A value: a copy is a fork (two
// pointers; positions are shared and never change), an older copy is the way back. Whoever owns a
// Matcher may use it from one thread at a time; forks of one are independent, also on other
// threads: what they share (grammar, vocabulary, cached masks) guards itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

class MaskCache;
struct Position;

// A grammar over one vocabulary, with the masks that were computed for it. Shared; any thread.
class TokenGrammar {
 public:
  // Error: kUnsupported if the vocabulary lacks a byte (then a text that the grammar demands might
  // be out of reach).
  static Result<std::shared_ptr<const TokenGrammar>> make(std::shared_ptr<const Grammar> grammar,
                                                          std::shared_ptr<const TokenTrie> trie);
  ~TokenGrammar();
  const Grammar& grammar() const { return *grammar_; }
  const TokenTrie& trie() const { return *trie_; }
  MaskCache& cache() const { return *cache_; }
  // States of an automaton of grammar().rules() that no token of the vocabulary tells apart are of
  // one class: they share a mask.
  uint32_t lexeme_class(uint32_t dfa, DfaState state) const {
    const std::vector<uint32_t>& classes = lexeme_classes_[dfa];
    return classes.empty() ? state : classes[state];
  }
  size_t bytes_held() const;  // with the masks cached so far

 private:
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie);
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::vector<uint32_t>>
      lexeme_classes_;  // by automaton and state; empty: each its own
  std::unique_ptr<MaskCache> cache_;
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const TokenGrammar> grammar);

  // Sets the bits of all tokens that may come next and clears the others. `mask` has
  // trie().mask_words() words; token t is bit t % 64 of word t / 64. Says how many bits are set
  // is not its business: with none set, the text is at its end (can_end()) or nothing can follow,
  // which is an error of the grammar (JS-28), never a reason to draw any token.
  void fill_mask(std::span<uint64_t> mask) const;
  bool allows(TokenId token) const;  // as the mask's bit

  // Goes over the token (its bytes). False, and stays, if the grammar does not allow it.
  [[nodiscard]] bool accept(TokenId token);
  [[nodiscard]] bool accept_bytes(std::string_view bytes);

  // The text so far is complete: the end may come now.
  bool can_end() const;
  // It is complete and nothing may follow.
  bool must_end() const;
  // No continuation is left although the text is not complete.
  bool is_stuck() const;

  // The bytes that must come next whatever is chosen, at most about `bytes_max` of them: as long as
  // exactly one byte is allowed and the text may not end. Whole characters.
  struct Forced {
    std::string bytes;
    bool ends = false;  // behind them nothing may come, and the text is complete
  };
  Forced forced(size_t bytes_max) const;

  const TokenGrammar& grammar() const { return *grammar_; }

 private:
  std::shared_ptr<const TokenGrammar> grammar_;
  std::shared_ptr<const Position> position_;
};

}  // namespace pelton::grammar
