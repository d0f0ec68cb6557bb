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

// The most that a trace may have: requests, and seconds from the first to the last.
inline constexpr int64_t kTraceRequestsMax = 1'000'000;
inline constexpr double kTraceLengthMax_s = 366 * 86'400.0;

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

// A poem's lines, as vLLM's "sonnet": each prompt asks for lines of those that it lists, of which
// the first ones, about `prefix_tokens`, are the same in all. Without a text the lines are random
// words.
struct SonnetLengths {
  int input_tokens = 550;  // about: lines are taken whole
  int output_tokens = 150;
  int prefix_tokens = 200;
};
Result<std::vector<Conversation>> sonnet_conversations(std::string_view text,
                                                       const std::string& name,
                                                       const SonnetLengths& lengths, int64_t count,
                                                       uint64_t seed, const Vocabulary& vocabulary);

// The lengths of BurstGPT's CSV, as vLLM's "burstgpt" takes them: of GPT-4's answered requests,
// chosen at random. When they came is nobody's: that is a trace.
Result<std::vector<Conversation>> burstgpt_conversations(std::string_view text,
                                                         const std::string& name, int64_t count,
                                                         uint64_t seed,
                                                         const Vocabulary& vocabulary);

// Rows of a data set as the hub has them, JSON lines or a JSON array: of each what its user says
// first, in the first of these columns that it has: "messages", "conversations", "turns", "prompt",
// "question", "problem", "instruction" (with "input"), "text". In the file's order.
Result<std::vector<Conversation>> hub_rows_conversations(std::string_view text,
                                                         const std::string& name,
                                                         const RecordedOptions& options,
                                                         const Vocabulary& vocabulary);

// What came when. JSON lines as Mooncake publishes them, {"timestamp": MS, "input_length": N,
// "output_length": N, "hash_ids": [id of each 512 tokens, …]}, where equal ids become equal text
// (of each "block_tokens" where a line says so, as the lines of a gateway's request log do);
// or BurstGPT's CSV with columns "Timestamp" (seconds), "Request tokens", "Response tokens".
// Lines may stand in any order: a request log has them by their ends.
struct TraceOptions {
  int64_t count = 0;  // the first lines; 0: all
  double speed = 1;   // 2: twice as fast as it was
  uint64_t seed = 0;
  int64_t tokens_max = kDatasetTokensMax;  // of all prompts
  int64_t requests_max = kTraceRequestsMax;
};
struct Trace {
  std::vector<Conversation> conversations;  // by their times
  int64_t went_back = 0;                    // came before one that stands above them
  int64_t unanswered = 0;  // by their "outcome", or of no tokens: they are asked all the same
};
// Beyond a bound is an error by its line, and nothing behind it is read. Memory: of each request
// what its Conversation and its prompt take, and 40 bytes and its blocks meanwhile.
Result<Trace> trace_conversations(std::string_view text, const std::string& name,
                                  const TraceOptions& options, const Vocabulary& vocabulary);
// Sentences for whoever runs it; empty: none went back, and all were answered.
std::string trace_note(const std::string& name, const Trace& trace);

}  // namespace pelton::workload
