#include "simulator/speech_fleet.h"

#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::simulator {
namespace {

using cost_model::Arithmetic;
using cost_model::SpeechTimeModel;
using testing::HasSubstr;

SpeechTimeModel small_model() {
  return *SpeechTimeModel::make(
      {.hardware = {.name = "m", .bytes_per_second = 35e9, .rates = {{Arithmetic::kBf16, 473e9}}},
       .shape = {.hidden = 768,
                 .vocab = 51865,
                 .encoder = {.layers = 12, .inner = 3072},
                 .decoder = {.layers = 12, .inner = 3072}},
       .efficiency = {}});
}

double alone_s(const SpeechTimeModel& model, double seconds) {
  double all = 0;
  for (const auto& window : cost_model::speech_windows(model.options().shape, 4, seconds)) {
    all += model.seconds({&window, 1});
  }
  return all;
}

TEST(SpeechFleet, ALoneFileTakesItsWindowsOneBehindTheOther) {
  const SpeechTimeModel model = small_model();
  const SpeechResult result = simulate_speech({}, {{.at_s = 2, .seconds = 75}}, model);
  ASSERT_EQ(result.records.size(), 1);
  const SpeechRecord& record = result.records[0];
  EXPECT_DOUBLE_EQ(record.began_s, 2);
  EXPECT_NEAR(record.first_text_s, 2 + alone_s(model, 30), 1e-9);
  EXPECT_NEAR(record.end_s, 2 + alone_s(model, 75), 1e-9);
  EXPECT_NEAR(result.busy_s[0], alone_s(model, 75), 1e-9);
  EXPECT_EQ(result.windows, 3);
  EXPECT_EQ(result.batches, 3);
}

// A long file holds a short one up by a window, not by all of its own.
TEST(SpeechFleet, FilesHaveAWindowInTurn) {
  const SpeechTimeModel model = small_model();
  const SpeechFleetOptions options{.batch_max = 1};
  const SpeechResult result =
      simulate_speech(options, {{.at_s = 0, .seconds = 600}, {.at_s = 0, .seconds = 30}}, model);
  EXPECT_DOUBLE_EQ(result.records[1].began_s, result.records[0].first_text_s);
  EXPECT_LT(result.records[1].end_s, 2.1 * alone_s(model, 30));
  EXPECT_EQ(result.batches, 21);
}

TEST(SpeechFleet, BatchesAreOfFilesAndNoMoreThanTheyMayBe) {
  const SpeechTimeModel model = small_model();
  const std::vector<SpeechFile> files(8, {.at_s = 0, .seconds = 60});
  const SpeechResult alone = simulate_speech({.batch_max = 1}, files, model);
  const SpeechResult four = simulate_speech({.batch_max = 4}, files, model);
  EXPECT_EQ(four.windows, 16);
  EXPECT_EQ(four.batches, 4);
  EXPECT_LT(four.duration_s, alone.duration_s);
}

// Room for two of these files: the third waits until one has ended, though a batch had a place.
TEST(SpeechFleet, HeardFilesHaveABoundInSeconds) {
  const SpeechTimeModel model = small_model();
  const std::vector<SpeechFile> files(3, {.at_s = 0, .seconds = 60});
  const SpeechResult result =
      simulate_speech({.heard_seconds_max = 120, .batch_max = 4}, files, model);
  EXPECT_DOUBLE_EQ(result.records[1].began_s, 0);
  EXPECT_DOUBLE_EQ(result.records[2].began_s, result.records[0].end_s);
}

TEST(SpeechFleet, MoreThanMayWaitAreRefused) {
  const SpeechTimeModel model = small_model();
  const std::vector<SpeechFile> files(10, {.at_s = 0, .seconds = 30});
  const SpeechFleetOptions options{.replicas = 2, .waiting_max = 3};
  const SpeechResult result = simulate_speech(options, files, model);
  int refused = 0;
  std::multiset<int> places;
  for (const SpeechRecord& record : result.records) {
    refused += record.replica < 0 ? 1 : 0;
    places.insert(record.replica);
  }
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(places.count(0), 3);
  EXPECT_EQ(places.count(1), 3);
  EXPECT_THAT(speech_text(options, result, {50}), HasSubstr("6 of 10 files heard"));
  EXPECT_THAT(speech_text(options, result, {50}), HasSubstr("4 refused"));
}

TEST(SpeechFleet, AClosedLoopSendsTheNextWhenOneHasEnded) {
  const SpeechTimeModel model = small_model();
  const std::vector<SpeechFile> files(3, {.at_s = 0, .seconds = 30});
  const SpeechResult result = simulate_speech({.concurrency_max = 1}, files, model);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(result.records[i].sent_s, result.records[i - 1].end_s);
    EXPECT_DOUBLE_EQ(result.records[i].began_s, result.records[i].sent_s);
  }
}

TEST(SpeechFleet, FilesAreDrawnByOneSeed) {
  const SpeechLoad load{.count = 400, .rate = 2, .seconds = 100, .range_ratio = 0.5, .seed = 3};
  const std::vector<SpeechFile> files = *speech_files(load);
  double sum = 0;
  for (const SpeechFile& file : files) {
    EXPECT_GE(file.seconds, 50);
    EXPECT_LE(file.seconds, 150);
    sum += file.seconds;
  }
  EXPECT_NEAR(sum / 400, 100, 5);
  EXPECT_NEAR(files.back().at_s, 200, 1e-6);
  EXPECT_EQ((*speech_files(load))[77].seconds, files[77].seconds);
  EXPECT_FALSE(speech_files({.rate = -1}).ok());
}

// What it is busy with is all that its files took, and figures agree with the records.
TEST(SpeechFleet, FiguresAreOfTheRecords) {
  const SpeechTimeModel model = small_model();
  const SpeechFleetOptions options{.replicas = 2};
  const SpeechResult result =
      simulate_speech(options, *speech_files({.count = 50, .rate = 0.05, .seconds = 60}), model);
  const Json json = speech_json(options, result, {50, 90});
  const double busy_s = result.busy_s[0] + result.busy_s[1];
  EXPECT_DOUBLE_EQ(json.find("utilisation")->as_number(), busy_s / (2 * result.duration_s));
  EXPECT_DOUBLE_EQ(json.find("audio_hours_per_hour")->as_number(), 3000 / result.duration_s);
  double factors = 0;
  for (const SpeechRecord& record : result.records) factors += (record.end_s - record.sent_s) / 60;
  EXPECT_NEAR(json.find("real_time_factor")->find("mean")->as_number(), factors / 50, 1e-9);
  EXPECT_LE(json.find("queue_s")->find("p50")->as_number(),
            json.find("queue_s")->find("p90")->as_number());
}

}  // namespace
}  // namespace pelton::simulator
