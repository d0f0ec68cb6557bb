// For tests: a server with its gRPC listener open, and a client of the library's own.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <pelton/v1/inference.grpc.pb.h>

#include "server/grpc_listener.h"
#include "server/server_fixture.h"

namespace pelton::server {

// A stream put together again.
struct GrpcSaid {
  std::vector<uint32_t> tokens;
  std::string text;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
  std::string finish;
  int64_t completion_tokens = -1;
  size_t logprobs = 0;
  grpc::Status status;
  std::string error_code;  // of the trailing error object
  std::string error_param;
};

inline void add(const v1::GenerateChunk& chunk, GrpcSaid& said) {
  EXPECT_EQ(said.finish, "") << "a chunk after the last";
  said.tokens.insert(said.tokens.end(), chunk.tokens().begin(), chunk.tokens().end());
  said.text += chunk.text();
  said.reasoning += chunk.reasoning();
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    if (call.index() == said.calls.size()) {
      EXPECT_TRUE(call.id().starts_with("call_"));
      said.calls.emplace_back(call.name(), "");
    }
    said.calls.at(call.index()).second += call.arguments();
  }
  said.logprobs += static_cast<size_t>(chunk.logprobs_size());
  said.finish = chunk.finish_reason();
  if (chunk.has_usage()) said.completion_tokens = chunk.usage().completion_tokens();
}

class GrpcFixtureOf {
 public:
  explicit GrpcFixtureOf(std::string_view script, ServerFixture::Options options = {})
      : fixture(script, std::move(options)), listener_(fixture.server().services(), fixture.log()) {
    EXPECT_TRUE(listener_.open({}).ok());
    channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(listener_.port()),
                                  grpc::InsecureChannelCredentials());
    stub = v1::Inference::NewStub(channel);
  }

  GrpcSaid generate(const v1::GenerateRequest& request,
                    std::map<std::string, std::string> metadata = {}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    const auto reader = stub->Generate(&context, request);
    GrpcSaid said;
    v1::GenerateChunk chunk;
    while (reader->Read(&chunk)) add(chunk, said);
    said.status = reader->Finish();
    const auto& trailing = context.GetServerTrailingMetadata();
    const auto error = trailing.find("pelton-error-bin");
    if (error != trailing.end()) {
      const Json object = parsed(std::string(error->second.data(), error->second.size()));
      said.error_code = object.find("error")->string("code").value_or("");
      said.error_param = object.find("error")->string("param").value_or("");
    }
    return said;
  }

  ServerFixture fixture;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> stub;
  GrpcListener& listener() { return listener_; }

 private:
  GrpcListener listener_;
};

inline v1::GenerateRequest grpc_chat(const std::string& words) {
  v1::GenerateRequest request;
  v1::Message& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content(words);
  return request;
}

inline v1::GenerateRequest grpc_text(const std::string& words) {
  v1::GenerateRequest request;
  request.set_text(words);
  return request;
}

}  // namespace pelton::server
