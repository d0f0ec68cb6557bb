#include "gateway/config_changes.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

using cli::TomlNode;
using How = ConfigChange::How;

constexpr std::array<std::string_view, 5> kLists = {"pool", "route", "tenant", "worker", "region"};

// One line, as the file would have it.
std::string value_text(const TomlNode& node) {
  switch (node.kind) {
    case TomlNode::Kind::kBoolean:
      return node.boolean ? "true" : "false";
    case TomlNode::Kind::kInteger:
      return fmt::format("{}", node.integer);
    case TomlNode::Kind::kNumber:
      return fmt::format("{}", node.number);
    case TomlNode::Kind::kText: {
      std::string out;
      base::append_json_string(out, node.text);
      return out;
    }
    case TomlNode::Kind::kList: {
      std::string out = "[";
      for (const TomlNode& one : node.items) out += (out.size() > 1 ? ", " : "") + value_text(one);
      return out + "]";
    }
    case TomlNode::Kind::kTable: {
      std::string out = "{";
      for (const cli::TomlMember& one : node.members) {
        out +=
            fmt::format("{}{} = {}", out.size() > 1 ? ", " : "", one.name, value_text(one.value));
      }
      return out + "}";
    }
    case TomlNode::Kind::kOther:
      break;
  }
  return "?";
}

// "scale.max" -> "4"; tables within it are their keys.
using Values = std::vector<std::pair<std::string, std::string>>;
void add_values(const TomlNode& table, const std::string& before, Values& values) {
  for (const cli::TomlMember& member : table.members) {
    if (member.value.kind == TomlNode::Kind::kTable) {
      add_values(member.value, before + member.name + ".", values);
    } else {
      values.emplace_back(before + member.name, value_text(member.value));
    }
  }
}

struct Object {
  std::string kind;
  std::string name;
  Values values;
};

void add_objects(const TomlNode& tree, std::vector<Object>& objects) {
  for (const cli::TomlMember& member : tree.members) {
    const bool is_list = is_config_list(member.name) && member.value.kind == TomlNode::Kind::kList;
    if (!is_list) {
      Object object{.kind = member.name};
      if (member.value.kind == TomlNode::Kind::kTable) add_values(member.value, "", object.values);
      objects.push_back(std::move(object));
      continue;
    }
    for (const TomlNode& item : member.value.items) {
      Object object{.kind = member.name, .name = config_name(member.name, item)};
      add_values(item, "", object.values);
      objects.push_back(std::move(object));
    }
  }
}

// Each by itself, as no file is so long as all of them with what they leave out may be. Two of one
// name are distinguished by their order.
Result<std::vector<Object>> objects_of(std::string_view text) {
  std::vector<Object> objects;
  for (const std::string_view part : split_config(text)) {
    TRY_ASSIGN(const TomlNode tree, cli::parse_toml(part, "configuration"));
    add_objects(tree, objects);
  }
  std::map<std::pair<std::string, std::string>, int> seen;
  for (Object& object : objects) {
    const int number = ++seen[{object.kind, object.name}];
    if (number > 1) object.name += fmt::format("#{}", number);
  }
  return objects;
}

// Its objects by kind and name, of which no two are alike.
class Index {
 public:
  explicit Index(const std::vector<Object>& objects) {
    for (const Object& one : objects) objects_.try_emplace({one.kind, one.name}, &one);
  }
  const Object* find(const Object& like) const {
    const auto found = objects_.find({like.kind, like.name});
    return found == objects_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::pair<std::string_view, std::string_view>, const Object*> objects_;
};

void add_changed(const Object& before, const Object& after, std::vector<ConfigChange>& changes) {
  const auto add = [&](std::string value) {
    changes.push_back({.kind = after.kind, .name = after.name, .value = std::move(value)});
  };
  const auto value_in = [](const Object& object, const std::string& key) {
    const auto found = std::ranges::find(object.values, key, &Values::value_type::first);
    return found == object.values.end() ? std::string() : found->second;
  };
  for (const auto& [key, value] : after.values) {
    const std::string old = value_in(before, key);
    if (old == value) continue;
    add(old.empty() ? fmt::format("{} = {}", key, value)
                    : fmt::format("{} = {} -> {}", key, old, value));
  }
  for (const auto& [key, value] : before.values) {
    if (value_in(after, key).empty()) add(fmt::format("{} = {} -> nothing", key, value));
  }
}

// Of that kind those that the other one has too.
std::vector<std::string_view> names_in_both(std::string_view kind, const std::vector<Object>& of,
                                            const Index& other) {
  std::vector<std::string_view> names;
  for (const Object& one : of) {
    if (one.kind == kind && other.find(one) != nullptr) names.emplace_back(one.name);
  }
  return names;
}

}  // namespace

// A table within one ("[pool.scale]") begins none.
std::vector<std::string_view> split_config(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const bool begins = line.starts_with("[[") ||
                        (line.starts_with('[') && line.find('.') == std::string_view::npos);
    if (!begins || at == begin) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

bool is_config_list(std::string_view kind) {
  return std::ranges::find(kLists, kind) != kLists.end();
}

std::string config_name(std::string_view kind, const TomlNode& object) {
  const auto text = [&](std::string_view key) {
    const TomlNode* value = object.find(key);
    return value != nullptr && value->kind == TomlNode::Kind::kText ? value->text : "";
  };
  if (kind == "worker") return text("url");
  if (kind != "route") return text("name");
  const std::string tenant = text("tenant");
  return tenant.empty() || tenant == "*" ? text("model") : text("model") + "/" + tenant;
}

Result<std::vector<ConfigChange>> config_changes(std::string_view before, std::string_view after) {
  TRY_ASSIGN(const std::vector<Object> old_objects, objects_of(before));
  TRY_ASSIGN(const std::vector<Object> new_objects, objects_of(after));
  const Index old_index(old_objects);
  const Index new_index(new_objects);
  std::vector<ConfigChange> changes;
  for (const Object& object : new_objects) {
    if (const Object* was = old_index.find(object)) {
      add_changed(*was, object, changes);
    } else {
      changes.push_back({.how = How::kAdded, .kind = object.kind, .name = object.name});
    }
  }
  for (const Object& object : old_objects) {
    if (new_index.find(object) != nullptr) continue;
    changes.push_back({.how = How::kRemoved, .kind = object.kind, .name = object.name});
  }
  // The first route that fits counts, and the first pool of a model.
  for (const std::string_view kind : kLists) {
    const std::vector<std::string_view> now = names_in_both(kind, new_objects, old_index);
    if (now == names_in_both(kind, old_objects, new_index)) continue;
    changes.push_back(
        {.kind = std::string(kind), .value = fmt::format("order = {}", fmt::join(now, ", "))});
  }
  return changes;
}

std::string_view how_name(How how) {
  switch (how) {
    case How::kAdded:
      return "added";
    case How::kRemoved:
      return "removed";
    case How::kChanged:
      break;
  }
  return "changed";
}

std::string change_text(const ConfigChange& change) {
  const char* const mark = change.how == How::kAdded     ? "+"
                           : change.how == How::kRemoved ? "-"
                                                         : "~";
  return fmt::format("{} {}{}{}{}{}", mark, change.kind, change.name.empty() ? "" : " ",
                     change.name, change.value.empty() ? "" : ": ", change.value);
}

}  // namespace pelton::gateway
