#include "api/batch_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "api/json_object.h"
#include "base/duration.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

constexpr size_t kIdBytesMax = 128;
constexpr size_t kMetadataKeyBytesMax = 64;
constexpr size_t kMetadataValueBytesMax = 512;
constexpr int64_t kOutputAgeMin = 3600;
constexpr int64_t kOutputAgeMax = 2'592'000;

constexpr std::array<std::string_view, 6> kEndpoints = {"/v1/chat/completions", "/v1/completions",
                                                        "/v1/responses",        "/v1/embeddings",
                                                        "/v1/rerank",           "/v1/score"};

std::string required_text(const Fields& fields, std::string_view key, std::string_view what) {
  const std::string* const text = fields.text(key, kIdBytesMax);
  if (text != nullptr && !text->empty()) return *text;
  fields.refuse(key, fmt::format("'{}' is missing: {}", key, what));
  return {};
}

// The caller's own words about the batch, at most 16 pairs of strings.
std::string read_metadata(const Fields& fields) {
  const Json* const metadata = fields.object("metadata");
  if (metadata == nullptr) return "{}";
  if (metadata->as_object().size() > kBatchMetadataPairsMax) {
    fields.refuse("metadata", fmt::format("'metadata' has {} pairs; at most {} are allowed",
                                          metadata->as_object().size(), kBatchMetadataPairsMax));
  }
  for (const Json::Member& pair : metadata->as_object()) {
    if (pair.key.size() <= kMetadataKeyBytesMax && pair.value.is_string() &&
        pair.value.as_string().size() <= kMetadataValueBytesMax) {
      continue;
    }
    fields.refuse("metadata", fmt::format("'metadata' maps keys of at most {} bytes to strings of "
                                          "at most {}",
                                          kMetadataKeyBytesMax, kMetadataValueBytesMax));
    break;
  }
  return metadata->dump();
}

int64_t read_output_age(const Fields& fields) {
  const Json* const age = fields.object("output_expires_after");
  if (age == nullptr) return 0;
  const Fields inner(*age, "output_expires_after", fields.complaint(), Fields::Reads::kKept);
  static constexpr std::string_view kAnchors[] = {"created_at"};
  check_word(inner, "anchor", kAnchors);
  const auto seconds = inner.integer("seconds", {.low = kOutputAgeMin, .high = kOutputAgeMax});
  inner.refuse_unread({});
  return seconds.value_or(0);
}

BatchLineError line_error(std::string_view code, std::string message, std::string_view param = {}) {
  return {.code = code, .message = std::move(message), .param = std::string(param)};
}

// What a line's own members say, its body aside.
std::optional<BatchLineError> read_envelope(const Json& json, std::string_view endpoint,
                                            BatchLine& line) {
  for (const Json::Member& member : json.as_object()) {
    static constexpr std::string_view kKnown[] = {"custom_id", "method", "url", "body"};
    if (std::ranges::find(kKnown, member.key) != std::end(kKnown)) continue;
    return line_error("unknown_parameter",
                      fmt::format("A line has 'custom_id', 'method', 'url' and 'body'; this one "
                                  "has '{}'.",
                                  member.key.substr(0, 64)));
  }
  const auto custom_id = json.string("custom_id");
  if (!custom_id || custom_id->empty() || custom_id->size() > kCustomIdBytesMax) {
    return line_error(
        "missing_required_parameter",
        fmt::format("'custom_id' must be a string of 1 to {} bytes.", kCustomIdBytesMax),
        "custom_id");
  }
  line.custom_id = *custom_id;
  const auto method = json.string("method");
  if (method != "POST") {
    return line_error("invalid_method", "'method' must be 'POST'.", "method");
  }
  line.url = json.string("url").value_or("");
  if (!is_batch_endpoint(line.url)) {
    return line_error("invalid_url",
                      fmt::format("'url' must be one of {}.", batch_endpoint_names()), "url");
  }
  if (endpoint.empty() || line.url == endpoint) return std::nullopt;
  return line_error(
      "mismatched_endpoint",
      fmt::format("'url' is '{}', but the batch's endpoint is '{}'.", line.url, endpoint), "url");
}

}  // namespace

bool is_batch_endpoint(std::string_view path) {
  return std::ranges::find(kEndpoints, path) != kEndpoints.end();
}

std::string batch_endpoint_names() {
  return fmt::format("'{}'", fmt::join(kEndpoints, "', '"));
}

Result<BatchRequest> parse_batch_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  BatchRequest request;
  request.input_file = required_text(fields, "input_file_id", "the id of an uploaded file");
  request.endpoint = required_text(fields, "endpoint", "where its requests go");
  if (!complaint && !is_batch_endpoint(request.endpoint)) {
    fields.refuse("endpoint", fmt::format("'endpoint' must be one of {}", batch_endpoint_names()));
  }
  request.window = required_text(fields, "completion_window", "\"24h\"");
  const int64_t window_s = base::parse_duration_ns(request.window).value_or(0) / 1'000'000'000;
  if (!complaint && (window_s < 1 || window_s > kBatchWindowSecondsMax)) {
    fields.refuse("completion_window",
                  "'completion_window' must be a time from 1s to 168h, such as '24h'");
  }
  request.window_s = window_s;
  request.metadata = read_metadata(fields);
  request.output_age_s = read_output_age(fields);
  fields.refuse_unread({});
  if (complaint) return std::move(*complaint);
  return request;
}

std::variant<BatchLine, BatchLineError> parse_batch_line(std::string_view text,
                                                         std::string_view endpoint) {
  // A byte order mark: files of PowerShell and Excel begin with it, and such as were joined have it
  // within.
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  Result<Json> json = parse_object(text);
  if (!json.ok()) {
    return line_error(
        "invalid_json_line",
        fmt::format("This line is not parseable as valid JSON: {}.", json.error().message));
  }
  BatchLine line;
  if (auto error = read_envelope(*json, endpoint, line)) return *std::move(error);
  const Json* const body = json->find("body");
  if (body == nullptr || !body->is_object()) {
    return line_error("missing_required_parameter", "'body' must be an object: the request.",
                      "body");
  }
  // Nobody follows a batch's answers, and each is whole when it is written down.
  for (const char* const member : {"stream", "background"}) {
    if (body->boolean(member) != true) continue;
    return line_error("invalid_request",
                      fmt::format("'body.{}' is true: a request of a batch is answered at once and "
                                  "whole.",
                                  member),
                      fmt::format("body.{}", member));
  }
  line.has_timeout = body->find("timeout") != nullptr;
  Json behind_others = *body;
  behind_others.set("priority", int64_t{kBatchPriority});
  line.body = behind_others.dump();
  return line;
}

std::string batch_answer_line(const BatchAnswer& answer) {
  std::string line;
  base::JsonWriter writer(line);
  writer.begin_object().key("id").string(answer.id).key("custom_id").string(answer.custom_id);
  writer.key("response").begin_object().key("status_code").integer(answer.status);
  writer.key("request_id").string(answer.request_id).key("body");
  // It stands on one line, whatever writes it.
  const bool is_one_line = answer.body.find('\n') == std::string_view::npos;
  const Result<Json> body = is_one_line ? Result<Json>(Json()) : Json::parse(answer.body);
  if (answer.body.empty() || !body.ok()) {
    writer.string(answer.body);
  } else if (is_one_line) {
    writer.raw(answer.body);
  } else {
    writer.value(*body);
  }
  if (!answer.warnings.empty()) {
    writer.key("warnings").begin_array();
    for (const std::string_view warning : answer.warnings) writer.string(warning);
    writer.end_array();
  }
  writer.end_object().key("error").null().end_object();
  line += '\n';
  return line;
}

std::string batch_omission_line(const BatchOmission& omission) {
  std::string line;
  base::JsonWriter writer(line);
  writer.begin_object().key("id").string(omission.id).key("custom_id").string(omission.custom_id);
  writer.key("response").null().key("error").begin_object();
  writer.key("code").string(omission.code).key("message").string(omission.message);
  writer.end_object().end_object();
  line += '\n';
  return line;
}

std::string error_code_of(std::string_view body) {
  const Result<Json> json = Json::parse(body);
  const Json* const error = json.ok() ? json->find("error") : nullptr;
  return error == nullptr ? std::string() : error->string("code").value_or("");
}

}  // namespace pelton::api
