// Where a JSON value in a text ends, without building it. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace pelton::chat {

inline constexpr std::string_view kJsonSpace = " \t\r\n";

// The first byte at or behind `at` that is no white space; text.size() if there is none.
size_t skip_json_space(std::string_view text, size_t at);

// One past the object or list that begins at `at`; npos if it has no end.
size_t json_container_end(std::string_view text, size_t at);

}  // namespace pelton::chat
