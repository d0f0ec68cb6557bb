// Qwen3-Coder's calls: each value between tags of its own, its type the schema's business.
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/json.h"
#include "base/json_writer.h"
#include "chat/call_syntax.h"
#include "chat/json_extent.h"
#include "chat/python_values.h"
#include "chat/spaced_json.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";

// What a parameter's value may be, as its schema says. All, where it says nothing.
enum Kind : unsigned {
  kString = 1,
  kNumber = 2,
  kBoolean = 4,
  kNull = 8,
  kArray = 16,
  kObject = 32,
  kAny = 63,
};

// So much of a parameter's schema is looked at: what is deeper, or more, may be anything.
constexpr int kSchemaDepthMax = 16;
constexpr int kSchemasMax = 1000;

unsigned kind_named(std::string_view type) {
  if (type == "string") return kString;
  if (type == "integer" || type == "number") return kNumber;
  if (type == "boolean") return kBoolean;
  if (type == "null") return kNull;
  if (type == "array") return kArray;
  return type == "object" ? kObject : kAny;
}

unsigned kind_of(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber;
  if (value.is_bool()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_array() ? kArray : kObject;
}

template <typename KindOf>
unsigned kinds_of_any(const Json& list, KindOf kind) {
  unsigned kinds = 0;
  if (list.is_array()) {
    for (const Json& item : list.as_array()) kinds |= kind(item);
  }
  return kinds != 0 ? kinds : unsigned{kAny};
}

// "#/$defs/Unit" in the function's whole schema; null if it is not there.
const Json* referred(const Json& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  const Json* found = &root;
  for (size_t at = 2; found != nullptr && at <= reference.size();) {
    const size_t end = std::min(reference.find('/', at), reference.size());
    found = found->find(reference.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

unsigned kinds_of(const Json& root, const Json& schema, int depth, int& left) {
  if (!schema.is_object() || depth > kSchemaDepthMax || --left < 0) return kAny;
  const auto inner = [&](const Json& of) { return kinds_of(root, of, depth + 1, left); };
  unsigned kinds = kAny;
  for (const Json::Member& member : schema.as_object()) {
    const Json& of = member.value;
    if (member.key == "type") {
      kinds &= of.is_string() ? kind_named(of.as_string()) : kinds_of_any(of, [](const Json& type) {
        return type.is_string() ? kind_named(type.as_string()) : 0u;
      });
    } else if (member.key == "enum") {
      kinds &= kinds_of_any(of, kind_of);
    } else if (member.key == "const") {
      kinds &= kind_of(of);
    } else if (member.key == "anyOf" || member.key == "oneOf") {
      kinds &= kinds_of_any(of, inner);
    } else if (member.key == "allOf" && of.is_array()) {
      for (const Json& each : of.as_array()) kinds &= inner(each);
    } else if (member.key == "$ref" && of.is_string()) {
      if (const Json* found = referred(root, of.as_string())) kinds &= inner(*found);
    }
  }
  return kinds != 0 ? kinds : unsigned{kAny};
}

unsigned kinds_of(const CallSection& section, std::string_view function,
                  std::string_view parameter) {
  if (section.functions == nullptr) return kAny;
  for (const FunctionTool& tool : *section.functions) {
    if (tool.name != function || !tool.parameters) continue;
    const Json* properties = tool.parameters->find("properties");
    const Json* property = properties == nullptr ? nullptr : properties->find(parameter);
    int left = kSchemasMax;
    return property == nullptr ? unsigned{kAny} : kinds_of(*tool.parameters, *property, 0, left);
  }
  return kAny;
}

// A value's text as JSON of one of these kinds; nothing if it is none. Words and containers may be
// Python's: that is how some of these models were shown them.
std::optional<std::string> as_json(std::string_view text, unsigned kinds) {
  const std::string_view begin = text.substr(skip_json_space(text, 0));
  const std::string_view word =
      json_of_python_word(begin.substr(0, begin.find_last_not_of(kJsonSpace) + 1));
  if (word == "null" && (kinds & kNull) != 0) return std::string(word);
  if (!word.empty() && word != "null" && (kinds & kBoolean) != 0) return std::string(word);
  const Result<Json> value = Json::parse(text);
  std::string out;
  if (value.ok()) {
    if ((kind_of(*value) & kinds) == 0) return std::nullopt;
    append_spaced_json_text(out, text);
    return out;
  }
  const bool is_container = ((kinds & kArray) != 0 && begin.starts_with('[')) ||
                            ((kinds & kObject) != 0 && begin.starts_with('{'));
  return is_container ? python_value_as_json(text) : std::nullopt;
}

// `kinds` decide where a text could be either. A string that may be of another kind, too, is one
// but where it looks like a container, or like null.
void append_value(std::string& out, std::string_view text, unsigned kinds) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::optional<std::string> json;
  if (kinds == kAny) {
    const Result<Json> value = Json::parse(text);
    if (value.ok()) append_spaced_json_text(json.emplace(), text);
  } else if ((kinds & kString) != 0) {
    json = as_json(text, kinds & (kArray | kObject | kNull));
  } else {
    json = as_json(text, kinds);
    if (!json) json = as_json(text, kAny & ~unsigned{kString});
  }
  if (json) {
    out += *json;
  } else {
    base::append_json_string(out, text);
  }
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
  std::unordered_set<std::string_view> names;
  while (true) {
    at = skip_json_space(text, at);
    const std::string_view left = text.substr(at);
    if (left.starts_with(kFunctionEnd)) break;
    size_t value = at + kParameter.size();
    const std::optional<std::string_view> parameter =
        left.starts_with(kParameter) ? tag_name(text, value) : std::nullopt;
    // As in Python: of a name given twice one of the values would be lost.
    if (parameter && !names.insert(*parameter).second) return std::nullopt;
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
                 kinds_of(section, *name, *parameter));
    at = end + kParameterEnd.size();
  }
  call.arguments += '}';
  at += kFunctionEnd.size();
  if (skip_json_space(text, at) < text.size()) return std::nullopt;
  return WrittenCalls{.calls = {std::move(call)}, .rest = {}};
}

}  // namespace pelton::chat
