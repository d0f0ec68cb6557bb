// A configuration as one JSON value, and JSON values as TOML writes them. Of what there may be
// several, each is a member by its name (config_name(), gateway/config_changes.h):
//
//   {"gateway": {"retries": 3}, "pool": {"box": {"name": "box", "model": ["m"]}}}
//
// It is the resource that a merge patch is of (gateway/config_patch.h). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "cli/toml_tree.h"

namespace pelton::gateway {

// As the text says it, without what it leaves out. Errors: kBadConfig with the line.
Result<Json> config_json(std::string_view text, const std::string& file);

// Dates, which no key of a configuration has, are null.
Json json_of(const cli::TomlNode& node);
// Members may come in any order; 1 and 1.0 are two values.
bool is_same_json(const Json& a, const Json& b);

// On one line. None: TOML has no null.
std::optional<std::string> toml_value(const Json& value);
// As it stands before "=": quoted where it has to be.
std::string toml_key(std::string_view name);

}  // namespace pelton::gateway
