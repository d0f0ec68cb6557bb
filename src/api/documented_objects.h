// The members of the objects that stand in a request's body (a message, a tool, "stream_options"),
// as OpenAI, vLLM, Anthropic and their clients document them, and what becomes of each: the same
// rules as for the body's own fields (documented_fields.h). Constant tables.
//
// Not here: objects whose readers refuse every member they do not know (response_format,
// structured_outputs, text, reasoning), and maps whose keys are the caller's (metadata, logit_bias,
// JSON schemas).
#pragma once

#include <span>
#include <string_view>

#include "api/documented_fields.h"

namespace pelton::api {

// Of `obeyed`, what is read only where another member, the object's `decider`, has one of `values`
// (words apart by blanks). Elsewhere a warning says so.
struct ConditionalMember {
  std::string_view name;
  std::string_view values;
};

struct DocumentedObject {
  // From the body: "messages[].tool_calls[]" is each object of that array. Whatever an object
  // stands in has an entry too.
  std::string_view path;
  std::string_view obeyed;                  // members that the endpoint reads, apart by blanks
  std::span<const DocumentedField> others;  // members that it does not read
  // An object whose "type" is none of these is another one; empty: of any type.
  std::string_view types;
  std::string_view decider = {};          // a word, or a switch: "true" or "false"
  std::string_view decider_default = {};  // where it is absent
  std::span<const ConditionalMember> conditional = {};
};

std::span<const DocumentedObject> documented_objects(BodyKind kind);

// Whether `word` is one of `words`, which are apart by blanks.
bool has_word(std::string_view words, std::string_view word);

}  // namespace pelton::api
