#include "server/grammar_store.h"

#include <unordered_set>
#include <utility>
#include <vector>

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

// Of one part: the request's deadline says how long all its formats may take.
constexpr int64_t kNoTimeOfItsOwn = int64_t{3600} * 1'000'000;

Result<std::shared_ptr<const Grammar>> compile_text(const OutputFormat& format,
                                                    const grammar::CompileDeadline* deadline) {
  switch (format.kind) {
    case Kind::kJsonObject:
      return grammar::any_json_object(whitespace_of(format));
    case Kind::kJsonSchema:
      return grammar::compile_json_schema(format.schema, {.whitespace = whitespace_of(format),
                                                          .time_us_max = kNoTimeOfItsOwn,
                                                          .deadline = deadline});
    case Kind::kStructuralTag:
      return grammar::compile_structural_tag(
          format.schema, {.time_us_max = kNoTimeOfItsOwn, .deadline = deadline});
    case Kind::kRegex: {
      TRY_ASSIGN(grammar::ByteDfa dfa,
                 grammar::compile_regex(format.text, {.match = grammar::RegexOptions::Match::kWhole,
                                                      .limits = {.deadline = deadline}}));
      return Grammar::from_dfa(std::move(dfa));
    }
    case Kind::kGrammar:
      return grammar::compile_ebnf(format.text, deadline);
    case Kind::kChoice:
      break;
  }
  return grammar::compile_choice(format.choices, deadline);
}

// What the compiler says, in the request's terms. FormatCompiler words a deadline's error itself.
Error in_request(const OutputFormat& format, const Error& error) {
  if (error.code == ErrorCode::kDeadline) return {error.code, error.message, format.field};
  const bool has_place = format.kind == Kind::kJsonSchema || format.kind == Kind::kStructuralTag;
  const std::string place =
      has_place ? fmt::format(" at '{}'", error.field.empty() ? "/" : error.field) : std::string();
  Error reported{ErrorCode::kInvalidArgument,
                 fmt::format("'{}'{}: {}", format.field, place, error.message), format.field};
  if (error.code == ErrorCode::kUnsupported) reported.code = ErrorCode::kUnsupported;
  return reported;
}

Error out_of_time() {
  return {ErrorCode::kDeadline, "compiling takes too long", ""};
}

}  // namespace

std::shared_ptr<const grammar::TokenTrie> GrammarStore::known_trie() const {
  const std::lock_guard lock(mutex_);
  return trie_;
}

std::shared_ptr<const grammar::TokenTrie> GrammarStore::TenantView::trie(
    const tokenizer::Tokenizer& tokenizer) const {
  auto known = store_.known_trie();
  if (known || deadline_ == nullptr) return known;
  const std::lock_guard making(store_.trie_making_);
  known = store_.known_trie();
  if (known) return known;
  const int64_t left_us = deadline_->left_us();
  known = grammar::TokenTrie::of(tokenizer);
  deadline_->extend(left_us - deadline_->left_us());
  const std::lock_guard lock(store_.mutex_);
  store_.trie_ = known;
  return known;
}

GrammarStore::Compiled GrammarStore::TenantView::grammar(
    const OutputFormat& format, const tokenizer::Tokenizer& tokenizer) const {
  std::string key = fmt::format("{}:{} {}", owner_.size(), owner_, key_of(format));
  if (auto known = store_.find(key)) return known;
  if (const std::optional<Error> refusal = store_.find_refusal(key)) {
    return in_request(format, *refusal);
  }
  if (deadline_ == nullptr) return Error{ErrorCode::kNotFound, "not compiled yet", format.field};
  if (deadline_->passed()) return in_request(format, out_of_time());
  const int64_t left_us = deadline_->left_us();
  Compiled made = compile(format, tokenizer);
  if (made.ok()) {
    store_.keep(std::move(key), *made);
    return made;
  }
  // That it takes too long is known once it had all the time that there is, not what others left.
  const bool had_all = is_last_try_ && left_us >= deadline_->cpu_us_max() / 10 * 9;
  const bool is_costly = left_us - deadline_->left_us() >= store_.options_.refusal_us_min;
  const bool is_final =
      made.error().code != ErrorCode::kDeadline || (had_all && deadline_->is_used_up());
  if (is_costly && is_final) store_.keep_refusal(std::move(key), made.error());
  return in_request(format, made.error());
}

// As grammar(), but what the compiler says.
GrammarStore::Compiled GrammarStore::TenantView::compile(
    const OutputFormat& format, const tokenizer::Tokenizer& tokenizer) const {
  Result<std::shared_ptr<const Grammar>> compiled = compile_text(format, deadline_);
  if (deadline_->passed()) return out_of_time();
  if (!compiled.ok()) return compiled.error();
  auto made = grammar::TokenGrammar::make(*std::move(compiled), trie(tokenizer), deadline_);
  if (!made.ok() && deadline_->passed()) return out_of_time();
  return made;
}

std::optional<Error> GrammarStore::find_refusal(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = refused_.find(key);
  if (at == refused_.end()) return std::nullopt;
  refusals_.splice(refusals_.begin(), refusals_, at->second);
  return at->second->error;
}

void GrammarStore::keep_refusal(std::string key, const Error& error) {
  const auto bytes_of = [](const Refusal& one) {
    return sizeof(one) + one.key.size() + one.error.message.size();
  };
  const std::lock_guard lock(mutex_);
  if (refused_.contains(key)) return;  // another thread was faster
  refusals_.push_front({std::move(key), error});
  refused_.emplace(refusals_.front().key, refusals_.begin());
  refusal_bytes_ += bytes_of(refusals_.front());
  while (refusals_.size() > options_.refusals_max || refusal_bytes_ > options_.refusal_bytes_max) {
    refusal_bytes_ -= bytes_of(refusals_.back());
    refused_.erase(refusals_.back().key);
    refusals_.pop_back();
  }
}

std::shared_ptr<const grammar::TokenGrammar> GrammarStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at->second);
  return at->second->grammar;
}

// What they hold is counted outside the lock: whoever compiles may have a low priority, and net
// threads look for what is known under it. Those that go are let go outside it too.
void GrammarStore::keep(std::string key, std::shared_ptr<const grammar::TokenGrammar> grammar) {
  struct Known {
    size_t key_bytes = 0;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };
  std::vector<Known> all;
  {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(key)) return;  // another thread was faster
    entries_.push_front({std::move(key), std::move(grammar)});
    by_key_.emplace(entries_.front().key, entries_.begin());
    for (const Entry& entry : entries_) all.push_back({entry.key.size(), entry.grammar});
  }
  std::unordered_set<const grammar::TokenGrammar*> too_much;
  size_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    bytes += all[i].key_bytes * 2 + all[i].grammar->bytes_held();
    const bool fits = bytes <= options_.bytes_max && i < options_.entries_max;
    if (i > 0 && !fits) too_much.insert(all[i].grammar.get());
  }
  if (too_much.empty()) return;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (!too_much.contains(entry->grammar.get())) {
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

size_t GrammarStore::refusal_count() const {
  const std::lock_guard lock(mutex_);
  return refusals_.size();
}

size_t GrammarStore::bytes_held() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = refusal_bytes_;
  for (const Entry& entry : entries_) bytes += entry.key.size() * 2 + entry.grammar->bytes_held();
  return bytes;
}

}  // namespace pelton::server
