#include "gateway/asked.h"

#include <algorithm>
#include <array>
#include <utility>

#include <pelton/v1/inference.pb.h>

#include "api/json_object.h"
#include "base/json.h"
#include "cluster/grpc_frame.h"
#include "gateway/asked_body.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kResponses = "/v1/responses";
constexpr size_t kIdBytesMax = 256;

template <typename Message>
std::string model_of_message(const std::string& bytes) {
  Message message;
  return message.ParseFromString(bytes) ? message.model() : "";
}

bool is_id(std::string_view id) {
  return !id.empty() && id.size() <= kIdBytesMax;
}

// Behind its prefix, an item's id says which response it is of: "msg_ABCi0" of "resp_ABC".
std::optional<std::string> response_of_item(std::string_view item) {
  const size_t begin = item.find('_');
  const size_t end = item.find_last_of("io");
  if (begin == std::string_view::npos || end == std::string_view::npos || end <= begin + 1) {
    return std::nullopt;
  }
  return "resp_" + std::string(item.substr(begin + 1, end - begin - 1));
}

std::optional<std::string> response_of_body(const std::string& body) {
  const bool may_name = body.find("previous_response_id") != std::string::npos ||
                        body.find("item_reference") != std::string::npos;
  if (!may_name) return std::nullopt;
  const Result<Json> json = Json::parse(body);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto previous = json->string("previous_response_id");
  if (previous && is_id(*previous)) return previous;
  const Json* input = json->find("input");
  if (input == nullptr || !input->is_array()) return std::nullopt;
  for (const Json& item : input->as_array()) {
    if (!item.is_object() || item.string("type") != std::optional<std::string>("item_reference")) {
      continue;
    }
    const auto id = item.string("id");
    if (id && is_id(*id)) return response_of_item(*id);
  }
  return std::nullopt;
}

std::string beginning_of_body(const net::HttpRequest& request) {
  const bool is_conversation = request.path == "/v1/chat/completions" ||
                               request.path == "/v1/messages" || request.path == kResponses;
  if (!is_conversation) return "";
  return conversation_beginning(request.body);
}

std::string beginning_of_message(const std::string& bytes) {
  v1::GenerateRequest message;
  if (!message.ParseFromString(bytes)) return "";
  std::string beginning;
  for (const v1::Message& turn : message.chat().messages()) {
    beginning += turn.SerializeAsString();
    if (turn.role() == "user") return beginning;
  }
  return "";
}

}  // namespace

std::string asked_session(const net::HttpRequest& request) {
  const std::string_view named = request.headers.get("x-session-id");
  if (!named.empty()) return std::string(named);
  return request.path == cluster::kGrpcGenerate ? beginning_of_message(request.body)
                                                : beginning_of_body(request);
}

std::string asked_user(const net::HttpRequest& request) {
  if (request.path == cluster::kGrpcGenerate) {
    v1::GenerateRequest message;
    return message.ParseFromString(request.body) ? message.user() : "";
  }
  return user_of_body(request.body);
}

bool is_multipart(const net::HttpRequest& request) {
  constexpr std::string_view kMultipart = "multipart/";
  const std::string_view type = request.headers.get("Content-Type");
  return net::equals_without_case(type.substr(0, kMultipart.size()), kMultipart);
}

Result<std::string> asked_model(const net::HttpRequest& request) {
  if (request.path == cluster::kGrpcGenerate) {
    return model_of_message<v1::GenerateRequest>(request.body);
  }
  if (request.path == cluster::kGrpcTokenize) {
    return model_of_message<v1::TokenizeRequest>(request.body);
  }
  if (request.path == cluster::kGrpcEmbed) return model_of_message<v1::EmbedRequest>(request.body);
  if (request.body.empty() || is_multipart(request)) return std::string();
  return api::model_asked(request.body);
}

std::optional<std::string> asked_response(const net::HttpRequest& request) {
  const std::string_view path = request.path;
  if (path == kResponses) {
    return request.method == "POST" ? response_of_body(request.body) : std::nullopt;
  }
  if (!path.starts_with(kResponses) || path[kResponses.size()] != '/') return std::nullopt;
  const std::string_view rest = path.substr(kResponses.size() + 1);
  if (rest == "input_tokens") return response_of_body(request.body);
  const std::string_view id = rest.substr(0, rest.find('/'));
  return is_id(id) ? std::optional<std::string>(id) : std::nullopt;
}

bool asks_for_work(const net::HttpRequest& request) {
  if (request.method != "POST") return false;
  constexpr std::array<std::string_view, 7> kFree = {
      "/tokenize", "/detokenize", "/count_tokens", "/input_tokens",
      "/render",   "/control",    "/cancel"};
  const std::string_view path = request.path;
  return path != cluster::kGrpcTokenize &&
         std::ranges::none_of(kFree, [&](std::string_view end) { return path.ends_with(end); });
}

bool is_explained_path(std::string_view path) {
  constexpr std::array<std::string_view, 6> kPaths = {"/v1/chat/completions",   "/v1/completions",
                                                      "/v1/messages",           "/v1/responses",
                                                      "/inference/v1/generate", "/v1/embeddings"};
  return std::ranges::find(kPaths, path) != kPaths.end();
}

std::string response_id_of(std::string_view bytes) {
  constexpr std::string_view kBegin = R"("id":"resp_)";
  constexpr std::string_view kKey = R"("id":")";
  const size_t at = bytes.find(kBegin);
  if (at == std::string_view::npos) return "";
  const std::string_view id = bytes.substr(at + kKey.size());
  const size_t end = id.find('"');
  return end == std::string_view::npos || end > kIdBytesMax ? "" : std::string(id.substr(0, end));
}

}  // namespace pelton::gateway
