// Answers of /v1/completions: the whole object, and the chunks of a stream. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_extras.h"
#include "api/logprobs.h"
#include "api/usage.h"

namespace pelton::api {

struct CompletionAnswerHead {
  std::string id;  // "cmpl-…"
  int64_t created = 0;
  std::string model;
};

struct CompletionChoice {
  int index = 0;
  std::string text;
  std::optional<std::vector<TokenLogprobs>> logprobs;
  std::string_view finish_reason;  // empty: not finished
  StopReason stop_reason;
  std::optional<std::vector<TokenId>> token_ids;           // sampled
  const std::vector<TokenId>* prompt_token_ids = nullptr;  // null: not reported
  const std::vector<PromptTokenLogprobs>* prompt_logprobs = nullptr;
};

std::string completion_answer_body(const CompletionAnswerHead& head,
                                   const std::vector<CompletionChoice>& choices, const Usage& usage,
                                   const Timings* timings);

class CompletionChunks {
 public:
  CompletionChunks(const CompletionAnswerHead& head, bool usage_follows);

  // Each appends one JSON object to `out`.
  void choice(const CompletionChoice& choice, std::string& out) const;
  // The last one: either may be null.
  void last(const Usage* usage, const Timings* timings, std::string& out) const;

  // The chunks from now on have this usage, as far as it has come.
  void add_usage(const Usage& usage);

 private:
  const std::string head_;
  std::string tail_;
};

}  // namespace pelton::api
