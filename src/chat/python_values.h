// Literals of Python, which some models write in calls, as JSON. Numbers keep their digits: a JSON
// text has room for more of them than a double. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::chat {

struct PythonNumber {
  std::string json;  // of -0x1F: "-31"; of 5. "5.0"; of 1_000 "1000"
  size_t size = 0;   // bytes that were read
};

// At the beginning of `text`; nothing if none stands there, or one that JSON cannot say (1j,
// 1e999).
std::optional<PythonNumber> read_python_number(std::string_view text);

// "True" -> "true", "None" -> "null", JSON's own words too; empty if it is none of them.
std::string_view json_of_python_word(std::string_view word);

// All of `text` as one literal: "{'a': (1, None)}" -> {"a": [1, null]}.
std::optional<std::string> python_value_as_json(std::string_view text);

}  // namespace pelton::chat
