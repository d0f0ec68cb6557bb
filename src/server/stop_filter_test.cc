#include "server/stop_filter.h"

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::server {
namespace {

using StopText = StopFilter::StopText;

TEST(StopFilter, HoldsBackOnlyWhatCouldBeAStop) {
  StopFilter filter({"END"}, StopText::kCut);
  std::string out;
  filter.push("abcE", out);
  EXPECT_EQ(out, "abc");
  filter.push("N", out);
  EXPECT_EQ(out, "abc");
  filter.push("d", out);
  EXPECT_EQ(out, "abcENd");
  filter.push("xEN", out);
  filter.push("D and more", out);
  EXPECT_EQ(out, "abcENdx");
  EXPECT_TRUE(filter.stopped());
  filter.push("never", out);
  filter.finish(out);
  EXPECT_EQ(out, "abcENdx");
}

TEST(StopFilter, TheEndLetsOutWhatWasHeld) {
  StopFilter filter({"END"}, StopText::kCut);
  std::string out;
  filter.push("aEN", out);
  filter.finish(out);
  EXPECT_EQ(out, "aEN");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, KeepsTheStopIfAsked) {
  StopFilter filter({"b"}, StopText::kKept);
  std::string out;
  filter.push("abc", out);
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
    StopFilter filter(stops, StopText::kCut);
    std::string out;
    const std::string expected = cut_plainly(text, stops);
    for (size_t at = 0; at < text.size();) {
      const size_t piece = 1 + random() % 5;
      filter.push(std::string_view(text).substr(at, piece), out);
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
  StopFilter filter(stops, StopText::kCut);
  std::string out;
  // A quadratic search would take minutes for this.
  const std::string piece(1000, 'a');
  for (int i = 0; i < 1000; ++i) filter.push(piece, out);
  filter.finish(out);
  EXPECT_EQ(out.size(), 1'000'000u);
}

}  // namespace
}  // namespace pelton::server
