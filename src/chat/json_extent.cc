#include "chat/json_extent.h"

#include <algorithm>

namespace pelton::chat {

size_t skip_json_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kJsonSpace, at), text.size());
}

size_t json_container_end(std::string_view text, size_t at) {
  int depth = 0;
  for (bool in_string = false; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    in_string = c == '"';
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth <= 0) return at + 1;
  }
  return std::string_view::npos;
}

}  // namespace pelton::chat
