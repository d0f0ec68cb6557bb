#include "bench/stream_load.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "bench/frame_sink.h"
#include "net/http_server.h"

namespace pelton::bench {
namespace {

std::string event(std::string_view word) {
  return "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + std::string(word) +
         "\"}}]}\n\n";
}

class Streams : public testing::Test {
 protected:
  // What a server that streams these bytes counts as, where an answer is to have so many tokens.
  StreamTimes ask(const std::string& bytes, int tokens, int status = 200) {
    net::HttpServer server(
        {.port = 0},
        [&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
          exchange->start_stream(status, {});
          exchange->write(bytes);
          exchange->finish();
        },
        log_);
    EXPECT_TRUE(server.start().ok());
    StreamLoad load([] { return false; });
    return load.together({.port = server.port()}, {.prompt_bytes = 16, .tokens = tokens}, 1, {});
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

TEST_F(Streams, AWholeAnswerHasEachTokenOnceAndAnEnd) {
  const std::string end = "data: [DONE]\n\n";
  EXPECT_EQ(ask(event("0.1 ") + event("1.1 ") + end, 2).answered, 1);
  EXPECT_EQ(ask(event("0.1 ") + event("1.1 "), 2).failed, 1) << "no end";
  EXPECT_EQ(ask(event("0.1 ") + end, 2).failed, 1) << "one is lost";
  EXPECT_EQ(ask(event("0.1 ") + event("0.1 ") + event("1.1 ") + end, 2).failed, 1) << "doubled";
  EXPECT_EQ(ask(event("1.1 ") + event("0.1 ") + end, 2).failed, 1) << "out of their order";
  EXPECT_EQ(ask(event("0.1 ") + end + event("1.1 "), 2).failed, 1) << "behind the end";
  EXPECT_EQ(ask(event("0.1 ") + event("1.1 ") + end, 2, 503).failed, 1);
}

TEST_F(Streams, WhereAnotherSinkGoesOnThereIsAGap) {
  const StreamTimes times =
      ask(event("0.0 ") + event("1.1 ") + event("2.1 ") + "data: [DONE]\n\n", 3);
  EXPECT_EQ(times.answered, 1);
  EXPECT_EQ(times.move_gap_ms.size(), 1u);
  EXPECT_EQ(times.tokens, 3);
}

TEST_F(Streams, ASinkAnswersAsItIsAsked) {
  FrameSink sink(log_);
  ASSERT_TRUE(sink.open({.number = 3}).ok());
  StreamLoad load([] { return false; });
  const net::HttpCall call{.port = sink.direct_port()};
  bool was_amid = false;
  const StreamTimes streams =
      load.together(call, {.prompt_bytes = 100, .tokens = 5}, 4, [&] { was_amid = true; });
  EXPECT_EQ(streams.answered, 4);
  EXPECT_EQ(streams.failed, 0);
  EXPECT_EQ(streams.tokens, 20);
  EXPECT_EQ(streams.first_byte_ms.size(), 4u);
  EXPECT_TRUE(was_amid);
  const StreamTimes rate =
      load.at_rate(call, {.prompt_bytes = 100}, 200, std::chrono::duration<double>(0.1));
  EXPECT_EQ(rate.answered, 20);
  const StreamTimes closed = load.closed(call, {.prompt_bytes = 100, .streamed = false}, 3,
                                         std::chrono::duration<double>(0.05));
  EXPECT_GE(closed.answered, 3);
  EXPECT_EQ(closed.failed, 0);
}

TEST_F(Streams, AMeasurementEndsWhenItIsToStop) {
  FrameSink sink(log_);
  ASSERT_TRUE(sink.open({}).ok());
  StreamLoad load([] { return true; });
  const net::HttpCall call{.port = sink.direct_port()};
  EXPECT_EQ(load.at_rate(call, {}, 10, std::chrono::duration<double>(100)).answered, 0);
}

TEST(Percentile, IsTheSmallestValueThatHasSuchAShareBelow) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 3, 2, 1}, 0.5), 2);
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  EXPECT_EQ(percentile(values, 0.99), 990);
  EXPECT_EQ(percentile(values, 1), 1000);
}

TEST(StreamQuestion, PromptsBeginAlikeUnlessTheyAreToDiffer) {
  const StreamQuestion shared{.prompt_bytes = 64};
  const StreamQuestion distinct{.prompt_bytes = 64, .distinct = true};
  const auto beginning = [](const std::string& body) {
    return body.substr(0, body.find("\"role\":\"user\""));
  };
  EXPECT_EQ(beginning(shared.body(1)), beginning(shared.body(2)));
  EXPECT_NE(shared.body(1), shared.body(2));
  EXPECT_NE(beginning(distinct.body(1)), beginning(distinct.body(2)));
}

}  // namespace
}  // namespace pelton::bench
