#include "gateway/asked.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <pelton/v1/inference.pb.h>

#include "api/json_object.h"
#include "api/stream_asked.h"
#include "api/text_request.h"
#include "base/json.h"
#include "gateway/asked_body.h"
#include "net/multipart_form.h"
#include "net/url.h"
#include "rpc/grpc_frame.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kResponses = "/v1/responses";
constexpr std::string_view kFiles = "/v1/files";
constexpr std::string_view kBatches = "/v1/batches";
constexpr std::string_view kVideos = "/v1/videos";
constexpr std::string_view kLivePaths[] = {"/v1/realtime", "/v1/audio/speech/websocket"};
constexpr std::string_view kControl = "/v1/chat/completions/control";
// A model is asked at these, by a body of JSON.
constexpr std::string_view kJsonPaths[] = {"/v1/chat/completions",
                                           "/v1/chat/completions/input_tokens",
                                           "/v1/chat/completions/render",
                                           "/v1/completions",
                                           "/v1/completions/render",
                                           "/v1/responses",
                                           "/v1/responses/input_tokens",
                                           "/v1/messages",
                                           "/v1/messages/count_tokens",
                                           "/v1/embeddings",
                                           "/v1/rerank",
                                           "/v1/reranking",
                                           "/v1/score",
                                           "/v1/classify",
                                           "/v1/moderations",
                                           "/v1/audio/speech",
                                           "/v2/embed",
                                           "/v2/rerank",
                                           "/inference/v1/generate",
                                           "/invocations",
                                           "/api/chat",
                                           "/api/generate",
                                           "/api/embed",
                                           "/api/embeddings",
                                           "/api/show",
                                           "/classify",
                                           "/completion",
                                           "/completions",
                                           "/chat/completions",
                                           "/embed",
                                           "/embed_all",
                                           "/embed_sparse",
                                           "/similarity",
                                           "/predict",
                                           "/embedding",
                                           "/embeddings",
                                           "/generate",
                                           "/generate_stream",
                                           "/infill",
                                           "/pooling",
                                           "/rerank",
                                           "/reranking",
                                           "/score",
                                           "/tokenize",
                                           "/detokenize",
                                           "/apply-template"};
constexpr size_t kIdBytesMax = 256;
constexpr size_t kIdsMax = 64;

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

// A text of a body's first level.
std::optional<std::string> id_of_body(const std::string& body, std::string_view key) {
  const Result<Json> json = Json::parse(body);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  auto id = json->string(key);
  return id && is_id(*id) ? id : std::nullopt;
}

// ID of PREFIX/ID and PREFIX/ID/…
std::optional<std::string> id_of_path(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix) || path.size() == prefix.size() || path[prefix.size()] != '/') {
    return std::nullopt;
  }
  const std::string_view rest = path.substr(prefix.size() + 1);
  const std::string_view id = rest.substr(0, rest.find('/'));
  return is_id(id) ? std::optional<std::string>(id) : std::nullopt;
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

// Of a form that is none its worker says so.
Result<std::string> model_of_form(const net::HttpRequest& request) {
  const Result<std::vector<net::FormPart>> parts =
      net::parse_form(request.headers.get("Content-Type"), request.body);
  if (!parts.ok()) return std::string();
  const auto is_model = [](const net::FormPart& part) { return part.name == "model"; };
  const auto found = std::ranges::find_if(*parts, is_model);
  if (found == parts->end()) return std::string();
  if (std::ranges::count_if(*parts, is_model) > 1) {
    return Error{ErrorCode::kInvalidArgument, "'model' is given twice", "model"};
  }
  if (found->content.size() > kIdBytesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'model' has more than {} bytes", kIdBytesMax), "model"};
  }
  return std::string(found->content);
}

// NAME of /v1/model_cards/NAME, which may have slashes in it.
std::optional<std::string> model_of_card(std::string_view path) {
  constexpr std::string_view kCards = "/v1/model_cards/";
  if (!path.starts_with(kCards)) return std::nullopt;
  return std::string(path.substr(kCards.size()));
}

}  // namespace

std::string asked_session(const net::HttpRequest& request) {
  const std::string_view named = request.headers.get("x-session-id");
  if (!named.empty()) return std::string(named);
  return request.path == rpc::kGrpcGenerate ? beginning_of_message(request.body)
                                            : beginning_of_body(request);
}

std::string asked_user(const net::HttpRequest& request) {
  if (request.path == rpc::kGrpcGenerate) {
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

bool names_model_in_form(const net::HttpRequest& request) {
  const std::string_view path = request.path;
  return is_multipart(request) && (path.starts_with("/v1/audio/") ||
                                   path.starts_with("/v1/images/") || path.starts_with(kVideos));
}

Result<std::string> asked_model(const net::HttpRequest& request) {
  if (request.path == rpc::kGrpcGenerate) {
    return model_of_message<v1::GenerateRequest>(request.body);
  }
  if (request.path == rpc::kGrpcTokenize) {
    return model_of_message<v1::TokenizeRequest>(request.body);
  }
  if (request.path == rpc::kGrpcEmbed) return model_of_message<v1::EmbedRequest>(request.body);
  if (auto model = model_of_card(request.path)) return *std::move(model);
  if (request.path == "/v1/audio/voices" || is_live_path(request.path)) {
    return net::query_value(request.query, "model").value_or("");
  }
  if (request.body.empty()) return std::string();
  if (names_model_in_form(request)) return model_of_form(request);
  if (is_multipart(request)) return std::string();
  if (request.path == "/generate" || request.path == "/generate_stream") {
    return api::generate_model_asked(request.body);
  }
  return api::model_asked(request.body);
}

std::optional<std::string> asked_by_id(const net::HttpRequest& request) {
  const std::string_view path = request.path;
  const bool posts = request.method == "POST";
  if (path == kResponses) return posts ? response_of_body(request.body) : std::nullopt;
  if (path == "/v1/responses/input_tokens") return response_of_body(request.body);
  if (path == kControl) return id_of_body(request.body, "id");
  if (path == kBatches) return posts ? id_of_body(request.body, "input_file_id") : std::nullopt;
  for (const std::string_view prefix : {kResponses, kFiles, kBatches, kVideos}) {
    if (auto id = id_of_path(path, prefix)) return id;
  }
  return std::nullopt;
}

bool is_list_of_workers_own(const net::HttpRequest& request) {
  return request.method == "GET" && (request.path == kFiles || request.path == kBatches);
}

std::vector<std::string> stored_ids_of(std::string_view body) {
  std::vector<std::string> ids;
  for (const std::string_view begin : {R"(:"file-)", R"(:"batch_)"}) {
    size_t at = body.find(begin);
    while (at != std::string_view::npos && ids.size() < kIdsMax) {
      const std::string_view id = body.substr(at + 2);
      const size_t end = id.find('"');
      if (end != std::string_view::npos && end <= kIdBytesMax) ids.emplace_back(id.substr(0, end));
      at = body.find(begin, at + begin.size());
    }
  }
  return ids;
}

bool is_live_path(std::string_view path) {
  return std::ranges::find(kLivePaths, path) != std::end(kLivePaths);
}

bool opens_live_session(const net::HttpRequest& request) {
  return request.method == "GET" && is_live_path(request.path) && request.headers.has("Upgrade");
}

bool asks_for_work(const net::HttpRequest& request) {
  if (opens_live_session(request)) return true;
  if (request.method != "POST") return false;
  constexpr std::array<std::string_view, 7> kFree = {
      "/tokenize", "/detokenize", "/count_tokens", "/input_tokens",
      "/render",   "/control",    "/cancel"};
  const std::string_view path = request.path;
  return path != rpc::kGrpcTokenize &&
         std::ranges::none_of(kFree, [&](std::string_view end) { return path.ends_with(end); });
}

bool wakes_a_replica(const net::HttpRequest& request) {
  constexpr std::string_view kOtherBodies[] = {
      "/v1/audio/transcriptions", "/v1/audio/translations", kFiles,         kBatches,
      rpc::kGrpcGenerate,         rpc::kGrpcTokenize,       rpc::kGrpcEmbed};
  if (opens_live_session(request)) return true;
  if (request.method != "POST") return false;
  const std::string_view path = request.path;
  return std::ranges::find(kJsonPaths, path) != std::end(kJsonPaths) ||
         std::ranges::find(kOtherBodies, path) != std::end(kOtherBodies);
}

std::string_view methods_of_path(std::string_view path) {
  constexpr std::string_view kRead[] = {"/health",      "/v1/health", "/ready",  "/health/ready",
                                        "/health/live", "/api/tags",  "/api/ps", "/slots"};
  if (std::ranges::find(kRead, path) != std::end(kRead)) return "GET, HEAD";
  return std::ranges::find(kJsonPaths, path) != std::end(kJsonPaths) ? "POST" : "";
}

bool answers_in_json(const net::HttpRequest& request) {
  const std::string_view path = request.path;
  // Sound; and those whose answers are lines or events where nothing is said of a stream.
  const bool is_other = path == "/v1/audio/speech" || path == "/generate_stream" ||
                        path == "/invocations" || path.starts_with("/api/");
  return request.method == "POST" && !is_other &&
         std::ranges::find(kJsonPaths, path) != std::end(kJsonPaths);
}

StreamForm stream_form(const net::HttpRequest& request) {
  constexpr std::string_view kEvents[] = {"/v1/chat/completions",
                                          "/v1/completions",
                                          "/v1/responses",
                                          "/v1/messages",
                                          "/inference/v1/generate",
                                          "/invocations",
                                          "/chat/completions",
                                          "/completions",
                                          "/completion",
                                          "/infill",
                                          "/generate",
                                          "/generate_stream"};
  if (request.method != "POST") return StreamForm::kNone;
  const std::optional<api::StreamAsked> asked = api::stream_asked(request.body);
  if (!asked) return StreamForm::kNone;
  const std::string_view path = request.path;
  if (path == "/api/chat" || path == "/api/generate") {
    return asked->stream.value_or(true) ? StreamForm::kLines : StreamForm::kNone;
  }
  const bool is_stream = path == "/v1/audio/speech" ? asked->is_sse : asked->stream.value_or(false);
  const bool has_events = path == "/v1/audio/speech" || path.starts_with("/v1/images/") ||
                          std::ranges::find(kEvents, path) != std::end(kEvents);
  return is_stream && has_events ? StreamForm::kEvents : StreamForm::kNone;
}

bool lacks_its_body(const net::HttpRequest& request) {
  return request.method == "POST" && request.body.empty() &&
         std::ranges::find(kJsonPaths, std::string_view(request.path)) != std::end(kJsonPaths);
}

bool asks_for_tools(const net::HttpRequest& request) {
  if (request.method != "POST" || request.path != kResponses) return false;
  const std::string_view body = request.body;
  // Bodies are large, and few have any.
  const bool may = body.find("web_search") != std::string_view::npos ||
                   body.find("code_interpreter") != std::string_view::npos;
  return may && has_builtin_tool(body);
}

bool is_explained_path(std::string_view path) {
  constexpr std::array<std::string_view, 6> kPaths = {"/v1/chat/completions",   "/v1/completions",
                                                      "/v1/messages",           "/v1/responses",
                                                      "/inference/v1/generate", "/v1/embeddings"};
  return std::ranges::find(kPaths, path) != kPaths.end();
}

int64_t next_event(std::string_view bytes, int64_t before) {
  constexpr std::string_view kKey = R"("sequence_number":)";
  const size_t at = bytes.rfind(kKey);
  if (at == std::string_view::npos) return before;
  const char* const begin = bytes.data() + at + kKey.size();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(begin, bytes.data() + bytes.size(), number);
  return error == std::errc() && number >= 0 && number < INT64_MAX ? number + 1 : before;
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
