#include "chat/spaced_json.h"

#include "base/json_writer.h"
#include "chat/json_extent.h"

namespace pelton::chat {

// As deep as a Json may be (Json::kDepthMax).
void append_spaced_json(std::string& out, const Json& value) {
  std::string_view separator;
  if (value.is_object()) {
    out += '{';
    for (const Json::Member& member : value.as_object()) {
      out += separator;
      separator = ", ";
      base::append_json_string(out, member.key);
      out += ": ";
      append_spaced_json(out, member.value);
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (const Json& item : value.as_array()) {
      out += separator;
      separator = ", ";
      append_spaced_json(out, item);
    }
    out += ']';
  } else {
    out += value.dump();
  }
}

void append_spaced_json_text(std::string& out, std::string_view text) {
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      out += c;
      if (c == '\\') out += text[++at];
      in_string = c != '"';
      continue;
    }
    if (kJsonSpace.find(c) != std::string_view::npos) continue;
    out += c;
    in_string = c == '"';
    if (c == ',' || c == ':') out += ' ';
  }
}

}  // namespace pelton::chat
