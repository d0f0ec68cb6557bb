#include "api/response_request.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "api/response_tool.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;
constexpr size_t kIdBytesMax = 256;
constexpr size_t kInstructionsBytesMax = size_t{16} << 20;

std::optional<OutputFormat> read_text_format(const Fields& body,
                                             std::vector<std::string>& warnings) {
  const Json* text = body.object("text");
  if (text == nullptr) return std::nullopt;
  const Fields fields(*text, "text", body.complaint(), Fields::Reads::kKept);
  check_verbosity(fields, warnings);
  std::optional<OutputFormat> format = read_text_format_member(fields);
  fields.refuse_unread({});
  return format;
}

void read_reasoning(const Fields& body, ResponseRequest& request) {
  const Json* reasoning = body.object("reasoning");
  if (reasoning == nullptr) return;
  const Fields fields(*reasoning, "reasoning", body.complaint(), Fields::Reads::kKept);
  request.reasoning_effort = read_effort(fields, "effort");
  request.reasoning_summary = read_reasoning_summary(fields).value_or(request.reasoning_summary);
  refuse_other_reasoning(fields);
}

// Of tools that this server has not, and of input that is not text: there is none to include.
constexpr std::string_view kIncludedNever[] = {
    "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "web_search_call.action.sources", "web_search_call.results"};

void warn_of_include(const std::string& path, const std::string& what, ResponseRequest& request) {
  if (request.warnings.size() >= kFieldWarningsMax) return;
  const bool is_never = std::ranges::find(kIncludedNever, what) != std::end(kIncludedNever);
  if (!is_never) {
    request.warnings.push_back(unread_warning(path, "an unknown word"));
  } else if (request.builtins.browser && what.starts_with("web_search_call.")) {
    request.warnings.push_back(
        unread_warning(path, "a search's sources and results are the model's alone"));
  }
}

void read_include(const Fields& body, const RequestLimits& limits, ResponseRequest& request) {
  const auto top = body.integer("top_logprobs", {.low = 0, .high = limits.top_logprobs_max});
  bool logprobs = false;
  if (const Json* include = body.array("include", 64)) {
    for (size_t i = 0; i < include->as_array().size(); ++i) {
      const Json& item = include->as_array()[i];
      if (!item.is_string()) {
        const std::string path = item_path("include", i);
        body.refuse(path, fmt::format("'{}' must be a string, not {}", path, item.kind_name()));
        return;
      }
      const std::string& what = item.as_string();
      if (what == "message.output_text.logprobs") {
        logprobs = true;
      } else if (what == "reasoning.encrypted_content") {
        request.encrypted_reasoning = true;
      } else if (what == "code_interpreter_call.outputs") {
        request.code_outputs = true;
      } else {
        warn_of_include(item_path("include", i), what, request);
      }
    }
  }
  if (logprobs || top.value_or(0) > 0) request.top_logprobs = static_cast<int>(top.value_or(0));
}

void read_truncation(const Fields& body, ResponseRequest& request) {
  const std::string* word = body.text("truncation", 64);
  if (word == nullptr || *word == "disabled") return;
  if (*word != "auto") {
    body.refuse("truncation", "'truncation' must be 'auto' or 'disabled'");
    return;
  }
  request.may_drop_items = true;
}

void refuse_what_must_be_obeyed(const Fields& body) {
  if (body.find("conversation") != nullptr) {
    body.refuse_unsupported("conversation",
                            "a conversation kept here (use "
                            "'previous_response_id')");
  }
  if (body.find("request_id") != nullptr) {
    body.refuse_unsupported("request_id", "a name of the client's (a response is kept under ours)");
  }
  if (body.integer("n", {.low = 1, .high = kChoicesMax}).value_or(1) != 1) {
    body.refuse("n", "'n' must be 1: a response is one answer");
  }
}

void write_or_null(base::JsonWriter& writer, const Json& body, std::string_view key) {
  writer.key(key);
  const Json* value = body.find(key);
  if (value == nullptr) {
    writer.null();
  } else {
    writer.value(*value);
  }
}

void write_or_raw(base::JsonWriter& writer, const Json& body, std::string_view key,
                  std::string_view otherwise) {
  writer.key(key);
  const Json* value = body.find(key);
  if (value == nullptr || value->is_null()) {
    writer.raw(otherwise);
  } else {
    writer.value(*value);
  }
}

// Always with a format, which the clients' own types promise.
void write_text(base::JsonWriter& writer, const Json& body) {
  static const Json kNone;
  const Json* text = body.find("text");
  if (text == nullptr) text = &kNone;
  writer.key("text").begin_object();
  write_or_raw(writer, *text, "format", R"({"type":"text"})");
  if (const Json* verbosity = text->find("verbosity"); verbosity && !verbosity->is_null()) {
    writer.key("verbosity").value(*verbosity);
  }
  writer.end_object();
}

void write_reasoning(base::JsonWriter& writer, const Json& body) {
  static const Json kNone;
  const Json* reasoning = body.find("reasoning");
  if (reasoning == nullptr) reasoning = &kNone;
  writer.key("reasoning").begin_object();
  write_or_null(writer, *reasoning, "effort");
  write_or_null(writer, *reasoning, "summary");
  writer.end_object();
}

}  // namespace

Result<ResponseRequest> parse_response_request(const Json& body, const RequestLimits& limits) {
  if (std::optional<Error> error = check_object(body)) return *std::move(error);
  std::optional<Error> complaint;
  const Fields fields(body, "", complaint, Fields::Reads::kKept, limits.fields_read);
  ResponseRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  if (const std::string* words = fields.text("instructions", kInstructionsBytesMax)) {
    request.instructions = *words;
  }
  if (const std::string* id = fields.text("previous_response_id", kIdBytesMax)) {
    request.previous_response_id = *id;
  }
  request.items = read_response_items(fields, "input");
  if (!complaint && request.items.empty() && request.previous_response_id.empty()) {
    fields.refuse("input", fields.find("input") == nullptr ? "'input' is missing"
                                                           : "'input' must have at least one item");
  }
  ToolFields tools = read_response_tools(fields, limits.builtins);
  request.builtins = tools.builtins;
  request.tools = std::move(tools.functions);
  request.declared_functions = std::move(tools.declared);
  request.forced_call = std::move(tools.forced_call);
  request.parallel_calls = tools.parallel_calls;
  request.warnings = std::move(tools.warnings);
  warn_of_replaced(request.items, request.warnings);
  read_reasoning(fields, request);
  read_include(fields, limits, request);
  read_truncation(fields, request);
  request.tool_calls_max =
      fields.integer("max_tool_calls", {.low = 1, .high = std::numeric_limits<int32_t>::max()});
  refuse_what_must_be_obeyed(fields);
  request.store = fields.boolean("store").value_or(true);
  request.background = fields.boolean("background").value_or(false);
  if (request.background && !request.store) {
    fields.refuse("background", "'background' needs 'store': nobody could ask for the response");
  }
  const Json* management = fields.array("context_management", 16);
  if (management != nullptr && !management->as_array().empty()) {
    request.warnings.emplace_back("context_management ignored: nothing is compacted");
  }
  RequestLimits with_key = limits;
  with_key.output_tokens_key = "max_output_tokens";
  request.generation = read_generation_fields(fields, with_key);
  check_beside_forced_call(fields, request.generation.format, request.forced_call.has_value());
  if (std::optional<OutputFormat> format = read_text_format(fields, request.warnings)) {
    if (request.generation.format) {
      refuse_two_formats(fields, "text.format", request.generation.format->field);
    }
    request.generation.format = std::move(format);
  }
  check_unread_fields(fields, BodyKind::kResponse, limits.unknown_fields, request.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

std::string response_echo(const Json& body, const SamplingShown& sampling) {
  std::string echo;
  base::JsonWriter writer(echo);
  writer.begin_object();
  write_or_raw(writer, body, "background", "false");
  write_or_null(writer, body, "instructions");
  write_or_null(writer, body, "max_output_tokens");
  write_or_null(writer, body, "max_tool_calls");
  write_or_raw(writer, body, "metadata", "{}");
  write_or_raw(writer, body, "parallel_tool_calls", "true");
  write_or_null(writer, body, "previous_response_id");
  write_or_null(writer, body, "prompt_cache_key");
  write_reasoning(writer, body);
  write_or_null(writer, body, "safety_identifier");
  writer.key("service_tier").string("default");
  writer.key("temperature").number(sampling.temperature);
  write_text(writer, body);
  write_or_raw(writer, body, "tool_choice", R"("auto")");
  write_or_raw(writer, body, "tools", "[]");
  write_or_raw(writer, body, "top_logprobs", "0");
  writer.key("top_p").number(sampling.top_p);
  write_or_raw(writer, body, "truncation", R"("disabled")");
  write_or_null(writer, body, "user");
  writer.end_object();
  return echo.substr(1, echo.size() - 2);
}

}  // namespace pelton::api
