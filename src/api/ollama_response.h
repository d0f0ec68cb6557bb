// What Ollama's clients read: a JSON object on each line of a stream, the last of which says that
// it is done; of a whole answer that one alone. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_extras.h"
#include "api/logprobs.h"

namespace pelton::api {

struct OllamaHead {
  std::string model;
  bool is_chat = false;  // "message" of /api/chat; else /api/generate's "response"
};
struct OllamaCall {
  std::string name;
  std::string arguments;  // JSON as it was sampled
};
struct OllamaPiece {
  std::string_view content;
  std::string_view thinking;
  std::span<const OllamaCall> calls;
  std::span<const TokenLogprobs> logprobs = {};  // of the content's tokens; none: not asked for
};
struct OllamaEnd {
  std::string_view reason;  // "stop", "length", "load", "unload"
  int64_t total_ns = 0;     // from the request's arrival
  Timings timings;
};

// `end`: null in all lines but the last.
void append_ollama_object(const OllamaHead& head, int64_t created_ms, const OllamaPiece& piece,
                          const OllamaEnd* end, std::string& out);

// {"embeddings": …}
std::string ollama_embedding_body(std::string_view model,
                                  std::span<const std::vector<float>> vectors,
                                  int64_t prompt_tokens, int64_t total_ns);

// What /api/tags, /api/ps and /api/show say of a model.
struct OllamaModel {
  std::string name;
  std::string parent = {};  // of an adapter: its model
  int64_t modified_s = 0;
  std::string digest;  // ollama_digest()
  std::string quantization;
  int64_t context_max = 0;
  int64_t vocab_size = 0;
  bool can_chat = false;
  bool can_embed = false;
  std::string license;
};
// Of the name alone: an identity that every replica, a gateway before them and a model that sleeps
// have alike, and no file's hash.
std::string ollama_digest(std::string_view name);
std::string ollama_tags_body(std::span<const OllamaModel> models);
// `ends_ms`: of each, until when it stays in memory; INT64_MAX: for good.
std::string ollama_ps_body(std::span<const OllamaModel> models, std::span<const int64_t> ends_ms);
std::string ollama_show_body(const OllamaModel& model);

}  // namespace pelton::api
