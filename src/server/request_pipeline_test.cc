#include "server/request_pipeline.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/grpc_fixture.h"
#include "server/reply.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript =
    R"({"rules": [{"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"}]})";
constexpr int64_t kLargeBytes = 1000;

ServerFixture::Options small_limit() {
  ServerFixture::Options options;
  options.server.beside_bytes_min = kLargeBytes;
  return options;
}

// On which thread each stage ran.
struct Stages {
  std::atomic<std::thread::id> handled;
  std::atomic<std::thread::id> read;
  std::atomic<std::thread::id> prepared;
  std::atomic<std::thread::id> started;
};

class RecordingRequest final : public ModelRequest {
 public:
  // `reading`: called while the body is read.
  RecordingRequest(Stages& stages, std::function<void()> reading)
      : stages_(stages), reading_(std::move(reading)) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope&) override {
    stages_.read = std::this_thread::get_id();
    bytes_ = body.size();
    reading_();
    return std::nullopt;
  }
  Fields fields(const ServedModel&) const override { return {}; }
  std::optional<api::ApiError> prepare(Prepared, const Scope&) override {
    stages_.prepared = std::this_thread::get_id();
    return std::nullopt;
  }
  void start(Call call, Services&) override {
    stages_.started = std::this_thread::get_id();
    call.send(json_reply(std::to_string(bytes_)));
  }

 private:
  Stages& stages_;
  const std::function<void()> reading_;
  size_t bytes_ = 0;
};

// A listener of one net thread: "/record" is answered by a RecordingRequest, all else at once.
class Recorder {
 public:
  explicit Recorder(
      ServerFixture& fixture, std::function<void()> reading = [] {})
      : fixture_(fixture),
        reading_(std::move(reading)),
        http_(
            {.address = "127.0.0.1", .port = 0, .threads = 1},
            [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
              handle(std::move(request), std::move(exchange));
            },
            fixture.log()) {
    EXPECT_TRUE(http_.start().ok());
  }
  ~Recorder() { http_.stop(std::chrono::milliseconds(0)); }

  net::HttpCall call(std::string target, std::string body) const {
    net::HttpCall call{.method = "POST", .port = http_.port(), .target = std::move(target)};
    call.body = std::move(body);
    return call;
  }
  const Stages& stages() const { return stages_; }

 private:
  void handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
    if (request.path != "/record") return exchange->send(json_reply("\"at once\""));
    stages_.handled = std::this_thread::get_id();
    Call call{.request = std::move(request),
              .exchange = std::move(exchange),
              .headers = {},
              .tenant = {},
              .caller = {}};
    call.body_bytes = static_cast<int64_t>(call.request.body.size());
    call.entry = std::make_unique<access::TrackedRequest>(
        fixture_.server().services().statistics,
        access::TrackedRequest::Route{.handler = "/record", .method = "POST"});
    run_request(std::move(call), fixture_.server().services(),
                std::make_unique<RecordingRequest>(stages_, reading_), std::nullopt);
  }

  ServerFixture& fixture_;
  const std::function<void()> reading_;
  Stages stages_;
  net::HttpServer http_;
};

TEST(RequestPipeline, ASmallBodyIsReadWhereItCame) {
  ServerFixture fixture(kScript, small_limit());
  Recorder recorder(fixture);
  EXPECT_EQ(fixture.fetch(recorder.call("/record", std::string(kLargeBytes - 1, 'x'))).body, "999");
  EXPECT_EQ(recorder.stages().read.load(), recorder.stages().handled.load());
  EXPECT_EQ(recorder.stages().prepared.load(), recorder.stages().handled.load());
  EXPECT_EQ(recorder.stages().started.load(), recorder.stages().handled.load());
}

TEST(RequestPipeline, ALargeBodyIsReadAndTokenisedBesideTheNetThread) {
  ServerFixture fixture(kScript, small_limit());
  Recorder recorder(fixture);
  EXPECT_EQ(fixture.fetch(recorder.call("/record", std::string(kLargeBytes, 'x'))).body, "1000");
  EXPECT_NE(recorder.stages().read.load(), recorder.stages().handled.load());
  EXPECT_NE(recorder.stages().prepared.load(), recorder.stages().handled.load());
  EXPECT_EQ(recorder.stages().started.load(), recorder.stages().handled.load());
}

// While one body is being read the listener's only net thread answers others.
TEST(RequestPipeline, ALargeBodyHoldsNoNetThread) {
  ServerFixture fixture(kScript, small_limit());
  std::promise<void> reading;
  std::promise<void> go_on;
  Recorder recorder(fixture, [&] {
    reading.set_value();
    go_on.get_future().wait();
  });
  auto large = std::async(std::launch::async, [&] {
    net::HttpClient client{{}};
    return net::http_fetch(client, recorder.call("/record", std::string(kLargeBytes, 'x')));
  });
  reading.get_future().wait();
  EXPECT_EQ(fixture.fetch(recorder.call("/other", "")).body, "\"at once\"");
  go_on.set_value();
  const auto answer = large.get();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->body, "1000");
}

// Its client leaves while its body is read: it is counted as cancelled, and nothing is answered
// when the reading has come to its end.
TEST(RequestPipeline, ACallWhoseClientLeavesMeanwhileIsDropped) {
  std::promise<void> reading;
  std::promise<void> go_on;
  std::atomic<bool> has_read{false};  // nobody waits for it but this test
  ServerFixture fixture(kScript, small_limit());
  Recorder recorder(fixture, [&] {
    reading.set_value();
    go_on.get_future().wait();
    has_read = true;
  });
  {
    net::HttpClient client{{}};
    client.start(recorder.call("/record", std::string(kLargeBytes, 'x')), {});
    reading.get_future().wait();
  }  // the client goes
  const auto counts = [&] { return fixture.server().services().statistics.counts(); };
  while (counts().cancelled == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  go_on.set_value();
  while (!has_read) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(fixture.fetch(recorder.call("/other", "")).body, "\"at once\"");
  EXPECT_EQ(counts().open(), 0);
  EXPECT_EQ(recorder.stages().started.load(), std::thread::id());
}

TEST(RequestPipeline, TooManyLargeBodiesAreRefused) {
  ServerFixture::Options options = small_limit();
  options.server.preparation_pool.short_lane.waiting_max = 0;
  ServerFixture fixture(kScript, std::move(options));
  const std::string large = fmt::format(R"({{"prompt":"{}"}})", std::string(kLargeBytes, 'x'));
  const net::HttpResponse refused = fixture.post("/tokenize", large);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_NE(refused.body.find("too many large requests wait to be read"), std::string::npos);
  EXPECT_TRUE(refused.headers.has("Retry-After"));
  EXPECT_EQ(fixture.post("/tokenize", R"({"prompt":"x"})").status, 200);
}

int64_t done_beside(ServerFixture& fixture) {
  const WorkPool::Stats stats = fixture.server().services().preparation.stats();
  return stats.ended[static_cast<size_t>(WorkPool::End::kDone)];
}

// Every endpoint that reads a body does so: twice, to read it and to make tokens of it.
TEST(RequestPipeline, EveryEndpointsLargeBodyIsReadBeside) {
  ServerFixture fixture(kScript, small_limit());
  const std::string text(2 * kLargeBytes, 'x');
  const std::string messages =
      fmt::format(R"("messages":[{{"role":"user","content":"{}"}}])", text);
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"/v1/chat/completions", fmt::format("{{{}}}", messages)},
      {"/v1/chat/completions/input_tokens", fmt::format("{{{}}}", messages)},
      {"/v1/chat/completions/render", fmt::format("{{{}}}", messages)},
      {"/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":1}})", text)},
      {"/v1/completions/render", fmt::format(R"({{"prompt":"{}","max_tokens":1}})", text)},
      {"/v1/messages", fmt::format(R"({{"max_tokens":9,{}}})", messages)},
      {"/v1/messages/count_tokens", fmt::format("{{{}}}", messages)},
      {"/v1/responses", fmt::format(R"({{"input":"{}"}})", text)},
      {"/v1/responses/input_tokens", fmt::format(R"({{"input":"{}"}})", text)},
      {"/inference/v1/generate",
       fmt::format(R"({{"token_ids":[1,2],"request_id":"a","user":"{}"}})", text)},
      {"/v1/embeddings", fmt::format(R"({{"input":"{}"}})", text)},
      {"/v2/embed", fmt::format(R"({{"texts":["{}"]}})", text)},
      {"/v1/rerank", fmt::format(R"({{"query":"{0}","documents":["{0}"]}})", text)},
      {"/v1/score", fmt::format(R"({{"text_1":"{0}","text_2":"{0}"}})", text)},
      {"/tokenize", fmt::format(R"({{"prompt":"{}"}})", text)},
  };
  for (const auto& [path, body] : calls) {
    const int64_t before = done_beside(fixture);
    const net::HttpResponse answer = fixture.post(path, body);
    EXPECT_EQ(done_beside(fixture) - before, answer.status == 200 ? 2 : 1) << path << answer.body;
  }
}

TEST(RequestPipeline, LargeGrpcMessagesAreReadBesideTheLoop) {
  GrpcFixtureOf fixture(kScript, small_limit());
  const std::string text(2 * kLargeBytes, 'x');
  EXPECT_TRUE(fixture.generate(grpc_chat(text)).status.ok());
  EXPECT_EQ(done_beside(fixture.fixture), 2);
  {
    grpc::ClientContext context;
    v1::EmbedRequest request;
    request.add_inputs()->set_text(text);
    v1::EmbedReply reply;
    EXPECT_TRUE(fixture.stub->Embed(&context, request, &reply).ok());
    EXPECT_EQ(reply.embeddings_size(), 1);
  }
  EXPECT_EQ(done_beside(fixture.fixture), 4);
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text(text);
  v1::TokenizeReply reply;
  EXPECT_TRUE(fixture.stub->Tokenize(&context, request, &reply).ok());
  EXPECT_GT(reply.tokens_size(), 0);
  EXPECT_EQ(done_beside(fixture.fixture), 6);
}

}  // namespace
}  // namespace pelton::server
