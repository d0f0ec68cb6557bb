// Which of two fleets is better at equal throughput, by hand.
#include "simulator/fronts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/scenario.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

TEST(Fronts, BetweenPointsItIsOnTheLineThroughThoseThatNoneBeats) {
  const std::vector<FrontPoint> points = {{.tokens_per_s = 100, .throughput = 10},
                                          {.tokens_per_s = 20, .throughput = 15},
                                          {.tokens_per_s = 40, .throughput = 30}};
  EXPECT_EQ(interactivity_at(points, 10), 100);
  EXPECT_EQ(interactivity_at(points, 20), 70) << "the second point is beaten by the third";
  EXPECT_EQ(interactivity_at(points, 30), 40);
  EXPECT_EQ(interactivity_at(points, 31), std::nullopt);
  EXPECT_EQ(interactivity_at(points, 9), std::nullopt) << "nothing was played there";
}

TEST(Fronts, SayWhereItIsFourTimesAndWhereItStopsPaying) {
  const PlayedFront whole{.name = "whole",
                          .points = {{.value = 8, .tokens_per_s = 20, .throughput = 10},
                                     {.value = 16, .tokens_per_s = 10, .throughput = 30}}};
  PlayedFront split{.name = "split",
                    .points = {{.value = 8, .tokens_per_s = 80, .throughput = 10},
                               {.value = 16, .tokens_per_s = 8, .throughput = 30}}};
  const std::string text = fronts_text("batch", {whole, split}, 4);
  EXPECT_THAT(text, HasSubstr("4 x from batch 8 on; most 4.00 x at batch 8"));
  EXPECT_THAT(text, HasSubstr("it stops paying at batch 16"));
  split.points[0].tokens_per_s = 60;
  EXPECT_THAT(fronts_text("batch", {whole, split}, 4), HasSubstr("nowhere 4 x"));
}

TEST(Fronts, AScenarioHasTwoOrNone) {
  const std::string head = "title = \"t\"\nmodel = \"gpt-oss-20b\"\n";
  const std::string sweep = "[sweep]\nflag = \"max-concurrency\"\nvalues = [1, 2]\n";
  const std::string one = "[[front]]\nname = \"a\"\nflags = {split = \"off\"}\n";
  const Result<Scenario> two = parse_scenario(head + sweep + one + one, "x.toml");
  ASSERT_TRUE(two.ok()) << two.error().message;
  EXPECT_EQ(two->fronts.size(), 2u);
  EXPECT_EQ(two->fronts[0].flags.front().first, "--split");
  EXPECT_FALSE(parse_scenario(head + sweep + one, "x.toml").ok());
  EXPECT_FALSE(parse_scenario(head + one + one, "x.toml").ok());
}

}  // namespace
}  // namespace pelton::simulator
