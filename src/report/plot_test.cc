#include "report/plot.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/comparison.h"
#include "report/html_report.h"
#include "report/serve_result.h"

namespace pelton::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Plot, Ticks) {
  EXPECT_THAT(linear_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(linear_ticks(0, 0.9, 5),
              ElementsAre(0, 0.2, 0.4, testing::DoubleNear(0.6, 1e-9), 0.8));
  EXPECT_THAT(linear_ticks(3, 3, 5), ElementsAre());
  EXPECT_THAT(log_ticks(1, 1000), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(log_ticks(0, 10), ElementsAre());
  EXPECT_EQ(short_number(1234), "1234");
  EXPECT_EQ(short_number(12'345), "12.3k");
  EXPECT_EQ(short_number(0.0421), "0.0421");
  EXPECT_EQ(short_number(2.5e6), "2.5M");
}

TEST(Plot, DrawsWhatIsThere) {
  const Plot plot{.title = "a < b",
                  .x_label = "x",
                  .y_label = "y",
                  .series = {{.name = "one & only",
                              .points = {{1, 10, {}}, {2, 20, {}}, {3, std::nan(""), {}}},
                              .shape = PlotSeries::Shape::kLineAndDots}}};
  const std::string figure = plot_figure(plot);
  EXPECT_THAT(figure, HasSubstr("a &lt; b"));
  EXPECT_THAT(figure, HasSubstr("one &amp; only"));
  EXPECT_THAT(figure, Not(HasSubstr("nan")));
  size_t dots = 0;
  for (size_t at = figure.find("<circle"); at != std::string::npos;
       at = figure.find("<circle", at + 1)) {
    ++dots;
  }
  EXPECT_EQ(dots, 2u);
  EXPECT_THAT(plot_svg({}), HasSubstr("nothing to show"));
  // A single point, and equal ones, have axes too.
  EXPECT_THAT(plot_svg({.x_log = true, .series = {{.points = {{5, 5, {}}}}}}),
              Not(HasSubstr("nan")));
}

TEST(Html, ParetoFront) {
  EXPECT_THAT(pareto_front({{1, 10}, {2, 8}, {1.5, 7}, {3, 1}, {3, 2}}), ElementsAre(0, 1, 4));
  EXPECT_THAT(pareto_front({}), ElementsAre());
}

Json result(const std::string& model, int concurrency, double throughput, double ttft) {
  std::vector<RequestRecord> records(4);
  for (size_t i = 0; i < records.size(); ++i) {
    RequestRecord& record = records[i];
    record.ok = true;
    record.output_tokens = 3;
    const auto first = static_cast<int64_t>(ttft * 1e6) + static_cast<int64_t>(i) * 1'000'000;
    record.pieces = {{first, 1}, {first + 20'000'000, 1}, {first + 45'000'000, 1}};
    record.end_ns = first + 45'000'000;
  }
  RunInfo info{.model = model, .request_rate = 2};
  info.max_concurrency = concurrency;
  const Summary summary = summarize(records, 12 / throughput, {});
  return parse_result(result_json(info, summary, {.metrics = {}, .percents = {99}}, records, false),
                      "r")
      .value();
}

TEST(Html, OneRunAndMany) {
  const std::string one = html_report("t", {named_result(result("<m>", 2, 10, 30), "a")});
  EXPECT_THAT(one, HasSubstr("&lt;m&gt;"));
  EXPECT_THAT(one, Not(HasSubstr("<m>")));
  EXPECT_THAT(one, Not(HasSubstr("Pareto")));
  for (const char* outside : {"http-equiv=\"refresh", "src=", "@import", "url(", "<script"}) {
    EXPECT_THAT(one, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(one, HasSubstr("Time to First Token, distribution"));
  EXPECT_THAT(one, HasSubstr("Timeline: output tokens"));
  const std::string many = html_report(
      "t", {named_result(result("m", 1, 10, 30), "a"), named_result(result("m", 4, 30, 60), "b")});
  EXPECT_THAT(many, HasSubstr("Throughput against concurrency"));
  EXPECT_THAT(many, HasSubstr("Pareto front"));
  EXPECT_THAT(many, HasSubstr("m x4 2/s"));
}

TEST(Html, Trends) {
  const std::string page = html_trends(
      "t", {named_result(result("m", 1, 10, 30), "a"), named_result(result("m", 4, 30, 60), "b"),
            named_result(result("m", 1, 11, 28), "c")});
  EXPECT_THAT(page, HasSubstr("output tokens/s"));
  EXPECT_THAT(page, HasSubstr("m x4 2/s"));
  EXPECT_THAT(page, Not(HasSubstr("nothing to show")));
}

// Files of vLLM's own benchmark have no more than its keys.
TEST(Html, TakesOthersFiles) {
  const Json other = parse_result(R"({"duration":2,"completed":4,"model_id":"v","request_rate":2,
      "max_concurrency":8,"output_throughput":5,"median_tpot_ms":20,"median_ttft_ms":3,
      "p99_ttft_ms":9})",
                                  "v")
                         .value();
  EXPECT_EQ(figure_of(other, "tokens_per_s_per_user"), 50);
  const std::vector<NamedResult> both = {named_result(result("m", 8, 10, 30), "a"),
                                         named_result(other, "b")};
  EXPECT_THAT(html_report("t", both), HasSubstr("v x8"));
  const std::string text = comparison_text(both, 0);
  EXPECT_THAT(text, HasSubstr("output tokens/s"));
  EXPECT_THAT(text, HasSubstr("-50.0 % !")) << text;
}

TEST(Comparison, A13_AnotherLoadIsNotWorse) {
  const std::vector<NamedResult> sweep = {named_result(result("m", 1, 10, 30), "one"),
                                          named_result(result("m", 8, 30, 90), "eight")};
  const std::string text = comparison_text(sweep, 0);
  EXPECT_THAT(text, HasSubstr("another load than the first (max_concurrency"));
  EXPECT_THAT(text, Not(HasSubstr("!")));
  EXPECT_THAT(html_report("t", sweep), Not(HasSubstr("class=\"worse\"")));
  const std::vector<NamedResult> same = {named_result(result("m", 8, 10, 30), "one"),
                                         named_result(result("m", 8, 5, 90), "two")};
  EXPECT_THAT(comparison_text(same, 0), HasSubstr(" !"));
  EXPECT_THAT(html_report("t", same), HasSubstr("class=\"worse\""));
}

TEST(Comparison, E6_NamesOfFilesCannotSteerTheTerminal) {
  NamedResult hostile = named_result(result("m", 8, 10, 30), "a");
  hostile.name =
      "x\x1b[31m\ny\xC2\x9B"
      "2J";
  const std::string text = comparison_text({hostile, hostile}, 0);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\xC2\x9B")));
  EXPECT_THAT(text, HasSubstr("x[31m y2J"));
}

}  // namespace
}  // namespace pelton::report
