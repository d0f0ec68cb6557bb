#include "grammar/token_trie.h"

#include <algorithm>
#include <array>

#include "grammar/mask_cache.h"
#include "tokenizer/tokenizer.h"

namespace pelton::grammar {
namespace {

constexpr size_t kSharedMaskBytes = 64 << 20;

// How UTF-8 goes on: the least and greatest next byte, and how many after that one.
struct Utf8Place {
  uint8_t low = 0;
  uint8_t high = 0;
  uint8_t left = 0;  // bytes of the character that are still missing
  bool valid = true;
};

Utf8Place after_byte(const Utf8Place& place, uint8_t byte) {
  if (!place.valid) return place;
  if (place.left > 0) {
    if (byte < place.low || byte > place.high) return {.valid = false};
    return {.low = 0x80, .high = 0xBF, .left = static_cast<uint8_t>(place.left - 1)};
  }
  if (byte < 0x80) return {};
  if (byte >= 0xC2 && byte <= 0xDF) return {.low = 0x80, .high = 0xBF, .left = 1};
  if (byte >= 0xE0 && byte <= 0xEF) {
    const uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = byte == 0xED ? 0x9F : 0xBF;
    return {.low = low, .high = high, .left = 2};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    const uint8_t low = byte == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;
    return {.low = low, .high = high, .left = 3};
  }
  return {.valid = false};
}

}  // namespace

uint8_t kind_of_ascii(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return kLowerKind;
  if (byte >= 'A' && byte <= 'Z') return kUpperKind;
  if (byte >= '0' && byte <= '9') return kDigitKind;
  switch (byte) {
    case '-':
    case '_':
      return kDashKind;
    case '.':
    case '/':
    case ':':
    case '@':
      return kPathKind;
    case ' ':
      return kSpaceKind;
    case '"':
    case '\\':
      return 0;
    default:
      return byte > 0x20 && byte < 0x80 ? kOtherKind : 0;
  }
}

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
  find_kinds();
  quoted_ = ByteTrie(std::move(quoted));
  has_every_byte_ = std::all_of(single.begin(), single.end(), [](bool there) { return there; });
}

// Down for where characters begin, up again for what is below. Of the tokens ab, a1, U+00E9 (C3
// A9), c and c": below node "a" is {kLowerKind | kDigitKind, 2 characters}; below "c" is nothing
// plain, for there is a quotation mark; node C3 is {kWideKind, 1 character}, and A9, in the middle
// of one, has no kinds of its own.
void TokenTrie::find_kinds() {
  const ByteTrie::Node* nodes = all_.nodes();
  const uint32_t count = all_.node_count();
  below_.resize(count);
  std::vector<Utf8Place> path(all_.depth_max() + 1);
  std::vector<uint8_t> own(count, 0);
  std::vector<uint8_t> begins(count, 0);
  for (uint32_t i = 1; i < count; ++i) {
    const Utf8Place& before = path[nodes[i].depth - 1u];
    begins[i] = before.valid && before.left == 0 ? 1 : 0;
    path[nodes[i].depth] = after_byte(before, nodes[i].byte);
    if (!path[nodes[i].depth].valid) continue;
    own[i] = nodes[i].byte >= 0x80 ? uint8_t{kWideKind} : kind_of_ascii(nodes[i].byte);
  }
  for (uint32_t i = count; i-- > 1;) {
    uint8_t kinds = own[i];
    uint16_t most = 0;
    for (uint32_t child = i + 1; child < nodes[i].subtree_end; child = nodes[child].subtree_end) {
      if (below_[child].kinds == 0) kinds = 0;
      if (kinds != 0) kinds |= below_[child].kinds;
      most = std::max(most, below_[child].chars_max);
    }
    const bool counts = (nodes[i].byte & 0xC0) != 0x80;
    below_[i] = {.kinds = kinds, .chars_max = static_cast<uint16_t>(most + (counts ? 1 : 0))};
  }
  // Within a character nothing can be said at once, but what stands above may.
  for (uint32_t i = 1; i < count; ++i) {
    if (begins[i] == 0) below_[i].kinds = 0;
  }
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
  const auto trie = std::make_shared<TokenTrie>(texts);
  trie->tokenizer_ = &tokenizer;
  return trie;
}

void TokenTrie::spell(std::string_view text, std::vector<TokenId>& out) const {
  if (tokenizer_ != nullptr) return tokenizer_->encode(text, out);
  const ByteTrie::Node* const nodes = all_.nodes();
  while (!text.empty()) {
    uint32_t at = 0;
    uint32_t longest = 0;
    for (const char byte : text) {
      uint32_t child = at + 1;
      const uint32_t end = nodes[at].subtree_end;
      while (child < end && nodes[child].byte != static_cast<uint8_t>(byte)) {
        child = nodes[child].subtree_end;
      }
      if (child >= end) break;
      at = child;
      if (!all_.tokens_of(at).empty()) longest = at;
    }
    if (longest == 0) return;  // a vocabulary without this byte
    out.push_back(all_.tokens_of(longest)[0]);
    text.remove_prefix(nodes[longest].depth);
  }
}

}  // namespace pelton::grammar
