// One table of the gateway's configuration file, whose members are read by name; what is wrong is
// refused with its line. Lives as long as the tree that it looks at.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/toml_tree.h"
#include "net/url.h"

namespace pelton::gateway {

class ConfigTable {
 public:
  ConfigTable(const cli::TomlNode& node, std::string name, const std::string& file)
      : node_(node), name_(std::move(name)), file_(file) {}

  Result<void> expect_only(std::initializer_list<std::string_view> known) const {
    return cli::expect_only_keys(node_, name_, file_, known);
  }

  Result<void> read(std::string_view key, std::string& into) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind != cli::TomlNode::Kind::kText) return bad(key, "must be a text in quotes");
    into = value->text;
    return {};
  }

  Result<void> read(std::string_view key, bool& into) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind != cli::TomlNode::Kind::kBoolean) return bad(key, "must be true or false");
    into = value->boolean;
    return {};
  }

  static constexpr size_t kNameMax = 64;  // bytes

  Result<void> read_name(std::string_view key, std::string& into) const {
    TRY(read(key, into));
    if (into.empty()) return bad(key, "is missing or empty");
    if (into.size() <= kNameMax) return {};
    return bad(key, fmt::format("is longer than {} bytes", kNameMax));
  }

  struct Bounds {
    double least = 0;
    double most = 0;
  };
  template <typename Integer>
  requires std::is_integral_v<Integer> Result<void> read(std::string_view key, const Bounds& bounds,
                                                         Integer& into)
  const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    const bool fits = value->kind == cli::TomlNode::Kind::kInteger &&
                      value->number >= bounds.least && value->number <= bounds.most;
    if (!fits) {
      return bad(key,
                 fmt::format("must be a whole number from {} to {}", bounds.least, bounds.most));
    }
    into = static_cast<Integer>(value->integer);
    return {};
  }

  Result<void> read(std::string_view key, const Bounds& bounds, double& into) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    const bool is_number =
        value->kind == cli::TomlNode::Kind::kInteger || value->kind == cli::TomlNode::Kind::kNumber;
    if (!is_number || !(value->number >= bounds.least && value->number <= bounds.most)) {
      return bad(key, fmt::format("must be a number from {} to {}", bounds.least, bounds.most));
    }
    into = value->number;
    return {};
  }

  // A text, or a list of texts.
  Result<void> read(std::string_view key, std::vector<std::string>& into) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind == cli::TomlNode::Kind::kText) {
      into.push_back(value->text);
      return {};
    }
    if (value->kind != cli::TomlNode::Kind::kList)
      return bad(key, "must be a text or a list of texts");
    for (const cli::TomlNode& one : value->items) {
      if (one.kind != cli::TomlNode::Kind::kText) return bad(key, "must hold texts in quotes only");
      into.push_back(one.text);
    }
    return {};
  }

  bool has(std::string_view key) const { return node_.find(key) != nullptr; }

  // A number, or a list of numbers, behind those that `into` has.
  Result<void> read_numbers(std::string_view key, const Bounds& bounds,
                            std::vector<double>& into) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    const auto add = [&](const cli::TomlNode& one) {
      const bool is_number =
          one.kind == cli::TomlNode::Kind::kInteger || one.kind == cli::TomlNode::Kind::kNumber;
      if (!is_number || !(one.number >= bounds.least && one.number <= bounds.most)) return false;
      into.push_back(one.number);
      return true;
    };
    const bool is_list = value->kind == cli::TomlNode::Kind::kList && !value->items.empty();
    if (is_list ? std::ranges::all_of(value->items, add) : add(*value)) return {};
    return bad(key, fmt::format("must be a number from {} to {}, or a list of such", bounds.least,
                                bounds.most));
  }

  // A list of tables, each read by `read`.
  template <typename Read>
  Result<void> read_tables(std::string_view key, const Read& read) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind != cli::TomlNode::Kind::kList) return bad(key, "must be a list of tables");
    for (const cli::TomlNode& one : value->items) {
      if (one.kind != cli::TomlNode::Kind::kTable)
        return bad(key, "must hold tables in braces only");
      TRY(read(ConfigTable(one, fmt::format("{}: '{}'", name_, key), file_)));
    }
    return {};
  }

  Result<void> read_address(std::string_view key, std::string& host, int& port) const {
    if (node_.find(key) == nullptr) return {};
    std::string text;
    TRY(read(key, text));
    const Result<net::HostPort> address = net::parse_host_port(text);
    if (!address.ok()) return bad(key, "must be ADDRESS:PORT, as in 127.0.0.1:8000");
    host = address->host;
    port = address->port;
    return {};
  }

  // A table within it, read by `read` if it is there.
  template <typename Read>
  Result<void> read_table(std::string_view key, const Read& read) const {
    const cli::TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind != cli::TomlNode::Kind::kTable) return bad(key, "must be a table");
    return read(ConfigTable(*value, fmt::format("{}: '{}'", name_, key), file_));
  }

  // Every key of it is a name, every value a number.
  Result<void> read_all(const Bounds& bounds,
                        std::map<std::string, double, std::less<>>& into) const {
    for (const cli::TomlMember& member : node_.members) {
      TRY(read(member.name, bounds, into[member.name]));
    }
    return {};
  }

  // Kept only if it stands there.
  Result<void> read(std::string_view key, const Bounds& bounds, std::optional<double>& into) const {
    if (node_.find(key) == nullptr) return {};
    double number = 0;
    TRY(read(key, bounds, number));
    into = number;
    return {};
  }

  // A whole number, kept only if it stands there.
  Result<void> read(std::string_view key, const Bounds& bounds, std::optional<int>& into) const {
    if (node_.find(key) == nullptr) return {};
    int number = 0;
    TRY(read(key, bounds, number));
    into = number;
    return {};
  }

  // The line of that key, or the table's own.
  Error bad(std::string_view key, std::string_view what) const {
    return cli::bad_toml(file_, line_of(key), fmt::format("{}: '{}' {}", name_, key, what));
  }
  // "FILE:LINE", of what is looked at once the whole file has been read.
  std::string place_of(std::string_view key) const {
    return fmt::format("{}:{}", file_, line_of(key));
  }

 private:
  int line_of(std::string_view key) const {
    for (const cli::TomlMember& member : node_.members) {
      if (member.name == key) return member.line;
    }
    return node_.line;
  }

  const cli::TomlNode& node_;
  const std::string name_;
  const std::string& file_;
};

}  // namespace pelton::gateway
