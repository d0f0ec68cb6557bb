#include "cli/config_file.h"

#include <algorithm>

// toml++ 3.3 asserts on some texts that are no TOML: such a text is refused, not the end of us.
namespace {
struct TomlGaveUp {};
[[noreturn]] void give_up_toml() {
  throw TomlGaveUp();
}
}  // namespace
#define TOML_ASSERT(expression) ((expression) ? void(0) : give_up_toml())
#define TOML_EXCEPTIONS 0
#include <fmt/format.h>
#include <toml++/toml.h>

#include "base/file.h"

namespace pelton::cli {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;

Error bad(const std::string& file, const toml::source_region& where, const std::string& what) {
  return Error{ErrorCode::kBadConfig, fmt::format("{}:{}: {}", file, where.begin.line, what), {}};
}

// True if the value is one of those that a flag can have.
bool read_scalar(const toml::node& node, ConfigEntry& entry) {
  if (const auto* boolean = node.as_boolean()) {
    entry.type = ConfigEntry::Type::kBoolean;
    entry.text = boolean->get() ? "true" : "false";
  } else if (const auto* integer = node.as_integer()) {
    entry.type = ConfigEntry::Type::kNumber;
    entry.text = std::to_string(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    entry.type = ConfigEntry::Type::kNumber;
    entry.text = fmt::format("{}", number->get());
  } else if (const auto* text = node.as_string()) {
    entry.type = ConfigEntry::Type::kText;
    entry.text = text->get();
  } else {
    entry.type = ConfigEntry::Type::kOther;
    return false;
  }
  return true;
}

Result<ConfigFile> read_entries(std::string_view text, const std::string& file) {
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return bad(file, error.source(), std::string(error.description()));
  }
  ConfigFile config{.file = file, .entries = {}};
  for (const auto& [key, node] : parsed.table()) {
    ConfigEntry entry{.name = std::string(key.str()),
                      .line = static_cast<int>(key.source().begin.line)};
    if (node.is_table()) {
      return bad(
          file, key.source(),
          fmt::format("'{}' is a table; names stand at the top, as in port = 8000", entry.name));
    }
    if (const toml::array* list = node.as_array()) {
      entry.type = ConfigEntry::Type::kList;
      for (const toml::node& one : *list) {
        const auto* word = one.as_string();
        if (word == nullptr) {
          return bad(file, one.source(),
                     fmt::format("the list '{}' may hold texts in quotes only", entry.name));
        }
        entry.list.push_back(word->get());
      }
    } else {
      read_scalar(node, entry);
    }
    config.entries.push_back(std::move(entry));
  }
  std::stable_sort(config.entries.begin(), config.entries.end(),
                   [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
  return config;
}

// toml++ reads from the front: it gives up at the first line without which it does not.
int line_given_up(std::string_view text) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size(); at = ends.back()) {
    ends.push_back(std::min(text.find('\n', at), text.size() - 1) + 1);
  }
  const auto gives_up = [&](size_t end) {
    try {
      (void)toml::parse(text.substr(0, end)).succeeded();
      return false;
    } catch (const TomlGaveUp&) {
      return true;
    }
  };
  const auto first =
      std::partition_point(ends.begin(), ends.end(), [&](size_t end) { return !gives_up(end); });
  return static_cast<int>(first - ends.begin()) + 1;
}

}  // namespace

Result<ConfigFile> parse_config(std::string_view text, const std::string& file) {
  try {
    return read_entries(text, file);
  } catch (const TomlGaveUp&) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}:{}: this is no TOML", file, line_given_up(text)),
                 {}};
  }
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
