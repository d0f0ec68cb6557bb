// A text in parts, apart by one character. Pure; the parts are views of the text.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace pelton::base {

// "a,,b" at ',': "a", "", "b". Of an empty text one part, which is empty.
inline std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "a,,b" at ',': "a", "b". Of an empty text none.
inline std::vector<std::string_view> split_skipping_empty(std::string_view text, char at) {
  std::vector<std::string_view> parts = split(text, at);
  std::erase(parts, std::string_view());
  return parts;
}

}  // namespace pelton::base
