#include "gateway/config_json.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "gateway/config_changes.h"

namespace pelton::gateway {
namespace {

using cli::TomlNode;

constexpr std::string_view kBare =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

// JSON's, but for DEL, which TOML has only as an escape.
std::string toml_text(std::string_view text) {
  std::string json;
  base::append_json_string(json, text);
  std::string out;
  for (const char c : json) {
    if (c == '\x7F') {
      out += "\\u007f";
    } else {
      out += c;
    }
  }
  return out;
}

// 2.0 stays no whole number.
std::string toml_number(double number) {
  std::string out = fmt::format("{}", number);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

std::optional<std::string> toml_list(const Json::Array& items) {
  std::string out = "[";
  for (const Json& item : items) {
    const std::optional<std::string> text = toml_value(item);
    if (!text) return std::nullopt;
    out += (out.size() > 1 ? ", " : "") + *text;
  }
  return out + "]";
}

std::optional<std::string> toml_table(const Json::Object& members) {
  std::string out = "{";
  for (const Json::Member& member : members) {
    const std::optional<std::string> text = toml_value(member.value);
    if (!text) return std::nullopt;
    out += fmt::format("{}{} = {}", out.size() > 1 ? ", " : "", toml_key(member.key), *text);
  }
  return out + "}";
}

// The members of both by name.
std::vector<const Json::Member*> by_name(const Json::Object& members) {
  std::vector<const Json::Member*> sorted;
  sorted.reserve(members.size());
  for (const Json::Member& member : members) sorted.push_back(&member);
  std::ranges::sort(sorted, {}, [](const Json::Member* one) { return std::string_view(one->key); });
  return sorted;
}

}  // namespace

Json json_of(const TomlNode& node) {
  switch (node.kind) {
    case TomlNode::Kind::kBoolean:
      return node.boolean;
    case TomlNode::Kind::kInteger:
      return node.integer;
    case TomlNode::Kind::kNumber:
      return node.number;
    case TomlNode::Kind::kText:
      return node.text;
    case TomlNode::Kind::kList: {
      Json::Array items;
      for (const TomlNode& item : node.items) items.push_back(json_of(item));
      return items;
    }
    case TomlNode::Kind::kTable: {
      Json::Object members;
      for (const cli::TomlMember& member : node.members) {
        members.push_back({.key = member.name, .value = json_of(member.value)});
      }
      return members;
    }
    case TomlNode::Kind::kOther:
      break;
  }
  return nullptr;
}

Result<Json> config_json(std::string_view text, const std::string& file) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  Json::Object kinds;
  for (const cli::TomlMember& kind : tree.members) {
    if (!is_config_list(kind.name)) {
      kinds.push_back({.key = kind.name, .value = json_of(kind.value)});
      continue;
    }
    Json::Object objects;
    std::set<std::string, std::less<>> names;
    for (const TomlNode& item : kind.value.items) {
      std::string name = config_name(kind.name, item);
      if (!names.insert(name).second) {
        return cli::bad_toml(file, item.line,
                             fmt::format("there are two of {} '{}'", kind.name, name));
      }
      objects.push_back({.key = std::move(name), .value = json_of(item)});
    }
    kinds.push_back({.key = kind.name, .value = std::move(objects)});
  }
  return Json(std::move(kinds));
}

bool is_same_json(const Json& a, const Json& b) {
  if (a.is_array() && b.is_array()) {
    return std::ranges::equal(a.as_array(), b.as_array(), is_same_json);
  }
  if (!a.is_object() || !b.is_object()) return a == b;
  return std::ranges::equal(by_name(a.as_object()), by_name(b.as_object()),
                            [](const Json::Member* one, const Json::Member* other) {
                              return one->key == other->key &&
                                     is_same_json(one->value, other->value);
                            });
}

std::optional<std::string> toml_value(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_integer()) return fmt::format("{}", value.as_integer());
  if (value.is_number()) return toml_number(value.as_number());
  if (value.is_string()) return toml_text(value.as_string());
  return value.is_array() ? toml_list(value.as_array()) : toml_table(value.as_object());
}

std::string toml_key(std::string_view name) {
  const bool is_bare = !name.empty() && name.find_first_not_of(kBare) == std::string_view::npos;
  return is_bare ? std::string(name) : toml_text(name);
}

}  // namespace pelton::gateway
