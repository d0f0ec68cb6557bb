#include "server/token_sets.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/token_id.h"

namespace pelton::server {

TokenSets::Set TokenSets::containing(const std::vector<std::string>& texts,
                                     const tokenizer::Tokenizer& tokenizer) {
  const std::lock_guard lock(mutex_);
  if (const auto known = kept_.find(texts); known != kept_.end()) return known->second;
  if (begins_.empty()) lay_out(tokenizer);
  auto set = std::make_shared<std::vector<uint64_t>>((begins_.size() + 62) / 64, 0);
  for (const std::string& text : texts) add_containing(text, *set);
  if (kept_.size() >= kKeptMax) kept_.clear();
  kept_.emplace(texts, set);
  return set;
}

void TokenSets::lay_out(const tokenizer::Tokenizer& tokenizer) {
  begins_.push_back(0);
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    // A control token has no text that a model would say.
    if (!tokenizer.is_special(token)) texts_ += tokenizer.bytes(token);
    begins_.push_back(texts_.size());
  }
}

void TokenSets::add_containing(const std::string& text, std::vector<uint64_t>& set) const {
  CHECK(!text.empty());
  const std::string_view all = texts_;
  for (size_t at = all.find(text); at != std::string_view::npos;) {
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), at);
    const auto token = static_cast<size_t>(next - begins_.begin()) - 1;
    const bool is_within = at + text.size() <= *next;
    if (is_within) set[token / 64] |= uint64_t{1} << (token % 64);
    at = all.find(text, is_within ? *next : at + 1);
  }
}

}  // namespace pelton::server
