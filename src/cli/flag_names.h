// Flags by any of their names. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_line.h"

namespace pelton::cli {

// Whether this is one of the names that turn the switch off.
bool negates(const Flag& flag, std::string_view name);

struct NamedFlag {
  const Flag* flag = nullptr;  // null: none has this name
  bool negated = false;        // by a name that turns it off
};
// The flag that a configuration file or a request's body means: by one of its names() without
// dashes in front, "max-model-len", or with '_' for '-', "max_model_len". `flags` outlives it.
NamedFlag flag_named(const std::vector<Flag>& flags, std::string_view name);

// All names as flag_named() takes them, written with '_' where `like` is written so.
std::vector<std::string> names_like(const std::vector<Flag>& flags, std::string_view like);

// How a request's body calls a flag: by the name that `values` give it, else "max_model_len".
std::string field_name(const Flag& flag, const std::vector<Flag>& flags,
                       const std::vector<std::pair<std::string, std::string>>& values);

// A text about flags to whoever has given them as a body's fields: "--max-model-len 9 is too much"
// is "'max_model_len' 9 is too much". What is none of `flags` stays.
std::string with_field_names(std::string_view text, const std::vector<Flag>& flags,
                             const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace pelton::cli
