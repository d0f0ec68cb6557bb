// What /v1/chat/completions and /v1/completions both let a caller ask of a generation, validated.
// Values only: api/ knows neither tokens' texts nor the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/builtin_tools.h"
#include "api/fields.h"
#include "api/output_format.h"
#include "base/token_id.h"

namespace pelton::api {

inline constexpr size_t kRequestIdBytesMax = 128;
// Of a rendered body: a request's with a prefix, and a number behind it.
inline constexpr size_t kRenderedIdBytesMax = kRequestIdBytesMax + 32;

inline constexpr int kTopLogprobsMax = 20;  // OpenAI's bound, and vLLM's default

// What the validator must know of the model, and of who asks.
struct RequestLimits {
  int vocab_size = 0;
  int64_t output_tokens_min = 1;  // the least that may be asked for
  // Where the request says nothing; none: as many as fit, which it may ask for with -1.
  std::optional<int64_t> output_tokens_default = {};
  // Where the endpoint has a name of its own for how many, beside "max_tokens".
  std::string_view output_tokens_key = {};
  // Nothing is generated: a chat's prompt need not end where an answer begins.
  bool prompt_alone = false;
  size_t request_id_bytes_max = kRequestIdBytesMax;
  UnknownFields unknown_fields = UnknownFields::kWarn;
  int top_logprobs_max = kTopLogprobsMax;  // alternatives to a token
  BuiltinTools builtins = {};              // that the server runs
  FieldTable* fields_read = nullptr;       // the body's own, noted there; null: nowhere
};

// Ends an answer that says the same thing again and again.
struct RepetitionRule {
  int pattern_min = 1;  // tokens
  int pattern_max = 0;
  int count = 0;  // so many times in a row
};

// llama.cpp's "dry_*" fields, as request::DryPenalty.
struct DryFields {
  double multiplier = 0.0;  // 0: none
  double base = 1.75;
  int allowed_length = 2;
  int last_n = -1;
  // None: llama.cpp's, a line's end, ":", a quotation mark and "*", as far as texts can be found.
  std::optional<std::vector<std::string>> breakers;
};

struct GenerationFields {
  // Absent: the model's own default (generation_config), which the server knows.
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;  // 0: all
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  int penalty_last_n = -1;  // tokens that the three look at; -1: all
  // The field that spares line ends by the three, which is not done; empty: none does.
  std::string_view spares_line_ends = {};
  DryFields dry;
  double typical_p = 1.0;
  double top_n_sigma = 0.0;  // 0: off
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  double dynatemp_range = 0.0;
  double dynatemp_exponent = 1.0;
  double mirostat_tau = 0.0;  // bits; 0: off
  double mirostat_eta = 0.1;
  std::vector<std::string> bad_words;
  std::vector<TokenId> allowed_tokens;  // empty: all
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<uint64_t> seed;

  int n = 1;  // answers to each prompt
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  bool include_stop = false;  // the stop string itself ends the text
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;

  std::optional<OutputFormat> format;  // what the answer must look like; none: any text

  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // and in each chunk, what it has come to so far
  int priority = 0;               // lower first
  std::string user;               // whom the caller asks for: safety_identifier, or the older user
  std::string cache_salt;         // empty: none

  // Ollama's: how long the model stays in memory behind this request; INT64_MAX: for good.
  std::optional<int64_t> keep_alive_ns;

  std::optional<double> timeout_s;  // from the request's arrival: then nobody wants it any more

  std::string request_id;                  // names the answer; empty: a name is made
  bool timings = false;                    // how long each part took
  bool return_token_ids = false;           // of the prompt and of what was sampled
  bool tokens_as_ids = false;              // logprobs name tokens "token_id:7"
  std::optional<int64_t> thinking_budget;  // tokens of reasoning
  std::optional<int> prompt_logprobs;      // alternatives to each token of the prompt
  std::vector<TokenId> logprob_token_ids;  // reported beside the alternatives
  std::optional<RepetitionRule> repetition;
  // So many tokens of a prompt are kept; -1: as many as the model can read beside the answer. What
  // is cut off stands at its left end, or at the right one.
  std::optional<int64_t> prompt_tokens_max;
  bool cuts_right = false;
};

// Bounds that a caller meets; the error messages name them.
inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 1024;
inline constexpr size_t kStopTokensMax = 64;
inline constexpr size_t kLogitBiasMax = 4096;
inline constexpr size_t kBadWordsMax = 256;
inline constexpr size_t kBadWordBytesMax = 256;
inline constexpr size_t kLogprobTokensMax = 128;
inline constexpr size_t kDryBreakersMax = 64;
inline constexpr size_t kDryBreakerBytesMax = 64;
inline constexpr int kChoicesMax = 128;             // of one request, over all its prompts
inline constexpr size_t kCacheSaltBytesMax = 1024;  // hashed on arrival
inline constexpr int kRepetitionPatternMax = 256;
inline constexpr int kRepetitionCountMax = 1024;

// All below that every endpoint which samples obeys.
GenerationFields read_generation_fields(const Fields& body, const RequestLimits& limits);
// Who asks and how the answer comes: of the same, what has nothing to do with sampling.
void read_caller_fields(const Fields& body, const RequestLimits& limits, GenerationFields& fields);
// What an answer reports of its tokens, where it can. logprob_token_ids needs logprobs: whoever
// reads those asks check_logprob_tokens().
void read_token_reports(const Fields& body, const RequestLimits& limits, GenerationFields& fields);

void check_logprob_tokens(const Fields& body, const GenerationFields& fields, bool has_logprobs);

// A string or several; read_generation_fields reads "stop", other protocols name it otherwise.
void read_stop_strings(const Fields& body, std::string_view key, GenerationFields& fields);

}  // namespace pelton::api
