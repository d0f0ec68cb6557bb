#include "planner/speech_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::planner {
namespace {

using cost_model::Arithmetic;
using cost_model::SpeechTimeModel;
using testing::HasSubstr;

// Whisper small's shape on a machine with so many times the figures of two cores.
SpeechPlanOptions options_of(double times) {
  SpeechPlanOptions options{.model = "small",
                            .timing = {.hardware = {.name = "m",
                                                    .title = "M",
                                                    .architecture = "x86-64-v4",
                                                    .bytes_per_second = 35e9 * times,
                                                    .rates = {{Arithmetic::kBf16, 473e9 * times}}},
                                       .shape = {.hidden = 768,
                                                 .vocab = 51865,
                                                 .encoder = {.layers = 12, .inner = 3072},
                                                 .decoder = {.layers = 12, .inner = 3072}}},
                            .efficiency_source = "assumed",
                            .memory = {{.name = "weights", .bytes = 100, .formula = "in the file"}},
                            .each_more_bytes = 10,
                            .allowed_bytes = 145};
  return options;
}
SpeechRates rates_of(const SpeechPlanOptions& options) {
  return speech_rates(options, *SpeechTimeModel::make(options.timing));
}

TEST(SpeechPlan, AFileIsItsWindowsOneBehindTheOther) {
  SpeechPlanOptions options = options_of(1);
  options.file_seconds = 60;
  const SpeechTimeModel model = *SpeechTimeModel::make(options.timing);
  const SpeechRates rates = speech_rates(options, model);
  const cost_model::SpeechWindow full = full_window(options);
  EXPECT_DOUBLE_EQ(rates.file_s, rates.first_text_s + model.seconds({&full, 1}));
  EXPECT_DOUBLE_EQ(rates.file_factor, rates.file_s / 60);
  // A file that ends amid a window has an encoder's whole run there, and less text.
  options.file_seconds = 31;
  const double more_s = rates_of(options).file_s - rates.first_text_s;
  EXPECT_GT(more_s, model.encode_seconds());
  EXPECT_LT(more_s, model.encode_seconds() * 1.2);
}

TEST(SpeechPlan, FilesTogetherTakeLessThanAloneAndTwiceTheMachineHalfAsLong) {
  const SpeechRates one = rates_of(options_of(1));
  const SpeechRates two = rates_of(options_of(2));
  EXPECT_LT(one.batch_factor, one.file_factor);
  EXPECT_NEAR(one.batch_factor / two.batch_factor, 2, 1e-9);
}

// Slow passes come late: two cores hear no stream in time, forty hear some, and later text leaves
// room for more.
TEST(SpeechPlan, LiveStreamsAreThoseWhoseTextIsInTime) {
  EXPECT_EQ(rates_of(options_of(1)).live_streams, 0);
  SpeechPlanOptions options = options_of(20);
  const SpeechRates rates = rates_of(options);
  EXPECT_GT(rates.live_streams, 1);
  EXPECT_GE(rates.live_streams, rates.half_second_streams);
  // All of a round, once more, and a pass are within five seconds; one more stream's are not.
  const double round_s = static_cast<double>(rates.live_streams) * rates.live_pass_s;
  EXPECT_LT(2 * round_s, options.live_delay_s);
  options.live_delay_s = 10;
  EXPECT_GT(rates_of(options).live_streams, rates.live_streams);
}

TEST(SpeechPlan, ReplicasForATarget) {
  SpeechPlanOptions options = options_of(20);
  const SpeechRates rates{.batch_factor = 0.1, .live_streams = 10};
  options.audio_hours_per_hour = 80;
  options.live_streams = 17;
  const SpeechReplicas replicas = *speech_replicas(options, rates);
  EXPECT_EQ(replicas.for_files, 10);  // 80 x 0.1 / 0.8
  EXPECT_EQ(replicas.for_live, 3);    // of 8 each
  EXPECT_EQ(replicas.together(), 13);
  const Result<SpeechReplicas> none = speech_replicas(options, {.batch_factor = 0.1});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().field, "live-streams");
}

TEST(SpeechPlan, TheReportSaysMemorySpeedAndReplicas) {
  SpeechPlanOptions options = options_of(20);
  options.audio_hours_per_hour = 1000;
  options.devices = 2;
  options.price_per_hour = 3;
  options.price_source = "--price";
  const PlanReport report = *plan_speech(options);
  EXPECT_TRUE(report.fits);
  EXPECT_TRUE(report.meets_objectives.value_or(false));
  const Json json = to_json(report);
  EXPECT_EQ(json.find("memory")->find("windows_that_fit")->find("value")->as_number(), 4 + 4);
  EXPECT_GT(json.find("speed")->find("audio_hours")->find("value")->as_number(), 100);
  const double files = json.find("replicas")->find("for_files")->find("value")->as_number();
  EXPECT_EQ(json.find("replicas")->find("machines")->find("value")->as_number(),
            std::ceil(files / 2));
  options.memory_only = true;
  EXPECT_EQ(to_json(*plan_speech(options)).find("speed"), nullptr);
}

TEST(SpeechPlan, WhatDoesNotFitIsSaidFirst) {
  SpeechPlanOptions options = options_of(1);
  options.allowed_bytes = 50;
  options.audio_hours_per_hour = 1;
  const PlanReport report = *plan_speech(options);
  EXPECT_FALSE(report.fits);
  EXPECT_THAT(report.headline[1], HasSubstr("does not fit on one M"));
  EXPECT_EQ(to_json(report).find("replicas"), nullptr);
}

}  // namespace
}  // namespace pelton::planner
