#include "gateway/served_figures.h"

#include <vector>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

using How = PoolServed::End::How;

TEST(ServedFigures, AreThoseOfAServerSummedByPool) {
  ServedFigures figures;
  const auto served = figures.find("a", "box");
  EXPECT_EQ(figures.find("a", "another"), served);
  served->note_choice(
      {.prompt_tokens = 40, .cached_tokens = 16, .output_tokens = 9, .reason = "stop"});
  served->note_choice({.prompt_tokens = 40, .output_tokens = 3, .reason = "length"});
  served->note_end({.how = How::kAnswered, .first_token_s = 0.03, .whole_s = 0.9});
  served->note_end({.how = How::kLeft, .further_tokens = 5, .first_token_s = 0.03, .whole_s = 0.4});
  figures.find("b", "other")->note_end({.how = How::kFailed, .further_tokens = 2});

  std::vector<Fleet::Row> rows(4);
  for (Fleet::Row& row : rows) {
    row.pool = "a";
    row.state = cluster::WorkerState::kReady;
    row.load.running = 3;
    row.load.waiting = 1;
  }
  rows[0].load.kv_used = 0.5;
  rows[2].state = cluster::WorkerState::kDown;  // what it said last is no more so
  rows[3].pool = "b";
  telemetry::PrometheusText text;
  figures.add_metrics(rows, text);
  const std::string page = text.text();
  for (const char* line :
       {R"(num_requests_running{model_name="box",pool="a"} 6)",
        R"(num_requests_waiting{model_name="box",pool="a"} 2)",
        R"(kv_cache_usage_perc{model_name="box",pool="a"} 0.25)",
        R"(prompt_tokens_total{model_name="box",pool="a"} 80)",
        R"(prefix_cache_hits_total{model_name="box",pool="a"} 16)",
        R"(generation_tokens_total{model_name="box",pool="a"} 17)",
        R"(request_success_total{model_name="box",pool="a",finished_reason="stop"} 1)",
        R"(request_success_total{model_name="box",pool="a",finished_reason="length"} 1)",
        R"(request_success_total{model_name="box",pool="a",finished_reason="abort"} 1)",
        R"(request_success_total{model_name="box",pool="a",finished_reason="error"} 0)",
        R"(request_success_total{model_name="other",pool="b",finished_reason="error"} 1)",
        R"(time_to_first_token_seconds_count{model_name="box",pool="a"} 2)",
        R"(e2e_request_latency_seconds_count{model_name="box",pool="a"} 1)",
        R"(num_requests_running{model_name="other",pool="b"} 3)"}) {
    EXPECT_NE(page.find("vllm:" + std::string(line) + "\n"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace pelton::gateway
