#include "api/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/duration.h"

namespace pelton::api {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();

// llama.cpp's and Ollama's: how many tokens the penalties look at (0: none, so that there are no
// penalties), and whether a line's end may be penalised, which it is here as any token: where there
// are penalties, the model's own among them, sparing it is refused (server/generation_request).
void read_penalty_window(const Fields& body, GenerationFields& fields) {
  const auto last_n = body.integer("repeat_last_n", {.low = -1, .high = kIntMax});
  fields.penalty_last_n = static_cast<int>(last_n.value_or(-1));
  if (fields.penalty_last_n == 0) {
    fields.repetition_penalty = 1.0;
    fields.frequency_penalty = fields.presence_penalty = 0.0;
  }
  for (const std::string_view key : {"penalize_nl", "penalize_newline"}) {
    if (!body.boolean(key).value_or(true)) fields.spares_line_ends = key;
  }
}

void read_sampling(const Fields& body, GenerationFields& fields) {
  constexpr NumberRange kPenalty{.low = -2.0, .high = 2.0};
  fields.temperature = body.number("temperature", {.low = 0.0, .high = 2.0});
  fields.top_p = body.number("top_p", {.low = 0.0, .high = 1.0, .low_open = true});
  fields.min_p = body.number("min_p", {.low = 0.0, .high = 1.0});
  if (const auto top_k = body.integer("top_k", {.low = -1, .high = kIntMax})) {
    fields.top_k = static_cast<int>(std::max<int64_t>(*top_k, 0));
  }
  // Far above any useful penalty; a bound keeps logits finite.
  constexpr NumberRange kRepetition{.low = 0.0, .high = 100.0, .low_open = true};
  fields.repetition_penalty = body.number("repetition_penalty", kRepetition);
  if (const auto same = body.number("repeat_penalty", kRepetition)) {  // llama.cpp's name
    if (fields.repetition_penalty.value_or(*same) != *same) {
      refuse_two_values(body, "repeat_penalty", "repetition_penalty");
    }
    fields.repetition_penalty = same;
  }
  fields.frequency_penalty = body.number("frequency_penalty", kPenalty).value_or(0.0);
  fields.presence_penalty = body.number("presence_penalty", kPenalty).value_or(0.0);
  read_penalty_window(body, fields);
  if (const auto seed = body.integer("seed", {})) fields.seed = static_cast<uint64_t>(*seed);
}

// Of two names of one number.
std::optional<double> number_by_either(const Fields& body, std::string_view key,
                                       std::string_view other, const NumberRange& range) {
  const auto first = body.number(key, range);
  const auto second = body.number(other, range);
  if (first && second && *first != *second) refuse_two_values(body, other, key);
  return first ? first : second;
}

// What llama.cpp and its like have beyond OpenAI's sampling; numbers at or below 0 switch off.
void read_distribution_cuts(const Fields& body, GenerationFields& fields) {
  constexpr NumberRange kShare{.low = 0.0, .high = 1.0};
  fields.typical_p =
      number_by_either(body, "typical_p", "typ_p", {.low = 0.0, .high = 1.0, .low_open = true})
          .value_or(1.0);
  const auto sigma = body.number("top_n_sigma", {.low = -1.0, .high = 100.0});
  fields.top_n_sigma = std::max(sigma.value_or(0.0), 0.0);
  fields.xtc_probability = body.number("xtc_probability", kShare).value_or(0.0);
  fields.xtc_threshold = body.number("xtc_threshold", kShare).value_or(fields.xtc_threshold);
  fields.dynatemp_range = body.number("dynatemp_range", {.low = 0.0, .high = 5.0}).value_or(0.0);
  fields.dynatemp_exponent =
      body.number("dynatemp_exponent", {.low = 0.0, .high = 10.0, .low_open = true}).value_or(1.0);
}

// llama.cpp's: version 2 of the algorithm, or 0 for none. The first version, which estimates what
// this one reads off the row, is refused.
void read_mirostat(const Fields& body, GenerationFields& fields) {
  constexpr double kTau = 5.0;  // llama.cpp's defaults
  const auto tau = body.number("mirostat_tau", {.low = 0.0, .high = 100.0, .low_open = true});
  const auto eta = body.number("mirostat_eta", {.low = 0.0, .high = 10.0, .low_open = true});
  const auto version = body.integer("mirostat", {.low = 0, .high = 2}).value_or(0);
  if (version == 1) body.refuse("mirostat", "'mirostat' is 0, or 2: version 1 is not supported");
  if (version != 2) return;
  fields.mirostat_tau = tau.value_or(kTau);
  fields.mirostat_eta = eta.value_or(fields.mirostat_eta);
}

// Strings that are not empty, each within `bytes_max`.
std::vector<std::string> read_words(const Fields& body, std::string_view key, size_t words_max,
                                    size_t bytes_max) {
  std::vector<std::string> words;
  const Json* items = body.array(key, words_max);
  if (items == nullptr) return words;
  for (size_t i = 0; i < items->as_array().size() && !body.failed(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = item_path(key, i);
    if (!item.is_string() || item.as_string().empty() || item.as_string().size() > bytes_max) {
      body.refuse(path, fmt::format("'{}' must be a string of 1 to {} bytes", path, bytes_max));
      break;
    }
    words.push_back(item.as_string());
  }
  return words;
}

void read_dry(const Fields& body, GenerationFields& fields) {
  DryFields& dry = fields.dry;
  dry.multiplier = body.number("dry_multiplier", {.low = 0.0, .high = 100.0}).value_or(0.0);
  dry.base = body.number("dry_base", {.low = 1.0, .high = 100.0}).value_or(dry.base);
  const auto allowed = body.integer("dry_allowed_length", {.low = 0, .high = kIntMax});
  dry.allowed_length = static_cast<int>(allowed.value_or(dry.allowed_length));
  const auto last_n = body.integer("dry_penalty_last_n", {.low = -1, .high = kIntMax});
  dry.last_n = static_cast<int>(last_n.value_or(dry.last_n));
  if (body.find("dry_sequence_breakers") != nullptr) {
    dry.breakers = read_words(body, "dry_sequence_breakers", kDryBreakersMax, kDryBreakerBytesMax);
  }
  if (dry.last_n == 0) dry.multiplier = 0.0;  // nothing is looked at
}

// llama.cpp's samplers by the order in which they are applied here, which is not to be chosen
// (request::SamplingParams); each may be left out.
struct NamedSampler {
  std::string_view name;
  void (*leave_out)(GenerationFields& fields);
};
constexpr NamedSampler kSamplers[] = {
    {"penalties",
     [](GenerationFields& fields) {
       fields.repetition_penalty = 1.0;
       fields.frequency_penalty = fields.presence_penalty = 0.0;
     }},
    {"dry", [](GenerationFields& fields) { fields.dry.multiplier = 0.0; }},
    {"top_n_sigma", [](GenerationFields& fields) { fields.top_n_sigma = 0.0; }},
    {"temperature",
     [](GenerationFields& fields) {
       fields.temperature = 1.0;
       fields.dynatemp_range = 0.0;
     }},
    {"top_k", [](GenerationFields& fields) { fields.top_k = 0; }},
    {"typ_p", [](GenerationFields& fields) { fields.typical_p = 1.0; }},
    {"top_p", [](GenerationFields& fields) { fields.top_p = 1.0; }},
    {"min_p", [](GenerationFields& fields) { fields.min_p = 0.0; }},
    {"xtc", [](GenerationFields& fields) { fields.xtc_probability = 0.0; }}};

// Of ["temperature", "top_p"]: no penalties, no top_k, no min_p, whatever the request or the model
// says of them. An empty list asks for nothing.
void read_samplers(const Fields& body, GenerationFields& fields) {
  const Json* given = body.array("samplers", std::size(kSamplers));
  if (given == nullptr || given->as_array().empty()) return;
  size_t next = 0;  // of kSamplers
  for (const Json& item : given->as_array()) {
    const auto* const found = std::ranges::find_if(kSamplers, [&](const NamedSampler& sampler) {
      return item.is_string() && item.as_string() == sampler.name;
    });
    const auto index = static_cast<size_t>(found - std::begin(kSamplers));
    if (index < next || index == std::size(kSamplers)) {
      std::string names;
      for (const NamedSampler& one : kSamplers) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
      }
      return body.refuse("samplers", fmt::format("'samplers' are applied in this order here, and "
                                                 "may be left out: {}",
                                                 names));
    }
    for (; next < index; ++next) kSamplers[next].leave_out(fields);
    ++next;
  }
  for (; next < std::size(kSamplers); ++next) kSamplers[next].leave_out(fields);
}

std::optional<TokenId> token_id(std::string_view text, int vocab_size) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (id < 0 || id >= vocab_size) return std::nullopt;
  return id;
}

constexpr double kBanned = -100.0;

// llama.cpp's list: [[5, -1.5], [6, false]] is {"5": -1.5, "6": -100}.
std::optional<Json> bias_of_pairs(const Fields& body, const Json::Array& pairs) {
  Json::Object members;
  std::set<int64_t> ids;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const bool is_pair = pairs[i].is_array() && pairs[i].as_array().size() == 2;
    const auto id = is_pair ? exact_integer(pairs[i].as_array().front()) : std::nullopt;
    if (!id || !ids.insert(*id).second) {
      const std::string item = item_path("logit_bias", i);
      body.refuse(item, fmt::format("'{}' must be a token id that no other one has, and its bias "
                                    "or false, as in [5, -1.5]",
                                    item));
      return std::nullopt;
    }
    const Json& bias = pairs[i].as_array().back();
    members.push_back({std::to_string(*id), bias == Json(false) ? Json(kBanned) : bias});
  }
  return Json(std::move(members));
}

void read_logit_bias(const Fields& body, const RequestLimits& limits, GenerationFields& fields) {
  const Json* given = body.find("logit_bias");
  std::optional<Json> pairs;
  if (given != nullptr && given->is_array()) {
    pairs = bias_of_pairs(body, given->as_array());
    if (!pairs) return;
  }
  const Json* bias = pairs ? &*pairs : body.object("logit_bias");
  if (bias == nullptr || bias->as_object().empty()) return;
  const Json::Object& members = bias->as_object();
  if (members.size() > kLogitBiasMax) {
    body.refuse("logit_bias", fmt::format("'logit_bias' has {} keys; at most {} are allowed",
                                          members.size(), kLogitBiasMax));
    return;
  }
  int banned = 0;
  for (const Json::Member& member : members) {
    const std::optional<TokenId> id = token_id(member.key, limits.vocab_size);
    if (!id) {
      body.refuse("logit_bias",
                  fmt::format("'logit_bias' has the key '{}'; keys are token ids from 0 to {}",
                              member.key.substr(0, 40), limits.vocab_size - 1));
      return;
    }
    if (!member.value.is_number() || !(std::abs(member.value.as_number()) <= 100.0)) {
      body.refuse(fmt::format("logit_bias.{}", member.key),
                  fmt::format("'logit_bias.{}' must be a number from -100 to 100", member.key));
      return;
    }
    fields.logit_bias.emplace_back(*id, static_cast<float>(member.value.as_number()));
    if (member.value.as_number() <= kBanned) ++banned;
  }
  // The same bias for all would leave the model's choice as it was.
  if (banned == limits.vocab_size) {
    body.refuse("logit_bias", fmt::format("'logit_bias' bans all {} tokens", banned));
  }
}

std::vector<TokenId> read_tokens(const Fields& body, std::string_view key, size_t count_max,
                                 const RequestLimits& limits) {
  std::vector<TokenId> tokens;
  const Json* ids = body.array(key, count_max);
  if (ids == nullptr) return tokens;
  for (size_t i = 0; i < ids->as_array().size(); ++i) {
    const std::optional<int64_t> id = exact_integer(ids->as_array()[i]);
    if (!id || *id < 0 || *id >= limits.vocab_size) {
      const std::string path = item_path(key, i);
      body.refuse(path,
                  fmt::format("'{}' must be a token id from 0 to {}", path, limits.vocab_size - 1));
      break;
    }
    tokens.push_back(static_cast<TokenId>(*id));
  }
  return tokens;
}

// An empty list of allowed tokens allows none, which nobody can mean.
void read_allowed_tokens(const Fields& body, const RequestLimits& limits,
                         GenerationFields& fields) {
  if (body.find("allowed_token_ids") == nullptr) return;
  const auto count_max = static_cast<size_t>(std::max(limits.vocab_size, 1));
  fields.allowed_tokens = read_tokens(body, "allowed_token_ids", count_max, limits);
  if (fields.allowed_tokens.empty()) {
    body.refuse("allowed_token_ids", "'allowed_token_ids' must have at least one token");
  }
}

// OpenAI's name, its newer one, which wins as clients send both, llama.cpp's and Ollama's. The
// endpoint's own comes behind them. -1 is llama.cpp's and LM Studio's for as many as fit.
std::optional<int64_t> read_tokens_max(const Fields& body, const RequestLimits& limits,
                                       int64_t min_tokens) {
  constexpr std::string_view kNewerKey = "max_completion_tokens";
  std::optional<int64_t> wanted;
  std::string_view wanted_key;
  bool is_given = false;
  for (const std::string_view key :
       {std::string_view("max_tokens"), kNewerKey, std::string_view("n_predict"),
        std::string_view("num_predict"), limits.output_tokens_key}) {
    const Json* given = key.empty() ? nullptr : body.find(key);
    if (given == nullptr) continue;
    is_given = true;
    if (key != limits.output_tokens_key && exact_integer(*given) == -1) continue;
    const auto count = body.integer(key, {.low = limits.output_tokens_min, .high = kIntMax});
    if (!count) continue;
    if (key != kNewerKey && wanted.value_or(*count) != *count) {
      refuse_two_values(body, key, wanted_key);
    }
    wanted = count;
    wanted_key = key;
  }
  if (is_given || !limits.output_tokens_default) return wanted;
  return std::max(*limits.output_tokens_default, min_tokens);
}

void read_lengths(const Fields& body, const RequestLimits& limits, GenerationFields& fields) {
  if (const auto n = body.integer("n", {.low = 1, .high = kChoicesMax})) {
    fields.n = static_cast<int>(*n);
  }
  fields.min_tokens = body.integer("min_tokens", {.low = 0, .high = kIntMax}).value_or(0);
  fields.max_tokens = read_tokens_max(body, limits, fields.min_tokens);
  if (fields.max_tokens && fields.min_tokens > *fields.max_tokens) {
    body.refuse("min_tokens", fmt::format("'min_tokens' is {}, above the maximum of {} tokens",
                                          fields.min_tokens, *fields.max_tokens));
  }
  fields.ignore_eos = body.boolean("ignore_eos").value_or(false);
}

void read_stream(const Fields& body, GenerationFields& fields) {
  fields.stream = body.boolean("stream").value_or(false);
  const Json* options = body.object("stream_options");
  if (options == nullptr) return;
  if (!fields.stream) {
    body.refuse("stream_options", "'stream_options' is only allowed with 'stream': true");
    return;
  }
  const Fields stream_options(*options, "stream_options", body.complaint());
  fields.include_usage = stream_options.boolean("include_usage").value_or(false);
  fields.continuous_usage =
      fields.include_usage && stream_options.boolean("continuous_usage_stats").value_or(false);
}

// Who asks, and whose computed prefixes may be found.
void read_origin(const Fields& body, GenerationFields& fields) {
  constexpr size_t kTagBytesMax = 1024;
  constexpr size_t kSafetyIdentifierBytesMax = 64;  // OpenAI's own bound
  if (const std::string* user = body.text("user", kTagBytesMax)) fields.user = *user;
  if (const std::string* who = body.text("safety_identifier", kSafetyIdentifierBytesMax)) {
    fields.user = *who;
  }
  if (const std::string* salt = body.text("cache_salt", kCacheSaltBytesMax)) {
    if (salt->empty()) body.refuse("cache_salt", "'cache_salt' must not be empty");
    fields.cache_salt = *salt;
  }
  fields.timeout_s = read_timeout(body);
  fields.priority =
      static_cast<int>(body.integer("priority", {.low = -1000, .high = 1000}).value_or(0));
}

// Ollama's: seconds, or a span as Go writes it; one below zero is for ever.
void read_keep_alive(const Fields& body, GenerationFields& fields) {
  constexpr std::string_view kKey = "keep_alive";
  constexpr double kSecondsMax = 9e9;
  const Json* given = body.find(kKey);
  if (given == nullptr) return;
  if (given->is_string()) {
    fields.keep_alive_ns = base::parse_duration_ns(given->as_string());
  } else if (given->is_number() && std::abs(given->as_number()) <= kSecondsMax) {
    fields.keep_alive_ns = std::llround(given->as_number() * 1e9);
  }
  if (!fields.keep_alive_ns) {
    body.refuse(kKey,
                "'keep_alive' must be a number of seconds or a span as \"5m\", \"1h30m\" or "
                "\"-1m\"");
  } else if (*fields.keep_alive_ns < 0) {
    fields.keep_alive_ns = INT64_MAX;
  }
}

// It comes back as a part of the answer's id.
void read_request_id(const Fields& body, const RequestLimits& limits, GenerationFields& fields) {
  const std::string* id = body.text("request_id", limits.request_id_bytes_max);
  if (id == nullptr) return;
  const bool plain = !id->empty() && std::all_of(id->begin(), id->end(),
                                                 [](char c) { return c > 0x20 && c < 0x7F; });
  if (!plain) {
    body.refuse("request_id", "'request_id' must be visible ASCII characters without blanks");
    return;
  }
  fields.request_id = *id;
}

// {"max_pattern_size": 8, "min_pattern_size": 1, "min_count": 4}
void read_repetition(const Fields& body, GenerationFields& fields) {
  const Json* given = body.object("repetition_detection");
  if (given == nullptr) return;
  const Fields rule(*given, body.path("repetition_detection"), body.complaint());
  const auto most = rule.integer("max_pattern_size", {.low = 0, .high = kRepetitionPatternMax});
  const int64_t pattern_max = most.value_or(0);
  if (pattern_max == 0) return;  // switched off
  const auto least = rule.integer("min_pattern_size", {.low = 0, .high = pattern_max});
  const auto count = rule.integer("min_count", {.low = 2, .high = kRepetitionCountMax});
  if (!count) {
    rule.refuse("min_count", fmt::format("'{}' is missing", rule.path("min_count")));
    return;
  }
  fields.repetition = {.pattern_min = static_cast<int>(std::max<int64_t>(least.value_or(1), 1)),
                       .pattern_max = static_cast<int>(pattern_max),
                       .count = static_cast<int>(*count)};
}

void read_timings(const Fields& body, GenerationFields& fields) {
  const bool each_chunk = body.boolean("timings_per_token").value_or(false);  // llama.cpp's name
  fields.timings = body.boolean("timings").value_or(false) || each_chunk;
}

void check_metadata(const Fields& body) {
  const Json* metadata = body.object("metadata");
  if (metadata == nullptr) return;
  constexpr size_t kPairsMax = 16;
  constexpr size_t kKeyMax = 64;
  constexpr size_t kValueMax = 512;
  if (metadata->as_object().size() > kPairsMax) {
    body.refuse("metadata", fmt::format("'metadata' has {} pairs; at most {} are allowed",
                                        metadata->as_object().size(), kPairsMax));
    return;
  }
  for (const Json::Member& pair : metadata->as_object()) {
    const bool fits = pair.value.is_string() && pair.value.as_string().size() <= kValueMax;
    const bool good = pair.key.size() <= kKeyMax && (pair.value.is_null() || fits);
    if (good) continue;
    body.refuse("metadata",
                fmt::format("'metadata' must map keys of at most {} bytes to strings of "
                            "at most {} bytes",
                            kKeyMax, kValueMax));
  }
}

// Refused even where it is empty. All else that is not obeyed is for check_unread_fields.
void refuse_even_empty(const Fields& body) {
  if (body.find("chat_template") != nullptr) body.refuse_unsupported("chat_template", "this field");
}

void read_truncation(const Fields& body, GenerationFields& fields) {
  static constexpr std::string_view kSides[] = {"left", "right"};
  check_word(body, "truncation_side", kSides);
  if (const std::string* side = body.text("truncation_side", 64)) {
    fields.cuts_right = *side == "right";
  }
  fields.prompt_tokens_max = body.integer("truncate_prompt_tokens", {.low = -1, .high = kIntMax});
  if (fields.prompt_tokens_max == 0) {
    body.refuse("truncate_prompt_tokens", "'truncate_prompt_tokens' must be at least 1, or -1");
  }
}

}  // namespace

void read_stop_strings(const Fields& body, std::string_view key, GenerationFields& fields) {
  const Json* stop = body.find(key);
  if (stop == nullptr) return;
  const auto add = [&](const Json& item, const std::string& path) {
    if (!item.is_string()) {
      body.refuse(path, fmt::format("'{}' must be a string, not {}", path, item.kind_name()));
    } else if (item.as_string().empty()) {
      body.refuse(path, fmt::format("'{}' must not be empty", path));
    } else if (item.as_string().size() > kStopStringBytesMax) {
      body.refuse(path, fmt::format("'{}' is {} bytes long; at most {} are allowed", path,
                                    item.as_string().size(), kStopStringBytesMax));
    } else {
      fields.stop.push_back(item.as_string());
    }
  };
  if (stop->is_array()) {
    const Json* items = body.array(key, kStopStringsMax);
    if (items == nullptr) return;
    for (size_t i = 0; i < items->as_array().size() && !body.failed(); ++i) {
      add(items->as_array()[i], item_path(key, i));
    }
  } else {
    add(*stop, std::string(key));
  }
}

void read_caller_fields(const Fields& body, const RequestLimits& limits, GenerationFields& fields) {
  read_stream(body, fields);
  read_origin(body, fields);
  read_request_id(body, limits, fields);
  read_keep_alive(body, fields);
  check_metadata(body);
}

void read_token_reports(const Fields& body, const RequestLimits& limits, GenerationFields& fields) {
  fields.return_token_ids = body.boolean("return_token_ids").value_or(false);
  fields.tokens_as_ids = body.boolean("return_tokens_as_token_ids").value_or(false);
  if (const auto top =
          body.integer("prompt_logprobs", {.low = 0, .high = limits.top_logprobs_max})) {
    fields.prompt_logprobs = static_cast<int>(*top);
  }
  fields.logprob_token_ids = read_tokens(body, "logprob_token_ids", kLogprobTokensMax, limits);
  std::vector<TokenId>& ids = fields.logprob_token_ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids.erase(std::remove(ids.begin() + std::ptrdiff_t(i) + 1, ids.end(), ids[i]), ids.end());
  }
}

void check_logprob_tokens(const Fields& body, const GenerationFields& fields, bool has_logprobs) {
  if (fields.logprob_token_ids.empty() || has_logprobs) return;
  body.refuse("logprob_token_ids",
              "'logprob_token_ids' says which tokens' log-probabilities stand beside others; "
              "ask for these with 'logprobs'");
}

GenerationFields read_generation_fields(const Fields& body, const RequestLimits& limits) {
  GenerationFields fields;
  read_sampling(body, fields);
  read_distribution_cuts(body, fields);
  read_mirostat(body, fields);
  read_dry(body, fields);
  read_samplers(body, fields);
  fields.bad_words = read_words(body, "bad_words", kBadWordsMax, kBadWordBytesMax);
  read_allowed_tokens(body, limits, fields);
  read_logit_bias(body, limits, fields);
  read_stop_strings(body, "stop", fields);
  fields.stop_token_ids = read_tokens(body, "stop_token_ids", kStopTokensMax, limits);
  fields.include_stop = body.boolean("include_stop_str_in_output").value_or(false);
  read_lengths(body, limits, fields);
  fields.thinking_budget = body.integer("thinking_token_budget", {.low = 0, .high = kIntMax});
  read_caller_fields(body, limits, fields);
  read_repetition(body, fields);
  read_truncation(body, fields);
  read_timings(body, fields);
  refuse_even_empty(body);
  fields.format = read_output_format(body);
  if (fields.format && fields.ignore_eos) {
    body.refuse("ignore_eos", fmt::format("'ignore_eos' contradicts '{}', which says where the "
                                          "answer ends",
                                          fields.format->field));
  }
  return fields;
}

}  // namespace pelton::api
