// What a request cost, in tokens. A value.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json_writer.h"

namespace pelton::api {

// Of a predicted output (OpenAI's `prediction`): guesses that are in the answer, and those that are
// not.
struct PredictionUsage {
  int64_t accepted = 0;
  int64_t rejected = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;            // of the prompt
  int64_t cached_on_host_tokens = 0;    // of these, in the host's memory
  int64_t cached_on_disk_tokens = 0;    // and on a disk
  int64_t cached_from_peer_tokens = 0;  // and in another worker's cache
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;                    // of the completion
  std::optional<PredictionUsage> prediction = {};  // where the request has one
};

void write_usage(base::JsonWriter& writer, const Usage& usage);

}  // namespace pelton::api
