// What was seen of one request: the moments, the tokens, the end. Filled by whoever made the
// request (a load generator, a simulator), read by the metrics. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pelton::report {

// A piece of an answer: when it came, and how many tokens it brought.
struct Piece {
  int64_t at_ns = 0;
  int32_t tokens = 1;
};

// Times are nanoseconds from the run's start; -1: it never happened.
struct RequestRecord {
  int64_t due_ns = 0;          // when the schedule wanted it sent
  int64_t start_ns = 0;        // when it was: a full concurrency limit makes it wait
  int64_t first_byte_ns = -1;  // of the answer's body
  int64_t first_reasoning_ns = -1;
  int64_t first_text_ns = -1;  // of what a user is shown as the answer
  int64_t end_ns = -1;         // the last byte

  bool ok = false;
  std::string error;  // why not

  int64_t input_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int64_t reasoning_tokens = 0;
  int64_t output_bytes = 0;  // of text, reasoning and tool calls
  int64_t output_characters = 0;

  // Those with tokens. The first one's time is the first token's.
  std::vector<Piece> pieces;
  // The server reported how many tokens came with each piece; otherwise a piece counts as one.
  bool tokens_told = false;

  std::string text;  // the visible answer, where it is kept

  int conversation = 0;
  int turn = 0;
};

}  // namespace pelton::report
