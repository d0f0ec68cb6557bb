#include "server/stop_filter.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::server {
namespace {

TEST(StopFilter, HoldsBackOnlyWhatCouldBeAStop) {
  StopFilter filter({.strings = {"END"}});
  std::string out;
  filter.push("abcE", 1, out);
  EXPECT_EQ(out, "abc");
  filter.push("N", 1, out);
  EXPECT_EQ(out, "abc");
  filter.push("d", 1, out);
  EXPECT_EQ(out, "abcENd");
  filter.push("xEN", 1, out);
  filter.push("D and more", 1, out);
  EXPECT_EQ(out, "abcENdx");
  EXPECT_TRUE(filter.stopped());
  filter.push("never", 1, out);
  filter.finish(out);
  EXPECT_EQ(out, "abcENdx");
}

TEST(StopFilter, TheEndLetsOutWhatWasHeld) {
  StopFilter filter({.strings = {"END"}});
  std::string out;
  filter.push("aEN", 1, out);
  filter.finish(out);
  EXPECT_EQ(out, "aEN");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, WhatTheFirstTokensSayIsPartOfNoStop) {
  StopFilter filter({.strings = {"END"}, .min_tokens = 2});
  std::string out;
  filter.push("END", 1, out);
  filter.push("xEN", 2, out);
  EXPECT_EQ(out, "ENDxEN");
  filter.push("D.E", 3, out);
  filter.push("ND", 4, out);
  EXPECT_EQ(out, "ENDxEND.");
  EXPECT_TRUE(filter.stopped());
}

TEST(StopFilter, KeepsTheStopIfAsked) {
  StopFilter filter({.strings = {"b"}, .itself = StopStrings::Itself::kKept});
  std::string out;
  filter.push("abc", 1, out);
  EXPECT_EQ(out, "ab");
}

// The first byte at which some stop ends; there the longest one begins first.
std::string cut_plainly(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      const bool here =
          end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0;
      if (here) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopFilter, RandomTextsAreCutAsByThePlainSearch) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto word = [&](size_t length_max) {
    std::string text(1 + random() % length_max, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  const char* scale = std::getenv("PELTON_PROPERTY_SCALE");
  const int rounds = 20'000 * (scale != nullptr ? std::atoi(scale) : 1);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> stops;
    for (uint64_t i = 1 + random() % 4; i > 0; --i) stops.push_back(word(7));
    const std::string text = word(40);
    const int64_t min_tokens = static_cast<int64_t>(random() % 4);
    StopFilter filter({.strings = stops, .min_tokens = min_tokens});
    std::string out;
    std::vector<size_t> pieces;
    for (size_t at = 0; at < text.size(); at += pieces.back()) pieces.push_back(1 + random() % 5);
    size_t free = 0;
    for (size_t i = 0; i < std::min(pieces.size(), static_cast<size_t>(min_tokens)); ++i) {
      free = std::min(text.size(), free + pieces[i]);
    }
    const std::string expected = text.substr(0, free) + cut_plainly(text.substr(free), stops);
    size_t at = 0;
    int64_t sampled = 0;
    for (const size_t piece : pieces) {
      filter.push(std::string_view(text).substr(at, piece), ++sampled, out);
      ASSERT_EQ(expected.substr(0, out.size()), out) << "leaked at " << at << " of " << text;
      at += piece;
    }
    filter.finish(out);
    ASSERT_EQ(out, expected) << text;
  }
}

TEST(StopFilter, IsLinear) {
  std::vector<std::string> stops;
  for (int i = 0; i < 16; ++i) {
    std::string stop(1023, 'a');
    stop += static_cast<char>('b' + i);
    stops.push_back(std::move(stop));
  }
  StopFilter filter({.strings = stops});
  std::string out;
  // A quadratic search would take minutes for this.
  const std::string piece(1000, 'a');
  for (int i = 0; i < 1000; ++i) filter.push(piece, 1, out);
  filter.finish(out);
  EXPECT_EQ(out.size(), 1'000'000u);
}

}  // namespace
}  // namespace pelton::server
