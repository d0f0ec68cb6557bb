// A template's source -> tokens: text between tags, and the words within them. White space is dealt
// with here, as Jinja does with trim_blocks and lstrip_blocks: a block tag on a line of its own
// leaves nothing of that line, "-" takes all white space on its side, "+" takes none. Pure; any
// thread.
//
//   "a\n  {% if x -%}\n b" -> text "a\n", block, name if, name x, block end, text "b"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text = {};  // kString: what it stands for
};

// Error kInvalidArgument with the line: a tag, a string or a comment has no end, a character that
// no expression has.
Result<std::vector<Token>> tokenize(std::string_view source);

// "line 3: " before a message.
Error at_line(int line, std::string_view message);

}  // namespace pelton::jinja
