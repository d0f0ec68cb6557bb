// Grammars that requests ask for, each tenant's its own: that one is there already shows in how
// soon an answer comes, and what others ask for is nobody's business. They are compiled once while
// they are asked for again: the least recently used goes when all together hold too much. Guards
// itself; any thread. Compiling is bounded (see grammar/json_schema.h) and happens on the caller's
// thread, outside the lock.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "api/output_format.h"
#include "base/json.h"
#include "base/result.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace pelton::server {

class GrammarStore {
 public:
  using Compiled = Result<std::shared_ptr<const grammar::TokenGrammar>>;

  struct Options {
    size_t bytes_max = size_t{256} << 20;  // with the masks that the grammars have cached
    size_t entries_max = 512;              // each is asked what it holds when one is added
  };
  explicit GrammarStore(const Options& options) : options_(options) {}

  // Of the one tokenizer that there is; made when it is first asked for.
  std::shared_ptr<const grammar::TokenTrie> trie(const tokenizer::Tokenizer& tokenizer);

  // Those of one tenant. `owner` outlives it.
  class Shelf {
   public:
    Shelf(GrammarStore& store, std::string_view owner) : store_(store), owner_(owner) {}

    // Errors: kInvalidArgument and kUnsupported, whose field is format.field and whose words name
    // the place within it; never another: too complex a grammar is the caller's doing.
    Compiled compile(const api::OutputFormat& format, const tokenizer::Tokenizer& tokenizer) const;
    std::shared_ptr<const grammar::TokenTrie> trie(const tokenizer::Tokenizer& tokenizer) const {
      return store_.trie(tokenizer);
    }

   private:
    GrammarStore& store_;
    const std::string_view owner_;
  };
  Shelf of(std::string_view owner) { return {*this, owner}; }

  size_t entry_count() const;
  size_t bytes_held() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };
  std::shared_ptr<const grammar::TokenGrammar> find(const std::string& key);
  void keep(std::string key, std::shared_ptr<const grammar::TokenGrammar> grammar);

  const Options options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // guarded by mutex_, as are those below
  std::list<Entry> entries_;                        // last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace pelton::server
