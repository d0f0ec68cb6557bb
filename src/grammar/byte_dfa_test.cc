#include "grammar/byte_dfa.h"

#include <functional>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "grammar/byte_nfa.h"

namespace pelton::grammar {
namespace {

constexpr DfaLimits kLimits;

// A random automaton over {a, b, c}.
ByteDfa random_dfa(std::mt19937& random) {
  ByteDfa::ByteClasses class_of{};
  for (uint8_t i = 0; i < 3; ++i)
    class_of[static_cast<size_t>('a' + i)] = static_cast<uint8_t>(i + 1);
  DfaTable table = DfaTable::with_letters(4);
  const uint32_t states = 1 + random() % 5;
  for (uint32_t s = 0; s < states; ++s) table.add_state();
  for (uint32_t s = 1; s <= states; ++s) {
    table.accepting[s] = random() % 3 == 0;
    for (uint32_t letter = 1; letter < 4; ++letter) table.at(s, letter) = random() % (states + 1);
  }
  table.start = 1;
  return {class_of, table};
}

void for_all_texts(size_t length_max, const std::function<void(const std::string&)>& visit) {
  std::vector<std::string> level = {""};
  for (size_t length = 0; length <= length_max; ++length) {
    std::vector<std::string> longer;
    for (const std::string& text : level) {
      visit(text);
      for (const char c : {'a', 'b', 'c'}) longer.push_back(text + c);
    }
    level = std::move(longer);
  }
}

TEST(ByteDfa, LiteralAndList) {
  const ByteDfa one = ByteDfa::literal("abc");
  EXPECT_TRUE(one.accepts("abc"));
  EXPECT_FALSE(one.accepts("ab"));
  EXPECT_FALSE(one.accepts("abcd"));
  EXPECT_EQ(one.states(), 5u);
  EXPECT_EQ(one.class_count(), 4u);
  EXPECT_EQ(one.shortest_length(), 3u);
  EXPECT_EQ(one.longest_length(), 3u);

  const std::vector<std::string> texts = {"tap", "taps", "top", "tops", ""};
  const ByteDfa list = ByteDfa::any_of(texts, kLimits).value();
  for (const std::string& text : texts) EXPECT_TRUE(list.accepts(text)) << text;
  EXPECT_FALSE(list.accepts("ta"));
  EXPECT_EQ(list.states(), 6u);  // t, a|o, p, s and the dead one: endings are shared
  EXPECT_EQ(ByteDfa::literal("").shortest_length(), 0u);
}

TEST(ByteDfa, EmptyLanguage) {
  EXPECT_TRUE(ByteDfa().is_empty());
  EXPECT_FALSE(ByteDfa().accepts(""));
  EXPECT_EQ(ByteDfa(), ByteDfa::any_of({}, kLimits).value());
  EXPECT_EQ(ByteDfa().shortest_length(), std::nullopt);
  EXPECT_EQ(ByteDfa().longest_length(), std::nullopt);
  EXPECT_EQ(complement(ByteDfa()), ByteDfa::any_bytes());
  EXPECT_EQ(complement(ByteDfa::any_bytes()), ByteDfa());
}

TEST(ByteDfa, Utf8IsWhatUtf8StepSays) {
  const ByteDfa utf8 = ByteDfa::any_utf8();
  std::mt19937 random(7);
  const uint8_t bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                           0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                           0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  for (int i = 0; i < 200'000; ++i) {
    std::string text;
    for (size_t n = random() % 6; n > 0; --n) {
      text += static_cast<char>(bytes[random() % std::size(bytes)]);
    }
    ASSERT_EQ(utf8.accepts(text), base::is_valid_utf8(text));
  }
  EXPECT_TRUE(ByteDfa::any_bytes().accepts_all_after(ByteDfa::any_bytes().start()));
  EXPECT_FALSE(utf8.accepts_all_after(utf8.start()));
  EXPECT_EQ(utf8.longest_length(), std::nullopt);
}

TEST(ByteDfa, OperationsAreThoseOfSets) {
  std::mt19937 random(std::random_device{}());
  const uint32_t seed = static_cast<uint32_t>(random());
  SCOPED_TRACE(seed);
  random.seed(seed);
  for (int round = 0; round < 150; ++round) {
    const ByteDfa a = random_dfa(random);
    const ByteDfa b = random_dfa(random);
    const ByteDfa both = intersection(a, b, kLimits).value();
    const ByteDfa either = union_of(a, b, kLimits).value();
    const ByteDfa only_a = difference(a, b, kLimits).value();
    const ByteDfa not_a = complement(a);
    const ByteDfa parts[] = {a, b};
    const ByteDfa joined = sequence_of(parts, kLimits).value();
    const ByteDfa star = repeat_of(a, {}, kLimits).value();
    const ByteDfa some = repeat_of(b, {.least = 1, .most = 2}, kLimits).value();
    EXPECT_EQ(either, alternatives_of(parts, kLimits).value());
    for_all_texts(5, [&](const std::string& text) {
      ASSERT_EQ(both.accepts(text), a.accepts(text) && b.accepts(text));
      ASSERT_EQ(either.accepts(text), a.accepts(text) || b.accepts(text));
      ASSERT_EQ(only_a.accepts(text), a.accepts(text) && !b.accepts(text));
      ASSERT_EQ(not_a.accepts(text), !a.accepts(text));
      bool splits = false;
      bool splits_b = b.accepts(text);
      for (size_t i = 0; i <= text.size(); ++i) {
        splits = splits || (a.accepts(text.substr(0, i)) && b.accepts(text.substr(i)));
        splits_b = splits_b || (b.accepts(text.substr(0, i)) && b.accepts(text.substr(i)));
      }
      ASSERT_EQ(joined.accepts(text), splits);
      ASSERT_EQ(some.accepts(text), splits_b);
      std::vector<bool> reached = {true};
      for (size_t to = 1; to <= text.size(); ++to) {
        bool is = false;
        for (size_t from = 0; from < to; ++from) {
          is = is || (reached[from] && a.accepts(text.substr(from, to - from)));
        }
        reached.push_back(is);
      }
      ASSERT_EQ(star.accepts(text), reached.back());
    });
    // Equal languages are equal objects, whatever way they were made.
    EXPECT_EQ(complement(not_a), a);
    EXPECT_EQ(difference(a, difference(a, b, kLimits).value(), kLimits).value(), both);
    EXPECT_EQ(intersection(a, a, kLimits).value(), a);
  }
}

TEST(ByteDfa, FindsTheStateOfALanguage) {
  const ByteDfa utf8 = ByteDfa::any_utf8();
  const ByteDfa parts[] = {ByteDfa::literal("ab"), utf8};
  const ByteDfa prefixed = sequence_of(parts, kLimits).value();
  EXPECT_EQ(prefixed.state_of(utf8), prefixed.walk(prefixed.start(), "ab"));
  EXPECT_EQ(prefixed.state_of(ByteDfa::literal("x")), std::nullopt);
  EXPECT_EQ(prefixed.state_of(prefixed), prefixed.start());
  EXPECT_EQ(prefixed.state_of(ByteDfa()), kDeadState);
}

TEST(ByteDfa, LimitsAreNamed) {
  const ByteDfa digit = ByteDfa::one_of("0123456789");
  const Result<ByteDfa> long_one = repeat_of(digit, {.least = 0, .most = 1'000'000}, kLimits);
  ASSERT_FALSE(long_one.ok());
  EXPECT_NE(long_one.error().message.find("20000 states"), std::string::npos);
  EXPECT_EQ(repeat_of(digit, {.least = 3, .most = 2}, kLimits).value(), ByteDfa());

  // (a|b)*a(a|b){14}: 2^15 states.
  const ByteDfa ab = ByteDfa::one_of("ab");
  const ByteDfa parts[] = {repeat_of(ab, {}, kLimits).value(), ByteDfa::literal("a"),
                           repeat_of(ab, {.least = 14, .most = 14}, kLimits).value()};
  const Result<ByteDfa> exponential = sequence_of(parts, kLimits);
  ASSERT_FALSE(exponential.ok());
  EXPECT_NE(exponential.error().message.find("more than"), std::string::npos);
}

}  // namespace
}  // namespace pelton::grammar
