// What a load test wants of one piece of an answer: read from its JSON in one pass, without
// building values, because a generator reads a hundred thousand of them a second. Foreign bytes:
// whatever comes, there are fields or an Error. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::bench {

struct AnswerFields {
  // Bytes and characters that this piece brings, of any of the three kinds.
  int64_t text_bytes = 0;  // the visible answer
  int64_t reasoning_bytes = 0;
  int64_t tool_bytes = 0;  // names and arguments
  int64_t characters = 0;
  std::string text;  // the visible answer itself

  // Of the answer so far, or as the caller asks; -1: not reported.
  int64_t prompt_tokens = -1;
  int64_t cached_tokens = -1;
  int64_t completion_tokens = -1;
  int64_t reasoning_tokens = -1;
  int64_t token_ids = -1;  // in this piece

  bool has_choices = false;  // it is a piece of an answer, not a note about usage
  std::string error;         // the server's own words; empty: none

  int64_t bytes() const { return text_bytes + reasoning_bytes + tool_bytes; }
};

// Chat and completion chunks, Responses events, whole answers, error objects. `fields` is reused:
// it keeps its memory. Errors: kInvalidArgument if it is no JSON.
Result<void> read_answer_fields(std::string_view json, AnswerFields& fields);

}  // namespace pelton::bench
