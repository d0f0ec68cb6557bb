// What a request cost, in tokens. A value.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json_writer.h"

namespace pelton::api {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion
  // Where the request has a prediction: of it, guesses that are in the answer, and those that are
  // not.
  struct Prediction {
    int64_t accepted = 0;
    int64_t rejected = 0;
  };
  std::optional<Prediction> prediction = {};
};

void write_usage(base::JsonWriter& writer, const Usage& usage);

}  // namespace pelton::api
