#include "tokenizer/normal_form.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/machine.h"
#include "base/random.h"
#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

std::string form(std::string_view text) {
  std::string storage;
  return std::string(normal_form_c(text, storage));
}

std::string utf8(std::initializer_list<uint32_t> code_points) {
  std::string text;
  for (const uint32_t c : code_points) base::append_utf8(text, c);
  return text;
}

TEST(NormalFormC, ComposesAndOrders) {
  EXPECT_EQ(form("plain"), "plain");
  EXPECT_EQ(form(utf8({'e', 0x301})), utf8({0xE9}));
  EXPECT_EQ(form(utf8({'a', 'e', 0x301, 'b'})), utf8({'a', 0xE9, 'b'}));
  EXPECT_EQ(form(utf8({'a', 0x301, 0x323})), utf8({0x1EA1, 0x301}));  // the lower class first
  EXPECT_EQ(form(utf8({'a', 0x315, 0x300, 0x5AE, 0x300, 'b'})),
            utf8({0xE0, 0x5AE, 0x300, 0x315, 'b'}));
  EXPECT_EQ(form(utf8({0x212B})), utf8({0xC5}));                    // the unit is the letter
  EXPECT_EQ(form(utf8({0x958})), utf8({0x915, 0x93C}));             // never composed
  EXPECT_EQ(form(utf8({0x1100, 0x1161, 0x11A8})), utf8({0xAC01}));  // Hangul
  EXPECT_EQ(form(utf8({0xAC00, 0x11A8})), utf8({0xAC01}));
  EXPECT_EQ(form(utf8({0xAC01, 0x11A8})), utf8({0xAC01, 0x11A8}));
  EXPECT_EQ(form(utf8({0x301, 'a'})), utf8({0x301, 'a'}));
}

// What Python's unicodedata (Unicode 14) makes of the same texts, as a hash.
TEST(NormalFormC, IsThatOfAnotherLibraryAroundEveryCodePoint) {
  base::Digest digest(base::Digest::Kind::kSha256);
  const std::string acute = utf8({0x301});
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string x = utf8({c});
    digest.update(form(x + acute + "a" + x + utf8({0x327, 0x301}) + x + x +
                       utf8({0x1161, 0x11A8, 'e', 0x301}) + x));
  }
  EXPECT_EQ(digest.finish(), "2eb75b0249bf0c29ce6717dab5a1849311155f52784a87170cfca71906c546eb");
}

TEST(NormalFormC, IsThatOfAnotherLibraryOnRandomText) {
  static constexpr uint32_t kBlocks[] = {
      0x0041, 0x0061, 0x00C0, 0x0300, 0x0320, 0x0340, 0x0370,  0x03B1,  0x0590,
      0x0620, 0x0650, 0x0930, 0x09C0, 0x0B40, 0x0BC0, 0x0DD0,  0x0F40,  0x0F70,
      0x1020, 0x1100, 0x1161, 0x11A8, 0x1B00, 0x1E00, 0x1F00,  0x2126,  0x212A,
      0x2ADC, 0x3040, 0x3099, 0xAC00, 0xF900, 0xFB1D, 0x11099, 0x1D15E, 0x2F800};
  base::Digest digest(base::Digest::Kind::kSha256);
  for (uint64_t i = 0; i < 20'000; ++i) {
    std::string text;
    const uint64_t length = base::random_bits(5, i * 64) % 20;
    for (uint64_t j = 0; j < length; ++j) {
      const uint64_t r = base::random_bits(5, i * 64 + 1 + j);
      base::append_utf8(text, kBlocks[r % std::size(kBlocks)] + (r >> 32) % 32);
    }
    digest.update(form(text));
    digest.update({"", 1});
  }
  EXPECT_EQ(digest.finish(), "07cf7a58ba3598b290fe33ea1db5140fa8bb9620b7264cb666f79c6b4dbb19c0");
}

// TK-20: form C grows by a factor of three at most, and a million marks on one letter are sorted,
// not bubbled.
TEST(NormalFormC, StaysBounded) {
  for (const uint32_t c : {0x1D160u, 0x390u, 0xFDFAu, 0xFB2Cu, 0x958u}) {
    const std::string x = utf8({c});
    EXPECT_LE(form(x).size(), 3 * x.size()) << c;
  }
  std::string marks = "a";
  for (int i = 0; i < 500'000; ++i) marks += utf8({i % 2 == 0 ? 0x315u : 0x323u});
  const int64_t start_ns = base::thread_cpu_ns();
  EXPECT_EQ(form(marks).size(), marks.size() - 1 - 2 + 3);  // one mark joined the letter
  const double took_s = static_cast<double>(base::thread_cpu_ns() - start_ns) * 1e-9;
  EXPECT_LT(took_s, 5.0);
}

}  // namespace
}  // namespace pelton::tokenizer
