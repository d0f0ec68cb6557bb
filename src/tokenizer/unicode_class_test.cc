// The generated table against PCRE2 itself, every code point.
#include "tokenizer/unicode_class.h"

#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

class UnicodeClassTest : public testing::Test {
 protected:
  UnicodeClassTest() {
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      places_.push_back({static_cast<uint32_t>(text_.size()), c});
      base::append_utf8(text_, c);
    }
  }

  // Fails unless exactly the code points of class `kind` match `pattern`, one character each.
  void expect_class(UnicodeClass kind, const char* pattern) {
    int error = 0;
    size_t offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    ASSERT_NE(code, nullptr);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    int wrong = 0;
    for (const auto& [place, code_point] : places_) {
      const bool matches =
          pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), place,
                      PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match, nullptr) >= 0;
      if (matches == (unicode_class(code_point) == kind)) continue;
      if (++wrong < 5) ADD_FAILURE() << std::hex << "U+" << code_point << " and " << pattern;
    }
    EXPECT_EQ(wrong, 0);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }

 private:
  struct Place {
    uint32_t begin;
    uint32_t code_point;
  };
  std::string text_;
  std::vector<Place> places_;
};

TEST_F(UnicodeClassTest, AgreesWithPcre2OnEveryCodePoint) {
  expect_class(UnicodeClass::kUpper, R"([\p{Lu}\p{Lt}])");
  expect_class(UnicodeClass::kLower, R"(\p{Ll})");
  expect_class(UnicodeClass::kCaseless, R"([\p{Lm}\p{Lo}])");
  expect_class(UnicodeClass::kMark, R"(\p{M})");
  expect_class(UnicodeClass::kNumber, R"(\p{N})");
  expect_class(UnicodeClass::kSpace, R"((?![\r\n])\p{White_Space})");
  expect_class(UnicodeClass::kNewline, R"([\r\n])");
  expect_class(UnicodeClass::kOther, R"([^\p{L}\p{M}\p{N}\p{White_Space}])");
}

TEST(UnicodeClass, SurrogatesAreNothing) {
  for (uint32_t c = 0xD800; c < 0xE000; ++c) EXPECT_EQ(unicode_class(c), UnicodeClass::kOther);
}

}  // namespace
}  // namespace pelton::tokenizer
