#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/random.h"
#include "telemetry/span.h"
#include "telemetry/trace_context.h"

namespace pelton::telemetry {
namespace {

constexpr char kGood[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ReadsAndWritesTheHeader) {
  const auto context = parse_traceparent(kGood);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id[0], 0x0af7651916cd43ddu);
  EXPECT_EQ(context->span_id, 0xb7ad6b7169203331u);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(format_traceparent(*context), kGood);
  // A later version may say more.
  EXPECT_TRUE(parse_traceparent("cc" + std::string(kGood).substr(2) + "-what-comes"));
  const auto unsampled = parse_traceparent(std::string(kGood).substr(0, 53) + "02");
  ASSERT_TRUE(unsampled);
  EXPECT_FALSE(unsampled->sampled);
}

TEST(TraceContext, RefusesWhatIsNone) {
  const std::string good = kGood;
  for (const std::string& bad :
       {std::string(), good.substr(0, 54), good + "-", "ff" + good.substr(2),
        "00-" + std::string(32, '0') + good.substr(35),
        good.substr(0, 36) + std::string(16, '0') + "-01",
        good.substr(0, 10) + "A" + good.substr(11), good.substr(0, 10) + "g" + good.substr(11)}) {
    EXPECT_FALSE(parse_traceparent(bad)) << bad;
  }
  // Whatever bytes come: an answer, and never a zero id.
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text = good;
    for (uint64_t i = 0; i < 3; ++i) {
      const uint64_t bits = base::random_bits(seed, i);
      text[bits % text.size()] = static_cast<char>(bits >> 32);
    }
    const auto context = parse_traceparent(text);
    if (context) {
      EXPECT_NE(context->span_id, 0u) << seed;
    }
  }
}

TEST(Span, IsWrittenAsOtlp) {
  const Span span{.trace_id = {1, 2},
                  .span_id = 3,
                  .parent_id = 0,
                  .name = "server",
                  .kind = Span::Kind::kServer,
                  .start_unix_ns = 1'700'000'000'000'000'001,
                  .end_unix_ns = 1'700'000'000'000'000'002,
                  .failed = true,
                  .attributes = {{"a", std::string("x\"y")},
                                 {"b", int64_t{7}},
                                 {"c", 0.5},
                                 {"d", std::vector<std::string>{"stop", "length"}}}};
  const std::string text = otlp_json({.name = "pelton", .version = "1"}, {span});
  const Result<Json> json = Json::parse(text);
  ASSERT_TRUE(json.ok()) << text;
  EXPECT_THAT(text, testing::HasSubstr(R"("traceId":"00000000000000010000000000000002")"));
  EXPECT_THAT(text, testing::HasSubstr(R"("startTimeUnixNano":"1700000000000000001")"));
  EXPECT_THAT(text, testing::HasSubstr(R"({"key":"b","value":{"intValue":"7"}})"));
  EXPECT_THAT(
      text, testing::HasSubstr(
                R"({"arrayValue":{"values":[{"stringValue":"stop"},{"stringValue":"length"}]}})"));
  EXPECT_THAT(text, testing::HasSubstr(R"("status":{"code":2})"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("parentSpanId")));
}

}  // namespace
}  // namespace pelton::telemetry
