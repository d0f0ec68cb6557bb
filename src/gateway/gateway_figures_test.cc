#include "gateway/gateway_figures.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

TEST(GatewayFigures, RequestsAreCountedByPoolStatusAndOutcome) {
  GatewayFigures figures;
  figures.note_end({.pool = "a", .status = 200, .outcome = "ok"});
  figures.note_end({.pool = "a", .status = 200, .outcome = "ok"});
  figures.note_end({.pool = "a", .status = 200, .outcome = "error"});
  figures.note_end({.pool = "b", .status = 404, .outcome = "client_error"});
  figures.note_end({.pool = "b", .status = 503, .outcome = "error"});
  figures.note_end({.pool = "b", .status = 0, .outcome = "left"});
  figures.note_retry(GatewayFigures::Retry::kBusy);
  figures.note_retry(GatewayFigures::Retry::kFailed);
  figures.note_move(GatewayFigures::Move::kWarm, GatewayFigures::MoveEnd::kContinued);
  figures.begin_wait();
  figures.begin_wait();
  figures.end_wait(0.3);
  EXPECT_EQ(figures.retries(), 2);
  EXPECT_EQ(figures.moves(), 1);
  EXPECT_EQ(figures.waiting(), 1);
  const std::vector<GatewayFigures::Ended> ended = figures.ended();
  ASSERT_EQ(ended.size(), 2);
  EXPECT_EQ(ended[0].pool, "a");
  EXPECT_EQ(ended[0].by_outcome, (std::array<int64_t, 4>{2, 0, 1, 0}));
  EXPECT_EQ(ended[1].by_outcome, (std::array<int64_t, 4>{0, 1, 1, 1}));
  telemetry::PrometheusText text;
  figures.add_metrics(text);
  const std::string page = text.text();
  for (const char* line :
       {R"(requests_total{pool="a",code_class="2xx",outcome="ok"} 2)",
        R"(requests_total{pool="a",code_class="2xx",outcome="error"} 1)",
        R"(requests_total{pool="b",code_class="4xx",outcome="client_error"} 1)",
        R"(requests_total{pool="b",code_class="5xx",outcome="error"} 1)",
        R"(requests_total{pool="b",code_class="none",outcome="left"} 1)",
        R"(retries_total{reason="busy"} 1)", R"(retries_total{reason="lost"} 0)",
        R"(migrations_total{kind="warm",result="continued"} 1)",
        R"(migrations_total{kind="cold",result="failed"} 0)", "queue_requests 1",
        R"(queue_seconds_bucket{le="0.2"} 0)", R"(queue_seconds_bucket{le="0.5"} 1)"}) {
    EXPECT_NE(page.find("pelton_gateway_" + std::string(line) + "\n"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace pelton::gateway
