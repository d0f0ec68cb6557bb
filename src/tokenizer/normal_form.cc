#include "tokenizer/normal_form.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/normal_form_tables.h"

namespace pelton::tokenizer {
namespace {

// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
constexpr uint32_t kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7, kSyllable = 0xAC00;
constexpr uint32_t kLeads = 19, kVowels = 21, kTails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTails;

struct Letter {
  uint32_t code_point;
  uint8_t combining_class;
};

uint8_t combining_class(uint32_t c) {
  if (c < kCombiningRanges[0].first) return 0;
  const CombiningRange* const found =
      std::upper_bound(
          std::begin(kCombiningRanges), std::end(kCombiningRanges), c,
          [](uint32_t wanted, const CombiningRange& range) { return wanted < range.first; }) -
      1;
  return c <= found->last ? found->combining_class : 0;
}

const Decomposition* decomposition(uint32_t c) {
  const Decomposition* const found = std::lower_bound(
      std::begin(kDecompositions), std::end(kDecompositions), c,
      [](const Decomposition& entry, uint32_t wanted) { return entry.code_point < wanted; });
  return found != std::end(kDecompositions) && found->code_point == c ? found : nullptr;
}

void decompose(uint32_t c, std::vector<Letter>& out) {
  if (c - kSyllable < kSyllables) {
    const uint32_t index = c - kSyllable;
    out.push_back({kLead + index / (kVowels * kTails), 0});
    out.push_back({kVowel + index % (kVowels * kTails) / kTails, 0});
    if (index % kTails != 0) out.push_back({kTail + index % kTails, 0});
    return;
  }
  const Decomposition* const entry = decomposition(c);
  if (entry == nullptr) {
    out.push_back({c, combining_class(c)});
    return;
  }
  for (int i = 0; i < entry->count; ++i) {
    const uint32_t letter = kDecompositionLetters[entry->at + i];
    out.push_back({letter, combining_class(letter)});
  }
}

// Marks behind a letter, by rising class; marks of one class keep their order.
void sort_marks(std::vector<Letter>& letters) {
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters[i].combining_class == 0) continue;
    size_t end = i;
    while (end < letters.size() && letters[end].combining_class != 0) ++end;
    std::stable_sort(
        letters.begin() + static_cast<std::ptrdiff_t>(i),
        letters.begin() + static_cast<std::ptrdiff_t>(end),
        [](const Letter& a, const Letter& b) { return a.combining_class < b.combining_class; });
    i = end - 1;
  }
}

// 0 if they do not make one character.
uint32_t composed(uint32_t left, uint32_t right) {
  if (left - kLead < kLeads && right - kVowel < kVowels) {
    return kSyllable + ((left - kLead) * kVowels + (right - kVowel)) * kTails;
  }
  if (left - kSyllable < kSyllables && (left - kSyllable) % kTails == 0 && right > kTail &&
      right - kTail < kTails) {
    return left + (right - kTail);
  }
  const Composition* const found =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions),
                       Composition{left, right, 0}, [](const Composition& a, const Composition& b) {
                         return a.left != b.left ? a.left < b.left : a.right < b.right;
                       });
  const bool there =
      found != std::end(kCompositions) && found->left == left && found->right == right;
  return there ? found->whole : 0;
}

// Each mark goes into the last letter unless something between them is in the way.
void compose(std::vector<Letter>& letters) {
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;  // the last letter of class 0, in what is kept
  size_t kept = 0;
  for (const Letter letter : letters) {
    if (starter != kNone) {
      const bool adjacent = kept == starter + 1;
      const uint8_t before = letters[kept - 1].combining_class;
      // Blocked if the letter between has no lower class; class 0 between never lets pass.
      if (adjacent || (before != 0 && before < letter.combining_class)) {
        if (const uint32_t whole = composed(letters[starter].code_point, letter.code_point)) {
          letters[starter].code_point = whole;
          continue;
        }
      }
    }
    if (letter.combining_class == 0) starter = kept;
    letters[kept++] = letter;
  }
  letters.resize(kept);
}

// Below U+0300 nothing decomposes that would not be composed again, and nothing combines.
size_t plain_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0xCC) ++i;
  return i;
}

}  // namespace

std::string_view normal_form_c(std::string_view text, std::string& storage) {
  size_t plain = plain_prefix(text);
  if (plain == text.size()) return text;
  // The last character before may take a mark: it comes along.
  while (plain > 0 && (static_cast<unsigned char>(text[--plain]) & 0xC0) == 0x80) {
  }
  std::vector<Letter> letters;
  for (size_t i = plain; i < text.size();) {
    const base::Utf8Step step = base::utf8_step(text.substr(i));
    CHECK(step.kind == base::Utf8Step::Kind::kCodePoint);
    decompose(step.code_point, letters);
    i += step.bytes;
  }
  sort_marks(letters);
  compose(letters);
  storage.assign(text.substr(0, plain));
  for (const Letter letter : letters) base::append_utf8(storage, letter.code_point);
  return storage;
}

}  // namespace pelton::tokenizer
