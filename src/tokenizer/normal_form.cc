#include "tokenizer/normal_form.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/character_tables.h"
#include "tokenizer/normal_form_tables.h"
#include "tokenizer/unicode_class.h"

namespace pelton::tokenizer {
namespace {

// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
constexpr uint32_t kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7, kSyllable = 0xAC00;
constexpr uint32_t kLeads = 19, kVowels = 21, kTails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTails;

struct Decomposed {
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

void decompose(uint32_t c, std::vector<Decomposed>& out) {
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
void sort_marks(std::vector<Decomposed>& letters) {
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters[i].combining_class == 0) continue;
    size_t end = i;
    while (end < letters.size() && letters[end].combining_class != 0) ++end;
    std::stable_sort(letters.begin() + static_cast<std::ptrdiff_t>(i),
                     letters.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Decomposed& a, const Decomposed& b) {
                       return a.combining_class < b.combining_class;
                     });
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
void compose(std::vector<Decomposed>& letters) {
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;  // the last letter of class 0, in what is kept
  size_t kept = 0;
  for (const Decomposed letter : letters) {
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

void decompose_all(std::string_view text, std::vector<Decomposed>& out) {
  for (size_t i = 0; i < text.size();) {
    const base::Utf8Step step = base::utf8_step(text.substr(i));
    CHECK(step.kind == base::Utf8Step::Kind::kCodePoint);
    decompose(step.code_point, out);
    i += step.bytes;
  }
}

// Marks that take place, or are written around a letter: they stay.
bool is_wide_mark(uint32_t c) {
  const auto* const found = std::upper_bound(
      std::begin(kWideMarks), std::end(kWideMarks), c,
      [](uint32_t wanted, const CodePointRange& range) { return wanted < range.first; });
  return found != std::begin(kWideMarks) && c <= (found - 1)->last;
}

uint32_t lower_case(uint32_t c) {
  const CaseRun* const found =
      std::upper_bound(std::begin(kCaseRuns), std::end(kCaseRuns), c,
                       [](uint32_t wanted, const CaseRun& run) { return wanted < run.first; });
  if (found == std::begin(kCaseRuns)) return c;
  const CaseRun& run = *(found - 1);
  const bool is_in = c <= run.last && (c - run.first) % run.step == 0;
  return is_in ? c + static_cast<uint32_t>(run.offset) : c;
}

}  // namespace

std::string without_accents(std::string_view text) {
  std::vector<Decomposed> letters;
  decompose_all(text, letters);
  sort_marks(letters);
  std::string out;
  for (const Decomposed letter : letters) {
    const uint32_t c = letter.code_point;
    if (unicode_class(c) != UnicodeClass::kMark || is_wide_mark(c)) base::append_utf8(out, c);
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const base::Utf8Step step = base::utf8_step(text.substr(i));
    CHECK(step.kind == base::Utf8Step::Kind::kCodePoint);
    if (step.code_point == 0x130) {
      out += "i\u0307";  // the one letter whose lower case is two
    } else {
      base::append_utf8(out, lower_case(step.code_point));
    }
    i += step.bytes;
  }
  return out;
}

std::string_view normal_form_c(std::string_view text, std::string& storage) {
  size_t plain = plain_prefix(text);
  if (plain == text.size()) return text;
  // The last character before may take a mark: it comes along.
  while (plain > 0 && (static_cast<unsigned char>(text[--plain]) & 0xC0) == 0x80) {
  }
  std::vector<Decomposed> letters;
  decompose_all(text.substr(plain), letters);
  sort_marks(letters);
  compose(letters);
  storage.assign(text.substr(0, plain));
  for (const Decomposed letter : letters) base::append_utf8(storage, letter.code_point);
  return storage;
}

}  // namespace pelton::tokenizer
