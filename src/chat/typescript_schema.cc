#include "chat/typescript_schema.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace pelton::chat {
namespace {

// Where a type is written: what each of its lines starts with, and how deep it lies.
struct Place {
  std::string indent;
  int depth = 0;

  Place within(int spaces) const {
    return {indent + std::string(static_cast<size_t>(spaces), ' '), depth + 1};
  }
};

std::string type_text(const Json& schema, const Place& place);

const std::string* string_member(const Json& schema, std::string_view key) {
  const Json* member = schema.find(key);
  return member != nullptr && member->is_string() ? &member->as_string() : nullptr;
}

const Json::Array* array_member(const Json& schema, std::string_view key) {
  const Json* member = schema.find(key);
  return member != nullptr && member->is_array() ? &member->as_array() : nullptr;
}

// The variants of a "oneOf"; an empty one says nothing.
const Json::Array* variants_of(const Json& schema) {
  const Json::Array* variants = array_member(schema, "oneOf");
  return variants != nullptr && !variants->empty() ? variants : nullptr;
}

std::string nullable_suffix(const Json& schema, const std::string& type) {
  if (!schema.boolean("nullable").value_or(false)) return "";
  return type.find("null") == std::string::npos ? " | null" : "";
}

// Strings stand in plain quotes, unescaped, and those of an enum without: so the model learned it.
std::string default_text(const Json& schema, const Json& value) {
  if (!value.is_string()) return value.dump();
  const bool of_enum = array_member(schema, "enum") != nullptr;
  return of_enum ? value.as_string() : '"' + value.as_string() + '"';
}

std::string variant_comment(const Json& variant, bool with_description) {
  std::string comment;
  if (with_description) {
    if (const std::string* description = string_member(variant, "description")) {
      comment = *description;
    }
  }
  if (const Json* value = variant.find("default")) {
    if (!comment.empty()) comment += ' ';
    comment += "default: " + default_text(variant, *value);
  }
  return comment.empty() ? "" : " // " + comment;
}

std::string union_text(const Json::Array& names) {
  std::string out;
  for (const Json& name : names) {
    if (!name.is_string()) continue;
    if (!out.empty()) out += " | ";
    out += name.as_string() == "integer" ? "number" : name.as_string();
  }
  return out.empty() ? "any" : out;
}

std::string string_type(const Json& schema) {
  const Json::Array* values = array_member(schema, "enum");
  std::string out;
  if (values != nullptr) {
    for (const Json& value : *values) {
      if (!value.is_string()) continue;
      if (!out.empty()) out += " | ";
      out += '"' + value.as_string() + '"';
    }
  }
  return out.empty() ? "string" : out;
}

void append_comment(std::string& out, const Place& place, std::string_view text) {
  out.append(place.indent).append("// ").append(text).append("\n");
}

void append_examples(std::string& out, const Json& schema, const Place& place) {
  const Json::Array* examples = array_member(schema, "examples");
  if (examples == nullptr || examples->empty()) return;
  append_comment(out, place, "Examples:");
  for (const Json& example : *examples) {
    if (example.is_string()) append_comment(out, place, "- \"" + example.as_string() + '"');
  }
}

// `name?:`, then each variant on a line of its own.
void append_one_of_property(std::string& out, const std::string& name, const Json& schema,
                            const Json::Array& variants, const Place& place) {
  const std::string* description = string_member(schema, "description");
  const std::string* first = string_member(variants.front(), "description");
  const bool described = description != nullptr && (first == nullptr || *first != *description);
  if (described) append_comment(out, place, *description);
  if (const Json* value = schema.find("default")) {
    append_comment(out, place, "default: " + default_text(schema, *value));
  }
  out += place.indent + name + ":\n";
  for (size_t i = 0; i < variants.size(); ++i) {
    const std::string type = type_text(variants[i], place.within(3));
    out += place.indent + " | " + type + nullable_suffix(variants[i], type);
    out += variant_comment(variants[i], !(i == 0 && described)) + '\n';
  }
  out += place.indent + ",\n";
}

void append_property(std::string& out, const std::string& name, const Json& schema,
                     const Place& place) {
  if (const std::string* title = string_member(schema, "title")) {
    append_comment(out, place, *title);
    out += place.indent + "//\n";
  }
  const Json::Array* variants = variants_of(schema);
  const std::string* description = string_member(schema, "description");
  if (description != nullptr && variants == nullptr) append_comment(out, place, *description);
  append_examples(out, schema, place);
  if (variants != nullptr) return append_one_of_property(out, name, schema, *variants, place);

  const std::string type = type_text(schema, place.within(4));
  out += place.indent + name + ": " + type + nullable_suffix(schema, type) + ',';
  if (const Json* value = schema.find("default")) {
    out += " // default: " + default_text(schema, *value);
  }
  out += '\n';
}

std::vector<std::string_view> required_names(const Json& schema) {
  std::vector<std::string_view> names;
  if (const Json::Array* required = array_member(schema, "required")) {
    for (const Json& name : *required) {
      if (name.is_string()) names.push_back(name.as_string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string object_type(const Json& schema, const Place& place) {
  std::string out;
  if (const std::string* description = string_member(schema, "description")) {
    append_comment(out, place, *description);
  }
  out += "{\n";
  const std::vector<std::string_view> required = required_names(schema);
  const Json* properties = schema.find("properties");
  if (properties != nullptr && properties->is_object()) {
    for (const Json::Member& member : properties->as_object()) {
      const bool is_required = std::binary_search(required.begin(), required.end(), member.key);
      append_property(out, is_required ? member.key : member.key + "?", member.value, place);
    }
  }
  return out + place.indent + '}';
}

std::string array_type(const Json& schema, const Place& place) {
  const Json* items = schema.find("items");
  if (items == nullptr) return "Array<any>";
  return type_text(*items, place.within(0)) + "[]";
}

std::string one_of_type(const Json::Array& variants, const Place& place) {
  std::string out;
  for (const Json& variant : variants) {
    const std::string type = type_text(variant, place.within(3));
    out += '\n' + place.indent + " | " + type + nullable_suffix(variant, type);
    out += variant_comment(variant, true);
  }
  return out;
}

// The order of these checks is the Harmony library's.
std::string type_text(const Json& schema, const Place& place) {
  if (place.depth > kSchemaDepthMax) return "any";
  if (const Json::Array* variants = variants_of(schema)) {
    return one_of_type(*variants, place);
  }
  if (const Json::Array* names = array_member(schema, "type")) return union_text(*names);
  const std::string* type = string_member(schema, "type");
  if (type == nullptr) return "any";
  if (*type == "object") return object_type(schema, place);
  if (*type == "string") return string_type(schema);
  if (*type == "number" || *type == "integer") return "number";
  if (*type == "boolean") return "boolean";
  if (*type == "array") return array_type(schema, place);
  return "any";
}

}  // namespace

std::string typescript_type(const Json& schema) {
  return type_text(schema, Place{});
}

void append_comment_lines(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.append("// ").append(line).append("\n");
  }
}

}  // namespace pelton::chat
