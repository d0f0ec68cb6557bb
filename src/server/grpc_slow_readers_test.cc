// Who reads a gRPC answer slowly gets all of it; who takes nothing hears that it is not whole.
// Slow is what makes room for more within the stall time: gRPC's clients tell that they have read
// only once half of their window is free, 32 KiB as a rule.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/support/channel_arguments.h>

#include "server/grpc_fixture.h"

namespace pelton::server {
namespace {

using std::chrono::milliseconds;

// Debian's libgrpc is not built for ThreadSanitizer, which then does not see its locks.
#if !defined(__SANITIZE_THREAD__)

constexpr int kTimes = 300;
constexpr std::string_view kWords = "on and on ";

struct Reading {
  GrpcSaid said;
  int messages = 0;
};

struct Pace {
  milliseconds after_first{0};
  milliseconds after_each{0};
};

// As far as the library lets us it reads nothing ahead.
Reading read_slowly(int port, const Pace& pace) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1::Inference::NewStub(grpc::CreateCustomChannel(
      fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), arguments));
  v1::GenerateRequest request = grpc_chat("hi");
  request.mutable_sampling()->set_logprobs(5);  // some 100 bytes for each token
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  const auto reader = stub->Generate(&context, request);
  Reading reading;
  for (v1::GenerateChunk chunk; reader->Read(&chunk); ++reading.messages) {
    add(chunk, reading.said);
    if (reading.messages == 0) std::this_thread::sleep_for(pace.after_first);
    std::this_thread::sleep_for(pace.after_each);
  }
  reading.said.status = reader->Finish();
  return reading;
}

class SlowReaders : public testing::Test {
 protected:
  SlowReaders()
      : fixture_(fmt::format(R"({{"context": 8000, "rules": [{{"when": "", "then":
                   ["<|channel|>final<|message|>", {{"text": "{}", "times": {}}}, "<|return|>"]}}]}})",
                             kWords, kTimes),
                 {}),
        listener_(fixture_.server().services(), fixture_.log()) {
    EXPECT_TRUE(listener_.open({.stall_time_max = kStall}).ok());
    for (int i = 0; i < kTimes; ++i) whole_ += kWords;
  }

  static constexpr milliseconds kStall{1000};

  ServerFixture fixture_;
  GrpcListener listener_;
  std::string whole_;
};

TEST_F(SlowReaders, FT_04_GetAllOfTheirAnswers) {
  const std::vector<milliseconds> rests = {milliseconds(0), milliseconds(1), milliseconds(2)};
  std::vector<Reading> readings(rests.size());
  std::vector<std::thread> readers;
  for (size_t i = 0; i < rests.size(); ++i) {
    readers.emplace_back(
        [&, i] { readings[i] = read_slowly(listener_.port(), {.after_each = rests[i]}); });
  }
  for (std::thread& reader : readers) reader.join();
  for (size_t i = 0; i < rests.size(); ++i) {
    const GrpcSaid& said = readings[i].said;
    const std::string who =
        fmt::format("{} ms a message, {} messages", rests[i].count(), readings[i].messages);
    EXPECT_TRUE(said.status.ok()) << who << ": " << said.status.error_message();
    EXPECT_TRUE(said.text == whole_) << who << ": " << said.text.size() << " bytes of text";
    EXPECT_EQ(said.finish, "stop") << who;
    EXPECT_EQ(said.completion_tokens, static_cast<int64_t>(said.tokens.size())) << who;
    EXPECT_EQ(said.logprobs, said.tokens.size()) << who;
  }
}

// A part of an answer never comes with the status of a whole one.
TEST_F(SlowReaders, FT_05_WhoTakesNothingIsToldThatItIsCutOff) {
  const Reading reading = read_slowly(listener_.port(), {.after_first = 5 * kStall / 2});
  EXPECT_LT(reading.said.text.size(), whole_.size());
  EXPECT_EQ(reading.said.status.error_code(), grpc::StatusCode::CANCELLED)
      << reading.said.status.error_message() << ", " << reading.messages << " messages";
  EXPECT_EQ(reading.said.finish, "");
}

#endif

}  // namespace
}  // namespace pelton::server
