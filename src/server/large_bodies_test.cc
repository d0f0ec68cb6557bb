// A body that has been read holds no memory while its answer is made: thousands of answers run for
// minutes, and each body may be 32 MB.
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "net/test_socket.h"
#include "server/server_fixture.h"
#include "telemetry/process_usage.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": [
  "<|channel|>final<|message|>", {"text": "word ", "times": 3000}, "<|return|>"]}]})";
constexpr int64_t kBodyBytes = 24 << 20;

int64_t heap_bytes() {
  return telemetry::process_usage().heap_used_bytes;
}

class LargeBodies : public testing::TestWithParam<const char*> {};

TEST_P(LargeBodies, AreGoneWhileTheirAnswersAreMade) {
  if (heap_bytes() == 0) GTEST_SKIP() << "this allocator keeps no books";
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return std::nullopt;
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  net::TestSocket socket(fixture.http().port());
  const std::string path = GetParam();
  const bool is_response = path == "/v1/responses";
  const bool is_generate = path == "/inference/v1/generate";
  std::string asked = path == "/v1/completions" ? R"("prompt":"hi","max_tokens":500)"
                      : is_response             ? R"("input":"hi")"
                      : is_generate
                          ? R"("token_ids":[1,2,3],"sampling_params":{"max_tokens":500})"
                          : R"("messages":[{"role":"user","content":"hi"}],"max_tokens":500)";
  const std::string body_end =
      R"(,"model":")" + fixture.model().id + R"(","stream":true,"padding":")";
  const size_t length = 1 + asked.size() + body_end.size() + kBodyBytes + 2;
  const int64_t before = heap_bytes();
  socket.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" +
              "Content-Length: " + std::to_string(length) + "\r\n\r\n{" + asked + body_end);
  socket.send(std::string(kBodyBytes, 'x'));
  socket.send("\"}");
  const std::string head = socket.read_until("\r\n\r\n", 20'000);
  ASSERT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
  EXPECT_EQ(fixture.engine().stats().running, 1);
  EXPECT_LT(heap_bytes() - before, kBodyBytes / 4);
}

INSTANTIATE_TEST_SUITE_P(Of, LargeBodies,
                         testing::Values("/v1/chat/completions", "/v1/completions", "/v1/messages",
                                         "/v1/responses", "/inference/v1/generate"));

}  // namespace
}  // namespace pelton::server
