// Prompts from files: ShareGPT's conversations, one JSON object a line, traces of what came when.
// Texts in, values out; foreign bytes can only make an Error. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/conversation.h"
#include "workload/synthetic.h"
#include "workload/vocabulary.h"

namespace pelton::workload {

// What is wanted of a file, whatever its kind.
struct RecordedOptions {
  int64_t count = 0;      // conversations wanted; a shorter file is begun again
  int output_tokens = 0;  // instead of what the file says; 0: as the file says
  int turns_max = 1;      // of each conversation
  double think_s = 0;     // before later turns
  uint64_t seed = 0;
};

// [{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}, …]}, …].
// Chosen at random among all that have two turns, of which the first fits what vLLM's benchmark
// takes (4 to 1024 tokens, at most 2048 with its answer). `name` stands in errors.
Result<std::vector<Conversation>> sharegpt_conversations(std::string_view text,
                                                         const std::string& name,
                                                         const RecordedOptions& options,
                                                         const Vocabulary& vocabulary);

// A line: {"prompt": "…", "output_tokens": N}, or {"messages": […]} as a chat's. In the file's
// order. Answers without a length, here or in `options`, are as long as the model likes.
Result<std::vector<Conversation>> custom_conversations(std::string_view text,
                                                       const std::string& name,
                                                       const RecordedOptions& options,
                                                       const Vocabulary& vocabulary);

// What came when. JSON lines as Mooncake publishes them, {"timestamp": MS, "input_length": N,
// "output_length": N, "hash_ids": [id of each 512 tokens, …]}, where equal ids become equal text;
// or BurstGPT's CSV with columns "Timestamp" (seconds), "Request tokens", "Response tokens".
struct TraceOptions {
  int64_t count = 0;  // 0: all
  double speed = 1;   // 2: twice as fast as it was
  uint64_t seed = 0;
  int64_t tokens_max = kDatasetTokensMax;  // of all prompts
};
Result<std::vector<Conversation>> trace_conversations(std::string_view text,
                                                      const std::string& name,
                                                      const TraceOptions& options,
                                                      const Vocabulary& vocabulary);

}  // namespace pelton::workload
