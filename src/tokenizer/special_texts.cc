#include "tokenizer/special_texts.h"

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/unicode_class.h"

namespace pelton::tokenizer {
namespace {

constexpr uint32_t kNoNode = 0;  // the root is nobody's child

uint64_t edge(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

bool is_white_space(uint32_t code_point) {
  const UnicodeClass of = unicode_class(code_point);
  return of == UnicodeClass::kSpace || of == UnicodeClass::kNewline;
}

}  // namespace

size_t white_space_at_front(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const base::Utf8Step step = base::utf8_step(text.substr(end));
    if (step.kind != base::Utf8Step::Kind::kCodePoint || !is_white_space(step.code_point)) break;
    end += step.bytes;
  }
  return end;
}

size_t white_space_at_end(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t first = begin - 1;
    while (first > 0 && (text[first] & 0xC0) == 0x80) --first;
    const base::Utf8Step step = base::utf8_step(text.substr(first, begin - first));
    if (step.kind != base::Utf8Step::Kind::kCodePoint || step.bytes != begin - first) break;
    if (!is_white_space(step.code_point)) break;
    begin = first;
  }
  return text.size() - begin;
}

uint32_t SpecialTexts::child(uint32_t node, char byte) const {
  const auto found = children_.find(edge(node, byte));
  return found == children_.end() ? kNoNode : found->second;
}

bool SpecialTexts::add(std::string_view text, TokenId id) {
  CHECK(!text.empty());
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [place, added] =
        children_.try_emplace(edge(node, byte), static_cast<uint32_t>(ids_.size()));
    if (added) ids_.push_back(kNoToken);
    node = place->second;
  }
  if (ids_[node] != kNoToken) return false;
  ids_[node] = id;
  starts_[static_cast<uint8_t>(text[0])] = true;
  return true;
}

TokenId SpecialTexts::find(std::string_view text) const {
  uint32_t node = 0;
  for (const char byte : text) {
    node = child(node, byte);
    if (node == kNoNode) return kNoToken;
  }
  return ids_[node];
}

void SpecialTexts::each_at(std::string_view text, size_t begin,
                           base::FunctionRef<void(size_t length, TokenId id)> found) const {
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == kNoNode) break;
    if (ids_[node] != kNoToken) found(i + 1 - begin, ids_[node]);
  }
}

std::optional<SpecialTexts::Match> SpecialTexts::match_at(std::string_view text,
                                                          size_t begin) const {
  std::optional<Match> longest;
  each_at(text, begin, [&](size_t length, TokenId id) { longest = Match{begin, length, id}; });
  return longest;
}

std::optional<SpecialTexts::Match> SpecialTexts::next(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    const std::optional<Match> match = match_at(text, begin);
    if (match) return match;
  }
  return std::nullopt;
}

}  // namespace pelton::tokenizer
