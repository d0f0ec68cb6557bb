#include "server/grammar_store.h"

#include <utility>

#include <fmt/format.h>

#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/structural_tag.h"

namespace pelton::server {
namespace {

using api::OutputFormat;
using grammar::Grammar;
using Kind = OutputFormat::Kind;

grammar::SchemaOptions::Whitespace whitespace_of(const OutputFormat& format) {
  return format.compact ? grammar::SchemaOptions::Whitespace::kNone
                        : grammar::SchemaOptions::Whitespace::kFlexible;
}

std::string key_of(const OutputFormat& format) {
  switch (format.kind) {
    case Kind::kJsonObject:
      return format.compact ? "compact object" : "object";
    case Kind::kJsonSchema:
      return (format.compact ? "compact schema " : "schema ") + format.schema.dump();
    case Kind::kStructuralTag:
      return "tag " + format.schema.dump();
    case Kind::kRegex:
      return "regex " + format.text;
    case Kind::kGrammar:
      return "grammar " + format.text;
    case Kind::kChoice:
      break;
  }
  std::string key = "choice";
  for (const std::string& text : format.choices) key += fmt::format(" {}:{}", text.size(), text);
  return key;
}

Result<std::shared_ptr<const Grammar>> compile_text(const OutputFormat& format) {
  switch (format.kind) {
    case Kind::kJsonObject:
      return grammar::any_json_object(whitespace_of(format));
    case Kind::kJsonSchema:
      return grammar::compile_json_schema(format.schema, {.whitespace = whitespace_of(format)});
    case Kind::kStructuralTag:
      return grammar::compile_structural_tag(format.schema, {});
    case Kind::kRegex: {
      TRY_ASSIGN(
          grammar::ByteDfa dfa,
          grammar::compile_regex(format.text, {.match = grammar::RegexOptions::Match::kWhole}));
      return Grammar::from_dfa(std::move(dfa));
    }
    case Kind::kGrammar:
      return grammar::compile_ebnf(format.text);
    case Kind::kChoice:
      break;
  }
  return grammar::compile_choice(format.choices);
}

// What the compiler says, in the request's terms.
Error in_request(const OutputFormat& format, const Error& error) {
  const bool has_place = format.kind == Kind::kJsonSchema || format.kind == Kind::kStructuralTag;
  const std::string place =
      has_place ? fmt::format(" at '{}'", error.field.empty() ? "/" : error.field) : std::string();
  Error told{ErrorCode::kInvalidArgument,
             fmt::format("'{}'{}: {}", format.field, place, error.message), format.field};
  if (error.code == ErrorCode::kUnsupported) told.code = ErrorCode::kUnsupported;
  return told;
}

}  // namespace

std::shared_ptr<const grammar::TokenTrie> GrammarStore::trie(
    const tokenizer::Tokenizer& tokenizer) {
  // Under the lock: whoever comes second waits for the first one's.
  const std::lock_guard lock(mutex_);
  if (!trie_) trie_ = grammar::TokenTrie::of(tokenizer);
  return trie_;
}

GrammarStore::Compiled GrammarStore::Shelf::compile(const OutputFormat& format,
                                                    const tokenizer::Tokenizer& tokenizer) const {
  std::string key = fmt::format("{}:{} {}", owner_.size(), owner_, key_of(format));
  if (auto known = store_.find(key)) return known;
  Result<std::shared_ptr<const Grammar>> compiled = compile_text(format);
  if (!compiled.ok()) return in_request(format, compiled.error());
  auto made = grammar::TokenGrammar::make(*std::move(compiled), trie(tokenizer));
  if (!made.ok()) return in_request(format, made.error());
  store_.keep(std::move(key), *made);
  return made;
}

std::shared_ptr<const grammar::TokenGrammar> GrammarStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at->second);
  return at->second->grammar;
}

void GrammarStore::keep(std::string key, std::shared_ptr<const grammar::TokenGrammar> grammar) {
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;  // another thread was faster
  entries_.push_front({std::move(key), std::move(grammar)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  size_t bytes = 0;
  size_t kept = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += entry->key.size() * 2 + entry->grammar->bytes_held();
    if (++kept == 1 || (bytes <= options_.bytes_max && kept <= options_.entries_max)) {
      ++entry;
      continue;
    }
    by_key_.erase(entry->key);
    entry = entries_.erase(entry);
  }
}

size_t GrammarStore::entry_count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t GrammarStore::bytes_held() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.key.size() * 2 + entry.grammar->bytes_held();
  return bytes;
}

}  // namespace pelton::server
