#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/condition.h"
#include "report/latency_histogram.h"
#include "report/percentile.h"
#include "report/serve_result.h"

namespace pelton::report {
namespace {

constexpr int64_t kMs = 1'000'000;

RequestRecord request(int64_t start_ms, std::vector<int64_t> token_ms, int64_t input = 10) {
  RequestRecord record;
  record.due_ns = record.start_ns = start_ms * kMs;
  for (const int64_t at : token_ms) record.pieces.push_back({at * kMs, 1});
  record.end_ns = token_ms.back() * kMs;
  record.ok = true;
  record.tokens_told = true;
  record.input_tokens = input;
  record.output_tokens = static_cast<int64_t>(token_ms.size());
  return record;
}

const std::vector<double>& values(const Summary& summary, Metric metric) {
  return summary.values_ms.at(metric);
}

// The figures of the published run that everybody quotes.
TEST(Summary, GoldenArithmetic) {
  std::vector<RequestRecord> records(200);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].ok = true;
    records[i].end_ns = 1;
    records[i].input_tokens = 409'138 / 200;
    records[i].output_tokens = 61'858 / 200;
  }
  records[0].input_tokens += 409'138 % 200;
  records[0].output_tokens += 61'858 % 200;
  const Summary summary = summarize(records, 237.984, {});
  EXPECT_EQ(summary.input_tokens, 409'138);
  EXPECT_EQ(summary.output_tokens, 61'858);
  EXPECT_NEAR(summary.requests_per_s, 0.84, 0.005);
  EXPECT_NEAR(summary.output_tokens_per_s, 259.92, 0.05);
  EXPECT_NEAR(summary.total_tokens_per_s, 1979.11, 0.05);
  const std::string text =
      result_text({.request_rate = std::numeric_limits<double>::infinity()}, summary, {});
  EXPECT_THAT(text, testing::HasSubstr("Request throughput (req/s):              0.84      \n"));
  EXPECT_THAT(text, testing::HasSubstr("Benchmark duration (s):                  237.98    \n"));
}

// Ten requests done in one second, three of them as promised.
TEST(Summary, GoldenGoodput) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 10; ++i) {
    records.push_back(request(0, {i < 3 ? 100 : 101, 400}));
  }
  const Summary summary = summarize(records, 1.0, {{Metric::kTtft, 100}});
  EXPECT_EQ(summary.requests_per_s, 10);
  EXPECT_EQ(summary.good_requests_per_s, 3);
}

TEST(Summary, TimesOfOneRequest) {
  RequestRecord record = request(100, {150, 160, 190});
  record.due_ns = 40 * kMs;
  record.first_reasoning_ns = 150 * kMs;
  record.first_text_ns = 190 * kMs;
  record.end_ns = 200 * kMs;
  const Summary summary = summarize(std::vector{record}, 1, {});
  using testing::DoubleNear;
  using testing::ElementsAre;
  const auto near = [](double value) { return DoubleNear(value, 1e-9); };
  EXPECT_THAT(values(summary, Metric::kTtft), ElementsAre(near(50)));
  EXPECT_THAT(values(summary, Metric::kTtftQueued), ElementsAre(near(110)));
  EXPECT_THAT(values(summary, Metric::kTpot), ElementsAre(near(20)));
  EXPECT_THAT(values(summary, Metric::kItl), ElementsAre(near(10), near(30)));
  EXPECT_THAT(values(summary, Metric::kE2el), ElementsAre(near(100)));
  EXPECT_THAT(values(summary, Metric::kClientQueue), ElementsAre(near(60)));
  EXPECT_THAT(values(summary, Metric::kE2elQueued), ElementsAre(near(160)));
  EXPECT_THAT(values(summary, Metric::kFirstReasoning), ElementsAre(near(50)));
  EXPECT_THAT(values(summary, Metric::kFirstText), ElementsAre(near(90)));
}

// A piece of four tokens after 40 ms: four gaps of 10 ms, one gap between pieces.
TEST(Summary, SeveralTokensInAPiece) {
  RequestRecord record = request(0, {10, 50});
  record.pieces[1].tokens = 4;
  record.output_tokens = 5;
  const Summary summary = summarize(std::vector{record}, 1, {});
  EXPECT_THAT(values(summary, Metric::kItl), testing::ElementsAre(10, 10, 10, 10));
  EXPECT_THAT(values(summary, Metric::kChunkGap), testing::ElementsAre(40));
  EXPECT_THAT(values(summary, Metric::kTpot), testing::ElementsAre(10));
  EXPECT_EQ(summary.timing, TokenTiming::kReported);
  EXPECT_EQ(summary.peak_output_tokens_per_s, 5);
}

TEST(Summary, ASingleTokenHasNoTpot) {
  const std::vector<RequestRecord> records = {request(0, {10}), request(0, {10, 30})};
  const Summary summary = summarize(records, 1, {{Metric::kTpot, 5}});
  EXPECT_THAT(values(summary, Metric::kTpot), testing::ElementsAre(20));
  EXPECT_EQ(summary.good_requests_per_s, 1) << "its TPOT counts as 0";
}

TEST(Summary, SaysWhenCountsWereNotTold) {
  std::vector<RequestRecord> records = {request(0, {10, 20})};
  records[0].tokens_told = false;
  EXPECT_EQ(summarize(records, 1, {}).timing, TokenTiming::kPieces);
  EXPECT_THAT(result_text({}, summarize(records, 1, {}), {}),
              testing::HasSubstr("not tokens: the server reported no counts"));
  records.push_back(request(0, {10, 20}));
  EXPECT_EQ(summarize(records, 1, {}).timing, TokenTiming::kMixed);
}

// Of a model without moments of tokens no busiest second is known.
TEST(Summary, MeansOfAnswersAreNotCalledExact) {
  Summary summary = summarize(std::vector<RequestRecord>{request(0, {10, 20})}, 1, {});
  EXPECT_THAT(result_text({}, summary, {}), testing::HasSubstr("Peak output token throughput"));
  summary.timing = TokenTiming::kMeans;
  const std::string text = result_text({}, summary, {});
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("Peak output token throughput")));
  EXPECT_THAT(text, testing::HasSubstr("each answer's mean"));
  const std::string json = result_json({}, summary, {}, {}, false);
  EXPECT_THAT(json, testing::Not(testing::HasSubstr("max_output_tokens_per_s")));
}

TEST(Summary, FailuresCountAsFailuresOnly) {
  std::vector<RequestRecord> records = {request(0, {10, 20}), request(0, {10, 20})};
  records[1].ok = false;
  records[1].error = "HTTP 500";
  const Summary summary = summarize(records, 1, {{Metric::kE2el, 1000}});
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.output_tokens, 2);
  EXPECT_EQ(summary.good_requests_per_s, 1);
  EXPECT_EQ(summary.errors.at("HTTP 500"), 1);
  EXPECT_EQ(summarize({}, 0, {}).requests_per_s, 0);
}

// Ten at a time, one after the other within the same second: second buckets would say 17.
TEST(Summary, PeakConcurrencyIsASweep) {
  std::vector<RequestRecord> records;
  for (int slot = 0; slot < 10; ++slot) {
    records.push_back(request(0, {300 + slot * 40}));
    records.push_back(request(300 + slot * 40, {1500}));
  }
  EXPECT_EQ(peak_concurrency(records), 10);
  EXPECT_EQ(peak_concurrency({}), 0);
  const auto steps = concurrency_steps(std::vector{request(0, {10}), request(5, {20})});
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[1].running, 2);
  EXPECT_EQ(steps[3].running, 0);
}

TEST(Percentile, AsNumpy) {
  const std::vector<double> sorted = {1, 2, 4, 8};
  EXPECT_EQ(percentile(sorted, 0), 1);
  EXPECT_EQ(percentile(sorted, 50), 3);
  EXPECT_EQ(percentile(sorted, 100), 8);
  EXPECT_NEAR(percentile(sorted, 99), 7.88, 1e-12);
  EXPECT_EQ(percentile({}, 50), 0);
  EXPECT_NEAR(standard_deviation(sorted), 2.6809513236909, 1e-12);
  EXPECT_EQ(percent_word(99), "99");
  EXPECT_EQ(percent_word(99.9), "99.9");
  EXPECT_THAT(parse_percents("50,99.9", "f").value(), testing::ElementsAre(50, 99.9));
  for (const char* bad : {"", "a", "101", "50,", "-1", "nan"}) {
    EXPECT_FALSE(parse_percents(bad, "f").ok()) << bad;
  }
}

TEST(Goodput, Objectives) {
  const auto both = parse_objectives("ttft:500 tpot:50.5,e2el:2000");
  ASSERT_TRUE(both.ok());
  ASSERT_EQ(both->size(), 3u);
  EXPECT_EQ((*both)[1].metric, Metric::kTpot);
  EXPECT_EQ((*both)[1].bound_ms, 50.5);
  for (const char* bad : {"ttft", "ttft:", "ttft:x", "itl:3", "speed:1", "ttft:-1", "ttft:nan"}) {
    EXPECT_FALSE(parse_objectives(bad).ok()) << bad;
  }
}

// The first token is not what a user waits for where a model reasons.
TEST(ResultText, SplitsTheTimeToFirstToken) {
  RequestRecord record = request(0, {50, 60, 90});
  EXPECT_THAT(result_text({}, summarize(std::vector{record}, 1, {}), {}),
              testing::Not(testing::HasSubstr("TTFV")));
  record.first_reasoning_ns = 60 * kMs;
  record.first_text_ns = 90 * kMs;
  const std::string text = result_text({}, summarize(std::vector{record}, 1, {}), {});
  EXPECT_THAT(text, testing::HasSubstr("Median TTFR (ms):                        60.00"));
  EXPECT_THAT(text, testing::HasSubstr("Median TTFV (ms):                        90.00"));
}

// The layout that scripts read, byte by byte.
TEST(ResultText, IsLaidOutAsVllms) {
  const std::vector<RequestRecord> records = {request(0, {100, 120, 140}), request(0, {200, 230})};
  RunInfo info;
  info.max_concurrency = 2;
  info.request_rate = 4;
  const Summary summary = summarize(records, 2, parse_objectives("ttft:150").value());
  const std::string text = result_text(
      info, summary,
      {.metrics = {Metric::kTtft, Metric::kTpot, Metric::kItl}, .percents = {99, 99.9}});
  const std::string expected =
      "============ Serving Benchmark Result ============\n"
      "Successful requests:                     2         \n"
      "Failed requests:                         0         \n"
      "Maximum request concurrency:             2         \n"
      "Request rate configured (RPS):           4.00      \n"
      "Benchmark duration (s):                  2.00      \n"
      "Total input tokens:                      20        \n"
      "Total generated tokens:                  5         \n"
      "Request throughput (req/s):              1.00      \n"
      "Request goodput (req/s):                 0.50      \n"
      "Output token throughput (tok/s):         2.50      \n"
      "Peak output token throughput (tok/s):    5.00      \n"
      "Peak concurrent requests:                2.00      \n"
      "Total token throughput (tok/s):          12.50     \n"
      "---------------Time to First Token----------------\n"
      "Mean TTFT (ms):                          150.00    \n"
      "Median TTFT (ms):                        150.00    \n"
      "P99 TTFT (ms):                           199.00    \n"
      "P99.9 TTFT (ms):                         199.90    \n"
      "-----Time per Output Token (excl. 1st token)------\n"
      "Mean TPOT (ms):                          25.00     \n"
      "Median TPOT (ms):                        25.00     \n"
      "P99 TPOT (ms):                           29.90     \n"
      "P99.9 TPOT (ms):                         29.99     \n"
      "---------------Inter-token Latency----------------\n"
      "Mean ITL (ms):                           23.33     \n"
      "Median ITL (ms):                         20.00     \n"
      "P99 ITL (ms):                            29.80     \n"
      "P99.9 ITL (ms):                          29.98     \n"
      "==================================================\n";
  EXPECT_EQ(text.substr(0, expected.size()), expected);
}

TEST(ResultJson, HasVllmsKeys) {
  const std::vector<RequestRecord> records = {request(0, {100, 120, 140}), request(0, {200, 230})};
  RunInfo info{.date = "20260102-030405", .backend = "openai-chat", .model = "org/m"};
  info.request_rate = std::numeric_limits<double>::infinity();
  info.max_concurrency = 8;
  info.metadata = {{"commit", "abc"}};
  const Summary summary = summarize(records, 2, {});
  const Shown shown{.metrics = {}, .percents = {99}};
  const auto json =
      parse_result(result_json(info, summary, shown, records, /*detailed=*/true), "f");
  ASSERT_TRUE(json.ok());
  std::vector<std::string> keys;
  for (const Json::Member& member : json->as_object()) keys.push_back(member.key);
  for (const char* key : {"date",
                          "endpoint_type",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "mean_itl_ms",
                          "mean_e2el_ms",
                          "mean_client_queue_time_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "latencies",
                          "start_times",
                          "queue_times",
                          "errors",
                          "generated_texts",
                          "commit"}) {
    EXPECT_THAT(keys, testing::Contains(key));
  }
  EXPECT_EQ(json->string("request_rate"), "inf");
  EXPECT_NEAR(*json->number("p99_ttft_ms"), 199, 1e-9);
  EXPECT_EQ(json->find("pelton")->find("quantiles_ms")->find("ttft")->as_array().size(), 110u);
  EXPECT_EQ(result_file_name(info), "openai-chat-infqps-concurrency8-m-20260102-030405.json");
  EXPECT_FALSE(parse_result("{}", "f").ok());
  EXPECT_FALSE(parse_result("{", "f").ok());
}

TEST(Condition, ReadsAndDecides) {
  const Json result = Json::parse(R"({"p99_ttft_ms":500,"failed":0})").value();
  const auto decide = [&](const char* text) {
    const auto condition = parse_condition(text);
    EXPECT_TRUE(condition.ok()) << text;
    return holds(*condition, result).value();
  };
  EXPECT_FALSE(decide("p99_ttft_ms>500"));
  EXPECT_TRUE(decide("p99_ttft_ms>=500"));
  EXPECT_TRUE(decide("p99_ttft_ms<500.5"));
  EXPECT_TRUE(decide("p99_ttft_ms<=500"));
  EXPECT_FALSE(decide("failed>0"));
  for (const char* bad : {"", "p99_ttft_ms", "p99_ttft_ms>", "p99_tttf_ms>1", "x>1", "p_ttft_ms>1",
                          "p99_ttft_ms>nan", "p99_ttft_ms>1s", ">1"}) {
    EXPECT_FALSE(parse_condition(bad).ok()) << bad;
  }
  EXPECT_FALSE(holds(*parse_condition("p95_itl_ms>1"), result).ok());
  EXPECT_TRUE(parse_condition("mean_e2el_including_client_queue_ms<3").ok());
}

TEST(LatencyHistogram, PercentilesAndShape) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentile_ms(50), 0);
  EXPECT_EQ(histogram.sparkline(10), "");
  for (int i = 1; i <= 1000; ++i) histogram.add_ms(i);
  EXPECT_EQ(histogram.count(), 1000);
  EXPECT_NEAR(histogram.percentile_ms(50), 500, 20);
  EXPECT_NEAR(histogram.percentile_ms(99), 990, 35);
  EXPECT_LE(histogram.least_ms(), 1);
  EXPECT_GE(histogram.most_ms(), 1000);
  const std::string line = histogram.sparkline(12);
  EXPECT_LE(line.size(), 36u);
  EXPECT_NE(line.find("█"), std::string::npos);
  histogram.add_ms(-1);
  histogram.add_ms(1e15);
  EXPECT_EQ(histogram.count(), 1002);
}

TEST(Summary, A13_ThePeakIsNeverBelowTheMean) {
  RequestRecord quick;
  quick.ok = true;
  quick.output_tokens = 40;
  for (int i = 0; i < 40; ++i) quick.pieces.push_back({.at_ns = i * 10'000'000, .tokens = 1});
  quick.end_ns = 400'000'000;
  const Summary brief = summarize(std::vector{quick}, 0.4, {});
  EXPECT_DOUBLE_EQ(brief.peak_output_tokens_per_s, 100);
  // A second lies anywhere, not from one whole second of the run to the next.
  RequestRecord late = quick;
  for (Piece& piece : late.pieces) piece.at_ns += 800'000'000;
  EXPECT_DOUBLE_EQ(summarize(std::vector{late}, 4, {}).peak_output_tokens_per_s, 40);
}

}  // namespace
}  // namespace pelton::report
