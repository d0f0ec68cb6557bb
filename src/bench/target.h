// Whom a load test asks, and in which dialect: any server that speaks OpenAI's API. A value.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/http_client.h"

namespace pelton::bench {

enum class Backend { kCompletions, kChat, kResponses, kEmbeddings, kRerank };

// It generates: others answer at once and with no tokens of their own.
inline bool generates(Backend backend) {
  return backend != Backend::kEmbeddings && backend != Backend::kRerank;
}

struct Target {
  Backend backend = Backend::kCompletions;
  std::string backend_name;  // as the user wrote it: "vllm"
  net::HttpCall call;        // host and port; its target is the endpoint's path
  std::string base_url;      // for reports
  std::string model;
};

// "openai", "vllm" and "openai-completions" are completions; "openai-chat", "openai-responses",
// "openai-embeddings", "vllm-rerank". Errors: kInvalidArgument.
Result<Backend> parse_backend(std::string_view name);
// "/v1/chat/completions"
std::string_view default_endpoint(Backend backend);

struct TargetOptions {
  std::string backend = "openai";
  std::string base_url;  // "http://host:port[/prefix]"
  std::string endpoint;  // empty: the backend's
  std::string model;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string content_type = "application/json";  // empty: each call says its own
};
Result<Target> make_target(const TargetOptions& options);

// "K=V": a header or a piece of metadata.
Result<std::pair<std::string, std::string>> parse_pair(std::string_view text,
                                                       const std::string& field);

}  // namespace pelton::bench
