// Hours that the simulator itself has recorded: what is played of them is what was.
#include "simulator/recorded_hour.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/fleet_page.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;
using testing::Not;

// Half an hour of a load that climbs and falls, as its autoscaler recorded it.
struct Recorded {
  std::string facts;
  FleetFigures figures;
};
Recorded record(double start_s, int replicas_min = 1, double service_s_assumed = 0) {
  RecordedHour hour{.pool = "box",
                    .policy = {.replicas_min = replicas_min, .replicas_max = 12},
                    .duration_s = 1800,
                    .service_mean_s = 8,
                    .service_s_assumed = service_s_assumed,
                    .slots = 8,
                    .replicas = 1,
                    .start_s = start_s};
  hour.policy.scale_down_delay_s = 120;
  for (double at_s = 0; at_s<1700; at_s += at_s> 500 && at_s < 900 ? 0.15 : 0.7) {
    hour.at_s.push_back(at_s);
    hour.service_s.push_back(8);
  }
  Autoscaling scaling = autoscaling_of(hour);
  Recorded recorded;
  scaling.record = [&](std::string_view line) {
    recorded.facts += line;
    recorded.facts += '\n';
  };
  SimulationOptions used;
  const Result<SimulationResult> result = play_hour(hour, scaling, 3, &used);
  EXPECT_TRUE(result.ok()) << result.error().message;
  recorded.figures = figures_of(used, *result, 2, 0);
  return recorded;
}

RecordedHour read(const std::string& facts, double last_s = 0) {
  Result<RecordedHour> hour = read_recorded_hour(facts, "f", "", last_s);
  EXPECT_TRUE(hour.ok()) << hour.error().message;
  return *hour;
}

FleetFigures play(const RecordedHour& hour, const autoscaler::PoolPolicy& policy) {
  Autoscaling scaling = autoscaling_of(hour);
  scaling.policy = policy;
  SimulationOptions used;
  const Result<SimulationResult> result = play_hour(hour, scaling, 5, &used);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return figures_of(used, *result, 2, 0);
}

TEST(RecordedHourTest, UnchangedKnobsGiveTheHoursOwnFigures) {
  const Recorded recorded = record(20);
  const RecordedHour hour = read(recorded.facts);
  EXPECT_EQ(hour.pool, "box");
  EXPECT_GE(hour.decisions, 900);
  EXPECT_NEAR(hour.duration_s, 1800, 3);
  EXPECT_EQ(hour.slots, 8);
  EXPECT_EQ(hour.replicas, 1);
  EXPECT_NEAR(hour.start_s, 20, 2.1);  // seen at the next decision only
  EXPECT_NEAR(hour.service_mean_s, 8, 0.4);
  EXPECT_NEAR(static_cast<double>(hour.at_s.size()), static_cast<double>(recorded.figures.requests),
              2);
  EXPECT_NEAR(hour.seen.figures.replica_hours, recorded.figures.replica_hours,
              0.02 * recorded.figures.replica_hours);
  EXPECT_GT(recorded.figures.direction_changes, 0);
  EXPECT_EQ(hour.seen.figures.direction_changes, recorded.figures.direction_changes);
  const FleetFigures played = play(hour, hour.policy);
  EXPECT_EQ(played.lost, 0);
  EXPECT_NEAR(played.replica_hours, recorded.figures.replica_hours,
              0.05 * recorded.figures.replica_hours);
  EXPECT_NEAR(static_cast<double>(played.late), static_cast<double>(recorded.figures.late),
              0.03 * static_cast<double>(recorded.figures.requests));
  EXPECT_NEAR(*played.held_mean_s, *recorded.figures.held_mean_s, 1.5);
}

// A gateway that begins assumes what it cannot know yet, and orders by it.
TEST(RecordedHourTest, BeginsWithWhatTheAutoscalerAssumed) {
  const Recorded recorded = record(20, 1, 60);
  const RecordedHour hour = read(recorded.facts);
  EXPECT_EQ(hour.service_s_assumed, 60);
  EXPECT_GT(recorded.figures.started, record(20).figures.started);
  const FleetFigures played = play(hour, hour.policy);
  EXPECT_NEAR(played.replica_hours, recorded.figures.replica_hours,
              0.05 * recorded.figures.replica_hours);
}

TEST(RecordedHourTest, OtherKnobsGiveOtherFigures) {
  const RecordedHour hour = read(record(20).facts);
  const FleetFigures as_it_was = play(hour, hour.policy);
  autoscaler::PoolPolicy policy = hour.policy;
  policy.scale_down_delay_s = 1200;
  EXPECT_GT(play(hour, policy).replica_hours, 1.1 * as_it_was.replica_hours);
  policy.replicas_max = 2;
  const FleetFigures narrow = play(hour, policy);
  EXPECT_EQ(narrow.most, 2);
  EXPECT_GT(narrow.late, as_it_was.late);
}

// How requests ended is in no facts.
TEST(RecordedHourTest, WhatFactsDoNotSayIsNotNone) {
  const RecordedHour hour = read(record(20).facts);
  SimulationOptions used;
  const Result<SimulationResult> result = play_hour(hour, autoscaling_of(hour), 5, &used);
  ASSERT_TRUE(result.ok());
  const PlayedFleet fleets[] = {hour.seen, played_fleet("played", used, *result, 2, 0)};
  const std::string table = figures_table("run", fleets);
  EXPECT_THAT(table, testing::ContainsRegex("recorded +[0-9]+ +- +- +- +- +- +- "));
  EXPECT_THAT(table, testing::ContainsRegex("played +[0-9]+ +[0-9.]+ % +0 +0 "));
  std::string json;
  base::JsonWriter w(json);
  write_figures(w, hour.seen.figures);
  for (const char* unknown : {"late", "lost", "left", "output_tokens_per_s", "used_hours"}) {
    EXPECT_THAT(json, HasSubstr(fmt::format("\"{}\":null", unknown)));
  }
  const std::string page = fleet_page({.title = "t", .notes = {}, .plots = {}}, fleets);
  EXPECT_THAT(page, testing::ContainsRegex(
                        "<td>recorded</td><td>[0-9]+</td><td>-</td><td>-</td><td>-</td>"));
  EXPECT_THAT(page, Not(HasSubstr("late: recorded")));
}

TEST(RecordedHourTest, OnlyTheLastSecondsOfIt) {
  const RecordedHour hour = read(record(20).facts, 600);
  EXPECT_NEAR(hour.duration_s, 600, 3);
  for (const double at_s : hour.at_s) ASSERT_LE(at_s, 603);
}

TEST(RecordedHourTest, WhatIsNoneIsRefused) {
  const std::string facts = record(20).facts;
  const auto refusal = [](const std::string& text, const std::string& pool = "") {
    const auto hour = read_recorded_hour(text, "f", pool, 0);
    return hour.ok() ? "none" : hour.error().message;
  };
  EXPECT_THAT(refusal(""), HasSubstr("no two decisions"));
  EXPECT_THAT(refusal(facts, "bix"), HasSubstr("no pool 'bix'; it has box"));
  EXPECT_THAT(refusal("{}\n" + facts), HasSubstr("f:1: "));
  // Cut off in the middle of its last line.
  EXPECT_EQ(refusal(facts.substr(0, facts.size() - 40)), "none");
  std::string changed = facts;
  const size_t at = changed.find("\"desired\":", changed.size() / 2);
  changed[at + 10] = '9';
  EXPECT_THAT(refusal(changed), HasSubstr("decided otherwise"));
  EXPECT_THAT(refusal(facts + facts), HasSubstr("its time goes back"));
}

TEST(FleetPageTest, OpensOfflineAndNamesItsSteps) {
  const RecordedHour hour = read(record(20).facts);
  SimulationOptions used;
  const Result<SimulationResult> result = play_hour(hour, autoscaling_of(hour), 5, &used);
  ASSERT_TRUE(result.ok());
  const PlayedFleet fleets[] = {hour.seen, played_fleet("<b>", used, *result, 2, 3)};
  const std::string page =
      fleet_page({.title = "a <title>", .notes = {"note & note"}, .plots = {}}, fleets);
  EXPECT_THAT(page, HasSubstr("a &lt;title&gt;"));
  EXPECT_THAT(page, HasSubstr("note &amp; note"));
  EXPECT_THAT(page, HasSubstr("Scaling steps: &lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("demand (flow"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("http:")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_THAT(figures_table("run", fleets), HasSubstr("cost"));
}

}  // namespace
}  // namespace pelton::simulator
