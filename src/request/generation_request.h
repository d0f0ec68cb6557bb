// What one request asks of the engine, in tokens. A value: the server fills it, the engine owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "grammar/grammar_state.h"
#include "request/adapter.h"
#include "request/prefix_peer.h"

namespace pelton::request {

// The DRY penalty on repeating what was said ("don't repeat yourself", p-e-w 2024);
// sampling/repetition_edits.h has its definition.
struct DryPenalty {
  float multiplier = 0.0f;  // 0: none
  float base = 1.75f;       // at least 1
  int allowed_length = 2;   // tokens that may be repeated for nothing
  int last_n = -1;          // tokens that are looked at; -1: prompt and output
  // Tokens that no match reaches over: bit t % 64 of word t / 64. Null: there are none.
  std::shared_ptr<const std::vector<uint64_t>> breakers;
};

// Mirostat 2 (Basu, Ramachandran, Keskar, Varshney 2021), which steers the surprise of what is
// said: tokens of more than `bound` bits are cut, and behind each token the bound moves by `rate`
// of what its surprise lacked to `target`. It begins at twice that.
struct Mirostat {
  float target = 0.0f;  // bits ("tau"); 0: none
  float rate = 0.1f;    // "eta"

  float first_bound() const { return 2.0f * target; }
  // `surprise`: of the token that was drawn, in bits, among those that were left; negative: it was
  // not drawn.
  float next_bound(float bound, float surprise) const {
    return surprise < 0.0f ? bound : bound - rate * (surprise - target);
  }
};

// Applied in this order to a row of logits: repetition, frequency and presence penalties, DRY,
// logit_bias, bad words and allowed tokens, top_n_sigma, temperature, top_k, typical_p, top_p,
// min_p, XTC; mirostat takes the place of the cuts behind the temperature. Noise is a pure function
// of (seed, position in the sequence). At temperature 0 the likeliest token is taken, whatever cuts
// there are.
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy, the lowest id among equals
  int top_k = 0;             // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // over prompt and output, as in CTRL (Keskar et al. 2019)
  float frequency_penalty = 0.0f;   // over the output
  float presence_penalty = 0.0f;    // over the output
  int penalty_last_n = -1;          // of these, the last tokens that count; -1: all
  DryPenalty dry;
  float typical_p = 1.0f;        // locally typical sampling; 1: all
  float top_n_sigma = 0.0f;      // standard deviations below the highest logit; 0: all
  float xtc_probability = 0.0f;  // of excluding the top choices
  float xtc_threshold = 0.1f;    // the share from which a token is one of them
  float dynatemp_range = 0.0f;   // around the temperature; 0: it is constant
  float dynatemp_exponent = 1.0f;
  Mirostat mirostat;
  // Never said: each as its tokens, of which the last one is made as unlikely as can be where the
  // others have just come. One is said all the same where nothing else may be.
  std::vector<std::vector<TokenId>> bad_words;
  std::vector<TokenId> allowed_tokens;  // all others are as unlikely as can be; empty: all may come
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;  // always set by the server; random there if the caller gave none
  // How many alternatives to report with each token; -1: no logprobs at all, 0: the sampled one's.
  int logprobs = -1;
  // Reported with each token where logprobs are, behind the likeliest, if not among these.
  std::vector<TokenId> logprob_tokens;
  // The same for each token of the prompt but the first, which nothing foretells.
  int prompt_logprobs = -1;

  bool has_penalties() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
  // Whether a draw depends on which tokens came before.
  bool reads_history() const {
    return has_penalties() || dry.multiplier > 0.0f || !bad_words.empty();
  }
  // Whether a cut looks at the whole distribution (sampling/distribution_cuts.h).
  bool has_distribution_cuts() const {
    return typical_p < 1.0f || top_n_sigma > 0.0f || xtc_probability > 0.0f ||
           dynatemp_range > 0.0f || mirostat.target > 0.0f;
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
  bool begun = false;                 // the prompt ends within a segment: the output is its tokens
};

struct StopRule {
  int max_new_tokens = 16;           // at least 1
  int min_new_tokens = 0;            // no stop token ends the sequence before
  std::vector<TokenId> stop_tokens;  // ends after sampling one of these; it is delivered, and last
  RepetitionRule repetition;
};

// What becomes of a prompt's final hidden states where one vector is asked for.
enum class Pooling : uint8_t {
  kLast,     // that of the last token
  kMean,     // the mean over all of them
  kFirst,    // that of the first token (BERT's [CLS])
  kAll,      // each token's, one after the other
  kLabels,   // the logits of the model's labels: its classification head's
  kTokens,   // the logits of `label_tokens` behind the last token
  kWeights,  // each token's weight in a lexical search: the sparse head's (bge-m3)
};

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
  AdapterRef adapter;  // what it is computed with beside the model; likewise
  // Set: nothing is sampled and `stop` means nothing; the answer is the prompt's embedding.
  std::optional<Pooling> pooling;
  std::vector<TokenId> label_tokens;  // of Pooling::kTokens
  // Of an encoder's pair of texts: where in the prompt the second one begins; 0: there is one.
  int second_text = 0;
  // What the answer must look like, from its first token on; each of several answers has a copy.
  std::optional<grammar::GrammarState> guide;
  // What the caller expects the answer to be, or to have parts of: guesses, if any are computed.
  std::vector<TokenId> prediction;
  // Keeps what was computed for the prompt for good, whole blocks of it, as far as room allows.
  bool pin_prefix = false;
  int pin_room_tokens = 0;  // that a request must still find room for then; 0: it need not
  // What was found of its prompt is said with its first token.
  bool tells_found = false;
  // Its prompt was counted here, when it was asked for a token of it ahead of its time.
  bool was_counted = false;
  // Where its prompt's beginning may be fetched instead of computed.
  std::optional<PrefixPeer> peer;
  // One for each answer that is asked for; empty: all of them begin with their first token.
  std::vector<ResumedAnswer> resumed;
};

}  // namespace pelton::request
