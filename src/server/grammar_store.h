// Grammars that requests ask for, each tenant's its own: that one is there already shows in how
// soon an answer comes, and what others ask for is nobody's business. They are compiled once while
// they are asked for again: the least recently used goes when all together hold too much. Guards
// itself; any thread may look for what is known. Compiling takes until the deadline that the caller
// gives, on its thread and outside the lock: see format_compiler.h for which threads do.
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
#include "grammar/compile_deadline.h"
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

  // Those of one tenant, and what may be done for one that is not known. What it is given outlives
  // it.
  class Shelf {
   public:
    // Errors, whose field is format.field and whose words name the place within it:
    // kInvalidArgument and kUnsupported (too complex a grammar is the caller's doing); kDeadline
    // where the deadline has passed; kNotFound where none may be compiled.
    Compiled grammar(const api::OutputFormat& format, const tokenizer::Tokenizer& tokenizer) const;
    // Of the one tokenizer that there is; made when it is first asked for. Null where none may be.
    std::shared_ptr<const grammar::TokenTrie> trie(const tokenizer::Tokenizer& tokenizer) const;

   private:
    friend class GrammarStore;
    Shelf(GrammarStore& store, std::string_view owner, const grammar::CompileDeadline* deadline)
        : store_(store), owner_(owner), deadline_(deadline) {}

    GrammarStore& store_;
    const std::string_view owner_;
    const grammar::CompileDeadline* const deadline_;  // null: nothing is compiled
  };
  Shelf known_of(std::string_view owner) { return {*this, owner, nullptr}; }
  Shelf compiling_of(std::string_view owner, const grammar::CompileDeadline& deadline) {
    return {*this, owner, &deadline};
  }

  size_t entry_count() const;
  size_t bytes_held() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };
  std::shared_ptr<const grammar::TokenGrammar> find(const std::string& key);
  std::shared_ptr<const grammar::TokenTrie> known_trie() const;
  void keep(std::string key, std::shared_ptr<const grammar::TokenGrammar> grammar);

  const Options options_;
  std::mutex trie_making_;  // held for long: whoever comes second waits for the first one's
  mutable std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // guarded by mutex_, as are those below
  std::list<Entry> entries_;                        // last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace pelton::server
