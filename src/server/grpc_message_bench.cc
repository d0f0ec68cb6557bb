// What it costs to read a gRPC message into a request: a long chat, and a long prompt of tokens.
#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

#include "api/chat_request.h"
#include "api/generate_request.h"
#include "base/check.h"
#include "server/grpc_message.h"

namespace pelton::server {
namespace {

constexpr api::RequestLimits kLimits{.vocab_size = 201'088};

void read_chat(benchmark::State& state) {
  v1::GenerateRequest message;
  for (int64_t i = 0; i < state.range(0); ++i) {
    v1::Message& one = *message.mutable_chat()->add_messages();
    one.set_role(i % 2 == 0 ? "user" : "assistant");
    std::string words;
    while (words.size() < 4096) words += "A \"line\" of text, as people paste it.\n";
    one.set_content(words);
  }
  for (auto step : state) {
    const auto body = chat_body(message);
    CHECK(body.ok(), "a chat");
    benchmark::DoNotOptimize(api::read_chat_request(*body, kLimits).ok());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(message.ByteSizeLong()));
}
BENCHMARK(read_chat)->Arg(2)->Arg(64);

void read_tokens(benchmark::State& state) {
  v1::GenerateRequest message;
  for (int64_t i = 0; i < state.range(0); ++i) {
    message.mutable_tokens()->add_ids(static_cast<uint32_t>(i * 7919 % 200'000));
  }
  for (auto step : state) {
    const auto body = tokens_body(message);
    CHECK(body.ok(), "tokens");
    benchmark::DoNotOptimize(api::read_generate_request(*body, kLimits).ok());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(read_tokens)->Arg(1024)->Arg(131'072);

}  // namespace
}  // namespace pelton::server
