#include "bench/target.h"

#include <fmt/format.h>

namespace pelton::bench {

Result<Backend> parse_backend(std::string_view name) {
  if (name == "openai" || name == "vllm" || name == "openai-completions") {
    return Backend::kCompletions;
  }
  if (name == "openai-chat") return Backend::kChat;
  if (name == "openai-responses") return Backend::kResponses;
  if (name == "openai-embeddings") return Backend::kEmbeddings;
  if (name == "vllm-rerank") return Backend::kRerank;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'--backend' is openai, vllm, openai-chat, openai-responses, "
                           "openai-embeddings or vllm-rerank, not '{}'",
                           name),
               "backend"};
}

std::string_view default_endpoint(Backend backend) {
  switch (backend) {
    case Backend::kCompletions:
      return "/v1/completions";
    case Backend::kChat:
      return "/v1/chat/completions";
    case Backend::kResponses:
      return "/v1/responses";
    case Backend::kEmbeddings:
      return "/v1/embeddings";
    case Backend::kRerank:
      return "/v1/rerank";
  }
  return "";
}

Result<Target> make_target(const TargetOptions& options) {
  Target target;
  target.backend_name = options.backend;
  TRY_ASSIGN(target.backend, parse_backend(options.backend));
  TRY_ASSIGN(target.call, net::make_http_call("POST", options.base_url));
  target.call.repeatable = true;  // as a client's own retry
  target.base_url = options.base_url;
  target.model = options.model;
  std::string prefix = target.call.target;
  while (prefix.ends_with('/')) prefix.pop_back();
  std::string endpoint =
      options.endpoint.empty() ? std::string(default_endpoint(target.backend)) : options.endpoint;
  if (!endpoint.starts_with('/')) endpoint.insert(0, "/");
  // "http://host/v1" is what OpenAI's own clients want to hear; here the endpoint has the "/v1".
  if (prefix.ends_with("/v1") && endpoint.starts_with("/v1/")) prefix.resize(prefix.size() - 3);
  target.call.target = prefix + endpoint;
  if (!options.content_type.empty()) {
    target.call.headers.add("Content-Type", options.content_type);
  }
  for (const auto& [name, value] : options.headers) target.call.headers.add(name, value);
  return target;
}

Result<std::pair<std::string, std::string>> parse_pair(std::string_view text,
                                                       const std::string& field) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'--{}' wants KEY=VALUE, not '{}'", field, text), field};
  }
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

}  // namespace pelton::bench
