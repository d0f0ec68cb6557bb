// What a request cost, in tokens.
#pragma once

#include <cstdint>

#include "base/json_writer.h"

namespace pelton::api {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion
};

void write_usage(base::JsonWriter& writer, const Usage& usage);

}  // namespace pelton::api
