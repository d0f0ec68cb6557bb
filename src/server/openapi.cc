#include "server/openapi.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/split.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "server/routes.h"

namespace pelton::server {
namespace {

using api::FieldTable;
using base::JsonWriter;

constexpr std::string_view kSchemas = "#/components/schemas/";

std::string_view error_schema(Dialect dialect) {
  if (dialect == Dialect::kOllama) return "OllamaError";
  return dialect == Dialect::kAnthropic ? "AnthropicError" : "Error";
}

// "get_v1_responses_response_id": unique, as method and path are.
std::string operation_id(std::string_view method, std::string_view path) {
  std::string id(method);
  for (const char c : path) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (word) id += c;
    if (!word && !id.ends_with('_')) id += '_';
  }
  // "/console/" is another than "/console"; "{id}" at the end is no such slash.
  if (id.ends_with('_') && (path.size() == 1 || !path.ends_with('/'))) id.pop_back();
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id;
}

void write_reference(JsonWriter& writer, std::string_view schema) {
  writer.begin_object().key("$ref").string(fmt::format("{}{}", kSchemas, schema)).end_object();
}

void write_content(JsonWriter& writer, std::string_view type, std::string_view schema) {
  writer.key("content").begin_object().key(type).begin_object().key("schema");
  write_reference(writer, schema);
  writer.end_object().end_object();
}

// "{model}" of "/v1/models/{model}".
void write_parameters(JsonWriter& writer, std::string_view path) {
  writer.key("parameters").begin_array();
  for (size_t open = path.find('{'); open != std::string_view::npos; open = path.find('{', open)) {
    const size_t close = path.find('}', open);
    writer.begin_object().key("name").string(path.substr(open + 1, close - open - 1));
    writer.key("in").string("path").key("required").boolean(true);
    writer.key("schema").begin_object().key("type").string("string").end_object().end_object();
    open = close;
  }
  writer.end_array();
}

void write_error(JsonWriter& writer, std::string_view status, std::string_view why,
                 std::string_view schema) {
  writer.key(status).begin_object().key("description").string(why);
  write_content(writer, "application/json", schema);
  writer.end_object();
}

// Also the one that hands its body on.
bool asks_for_model(const Endpoint& endpoint) {
  return endpoint.needs != Capability::kNone || endpoint.function == invocations;
}

void write_responses(JsonWriter& writer, const Endpoint& endpoint) {
  const bool is_socket = endpoint.function == response_socket || endpoint.function == realtime ||
                         endpoint.function == speech_socket;
  writer.key("responses").begin_object().key(is_socket ? "101" : "200").begin_object();
  writer.key("description").string(endpoint.summary);
  if (endpoint.response == "text" || endpoint.response == "html") {
    writer.key("content").begin_object();
    writer.key("text/" + std::string(endpoint.response == "text" ? "plain" : "html"));
    writer.begin_object().key("schema");
    writer.begin_object().key("type").string("string").end_object().end_object().end_object();
  } else if (endpoint.response == "sound") {
    writer.key("content").begin_object();
    for (const std::string_view type :
         {"audio/wav", "audio/pcm", "audio/mpeg", "audio/ogg", "audio/flac"}) {
      writer.key(type).begin_object().key("schema").begin_object().key("type").string("string");
      writer.key("format").string("binary").end_object().end_object();
    }
    writer.end_object();
  } else if (endpoint.response != "none") {
    write_content(writer, "application/json",
                  endpoint.response == "object" ? "Object" : endpoint.response);
  }
  writer.end_object();
  const std::string_view error = error_schema(endpoint.dialect);
  if (endpoint.access != Endpoint::Access::kOpen) {
    write_error(writer, "401", "The API key is missing or wrong", error);
  }
  if (endpoint.access == Endpoint::Access::kAdminKey) {
    write_error(writer, "403", "The API key is no operator's, or the server does not allow this",
                error);
  }
  if (!endpoint.request.empty()) {
    write_error(writer, "400", "A field is wrong: the error names it and its limit", error);
    write_error(writer, "413", "The body is larger than the limit, which the error names", error);
    write_error(writer, "415", "The body is said to be something else than JSON", error);
  }
  if (is_socket) write_error(writer, "426", "The request is no WebSocket's handshake", error);
  if (asks_for_model(endpoint)) {
    write_error(writer, "404", "There is no model of this name", error);
  } else if (!endpoint.templates.empty()) {
    write_error(writer, "404", "There is none of this id", error);
  }
  if (asks_for_model(endpoint)) {
    write_error(writer, "429", "No room now, or a limit of the key is reached: see Retry-After",
                error);
    write_error(writer, "503",
                "The model is being loaded or could not be, or the server is shutting down", error);
  }
  writer.end_object();
}

void write_operation(JsonWriter& writer, const Endpoint& endpoint, std::string_view path) {
  std::string method(endpoint.method);
  std::transform(method.begin(), method.end(), method.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  writer.key(method).begin_object();
  writer.key("operationId").string(operation_id(endpoint.method, path));
  writer.key("summary").string(endpoint.summary);
  if (path.find('{') != std::string_view::npos) write_parameters(writer, path);
  if (!endpoint.request.empty()) {
    writer.key("requestBody").begin_object().key("required").boolean(true);
    write_content(writer, endpoint.takes_form ? "multipart/form-data" : "application/json",
                  endpoint.request);
    writer.end_object();
  }
  write_responses(writer, endpoint);
  if (endpoint.access == Endpoint::Access::kOpen) writer.key("security").begin_array().end_array();
  writer.end_object();
}

void write_bounds(JsonWriter& writer, const FieldTable::Field& field) {
  using Kind = FieldTable::Kind;
  if (field.kind == Kind::kNumber) {
    writer.key(field.numbers.low_open ? "exclusiveMinimum" : "minimum").number(field.numbers.low);
    writer.key("maximum").number(field.numbers.high);
  }
  if (field.kind == Kind::kInteger) {
    const api::IntegerRange open;
    if (field.integers.low != open.low) writer.key("minimum").integer(field.integers.low);
    if (field.integers.high != open.high) writer.key("maximum").integer(field.integers.high);
  }
  if (field.size_max == SIZE_MAX) return;
  const auto size_max = static_cast<int64_t>(field.size_max);
  if (field.kind == Kind::kArray) writer.key("maxItems").integer(size_max);
  // Bytes of UTF-8, of which a character has at least one.
  if (field.kind == Kind::kText) writer.key("maxLength").integer(size_max);
}

// null counts as absent everywhere.
void write_field(JsonWriter& writer, const FieldTable::Field& field) {
  static constexpr std::string_view kTypes[] = {"",        "object",  "array", "number",
                                                "integer", "boolean", "string"};
  writer.key(field.name).begin_object();
  const std::string_view type = kTypes[static_cast<size_t>(field.kind)];
  if (!type.empty()) {
    writer.key("type").begin_array().string(type).string("null").end_array();
  }
  write_bounds(writer, field);
  writer.end_object();
}

void write_request_schemas(JsonWriter& writer, std::span<const Endpoint> endpoints) {
  std::map<std::string_view, const Endpoint*> requests;
  for (const Endpoint& endpoint : endpoints) {
    if (!endpoint.request.empty()) requests.emplace(endpoint.request, &endpoint);
  }
  for (const auto& [name, endpoint] : requests) {
    FieldTable table;
    endpoint->note_fields(table);
    writer.key(name).begin_object().key("type").string("object").key("properties").begin_object();
    for (const FieldTable::Field& field : table.fields()) write_field(writer, field);
    writer.end_object().end_object();
  }
}

void write_string_properties(JsonWriter& writer, std::initializer_list<std::string_view> names) {
  writer.key("properties").begin_object();
  for (const std::string_view name : names) {
    writer.key(name).begin_object().key("type").begin_array();
    writer.string("string").string("null").end_array().end_object();
  }
  writer.end_object();
}

void write_error_schemas(JsonWriter& writer) {
  writer.key("Error").begin_object().key("type").string("object");
  writer.key("required").begin_array().string("error").end_array();
  writer.key("properties").begin_object().key("error").begin_object();
  writer.key("type").string("object").key("required").begin_array();
  writer.string("message").string("type").end_array();
  write_string_properties(writer, {"message", "type", "param", "code"});
  writer.end_object().end_object().end_object();
  writer.key("OllamaError").begin_object().key("type").string("object");
  writer.key("required").begin_array().string("error").end_array();
  write_string_properties(writer, {"error"});
  writer.end_object();
  writer.key("AnthropicError").begin_object().key("type").string("object");
  writer.key("required").begin_array().string("type").string("error").end_array();
  writer.key("properties").begin_object().key("type").begin_object();
  writer.key("const").string("error").end_object().key("error").begin_object();
  writer.key("type").string("object");
  write_string_properties(writer, {"type", "message"});
  writer.end_object().key("request_id").begin_object().key("type").string("string").end_object();
  writer.end_object().end_object();
}

void write_response_schemas(JsonWriter& writer, std::span<const Endpoint> endpoints) {
  std::set<std::string_view> names = {"Object"};
  for (const Endpoint& endpoint : endpoints) {
    const std::string_view name = endpoint.response;
    const bool is_schema =
        name != "object" && name != "text" && name != "html" && name != "sound" && name != "none";
    if (is_schema) names.insert(name);
  }
  for (const std::string_view name : names) {
    writer.key(name).begin_object().key("type").string("object").end_object();
  }
}

void write_components(JsonWriter& writer, std::span<const Endpoint> endpoints) {
  writer.key("components").begin_object().key("securitySchemes").begin_object();
  writer.key("bearer").begin_object().key("type").string("http");
  writer.key("scheme").string("bearer").end_object();
  writer.key("x-api-key").begin_object().key("type").string("apiKey");
  writer.key("in").string("header").key("name").string("x-api-key").end_object();
  writer.end_object().key("schemas").begin_object();
  write_request_schemas(writer, endpoints);
  write_response_schemas(writer, endpoints);
  write_error_schemas(writer);
  writer.end_object().end_object();
}

}  // namespace

std::vector<std::string_view> documented_paths(const Endpoint& endpoint) {
  if (endpoint.templates.empty()) return {endpoint.path};
  return base::split_skipping_empty(endpoint.templates, ' ');
}

std::string openapi_document(std::span<const Endpoint> endpoints, std::string_view version) {
  std::map<std::string_view, std::vector<const Endpoint*>> paths;
  for (const Endpoint& endpoint : endpoints) {
    for (const std::string_view path : documented_paths(endpoint)) {
      paths[path].push_back(&endpoint);
    }
  }
  std::string document;
  JsonWriter writer(document);
  writer.begin_object().key("openapi").string("3.1.0").key("info").begin_object();
  writer.key("title").string("Pelton").key("version").string(version).end_object();
  // Where the server has keys, either of the two; where it has none, neither is looked at.
  writer.key("security").begin_array();
  for (const std::string_view scheme : {"bearer", "x-api-key"}) {
    writer.begin_object().key(scheme).begin_array().end_array().end_object();
  }
  writer.end_array().key("paths").begin_object();
  for (const auto& [path, listed] : paths) {
    writer.key(path).begin_object();
    for (const Endpoint* endpoint : listed) write_operation(writer, *endpoint, path);
    writer.end_object();
  }
  writer.end_object();
  write_components(writer, endpoints);
  writer.end_object();
  return document;
}

void openapi(Call call, Services& services) {
  call.send(json_reply(openapi_document(endpoints(), services.options.version)));
}

}  // namespace pelton::server
