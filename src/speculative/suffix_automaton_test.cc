#include "speculative/suffix_automaton.h"

#include <cstdlib>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::speculative {
namespace {

// The longest end of `text` that stands in it before, by looking at every place.
int longest_match(std::span<const TokenId> text) {
  int longest = 0;
  for (size_t end = 1; end < text.size(); ++end) {
    size_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    longest = std::max(longest, static_cast<int>(length));
  }
  return longest;
}

bool stands_at(std::span<const TokenId> text, SuffixAutomaton::Match match) {
  const auto length = static_cast<size_t>(match.length);
  const auto end = static_cast<size_t>(match.end);
  if (end >= text.size() || end < length) return false;
  const std::span<const TokenId> before = text.subspan(end - length, length);
  const std::span<const TokenId> last = text.last(length);
  return std::equal(before.begin(), before.end(), last.begin());
}

// Where the last `length` tokens ended most lately before; 0: of none.
int latest_end(const std::vector<TokenId>& text, int length) {
  if (length == 0) return 0;
  size_t end = text.size() - 1;
  while (!stands_at(text, {.length = length, .end = static_cast<int>(end)})) --end;
  return static_cast<int>(end);
}

TEST(SuffixAutomaton, finds_the_longest_end_that_stood_there_before) {
  SuffixAutomaton automaton(16);
  std::vector<int> lengths;
  for (const TokenId token : {1, 2, 3, 9, 1, 2}) {
    automaton.extend(token);
    lengths.push_back(automaton.match().length);
  }
  EXPECT_EQ(lengths, (std::vector<int>{0, 0, 0, 0, 1, 2}));
  EXPECT_EQ(automaton.match().end, 2);  // behind it came 3
}

TEST(SuffixAutomaton, knows_the_latest_place) {
  SuffixAutomaton automaton(16);
  for (const TokenId token : {1, 2, 7, 1, 2, 8, 1, 2}) automaton.extend(token);
  EXPECT_EQ(automaton.match().length, 2);
  EXPECT_EQ(automaton.match().end, 5);
}

TEST(SuffixAutomaton, takes_its_memory_at_once) {
  for (const int tokens : {1, 2, 3, 100, 4096}) {
    SuffixAutomaton automaton(tokens);
    EXPECT_EQ(automaton.bytes(), SuffixAutomaton::bytes_for(tokens));
    // The text with the most states, and the one with the most edges.
    for (int i = 0; i < tokens; ++i) automaton.extend(i == 0 ? 1 : 2);
    EXPECT_EQ(automaton.bytes(), SuffixAutomaton::bytes_for(tokens));
    automaton.clear();
    for (int i = 0; i < tokens; ++i) automaton.extend(i == 0 ? 1 : (i == tokens - 1 ? 3 : 2));
    EXPECT_EQ(automaton.bytes(), SuffixAutomaton::bytes_for(tokens));
    EXPECT_TRUE(automaton.full());
  }
}

TEST(SuffixAutomaton, agrees_with_brute_force) {
  const char* scale = std::getenv("PELTON_PROPERTY_SCALE");
  const uint64_t usually = std::getenv("PELTON_FULL") == nullptr ? 100'000 : 1'000'000;
  const uint64_t texts = usually * (scale == nullptr ? 1 : std::strtoull(scale, nullptr, 10));
  SuffixAutomaton automaton(64);
  for (uint64_t seed = 0; seed < texts && !HasFailure(); ++seed) {
    uint64_t count = 0;
    const auto roll = [&](uint64_t bound) { return base::random_bits(seed, count++) % bound; };
    const uint64_t alphabet = 1 + roll(4);
    const uint64_t size = 1 + roll(roll(10) == 0 ? 64 : 24);
    std::vector<TokenId> text;
    automaton.clear();
    for (uint64_t i = 0; i < size; ++i) {
      text.push_back(static_cast<TokenId>(roll(alphabet)));
      automaton.extend(text.back());
      const SuffixAutomaton::Match match = automaton.match();
      ASSERT_EQ(match.length, longest_match(text)) << "seed " << seed << " at " << i;
      ASSERT_TRUE(match.length == 0 || stands_at(text, match)) << "seed " << seed << " at " << i;
      // As many suffixes are looked after that the latest place is known of each.
      if (text.size() > SuffixAutomaton::kLinksRenewed) continue;
      ASSERT_EQ(match.end, latest_end(text, match.length)) << "seed " << seed << " at " << i;
    }
  }
}

}  // namespace
}  // namespace pelton::speculative
