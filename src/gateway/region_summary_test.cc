#include "gateway/region_summary.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::gateway {
namespace {

RegionModel model(int ready, double wait_s = 0) {
  return {.ready = ready, .slots = 8, .running = 3, .wait_s = wait_s, .kv_used = 0.25};
}

TEST(RegionSummary, SaysWhatHasChanged) {
  RegionBook book("us", "b1");
  RegionView view;
  book.set({{"a", model(1)}, {"b", model(2)}});
  ASSERT_TRUE(view.apply(book.summary(view.book(), view.version()), "us").ok());
  EXPECT_EQ(view.models().size(), 2U);
  EXPECT_EQ(view.models().at("b").ready, 2);
  EXPECT_EQ(view.models().at("a").kv_used, 0.25);
  // Nothing has changed, and nothing is said.
  book.set({{"a", model(1)}, {"b", model(2)}});
  const std::string idle = book.summary(view.book(), view.version());
  EXPECT_NE(idle.find(R"("models":[],"gone":[])"), std::string::npos) << idle;
  ASSERT_TRUE(view.apply(idle, "us").ok());
  EXPECT_EQ(view.models().size(), 2U);
  book.set({{"a", model(5)}, {"c", model(1)}});
  const std::string change = book.summary(view.book(), view.version());
  EXPECT_EQ(change.find(R"("b",)"), std::string::npos);
  ASSERT_TRUE(view.apply(change, "us").ok());
  EXPECT_EQ(view.models().at("a").ready, 5);
  EXPECT_FALSE(view.models().contains("b"));
  EXPECT_TRUE(view.models().contains("c"));
}

// A gateway that was started anew has another book: all of it is said.
TEST(RegionSummary, AnotherBookIsSaidWhole) {
  RegionBook first("us", "b1");
  first.set({{"a", model(1)}});
  RegionView view;
  ASSERT_TRUE(view.apply(first.summary("", 0), "us").ok());
  RegionBook second("us", "b2");
  second.set({{"z", model(1)}});
  ASSERT_TRUE(view.apply(second.summary(view.book(), view.version()), "us").ok());
  EXPECT_FALSE(view.models().contains("a"));
  EXPECT_EQ(view.book(), "b2");
}

// Whatever is asked for since, the view is what the book was set to.
TEST(RegionSummary, AViewIsItsBook) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    uint64_t draws = 0;
    const auto below = [&](int bound) {
      return static_cast<int>(base::random_bits(seed, draws++) % static_cast<uint64_t>(bound));
    };
    RegionBook book("us", "b");
    RegionView quick;
    RegionView slow;
    RegionModels models;
    for (int turn = 0; turn < 200; ++turn) {
      const std::string name = std::string(1, static_cast<char>('a' + below(8)));
      below(4) == 0 ? static_cast<void>(models.erase(name))
                    : static_cast<void>(models[name] = model(below(3)));
      book.set(models);
      ASSERT_TRUE(quick.apply(book.summary(quick.book(), quick.version()), "us").ok());
      EXPECT_EQ(quick.models(), models) << "seed " << seed << " turn " << turn;
      if (below(10) != 0) continue;
      ASSERT_TRUE(slow.apply(book.summary(slow.book(), slow.version()), "us").ok());
      EXPECT_EQ(slow.models(), models) << "seed " << seed << " turn " << turn;
    }
  }
}

TEST(RegionSummary, WhatIsNoneChangesNothing) {
  RegionBook book("us", "b");
  book.set({{"a", model(1)}});
  RegionView view;
  ASSERT_TRUE(view.apply(book.summary("", 0), "us").ok());
  const RegionModels before = view.models();
  const auto row = [](std::string_view row) {
    return R"({"region":"us","book":"b","version":9,"whole":true,"gone":[],"models":[)" +
           std::string(row) + "]}";
  };
  for (const std::string& wrong :
       {std::string("["), std::string("{}"), book.summary("", 0).substr(0, 40),
        std::string(
            R"({"region":"us","book":"b","version":-1,"whole":true,"models":[],"gone":[]})"),
        std::string(
            R"({"region":"us","book":"other","version":9,"whole":false,"models":[],"gone":[]})"),
        std::string(
            R"({"region":"us","book":"b","version":0,"whole":false,"models":[],"gone":[]})"),
        std::string(R"({"region":"us","book":"b","version":9,"whole":true,"models":{},"gone":[]})"),
        row(R"(["a"])"), row(R"(["a",-1,8,0,0,0,0,0,0,0,0,0,0])"),
        row(R"(["a",1,8,0,0,0,0,1e99,0,0,0,0,0])"), row(R"(["a",1,8,0,0,0,0,0,2,0,0,0,0])"),
        row(R"(["",1,8,0,0,0,0,0,0,0,0,0,0])"), row(R"([7,1,8,0,0,0,0,0,0,0,0,0,0])"),
        row(R"(["a",1,8,0,0,0,0,null,0,0,0,0,0])")}) {
    EXPECT_FALSE(view.apply(wrong, "us").ok()) << wrong;
  }
  EXPECT_FALSE(view.apply(book.summary("", 0), "eu").ok());
  EXPECT_EQ(view.models(), before);
  EXPECT_EQ(view.version(), 1);
}

TEST(RegionSummary, AMacIsOfSecretNonceAndSummary) {
  const std::string mac = region_mac("s", "n", "body");
  EXPECT_EQ(mac.size(), 64U);
  EXPECT_EQ(mac, region_mac("s", "n", "body"));
  EXPECT_NE(mac, region_mac("t", "n", "body"));
  EXPECT_NE(mac, region_mac("s", "m", "body"));
  EXPECT_NE(mac, region_mac("s", "n", "bodi"));
}

// A thousand models, a tenth of which change in half a second: within 100 KiB a second.
TEST(RegionSummary, SummariesAreSmall) {
  RegionBook book("us", "b");
  RegionModels models;
  for (int i = 0; i < 1000; ++i)
    models["organisation/model-name-" + std::to_string(i)] = model(2, 0.5);
  book.set(models);
  RegionView view;
  ASSERT_TRUE(view.apply(book.summary("", 0), "us").ok());
  for (int i = 0; i < 100; ++i)
    models["organisation/model-name-" + std::to_string(i * 10)].running = 5;
  book.set(models);
  EXPECT_LT(2 * book.summary(view.book(), view.version()).size(), 100U << 10);
}

}  // namespace
}  // namespace pelton::gateway
