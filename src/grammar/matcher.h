// Where a text stands in a grammar, and which tokens may come next. A value: a copy is a fork (two
// pointers; positions are shared and never change), an older copy is the way back. Whoever owns a
// Matcher may use it from one thread at a time; forks of one are independent, also on other
// threads: what they share (grammar, vocabulary, cached masks) guards itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"
#include "grammar/trie_merge.h"
#include "grammar/work_budget.h"

namespace pelton::grammar {

class MaskCache;
struct Position;

// A grammar over one vocabulary, with the masks that were computed for it. Shared; any thread.
class TokenGrammar {
 public:
  // Errors: kUnsupported if the vocabulary lacks a byte (then a text that the grammar demands might
  // be out of reach), or if the first token's mask exceeds kWorkMax: such a grammar is refused
  // before anything is generated; kDoesNotFit once the deadline (null: none) has passed().
  static Result<std::shared_ptr<const TokenGrammar>> make(std::shared_ptr<const Grammar> grammar,
                                                          std::shared_ptr<const TokenTrie> trie,
                                                          const CompileDeadline* deadline);
  static Result<std::shared_ptr<const TokenGrammar>> make(std::shared_ptr<const Grammar> grammar,
                                                          std::shared_ptr<const TokenTrie> trie);
  // Of a few words of our own: no mask is computed before it is asked for.
  static Result<std::shared_ptr<const TokenGrammar>> of_words(
      std::shared_ptr<const Grammar> words, std::shared_ptr<const TokenTrie> trie);
  ~TokenGrammar();
  const Grammar& grammar() const { return *grammar_; }
  const TokenTrie& trie() const { return *trie_; }
  MaskCache& cache() const { return *cache_; }
  // The vocabulary as far as the grammar distinguishes its tokens; any, if the budget is exhausted.
  // Made on the first call; later ones are charged the same work.
  const ByteTrie& tokens(WorkBudget& budget) const;
  const ByteAliases& aliases() const { return aliases_; }
  // States of an automaton of grammar().rules() that no token of the vocabulary distinguishes are
  // of one class: they share a mask.
  uint32_t lexeme_class(uint32_t dfa, DfaState state) const {
    const std::vector<uint32_t>& classes = lexeme_classes_[dfa];
    return classes.empty() ? state : classes[state];
  }
  // Where every text begins.
  const std::shared_ptr<const Position>& start() const { return start_; }
  size_t bytes_held() const;  // with the masks cached so far

 private:
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie);
  static Result<std::shared_ptr<TokenGrammar>> started(std::shared_ptr<const Grammar> grammar,
                                                       std::shared_ptr<const TokenTrie> trie,
                                                       WorkBudget& budget);
  void find_classes(const CompileDeadline* deadline);
  Result<void> try_start(WorkBudget& budget);
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::vector<uint32_t>>
      lexeme_classes_;  // by automaton and state; empty: each its own
  std::unique_ptr<MaskCache> cache_;
  std::shared_ptr<const Position> start_;
  ByteAliases aliases_;
  mutable std::mutex merging_;
  mutable std::atomic<const ByteTrie*> merged_ = nullptr;  // merged_tokens_, once asked for
  mutable ByteTrie merged_tokens_;                         // guarded by merging_, then constant
  mutable int64_t merged_work_ = 0;                        // likewise: what it took
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const TokenGrammar> grammar);

  // What takes a budget means nothing if that is exhausted afterwards, and the matcher stays where
  // it was. What takes none has no limit: for tools and tests.

  // Sets the bits of all tokens that may come next and clears the others. `mask` has
  // trie().mask_words() words; token t is bit t % 64 of word t / 64. With none set, the text is at
  // its end (can_end()) or nothing can follow, which is an error of the grammar (JS-28), never a
  // reason to draw any token.
  void fill_mask(std::span<uint64_t> mask, WorkBudget& budget) const;
  void fill_mask(std::span<uint64_t> mask) const;
  bool allows(TokenId token) const;  // as the mask's bit

  // Goes over the token (its bytes). False, and stays, if the grammar does not allow it.
  [[nodiscard]] bool accept(TokenId token, WorkBudget& budget);
  [[nodiscard]] bool accept(TokenId token);
  [[nodiscard]] bool accept_bytes(std::string_view bytes, WorkBudget& budget);
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
  Forced forced(size_t bytes_max, WorkBudget& budget) const;
  Forced forced(size_t bytes_max) const;

  const TokenGrammar& grammar() const { return *grammar_; }

 private:
  std::shared_ptr<const TokenGrammar> grammar_;
  std::shared_ptr<const Position> position_;
};

}  // namespace pelton::grammar
