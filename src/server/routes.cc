#include "server/routes.h"

namespace pelton::server {
namespace {

bool fits(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

}  // namespace

std::span<const Routes::Route> Routes::all() {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/chat/completions", Guard::kApiKey, &Server::answer_chat_completion},
      {"POST", "/v1/responses", Guard::kApiKey, &Server::answer_response},
      {"GET", "/v1/responses", Guard::kApiKey, &Server::answer_response_socket},
      {"POST", "/v1/responses/input_tokens", Guard::kApiKey, &Server::answer_response_tokens},
      {"GET", "/v1/responses/*", Guard::kApiKey, &Server::answer_get_response},
      {"DELETE", "/v1/responses/*", Guard::kApiKey, &Server::answer_delete_response},
      {"POST", "/v1/responses/*", Guard::kApiKey, &Server::answer_cancel_response},
      {"POST", "/v1/chat/completions/input_tokens", Guard::kApiKey, &Server::answer_chat_tokens},
      {"POST", "/v1/chat/completions/control", Guard::kApiKey, &Server::answer_chat_control},
      {"POST", "/v1/completions", Guard::kApiKey, &Server::answer_completion},
      {"POST", "/v1/messages", Guard::kApiKey, &Server::answer_message, Dialect::kAnthropic},
      {"POST", "/v1/messages/count_tokens", Guard::kApiKey, &Server::answer_message_tokens,
       Dialect::kAnthropic},
      {"POST", "/v1/chat/completions/render", Guard::kApiKey, &Server::answer_chat_render},
      {"POST", "/v1/completions/render", Guard::kApiKey, &Server::answer_completion_render},
      {"POST", "/inference/v1/generate", Guard::kApiKey, &Server::answer_generate},
      {"POST", "/v1/embeddings", Guard::kApiKey, &Server::answer_embeddings},
      {"POST", "/v2/embed", Guard::kApiKey, &Server::answer_embed},
      {"POST", "/v1/rerank", Guard::kApiKey, &Server::answer_rerank},
      {"POST", "/v2/rerank", Guard::kApiKey, &Server::answer_rerank},
      {"POST", "/rerank", Guard::kApiKey, &Server::answer_rerank},
      {"POST", "/v1/reranking", Guard::kApiKey, &Server::answer_rerank},
      {"POST", "/reranking", Guard::kApiKey, &Server::answer_rerank},
      {"POST", "/v1/score", Guard::kApiKey, &Server::answer_score},
      {"POST", "/score", Guard::kApiKey, &Server::answer_score},
      {"POST", "/tokenize", Guard::kApiKey, &Server::answer_tokenize},
      {"POST", "/detokenize", Guard::kApiKey, &Server::answer_detokenize},
      {"GET", "/v1/models", Guard::kApiKey, &Server::answer_models},
      {"GET", "/v1/models/*", Guard::kApiKey, &Server::answer_model},
      {"POST", "/invocations", Guard::kApiKey, &Server::answer_invocation},
      {"GET", "/server_info", Guard::kApiKey, &Server::answer_server_info},
      {"GET", "/load", Guard::kApiKey, &Server::answer_load},
      {"GET", "/version", Guard::kApiKey, &Server::answer_version},
      {"GET", "/health", Guard::kOpen, &Server::answer_health},
      {"GET", "/v1/health", Guard::kOpen, &Server::answer_health},
      {"GET", "/health/live", Guard::kOpen, &Server::answer_live},
      {"GET", "/health/ready", Guard::kOpen, &Server::answer_ready},
      {"GET", "/ready", Guard::kOpen, &Server::answer_ready},
      {"GET", "/ping", Guard::kOpen, &Server::answer_ping},
      {"POST", "/ping", Guard::kOpen, &Server::answer_ping},
      {"GET", "/metrics", Guard::kApiKey, &Server::answer_metrics},
      {"GET", "/", Guard::kOpen, &Server::answer_index},
  };
  return kRoutes;
}

std::string Routes::listing() {
  std::string text;
  for (const Route& route : all()) {
    text.append(route.method).append(route.method.size() < 4 ? "  " : " ");
    text.append(route.path).append("\n");
  }
  return text;
}

Routes::Match Routes::find(std::string_view method, std::string_view path) {
  // A HEAD is a GET whose body stays here; net/ sees to that.
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : all()) {
    if (!fits(route.path, path)) continue;
    if (route.method == wanted) return {.route = &route, .allowed_methods = {}};
    if (!match.allowed_methods.empty()) match.allowed_methods += ", ";
    match.allowed_methods += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return match;
}

}  // namespace pelton::server
