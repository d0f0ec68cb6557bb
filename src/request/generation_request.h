// What one request asks of the engine, in tokens. A value: the server fills it, the engine owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "grammar/grammar_state.h"

namespace pelton::request {

// Applied in this order to a row of logits: repetition, frequency and presence penalties,
// logit_bias, temperature, top_k, top_p, min_p. Noise is a pure function of (seed, position in the
// sequence).
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy, the lowest id among equals
  int top_k = 0;             // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // over prompt and output, as in CTRL (Keskar et al. 2019)
  float frequency_penalty = 0.0f;   // over the output
  float presence_penalty = 0.0f;    // over the output
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;  // always set by the server; random there if the caller gave none
  // How many alternatives to report with each token; -1: no logprobs at all, 0: the sampled one's.
  int logprobs = -1;
  // The same for each token of the prompt but the first, which nothing foretells.
  int prompt_logprobs = -1;

  bool has_penalties() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
};

// Ends what repeats itself: a pattern of that many tokens, so often in a row.
struct RepetitionRule {
  int pattern_min = 1;
  int pattern_max = 0;  // 0: nothing is looked for
  int count = 2;
};

// Some segments of the output may have so many tokens together and no more: then the sequence is
// made to say something else, one token a step.
struct ThinkingBudget {
  int64_t tokens_max = 0;
  std::vector<TokenId> begins;        // a segment begins behind these, one after the other
  std::vector<TokenId> ends;          // it ends before any one of these
  std::vector<TokenId> then;          // said when they are spent
  std::vector<TokenId> then_at_once;  // said when a segment begins and nothing is left
};

struct StopRule {
  int max_new_tokens = 16;           // at least 1
  int min_new_tokens = 0;            // no stop token ends the sequence before
  std::vector<TokenId> stop_tokens;  // ends after sampling one of these; it is delivered, and last
  RepetitionRule repetition;
};

// What becomes of a prompt's final hidden states where one vector is asked for: that of the last
// token, or the mean over all of them.
enum class Pooling : uint8_t { kLast, kMean };

// An answer that began elsewhere: the output that it had. For penalties, stop rules, the thinking
// budget, the grammar and max_new_tokens it counts as sampled here; it is not emitted again.
struct ResumedAnswer {
  int index = 0;  // its seed is the request's plus this
  std::vector<TokenId> tokens;
};

struct GenerationRequest {
  std::string id;               // for logs
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  StopRule stop;
  std::optional<ThinkingBudget> quota;
  int priority = 0;                    // lower first, -1000 to 1000
  std::string tenant;                  // whose account pays; see admission/fair_queue.h
  double weight = 1.0;                 // the tenant's, above 0
  std::optional<int64_t> deadline_ns;  // on the engine's clock
  // When it must have begun; later it is not begun at all (kOverloaded).
  std::optional<int64_t> start_by_ns;

  // Only requests of equal salt reuse each other's computed prefixes: whoever does not know the
  // salt cannot learn by timing what others have asked.
  std::string cache_salt;
  // Set: nothing is sampled and `stop` means nothing; the answer is the prompt's embedding.
  std::optional<Pooling> pooling;
  // What the answer must look like, from its first token on; each of several answers has a copy.
  std::optional<grammar::GrammarState> guide;
  // What the caller expects the answer to be, or to have parts of: guesses, if any are computed.
  std::vector<TokenId> prediction;
  // Keeps what was computed for the prompt for good, whole blocks of it, as far as room allows.
  bool pin_prefix = false;
  // One for each answer that is asked for; empty: all of them begin with their first token.
  std::vector<ResumedAnswer> resumed;
};

}  // namespace pelton::request
