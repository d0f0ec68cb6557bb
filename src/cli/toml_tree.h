// A TOML text as a tree of values with the lines they stand on. toml++ stays in this file's .cc.
// Values, pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cli {

struct TomlMember;

struct TomlNode {
  enum class Kind { kBoolean, kInteger, kNumber, kText, kList, kTable, kOther };

  Kind kind = Kind::kOther;  // kOther: dates and times
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // of kNumber, and of kInteger too
  std::string text;
  std::vector<TomlNode> items;      // kList
  std::vector<TomlMember> members;  // kTable; in the file's order, no name twice
  int line = 0;

  // Null: it has none of that name.
  const TomlNode* find(std::string_view name) const;
};

struct TomlMember {
  std::string name;
  int line = 0;  // of the name
  TomlNode value;
};

// The whole text, a table. Errors: kBadConfig, "FILE:LINE: ..."; also of a text over 1 MiB.
Result<TomlNode> parse_toml(std::string_view text, const std::string& file);
Result<TomlNode> read_toml(const std::string& file);

// Errors: kBadConfig of the first key of `table` that is not known, with the nearest one that is.
// `name` is the table's, for the message.
Result<void> expect_only_keys(const TomlNode& table, std::string_view name, const std::string& file,
                              std::initializer_list<std::string_view> known);

// "FILE:LINE: WHAT" with kBadConfig.
Error bad_toml(const std::string& file, int line, std::string_view what);

}  // namespace pelton::cli
