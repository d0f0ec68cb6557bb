// What the model does in a turn, whatever its chat format: parts, one after the other. For each
// part one begin, any number of texts, one end. Values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace pelton::chat {

enum class PartKind : uint8_t {
  kReasoning,
  kPreamble,  // said before a call: "I will look that up first"
  kAnswer,
  kCall,   // of a tool; the text is its arguments
  kOther,  // what the model writes in another's name; a ReplyReader's events have none
};

struct CallTarget {
  std::string name;  // "get_weather"; of a tool that is no developer function the full recipient
  std::string recipient;     // as the model wrote it: "functions.get_weather", "python"
  bool is_function = false;  // one of the developer's
  bool is_builtin = false;   // one of the model's own tools
};

struct PartBegin {
  PartKind kind = PartKind::kAnswer;
  CallTarget call = {};       // kCall
  bool call_as_text = false;  // kPreamble: a call that nobody can take, shown as text
  bool continues = false;     // kAnswer: one and the same text, which calls have interrupted
  bool may_lead = false;      // kAnswer: only its end says whether it leads to a call
};

struct PartText {
  std::string text;  // valid UTF-8, never empty
};

struct PartEnd {
  enum class By : uint8_t {
    kModel,
    kNextPart,     // another began while this was open
    kEndOfStream,  // nothing more came
  };
  By by = By::kModel;
  bool call_follows = false;  // of a kAnswer: it was said before a call
};

using ReplyEvent = std::variant<PartBegin, PartText, PartEnd>;

}  // namespace pelton::chat
