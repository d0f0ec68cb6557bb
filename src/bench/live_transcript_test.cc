#include "bench/live_transcript.h"

#include <memory>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"
#include "net/http_server.h"
#include "net/json_response.h"

namespace pelton::bench {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::string of_text(const std::string& kind, const std::string& rest) {
  return R"({"type":"conversation.item.input_audio_transcription.)" + kind + "\"" + rest + "}";
}

TEST(LiveTranscript, TextAndTimes) {
  LiveTranscript one;
  one.take(R"({"type":"session.created"})", 0.0);
  EXPECT_FALSE(one.is_updated());
  one.take(R"({"type":"session.updated"})", 0.1);
  EXPECT_TRUE(one.is_updated());
  one.take(of_text("delta", R"(,"delta":"")"), 0.5);
  one.take(of_text("delta", R"(,"delta":"Hello")"), 1.5);
  one.take(of_text("delta", R"(,"delta":" there")"), 2.0);
  one.commit(3.0);
  EXPECT_FALSE(one.is_over());
  one.take(of_text("completed", R"(,"transcript":"Hello there.")"), 3.25);
  EXPECT_TRUE(one.is_over());
  EXPECT_EQ(one.failure(), "");
  EXPECT_EQ(one.text(), "Hello there.");
  EXPECT_DOUBLE_EQ(one.first_text_s(), 1.5);
  EXPECT_DOUBLE_EQ(one.delay_s(), 0.25);
}

TEST(LiveTranscript, WhatFails) {
  const auto failure = [](const std::string& event) {
    LiveTranscript one;
    one.take(event, 1.0);
    EXPECT_TRUE(one.is_over());
    return one.failure();
  };
  EXPECT_EQ(
      failure(
          R"({"type":"error","error":{"message":"too much","code":"input_audio_buffer_full"}})"),
      "too much (input_audio_buffer_full)");
  EXPECT_EQ(failure(of_text("failed", R"(,"error":{"message":"no"})")), "no");
  EXPECT_THAT(failure("nonsense"), HasSubstr("no JSON"));
  EXPECT_THAT(failure("{}"), HasSubstr("no JSON with a type"));
  EXPECT_THAT(failure(of_text("completed", "")), HasSubstr("without its text"));
}

// Counts the sound that comes; its text is the number of samples. `full_after` samples are an
// error.
class Hearing {
 public:
  explicit Hearing(size_t full_after = size_t{1} << 40) {
    server_ = std::make_unique<net::HttpServer>(
        net::HttpServer::Options{.port = 0},
        [this, full_after](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
          if (request.path != "/live")
            return exchange->send({.status = 404, .headers = {}, .body = "{}"});
          exchange->on_closed([exchange] {});
          const std::weak_ptr<net::Exchange> weak = exchange;
          exchange->accept_websocket({},
                                     {.message_bytes_max = 1 << 20,
                                      .on_message = [this, weak, full_after](std::string text) {
                                        weak.lock()->write(answer(*Json::parse(text), full_after));
                                      }});
        },
        log_);
    EXPECT_TRUE(server_->start().ok());
  }
  ~Hearing() { server_->stop(milliseconds(2000)); }

  LiveStream stream(std::string_view pcm, const std::string& path = "/live") const {
    LiveStream stream{.call = {.port = server_->port(), .target = path},
                      .session = R"({"type":"session.update"})",
                      .pcm = pcm,
                      .rate = 1000,
                      .chunk = milliseconds(20)};
    stream.quiet_time_max = milliseconds(20'000);
    return stream;
  }
  int pieces() {
    const std::lock_guard lock(mutex_);
    return pieces_;
  }

 private:
  std::string answer(const Json& message, size_t full_after) {
    const std::lock_guard lock(mutex_);
    const std::string type = message.string("type").value_or("");
    if (type == "session.update") return R"({"type":"session.updated"})";
    if (type == "input_audio_buffer.commit") {
      return of_text("completed", R"(,"transcript":")" + std::to_string(samples_) + "\"");
    }
    ++pieces_;
    samples_ += base::from_base64(message.string("audio").value_or(""))->size() / 2;
    if (samples_ > full_after) return R"({"type":"error","error":{"message":"full"}})";
    return of_text("delta", R"(,"delta":"a")");
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::mutex mutex_;
  size_t samples_ = 0;
  int pieces_ = 0;
  std::unique_ptr<net::HttpServer> server_;
};

TEST(LiveStream, SoundGoesOutAsItIsSpoken) {
  Hearing hearing;
  const std::string pcm(2 * 310, '\0');  // 310 ms
  const auto begun = std::chrono::steady_clock::now();
  const LiveOutcome outcome = run_live_stream(hearing.stream(pcm));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(310));
  EXPECT_EQ(outcome.transcript.failure(), "");
  EXPECT_EQ(outcome.transcript.text(), "310");
  EXPECT_EQ(hearing.pieces(), 16);  // of 20 ms, and one of 10
  EXPECT_GE(outcome.transcript.first_text_s(), 0.02);
  EXPECT_LT(outcome.transcript.first_text_s(), 20.0);
  EXPECT_GE(outcome.transcript.delay_s(), 0.0);
  EXPECT_GE(outcome.late_s, 0.0);
}

TEST(LiveStream, WhatGoesWrongIsSaid) {
  const std::string pcm(2 * 310, '\0');
  Hearing full(100);
  EXPECT_EQ(run_live_stream(full.stream(pcm)).transcript.failure(), "full");
  EXPECT_LT(full.pieces(), 16);
  EXPECT_THAT(run_live_stream(full.stream(pcm, "/elsewhere")).transcript.failure(),
              HasSubstr("answers with 404"));
  Hearing hearing;
  LiveStream stopped = hearing.stream(pcm);
  stopped.stops = [] { return true; };
  EXPECT_EQ(run_live_stream(stopped).transcript.failure(), "interrupted");
  stopped.head_start = milliseconds(60'000);
  EXPECT_EQ(run_live_stream(stopped).transcript.failure(), "interrupted");
}

}  // namespace
}  // namespace pelton::bench
