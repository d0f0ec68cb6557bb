// Grammars that requests ask for, each tenant's its own: that one is there already shows in how
// soon an answer comes, and what others ask for is nobody's business. They are compiled once while
// they are asked for again: the least recently used goes when all together hold too much. So are
// refusals that took long to find out, in a list of their own, so that they crowd out no grammar.
// Guards itself; any thread may look for what is known. Compiling takes until the deadline that the
// caller gives, on its thread and outside the lock: see format_compiler.h for which threads do.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
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
    size_t refusals_max = 256;
    size_t refusal_bytes_max = size_t{16} << 20;  // with the texts of the formats
    int64_t refusal_us_min = 1000;                // what took less is found out again
  };
  explicit GrammarStore(const Options& options) : options_(options) {}

  // Those of one tenant, and what may be done for one that is not known. What it is given outlives
  // it.
  class TenantView {
   public:
    // Errors, whose field is format.field and whose words name the place within it:
    // kInvalidArgument and kUnsupported (too complex a grammar is the caller's doing); kDeadline
    // where the deadline has passed, or had passed when the format was last compiled for as long as
    // any may be; kNotFound where none may be compiled.
    Compiled grammar(const api::OutputFormat& format, const tokenizer::Tokenizer& tokenizer) const;
    // Of the one tokenizer that there is; made when it is first asked for, which counts against no
    // deadline: no format can be compiled without it. Null where none may be made.
    std::shared_ptr<const grammar::TokenTrie> trie(const tokenizer::Tokenizer& tokenizer) const;

   private:
    friend class GrammarStore;
    TenantView(GrammarStore& store, std::string_view owner, grammar::CompileDeadline* deadline,
               bool is_last_try)
        : store_(store), owner_(owner), deadline_(deadline), is_last_try_(is_last_try) {}
    Compiled compile(const api::OutputFormat& format, const tokenizer::Tokenizer& tokenizer) const;

    GrammarStore& store_;
    const std::string_view owner_;
    grammar::CompileDeadline* const deadline_;  // null: nothing is compiled
    const bool is_last_try_;                    // no other has a later deadline
  };
  struct Try {
    grammar::CompileDeadline& deadline;
    bool is_last = true;
  };
  TenantView known_of(std::string_view owner) { return {*this, owner, nullptr, false}; }
  TenantView compiling_of(std::string_view owner, const Try& one) {
    return {*this, owner, &one.deadline, one.is_last};
  }

  size_t entry_count() const;  // of grammars
  size_t refusal_count() const;
  size_t bytes_held() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };
  struct Refusal {
    std::string key;
    Error error;  // as the compiler says it; kDeadline: it takes longer than any may
  };
  std::shared_ptr<const grammar::TokenGrammar> find(const std::string& key);
  std::optional<Error> find_refusal(const std::string& key);
  std::shared_ptr<const grammar::TokenTrie> known_trie() const;
  void keep(std::string key, std::shared_ptr<const grammar::TokenGrammar> grammar);
  void keep_refusal(std::string key, const Error& error);

  const Options options_;
  std::mutex trie_making_;  // held for long: whoever comes second waits for the first one's
  mutable std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // guarded by mutex_, as are those below
  std::list<Entry> entries_;                        // last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  std::list<Refusal> refusals_;  // last used first
  std::unordered_map<std::string_view, std::list<Refusal>::iterator> refused_;
  size_t refusal_bytes_ = 0;
};

}  // namespace pelton::server
