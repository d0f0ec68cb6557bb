// Qwen3-Coder's calls: each value between tags of its own, its type the schema's business.
#include <algorithm>

#include "base/json.h"
#include "base/json_writer.h"
#include "chat/call_syntax.h"
#include "chat/json_extent.h"
#include "chat/spaced_json.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";

bool says_string(const Json& type) {
  if (type.is_string()) return type.as_string() == "string";
  if (!type.is_array()) return false;
  return std::any_of(type.as_array().begin(), type.as_array().end(), says_string);
}

// Whether a parameter is text whatever it looks like.
bool is_text(const CallSection& section, std::string_view function, std::string_view parameter) {
  if (section.functions == nullptr) return false;
  for (const FunctionTool& tool : *section.functions) {
    if (tool.name != function || !tool.parameters) continue;
    const Json* properties = tool.parameters->find("properties");
    const Json* property = properties == nullptr ? nullptr : properties->find(parameter);
    const Json* type = property == nullptr ? nullptr : property->find("type");
    return type != nullptr && says_string(*type);
  }
  return false;
}

void append_value(std::string& out, std::string_view text, bool is_text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  const Result<Json> value = Json::parse(text);
  if (is_text || !value.ok()) return base::append_json_string(out, text);
  append_spaced_json(out, *value);
}

// Where a parameter's value ends: at the first closing tag that another parameter or the
// function's end stands behind, so that a value may hold such tags.
size_t value_end(std::string_view text, size_t at) {
  for (size_t end = text.find(kParameterEnd, at); end != std::string_view::npos;
       end = text.find(kParameterEnd, end + 1)) {
    const std::string_view behind = text.substr(skip_json_space(text, end + kParameterEnd.size()));
    if (behind.empty() || behind.starts_with(kParameter) || behind.starts_with(kFunctionEnd)) {
      return end;
    }
  }
  return std::string_view::npos;
}

// What there is of a value, as a string without an end.
void add_cut_value(WrittenCall& call, std::string_view parameter, std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (call.arguments.size() > 1) call.arguments += ", ";
  base::append_json_string(call.arguments, parameter);
  call.arguments += ": ";
  base::append_json_string(call.arguments, text);
  call.arguments.pop_back();
}

// A name up to ">"; nothing if there is none.
std::optional<std::string_view> tag_name(std::string_view text, size_t& at) {
  const size_t end = text.find('>', at);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(at, end - at);
  at = end + 1;
  if (name.empty() || name.find_first_of("\n<") != std::string_view::npos) return std::nullopt;
  return name;
}

}  // namespace

std::optional<WrittenCalls> read_qwen3_coder_calls(const CallSection& section) {
  const std::string_view text = section.text;
  const bool may_be_cut = section.end == SectionEnd::kCutOff;
  size_t at = skip_json_space(text, 0);
  if (!text.substr(at).starts_with(kFunction)) return read_hermes_call(section);
  at += kFunction.size();
  const std::optional<std::string_view> name = tag_name(text, at);
  if (!name) return std::nullopt;
  WrittenCall call{.name = std::string(*name), .arguments = "{"};
  while (true) {
    at = skip_json_space(text, at);
    const std::string_view left = text.substr(at);
    if (left.starts_with(kFunctionEnd)) break;
    size_t value = at + kParameter.size();
    const std::optional<std::string_view> parameter =
        left.starts_with(kParameter) ? tag_name(text, value) : std::nullopt;
    const size_t end = parameter ? value_end(text, value) : std::string_view::npos;
    if (end == std::string_view::npos) {
      const bool is_begun = parameter || left.empty() || kParameter.starts_with(left) ||
                            kFunctionEnd.starts_with(left);
      if (!may_be_cut || !is_begun) return std::nullopt;
      call.complete = false;
      if (parameter) add_cut_value(call, *parameter, text.substr(value));
      return WrittenCalls{.calls = {std::move(call)}, .rest = {}};
    }
    if (call.arguments.size() > 1) call.arguments += ", ";
    base::append_json_string(call.arguments, *parameter);
    call.arguments += ": ";
    append_value(call.arguments, text.substr(value, end - value),
                 is_text(section, *name, *parameter));
    at = end + kParameterEnd.size();
  }
  call.arguments += '}';
  at += kFunctionEnd.size();
  if (skip_json_space(text, at) < text.size()) return std::nullopt;
  return WrittenCalls{.calls = {std::move(call)}, .rest = {}};
}

}  // namespace pelton::chat
