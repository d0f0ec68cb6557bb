// A configuration file: TOML, a flat list of names, which are the flags' without their dashes. Only
// read here; what the names mean is the command line's business.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cli {

struct ConfigEntry {
  enum class Type { kBoolean, kNumber, kText, kList, kOther };

  std::string name;
  Type type = Type::kText;
  std::string text;               // a boolean is "true" or "false"
  std::vector<std::string> list;  // kList, of texts
  int line = 0;
};

struct ConfigFile {
  std::string file;
  std::vector<ConfigEntry> entries;  // in the file's order, no name twice
};

// Errors: kBadConfig, "FILE:LINE: ...".
Result<ConfigFile> parse_config(std::string_view text, const std::string& file);
Result<ConfigFile> read_config(const std::string& file);

// `text` in TOML's quotes.
std::string toml_quoted(std::string_view text);

}  // namespace pelton::cli
