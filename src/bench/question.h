// The bodies of requests: what each backend wants to hear. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/answer_reader.h"
#include "bench/target.h"
#include "workload/conversation.h"

namespace pelton::bench {

// How much of the token counts the server reports while it streams; the probe finds it out.
enum class Counts {
  kEachPiece,  // stream_options.continuous_usage_stats
  kAtEnd,      // stream_options.include_usage
  kNever,      // it refuses both
};

struct QuestionOptions {
  Counts counts = Counts::kEachPiece;
  bool ignore_eos = false;             // "ignore_eos", as vLLM and we know it
  std::vector<Json::Member> sampling;  // temperature, top_p, …: as they go into the body
  int rerank_documents = 0;            // in each request that asks for them in order
  Json extra = Json(Json::Object{});   // --extra-body: replaces what else would stand there
};

// One side's words in a conversation so far.
struct Said {
  bool by_user = true;
  std::string text;
};

// The body that asks `turn` after all of `before`.
std::string question_body(const Target& target, const QuestionOptions& options,
                          const workload::Conversation& conversation,
                          const std::vector<Said>& before, const workload::Turn& turn,
                          const std::string& model);

// The most tokens that an answer to it may have, all of its choices together: by the turn's length,
// or what `options.extra` says instead (max_tokens and its other names, n, best_of, several
// prompts). 0: as many as the model likes.
int64_t asked_tokens(const Target& target, const QuestionOptions& options,
                     const workload::Turn& turn);

// What its answer may be: with asked_tokens, and of documents in order how many and which
// (`options.extra` may say other "documents", and "top_n").
AnswerLimits answer_limits(const Target& target, const QuestionOptions& options,
                           const workload::Turn& turn);

}  // namespace pelton::bench
