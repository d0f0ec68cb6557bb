#include "base/duration.h"

#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::base {
namespace {

TEST(Duration, IsReadAsGoReadsIt) {
  struct Case {
    std::string_view text;
    int64_t ns;
  };
  for (const Case& c :
       {Case{"0", 0}, Case{"-0", 0}, Case{"0s", 0}, Case{"5m", 300'000'000'000},
        Case{"+5s", 5'000'000'000}, Case{"1h30m", 5'400'000'000'000}, Case{"-1m", -60'000'000'000},
        Case{"1.5h", 5'400'000'000'000}, Case{".5s", 500'000'000}, Case{"1.s", 1'000'000'000},
        Case{"300ms", 300'000'000}, Case{"1us", 1'000}, Case{"1µs", 1'000}, Case{"7ns", 7},
        Case{"1h1m1s1ms", 3'661'001'000'000}}) {
    EXPECT_EQ(parse_duration_ns(c.text), c.ns) << c.text;
  }
}

TEST(Duration, WhatIsNoneIsNothing) {
  for (const std::string_view text :
       {"",      "-",   "+",  "5",     "m",      "5 m",        " 5m",
        "5m ",   "5mm", "5x", "1e3s",  "infs",   "nans",       "--5m",
        "5m-3s", ".",   ".s", "1..5s", "0x1p3s", "300000000h", "99999999999999999999999h"}) {
    EXPECT_EQ(parse_duration_ns(text), std::nullopt) << text;
  }
}

// Whatever bytes it is given: a span, or nothing.
TEST(Duration, AnyTextEnds) {
  constexpr std::string_view kLetters = "0123456789.+-nusmh\xC2\xB5 e";
  for (uint64_t i = 0; i < 20'000; ++i) {
    std::string text;
    for (uint64_t j = 0; j < random_bits(i, 0) % 12; ++j) {
      text += kLetters[random_bits(i, j + 1) % kLetters.size()];
    }
    const auto ns = parse_duration_ns(text);
    if (ns && !text.starts_with('-')) {
      EXPECT_GE(*ns, 0) << text;
    }
  }
}

}  // namespace
}  // namespace pelton::base
