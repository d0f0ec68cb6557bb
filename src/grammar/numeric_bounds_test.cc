#include "grammar/numeric_bounds.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace pelton::grammar {
namespace {

ByteDfa between(std::optional<std::string> minimum, std::optional<std::string> maximum) {
  Result<ByteDfa> dfa = numbers_between({.minimum = minimum, .maximum = maximum});
  EXPECT_TRUE(dfa.ok());
  return dfa.ok() ? std::move(dfa).value() : ByteDfa();
}

void expect(const ByteDfa& dfa, std::vector<std::string> yes, std::vector<std::string> no) {
  for (const std::string& text : yes) EXPECT_TRUE(dfa.accepts(text)) << text;
  for (const std::string& text : no) EXPECT_FALSE(dfa.accepts(text)) << text;
}

TEST(NumericBounds, Closed) {
  expect(between("0", "100"), {"0", "-0", "0.5", "100", "100.00", "99.999", "7", "-0.0"},
         {"100.01", "101", "1000", "-1", "-0.1", "007", "1.", ".5", "", "-", "1e1", "00"});
  expect(between("-1.5", "2.25"), {"-1.5", "-1.50", "-1", "0", "2.25", "2.2499", "2"},
         {"-1.51", "-2", "2.251", "2.3", "3", "10"});
  expect(between("10", "10"), {"10", "10.0"}, {"10.1", "9", "1", "100"});
  expect(between("-20", "-3"), {"-20", "-3", "-3.0", "-19.5"},
         {"-2.9", "-20.1", "3", "0", "-0", "20"});
  expect(between("99", "1000"), {"99", "100", "999.9", "1000"}, {"98.9", "1000.1", "9", "2000"});
  EXPECT_TRUE(between("3", "2").is_empty());
}

TEST(NumericBounds, OpenAtOneEnd) {
  expect(between("5", std::nullopt), {"5", "5.0", "50", "123456789012345678901234567890"},
         {"4.999", "-5", "0"});
  expect(between(std::nullopt, "5"), {"5", "-999999999", "0", "4.9"}, {"5.01", "50"});
  expect(between(std::nullopt, "-1"), {"-1", "-1.1"}, {"-0.9", "0", "1"});
  expect(between(std::nullopt, std::nullopt), {"0", "-1.25", "1234"}, {"01", "1e5"});
}

TEST(NumericBounds, Excluded) {
  const ByteDfa inside =
      numbers_between(
          {.minimum = "0", .maximum = "10", .minimum_excluded = true, .maximum_excluded = true})
          .value();
  expect(inside, {"0.001", "9.999", "9", "1"},
         {"0", "-0", "0.0", "10", "10.0", "0.0000000000000000000000000001",
          "9.99999999999999999999999999999"});
  const ByteDfa past = numbers_between({.minimum = "-2.5", .minimum_excluded = true}).value();
  expect(past, {"-2.49", "0"}, {"-2.5", "-2.50", "-2.51"});
}

TEST(NumericBounds, HugeAndBroken) {  // JS-21
  expect(between("1e308", std::nullopt), {"1" + std::string(308, '0')},
         {"9" + std::string(307, '9')});
  expect(between("9223372036854775808", "9223372036854775809"), {"9223372036854775808"},
         {"9223372036854775807", "9223372036854775810"});
  expect(between("1e-3", "1.5E+1"), {"0.001", "15"}, {"0.0009", "15.1"});
  for (const char* text : {"", "-", "1.", "x", "1e", "+1", "0x1", "1 "}) {
    EXPECT_EQ(numbers_between({.minimum = text}).error().code, ErrorCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(numbers_between({.minimum = "1e401"}).error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(numbers_between({.minimum = "1e-99999999999999999999"}).error().code,
            ErrorCode::kDoesNotFit);
}

// Against long doubles, over numbers of few digits, which those hold well enough to compare.
TEST(NumericBounds, AgreesWithArithmetic) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto number = [&] {
    std::string text = random() % 2 == 0 ? "-" : "";
    text += std::to_string(random() % (random() % 2 == 0 ? 12 : 1200));
    if (random() % 2 == 0) {
      text += '.';
      for (size_t n = 1 + random() % 3; n > 0; --n) text += "0159"[random() % 4];
    }
    return text;
  };
  const auto thousandths = [](const std::string& text) {
    return std::llround(std::strtod(text.c_str(), nullptr) * 1000);
  };
  for (int round = 0; round < 400; ++round) {
    NumericBounds bounds;
    if (random() % 5 > 0) bounds.minimum = number();
    if (random() % 5 > 0) bounds.maximum = number();
    bounds.minimum_excluded = random() % 3 == 0;
    bounds.maximum_excluded = random() % 3 == 0;
    const ByteDfa dfa = numbers_between(bounds).value();
    for (int i = 0; i < 100; ++i) {
      std::string text = number();
      if (i == 0 && bounds.minimum) text = *bounds.minimum;
      if (i == 1 && bounds.maximum) text = *bounds.maximum;
      const long long value = thousandths(text);
      bool in = true;
      if (bounds.minimum) {
        const long long least = thousandths(*bounds.minimum);
        in = in && (bounds.minimum_excluded ? value > least : value >= least);
      }
      if (bounds.maximum) {
        const long long most = thousandths(*bounds.maximum);
        in = in && (bounds.maximum_excluded ? value < most : value <= most);
      }
      ASSERT_EQ(dfa.accepts(text), in) << text << " in " << bounds.minimum.value_or("-inf")
                                       << " to " << bounds.maximum.value_or("inf");
    }
  }
}

}  // namespace
}  // namespace pelton::grammar
