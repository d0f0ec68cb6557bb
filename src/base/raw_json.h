// JSON text as it stands, for instances whose spelling matters (1.0 is not 1 to a tokenizer): parts
// are found and made compact without being read as values. Texts must be valid JSON. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::base {

// The members' values of an object, and the items of an array, as they are written.
std::optional<std::string_view> raw_member(std::string_view object, std::string_view key);
std::vector<std::string_view> raw_items(std::string_view array);

// Without whitespace, strings as UTF-8 with no more escapes than needed, numbers as they are.
std::string compact_json(std::string_view text);

}  // namespace pelton::base
