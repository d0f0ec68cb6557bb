#include "api/output_format.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace pelton::api {
namespace {

using Kind = OutputFormat::Kind;

constexpr size_t kNameBytesMax = 64;
constexpr size_t kDescriptionBytesMax = 64 * 1024;

// Beside a format stand names, and what is obeyed anyway; all else is refused.
void refuse_others(const Fields& fields) {
  for (const std::string_view key : {"title", "name", "description", "_backend"}) {
    fields.text(key, kDescriptionBytesMax);
  }
  for (const std::string_view key : {"strict", "_backend_was_auto"}) fields.boolean(key);
  fields.refuse_unread({});
}

// A schema as a value, or as the text of one.
std::optional<Json> read_schema(const Fields& fields, std::string_view key) {
  const Json* value = fields.find(key);
  if (value == nullptr) {
    fields.refuse(key, fmt::format("'{}' is missing", fields.path(key)));
    return std::nullopt;
  }
  std::optional<Json> schema;
  if (value->is_string()) {
    Result<Json> parsed = Json::parse(value->as_string());
    if (!parsed.ok()) {
      fields.refuse(key, fmt::format("'{}' is a string that is not JSON: {}", fields.path(key),
                                     parsed.error().message));
      return std::nullopt;
    }
    schema = std::move(*parsed);
  } else {
    schema = *value;
  }
  if (schema->is_object() || schema->is_bool()) return schema;
  fields.refuse(key, fmt::format("'{}' must be a JSON schema, not {}", fields.path(key),
                                 schema->kind_name()));
  return std::nullopt;
}

// {"name": …, "description": …, "schema": …, "strict": …}
std::optional<OutputFormat> read_named_schema(const Fields& fields) {
  OutputFormat format{.kind = Kind::kJsonSchema};
  format.field = fields.path("schema");
  const std::string* name = fields.text("name", kNameBytesMax);
  if (fields.failed()) return std::nullopt;
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  if (name == nullptr || name->empty() || !std::all_of(name->begin(), name->end(), fits)) {
    fields.refuse("name", fmt::format("'{}' must be 1 to {} letters, digits, '_' or '-'",
                                      fields.path("name"), kNameBytesMax));
    return std::nullopt;
  }
  format.name = *name;
  if (const std::string* text = fields.text("description", kDescriptionBytesMax)) {
    format.description = *text;
  }
  fields.find("type");  // of text.format, whose reader has seen it
  std::optional<Json> schema = read_schema(fields, "schema");
  refuse_others(fields);
  if (!schema || fields.failed()) return std::nullopt;
  format.schema = *std::move(schema);
  return format;
}

// llama.cpp's: the schema stands beside the type.
std::optional<OutputFormat> schema_beside_type(const Fields& fields) {
  std::optional<Json> schema = read_schema(fields, "schema");
  refuse_others(fields);
  if (!schema) return std::nullopt;
  return OutputFormat{
      .kind = Kind::kJsonSchema, .field = fields.path("schema"), .schema = *std::move(schema)};
}

// Of the schema beside "json_object": what it allows that is an object. {"anyOf": [{}, {}]} gets
// "type": "object"; none is left of {"type": "array"}.
void allow_objects_only(const Fields& fields, OutputFormat& format) {
  if (!format.schema.is_object()) return;
  const Json* type = format.schema.find("type");
  const bool is_object =
      type == nullptr || (type->is_string() && type->as_string() == "object") ||
      (type->is_array() && std::ranges::any_of(type->as_array(), [](const Json& one) {
         return one.is_string() && one.as_string() == "object";
       }));
  if (is_object) {
    format.schema.set("type", Json("object"));
  } else {
    fields.refuse("schema", fmt::format("'{}' allows no object, and '{}' asks for one",
                                        format.field, fields.path("type")));
  }
}

// Of the type "json_object": any, or by llama.cpp's "schema" beside the type that one's.
std::optional<OutputFormat> json_object(const Fields& fields) {
  std::optional<OutputFormat> format =
      OutputFormat{.kind = Kind::kJsonObject, .field = fields.path("")};
  if (fields.find("schema") == nullptr) {
    refuse_others(fields);
    return format;
  }
  format = schema_beside_type(fields);
  if (!format) return format;
  const bool is_any = (format->schema.is_object() && format->schema.as_object().empty()) ||
                      (format->schema.is_bool() && format->schema.as_bool());
  if (is_any) return OutputFormat{.kind = Kind::kJsonObject, .field = format->field};
  allow_objects_only(fields, *format);
  return format;
}

// `allowed`: "'text' or 'json_object'"
void refuse_type(const Fields& fields, const std::string* type, std::string_view allowed) {
  if (fields.failed()) return;
  fields.refuse("type", type == nullptr
                            ? fmt::format("'{}' is missing", fields.path("type"))
                            : fmt::format("'{}' must be {}", fields.path("type"), allowed));
}

// An object, or the text of one. What stands in it the server finds out.
std::optional<OutputFormat> structural_tag(const Fields& fields, std::string_view key,
                                           const Json& value) {
  OutputFormat format{.kind = Kind::kStructuralTag, .field = fields.path(key), .schema = value};
  if (value.is_string()) {
    Result<Json> parsed = Json::parse(value.as_string());
    if (!parsed.ok()) {
      fields.refuse(key, fmt::format("'{}' is a string that is not JSON: {}", format.field,
                                     parsed.error().message));
      return std::nullopt;
    }
    format.schema = std::move(*parsed);
  }
  if (format.schema.is_object()) return format;
  fields.refuse(key, fmt::format("'{}' must be a structural tag, which is an object, not {}",
                                 format.field, format.schema.kind_name()));
  return std::nullopt;
}

// TGI's way: {"type": "json" | "json_schema" | "regex", "value": …}, a schema (which "json_schema"
// may have a name beside, as OpenAI's) or a regular expression. None: of another type, or refused.
std::optional<OutputFormat> read_typed_value(const Fields& fields, std::string_view type) {
  if (type == "regex") {
    const std::string* pattern = fields.text("value", kFormatBytesMax);
    if (pattern == nullptr) {
      fields.refuse("value", fmt::format("'{}' is missing", fields.path("value")));
      return std::nullopt;
    }
    refuse_others(fields);
    return OutputFormat{
        .kind = Kind::kRegex, .field = fields.path("value"), .schema = {}, .text = *pattern};
  }
  const Json* value = fields.find("value");
  const bool is_named = type == "json_schema" && value != nullptr && value->is_object() &&
                        value->find("schema") != nullptr;
  if (is_named) {
    refuse_others(fields);
    return read_named_schema(
        Fields(*value, fields.path("value"), fields.complaint(), Fields::Reads::kKept));
  }
  std::optional<Json> schema = read_schema(fields, "value");
  refuse_others(fields);
  if (!schema) return std::nullopt;
  return OutputFormat{
      .kind = Kind::kJsonSchema, .field = fields.path("value"), .schema = *std::move(schema)};
}

std::optional<OutputFormat> read_response_format(const Fields& body) {
  const Json* format = body.object("response_format");
  if (format == nullptr) return std::nullopt;
  const Fields fields(*format, "response_format", body.complaint(), Fields::Reads::kKept);
  const std::string* type = fields.text("type", 64);
  if (type != nullptr && *type == "text") {
    refuse_others(fields);
    return std::nullopt;
  }
  if (type != nullptr && *type == "json_object") return json_object(fields);
  if (type != nullptr && *type == "structural_tag") {
    return structural_tag(body, "response_format", *format);
  }
  const bool has_value = fields.find("value") != nullptr;
  if (type != nullptr &&
      (*type == "json" || *type == "regex" || (*type == "json_schema" && has_value))) {
    return read_typed_value(fields, *type);
  }
  if (type == nullptr || *type != "json_schema") {
    refuse_type(fields, type, "'text', 'json_object', 'json_schema' or 'structural_tag'");
    return std::nullopt;
  }
  const Json* named = fields.object("json_schema");
  if (named == nullptr && fields.find("schema") != nullptr) return schema_beside_type(fields);
  refuse_others(fields);
  if (named != nullptr) {
    return read_named_schema(
        Fields(*named, fields.path("json_schema"), body.complaint(), Fields::Reads::kKept));
  }
  fields.refuse("json_schema", "'response_format.json_schema' is missing");
  return std::nullopt;
}

std::optional<std::vector<std::string>> read_choices(const Fields& fields, std::string_view key) {
  const Json* items = fields.array(key, kChoiceTextsMax);
  if (items == nullptr) return std::nullopt;
  std::vector<std::string> choices;
  std::unordered_set<std::string_view> known;
  for (const Json& item : items->as_array()) {
    if (!item.is_string() || item.as_string().empty()) {
      fields.refuse(key, fmt::format("'{}' must hold texts that are not empty", fields.path(key)));
      return std::nullopt;
    }
    if (known.insert(item.as_string()).second) choices.push_back(item.as_string());
  }
  if (choices.empty()) {
    fields.refuse(key, fmt::format("'{}' must have at least one text", fields.path(key)));
    return std::nullopt;
  }
  return choices;
}

// One constraint, by its key; nothing if the key is not there.
std::optional<OutputFormat> read_constraint(const Fields& fields, std::string_view key, Kind kind) {
  if (fields.find(key) == nullptr) return std::nullopt;
  OutputFormat format{.kind = kind, .field = fields.path(key)};
  switch (kind) {
    case Kind::kJsonObject:
      if (!fields.boolean(key).value_or(false)) return std::nullopt;
      break;
    case Kind::kJsonSchema: {
      std::optional<Json> schema = read_schema(fields, key);
      if (!schema) return std::nullopt;
      format.schema = *std::move(schema);
      break;
    }
    case Kind::kStructuralTag:
      return structural_tag(fields, key, *fields.find(key));
    case Kind::kChoice: {
      auto choices = read_choices(fields, key);
      if (!choices) return std::nullopt;
      format.choices = *std::move(choices);
      break;
    }
    case Kind::kRegex:
    case Kind::kGrammar: {
      const std::string* text = fields.text(key, kFormatBytesMax);
      if (text == nullptr) return std::nullopt;
      format.text = *text;
      break;
    }
  }
  return format;
}

// The "grammar" of a body: the text of one (llama.cpp), or TGI's object.
std::optional<OutputFormat> read_grammar(const Fields& body) {
  const Json* value = body.find("grammar");
  if (value == nullptr || !value->is_object()) {
    return read_constraint(body, "grammar", Kind::kGrammar);
  }
  const Fields fields(*value, body.path("grammar"), body.complaint(), Fields::Reads::kKept);
  const std::string* type = fields.text("type", 64);
  if (type != nullptr && (*type == "json" || *type == "json_schema" || *type == "regex")) {
    return read_typed_value(fields, *type);
  }
  refuse_type(fields, type, "'json', 'json_schema' or 'regex'");
  return std::nullopt;
}

// Ollama's: "json", or a schema. An empty text asks for nothing.
std::optional<OutputFormat> read_format(const Fields& body) {
  const Json* value = body.find("format");
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) return read_constraint(body, "format", Kind::kJsonSchema);
  const std::string* word = body.text("format", 64);
  if (word == nullptr || word->empty()) return std::nullopt;
  if (*word == "json") return OutputFormat{.kind = Kind::kJsonObject, .field = body.path("format")};
  body.refuse("format", "'format' must be 'json' or a JSON schema");
  return std::nullopt;
}

struct NamedConstraint {
  std::string_view key;
  Kind kind;
};

// Of several constraints exactly one may be given.
template <size_t kCount>
std::optional<OutputFormat> read_constraints(const Fields& fields,
                                             const NamedConstraint (&names)[kCount]) {
  std::optional<OutputFormat> found;
  for (const NamedConstraint& name : names) {
    std::optional<OutputFormat> one = read_constraint(fields, name.key, name.kind);
    if (!one) continue;
    if (found) refuse_two_formats(fields, name.key, found->field);
    found = std::move(one);
  }
  return found;
}

std::optional<OutputFormat> read_structured_outputs(const Fields& body) {
  const Json* object = body.object("structured_outputs");
  if (object == nullptr) return std::nullopt;
  const Fields fields(*object, "structured_outputs", body.complaint(), Fields::Reads::kKept);
  static constexpr NamedConstraint kNames[] = {
      {"json", Kind::kJsonSchema},        {"regex", Kind::kRegex},
      {"choice", Kind::kChoice},          {"grammar", Kind::kGrammar},
      {"json_object", Kind::kJsonObject}, {"structural_tag", Kind::kStructuralTag}};
  std::optional<OutputFormat> found = read_constraints(fields, kNames);
  const bool compact = fields.boolean("disable_any_whitespace").value_or(false);
  if (found) found->compact = compact;
  if (found && compact && found->kind == Kind::kStructuralTag) {
    fields.refuse_unsupported("disable_any_whitespace", "compact JSON in a structural tag");
  }
  fields.boolean("disable_fallback");  // there is one way to obey
  if (!fields.boolean("disable_additional_properties").value_or(false)) {
    refuse_others(fields);
  } else {
    fields.refuse_unsupported("disable_additional_properties",
                              "closing a schema's objects (say additionalProperties: false in it)");
  }
  if (found || fields.failed()) return found;
  body.refuse("structured_outputs",
              "'structured_outputs' must have one of 'json', 'regex', 'choice', 'grammar', "
              "'json_object' and 'structural_tag'");
  return std::nullopt;
}

}  // namespace

// {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}} is
// kJsonSchema, its field response_format.json_schema.schema; {"structured_outputs": {"regex":
// "a+"}} is kRegex, its field structured_outputs.regex. Of both in one body the second is refused,
// by both names.
std::optional<OutputFormat> read_output_format(const Fields& body) {
  static constexpr NamedConstraint kGuided[] = {
      {"guided_json", Kind::kJsonSchema}, {"guided_regex", Kind::kRegex},
      {"guided_choice", Kind::kChoice},   {"guided_grammar", Kind::kGrammar},
      {"json_schema", Kind::kJsonSchema}, {"regex", Kind::kRegex},
      {"ebnf", Kind::kGrammar},           {"structural_tag", Kind::kStructuralTag}};
  std::optional<OutputFormat> found = read_response_format(body);
  std::optional<OutputFormat> others[] = {read_structured_outputs(body),
                                          read_constraints(body, kGuided), read_grammar(body),
                                          read_format(body)};
  for (std::optional<OutputFormat>& other : others) {
    if (!other) continue;
    if (found) refuse_two_formats(body, other->field, found->field);
    found = std::move(other);
  }
  return found;
}

std::optional<OutputFormat> read_text_format_member(const Fields& text) {
  const Json* format = text.object("format");
  if (format == nullptr) return std::nullopt;
  const Fields fields(*format, text.path("format"), text.complaint(), Fields::Reads::kKept);
  const std::string* type = fields.text("type", 64);
  if (type != nullptr && *type == "text") {
    refuse_others(fields);
    return std::nullopt;
  }
  if (type != nullptr && *type == "json_object") return json_object(fields);
  if (type != nullptr && *type == "json_schema") return read_named_schema(fields);
  refuse_type(fields, type, "'text', 'json_object' or 'json_schema'");
  return std::nullopt;
}

std::optional<OutputFormat> read_message_format(const Fields& body, std::string_view key) {
  const Json* object = body.object(key);
  if (object == nullptr) return std::nullopt;
  const Fields fields(*object, body.path(key), body.complaint());
  const std::string* type = fields.text("type", 64);
  if (fields.failed()) return std::nullopt;
  if (type == nullptr || *type != "json_schema") {
    fields.refuse("type", fmt::format("'{}' must be 'json_schema'", fields.path("type")));
    return std::nullopt;
  }
  std::optional<Json> schema = read_schema(fields, "schema");
  if (!schema) return std::nullopt;
  OutputFormat format{.kind = Kind::kJsonSchema, .field = fields.path("schema")};
  format.schema = *std::move(schema);
  return format;
}

void check_beside_forced_call(const Fields& body, const std::optional<OutputFormat>& format,
                              bool is_call_forced) {
  if (!format || !is_call_forced) return;
  for (const std::string_view own : {"response_format", "text", "output_config", "output_format"}) {
    if (format->field == own || format->field.starts_with(std::string(own) + ".")) return;
  }
  body.refuse(format->field,
              fmt::format("'{}' says what the answer must look like, and 'tool_choice' makes it a "
                          "call; give one of them",
                          format->field));
}

void refuse_two_formats(const Fields& body, std::string_view key, std::string_view other) {
  body.refuse(key, fmt::format("'{}' and '{}' both say what the answer must look like; give one",
                               body.path(key), other));
}

}  // namespace pelton::api
