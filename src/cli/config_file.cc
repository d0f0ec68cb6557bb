#include "cli/config_file.h"

#include <fmt/format.h>

#include "base/file.h"
#include "cli/toml_tree.h"

namespace pelton::cli {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;

// A value that a flag can have; others are kOther.
void read_scalar(const TomlNode& node, ConfigEntry& entry) {
  switch (node.kind) {
    case TomlNode::Kind::kBoolean:
      entry.type = ConfigEntry::Type::kBoolean;
      entry.text = node.boolean ? "true" : "false";
      return;
    case TomlNode::Kind::kInteger:
      entry.type = ConfigEntry::Type::kNumber;
      entry.text = std::to_string(node.integer);
      return;
    case TomlNode::Kind::kNumber:
      entry.type = ConfigEntry::Type::kNumber;
      entry.text = fmt::format("{}", node.number);
      return;
    case TomlNode::Kind::kText:
      entry.type = ConfigEntry::Type::kText;
      entry.text = node.text;
      return;
    default:
      entry.type = ConfigEntry::Type::kOther;
  }
}

}  // namespace

Result<ConfigFile> parse_config(std::string_view text, const std::string& file) {
  TRY_ASSIGN(const TomlNode tree, parse_toml(text, file));
  ConfigFile config{.file = file, .entries = {}};
  for (const auto& [name, line, node] : tree.members) {
    ConfigEntry entry{.name = name, .line = line};
    if (node.kind == TomlNode::Kind::kTable) {
      return bad_toml(
          file, line,
          fmt::format("'{}' is a table; names stand at the top, as in port = 8000", name));
    }
    if (node.kind == TomlNode::Kind::kList) {
      entry.type = ConfigEntry::Type::kList;
      for (const TomlNode& one : node.items) {
        if (one.kind != TomlNode::Kind::kText) {
          return bad_toml(file, one.line,
                          fmt::format("the list '{}' may hold texts in quotes only", name));
        }
        entry.list.push_back(one.text);
      }
    } else {
      read_scalar(node, entry);
    }
    config.entries.push_back(std::move(entry));
  }
  return config;
}

Result<ConfigFile> read_config(const std::string& file) {
  const Result<std::string> text = base::read_file(file, kConfigBytesMax);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, {}};
  return parse_config(*text, file);
}

std::string toml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace pelton::cli
