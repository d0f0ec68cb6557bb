#include "server/turn_cache.h"

#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::server {
namespace {

using Tokens = std::vector<TokenId>;
using Words = TurnCache::Words;

RollingHash after(const TurnCache& turns, std::string_view salt, const Tokens& tokens) {
  RollingHash name = turns.history(salt);
  name.add_tokens(tokens);
  return name;
}

Words call(std::string_view arguments) {
  return {.content = "", .reasoning = "", .call = std::pair("f", arguments)};
}

TEST(TurnCache, FindsWhatWasKept) {
  TurnCache turns({.seed = 1});
  const RollingHash here = after(turns, "salt", {1, 2, 3});
  turns.keep(here, {.content = "words", .reasoning = "why", .call = {}}, {7, 8});
  EXPECT_EQ(turns.find(here, {.content = "words", .reasoning = "why", .call = {}}), Tokens({7, 8}));
  // A client may leave the reasoning out, but not change it.
  EXPECT_EQ(turns.find(here, {.content = "words", .reasoning = "", .call = {}}), Tokens({7, 8}));
  EXPECT_FALSE(turns.find(here, {.content = "words", .reasoning = "not so", .call = {}}));
  EXPECT_FALSE(turns.find(here, {.content = "word", .reasoning = "", .call = {}}));
  EXPECT_FALSE(turns.find(here, call("words")));
  EXPECT_FALSE(
      turns.find(after(turns, "salt", {1, 2}), {.content = "words", .reasoning = "", .call = {}}));
  EXPECT_FALSE(turns.find(after(turns, "salt", {1, 3, 2}),
                          {.content = "words", .reasoning = "", .call = {}}));
  EXPECT_FALSE(
      turns.find(after(turns, "", {1, 2, 3}), {.content = "words", .reasoning = "", .call = {}}));
  EXPECT_EQ(turns.counts().turns, 1);
  EXPECT_EQ(turns.counts().found, 2);
}

TEST(TurnCache, ArgumentsAreComparedAsJson) {
  TurnCache turns({.seed = 1});
  const RollingHash here = after(turns, "", {1});
  turns.keep(here, call(R"({ "city" :  "B\u0065rn", "n":[1 , 2]})"), {7});
  EXPECT_EQ(turns.find(here, call(R"({"city":"Bern","n":[1,2]})")), Tokens({7}));
  EXPECT_FALSE(turns.find(here, call(R"({"city":"Bonn","n":[1,2]})")));
  EXPECT_FALSE(turns.find(here, call(R"({"n":[1,2],"city":"Bern"})")));
  turns.keep(here, call("no json {"), {8});
  EXPECT_EQ(turns.find(here, call("no json {")), Tokens({8}));
  EXPECT_FALSE(turns.find(here, call("no json  {")));
}

// A number is its digits: two that one double stands for are two.
TEST(TurnCache, NumbersInArgumentsAreComparedAsWritten) {
  constexpr std::pair<const char*, const char*> kEdits[] = {
      {"12345678901234567891", "12345678901234567890"},
      {"-9223372036854775809", "-9223372036854775810"},
      {"0.10000000000000000001", "0.1"},
      {"3.14159265358979323846", "3.14159265358979323847"},
      {"1e-400", "0.0"},
      {"1.0", "1"},
      {"-0", "0"},
  };
  for (const auto& [sampled, edited] : kEdits) {
    TurnCache turns({.seed = 1});
    const RollingHash here = after(turns, "", {1});
    const auto with = [](std::string_view id) {
      return R"({ "quote\"d" : "\\", "\u0069d":[ )" + std::string(id) + " ,true] }";
    };
    turns.keep(here, call(with(sampled)), {7});
    EXPECT_EQ(turns.find(here, call(with(sampled))), Tokens({7})) << sampled;
    EXPECT_FALSE(turns.find(here, call(with(edited)))) << sampled;
    // Spacing and escapes still do not count.
    const std::string plain = R"({"quote\"d":"\\","id":[)" + std::string(sampled) + ",true]}";
    EXPECT_EQ(turns.find(here, call(plain)), Tokens({7})) << sampled;
  }
}

// The pieces of a name cannot be shifted from one to the next.
TEST(TurnCache, NamesAreUnambiguous) {
  TurnCache turns({.seed = 1});
  const auto kept = [&](std::string_view salt, const Tokens& tokens, std::string_view content,
                        std::string_view name, std::string_view arguments) {
    return turns.find(after(turns, salt, tokens),
                      {.content = content, .reasoning = "", .call = std::pair(name, arguments)});
  };
  turns.keep(after(turns, "ab", {5}),
             {.content = "c", .reasoning = "", .call = std::pair("d", "e")}, {7});
  EXPECT_TRUE(kept("ab", {5}, "c", "d", "e"));
  EXPECT_FALSE(kept("a", {'b', 5}, "c", "d", "e"));
  EXPECT_FALSE(kept("ab", {5}, "cd", "", "e"));
  EXPECT_FALSE(kept("ab", {5}, "c", "de", ""));
  EXPECT_FALSE(kept("ab", {5, 'c', 1}, "", "d", "e"));
  EXPECT_FALSE(kept(std::string_view("ab\0", 3), {5}, "c", "d", "e"));
}

TEST(TurnCache, TheOneNotAskedForLongestGoes) {
  TurnCache turns({.tokens_max = 1000, .seed = 1});
  const auto place = [&](int i) { return after(turns, "", {i}); };
  const Words words{.content = "x", .reasoning = "", .call = {}};
  for (int i = 0; i < 5; ++i) turns.keep(place(i), words, Tokens(150, i));  // 198 each: five fit
  EXPECT_EQ(turns.counts().turns, 5);
  EXPECT_TRUE(turns.find(place(0), words));
  turns.keep(place(5), words, Tokens(150, 5));
  EXPECT_TRUE(turns.find(place(0), words));
  EXPECT_FALSE(turns.find(place(1), words));
  turns.keep(place(6), words, Tokens(900, 6));  // more than its share
  EXPECT_FALSE(turns.find(place(6), words));
  // The newer tokens of one turn take the older ones' place.
  turns.keep(place(5), words, Tokens(10, 9));
  EXPECT_EQ(turns.find(place(5), words), Tokens(10, 9));
  TurnCache none({.tokens_max = 0, .seed = 1});
  none.keep(after(none, "", {1}), words, {1});
  EXPECT_EQ(none.counts().turns, 0);
}

TEST(TurnCache, StaysBoundedUnderManyThreads) {
  constexpr int64_t kTokensMax = 20'000;
  TurnCache turns({.tokens_max = kTokensMax, .seed = 1});
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t seed) {
    for (uint64_t i = 0; i < 4000; ++i) {
      const auto id = static_cast<TokenId>(base::random_bits(seed, 2 * i) % 500);
      const RollingHash here = after(turns, "", {id});
      const Words words{.content = "x", .reasoning = "", .call = {}};
      const auto found = turns.find(here, words);
      if (found && (found->empty() || found->front() != id)) ++wrong;
      if (!found) turns.keep(here, words, Tokens(base::random_bits(seed, 2 * i + 1) % 300 + 1, id));
      if (turns.counts().tokens > kTokensMax) ++wrong;
    }
  };
  std::thread one(work, 1);
  std::thread two(work, 2);
  one.join();
  two.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(turns.counts().turns, 50);
}

}  // namespace
}  // namespace pelton::server
