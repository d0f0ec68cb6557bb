#include "grammar/token_trie.h"

#include <algorithm>
#include <array>

#include "grammar/mask_cache.h"
#include "tokenizer/tokenizer.h"

namespace pelton::grammar {
namespace {

constexpr size_t kSharedMaskBytes = 64 << 20;

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string_view> texts)
    : texts_(texts.size()), shared_masks_(std::make_unique<MaskCache>(kSharedMaskBytes)) {
  size_t bytes_in_all = 0;
  for (const std::string_view text : texts) bytes_in_all += text.size();
  pool_.reserve(bytes_in_all);
  quoted_mask_.resize(mask_words(), 0);
  std::vector<ByteTrie::Text> all;
  std::vector<ByteTrie::Text> quoted;
  std::array<bool, 256> single{};
  for (size_t i = 0; i < texts.size(); ++i) {
    texts_[i] = {.begin = static_cast<uint32_t>(pool_.size()),
                 .length = static_cast<uint32_t>(texts[i].size())};
    pool_.insert(pool_.end(), texts[i].begin(), texts[i].end());
    if (texts[i].empty()) continue;
    const TokenId token = static_cast<TokenId>(i);
    all.push_back({.bytes = bytes(token), .token = token});
    if (texts[i].find('"') != std::string_view::npos) {
      quoted.push_back(all.back());
      quoted_mask_[i / 64] |= uint64_t{1} << (i % 64);
    }
    if (texts[i].size() == 1) single[static_cast<uint8_t>(texts[i][0])] = true;
  }
  all_ = ByteTrie(std::move(all));
  quoted_ = ByteTrie(std::move(quoted));
  has_every_byte_ = std::all_of(single.begin(), single.end(), [](bool there) { return there; });
}

TokenTrie::~TokenTrie() = default;

std::string_view TokenTrie::bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const Text& text = texts_[static_cast<size_t>(id)];
  return {pool_.data() + text.begin, text.length};
}

std::shared_ptr<const TokenTrie> TokenTrie::of(const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::string_view> texts(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t i = 0; i < texts.size(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    if (!tokenizer.is_special(id)) texts[i] = tokenizer.bytes(id);
  }
  return std::make_shared<const TokenTrie>(texts);
}

}  // namespace pelton::grammar
