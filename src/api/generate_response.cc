#include "api/generate_response.h"

#include <algorithm>
#include <type_traits>

#include "api/logprobs.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

// Ids in place of texts, as engines name tokens that need not be words.
std::string token_name(TokenId token) {
  return "token_id:" + std::to_string(token);
}

void write_scored(JsonWriter& writer, TokenId token, float logprob) {
  writer.key("token").string(token_name(token)).key("token_id").integer(token);
  writer.key("logprob").number(static_cast<double>(std::max(logprob, kLogprobMin)));
}

void write_logprobs(JsonWriter& writer, const GeneratedChoice& choice) {
  writer.key("logprobs");
  if (!choice.logprobs) {
    writer.null();
    return;
  }
  writer.begin_object().key("content").begin_array();
  for (const GeneratedToken& token : choice.tokens) {
    writer.begin_object();
    write_scored(writer, token.token, token.logprob);
    writer.key("top_logprobs").begin_array();
    for (const auto& [id, logprob] : token.top) {
      writer.begin_object();
      write_scored(writer, id, logprob);
      writer.end_object();
    }
    writer.end_array().end_object();
  }
  writer.end_array().end_object();
}

void write_choice(JsonWriter& writer, const GeneratedChoice& choice) {
  writer.begin_object().key("index").integer(choice.index);
  writer.key("token_ids").begin_array();
  for (const GeneratedToken& token : choice.tokens) writer.integer(token.token);
  writer.end_array();
  write_logprobs(writer, choice);
  writer.key("finish_reason");
  if (choice.finish_reason.empty()) {
    writer.null();
  } else {
    writer.string(choice.finish_reason);
  }
  writer.end_object();
}

template <typename T>
void write_if(JsonWriter& writer, std::string_view key, const std::optional<T>& value) {
  if (!value) return;
  writer.key(key);
  if constexpr (std::is_floating_point_v<T>) {
    writer.number(*value);
  } else {
    writer.integer(static_cast<int64_t>(*value));
  }
}

void write_texts(JsonWriter& writer, std::string_view key, const std::vector<std::string>& texts) {
  writer.key(key).begin_array();
  for (const std::string& text : texts) writer.string(text);
  writer.end_array();
}

// What is not as it is without it.
void write_cuts(JsonWriter& writer, const GenerationFields& fields) {
  const GenerationFields none;
  const auto number = [&](std::string_view key, double GenerationFields::*field) {
    if (fields.*field != none.*field) writer.key(key).number(fields.*field);
  };
  number("typical_p", &GenerationFields::typical_p);
  number("top_n_sigma", &GenerationFields::top_n_sigma);
  number("xtc_probability", &GenerationFields::xtc_probability);
  number("xtc_threshold", &GenerationFields::xtc_threshold);
  number("dynatemp_range", &GenerationFields::dynatemp_range);
  number("dynatemp_exponent", &GenerationFields::dynatemp_exponent);
  if (fields.mirostat_tau > 0.0) {
    writer.key("mirostat").integer(2);
    writer.key("mirostat_tau").number(fields.mirostat_tau);
    writer.key("mirostat_eta").number(fields.mirostat_eta);
  }
  if (fields.dry.multiplier > 0.0) {
    writer.key("dry_multiplier").number(fields.dry.multiplier);
    writer.key("dry_base").number(fields.dry.base);
    writer.key("dry_allowed_length").integer(fields.dry.allowed_length);
    writer.key("dry_penalty_last_n").integer(fields.dry.last_n);
    if (fields.dry.breakers) write_texts(writer, "dry_sequence_breakers", *fields.dry.breakers);
  }
  if (!fields.bad_words.empty()) write_texts(writer, "bad_words", fields.bad_words);
  if (fields.allowed_tokens.empty()) return;
  writer.key("allowed_token_ids").begin_array();
  for (const TokenId token : fields.allowed_tokens) writer.integer(token);
  writer.end_array();
}

void write_sampling(JsonWriter& writer, const RenderedPrompt& prompt) {
  const GenerationFields& fields = prompt.generation;
  writer.key("sampling_params").begin_object().key("n").integer(fields.n);
  write_if(writer, "temperature", fields.temperature);
  write_if(writer, "top_p", fields.top_p);
  write_if(writer, "top_k", fields.top_k);
  write_if(writer, "min_p", fields.min_p);
  write_if(writer, "repetition_penalty", fields.repetition_penalty);
  writer.key("frequency_penalty").number(fields.frequency_penalty);
  writer.key("presence_penalty").number(fields.presence_penalty);
  if (fields.penalty_last_n >= 0) writer.key("repeat_last_n").integer(fields.penalty_last_n);
  write_cuts(writer, fields);
  write_if(writer, "seed", fields.seed);
  write_if(writer, "max_tokens", fields.max_tokens);
  writer.key("min_tokens").integer(fields.min_tokens);
  writer.key("ignore_eos").boolean(fields.ignore_eos);
  writer.key("stop_token_ids").begin_array();
  for (const TokenId token : fields.stop_token_ids) writer.integer(token);
  writer.end_array();
  if (!fields.logit_bias.empty()) {
    writer.key("logit_bias").begin_object();
    for (const auto& [token, bias] : fields.logit_bias) {
      writer.key(std::to_string(token)).number(static_cast<double>(bias));
    }
    writer.end_object();
  }
  write_if(writer, "thinking_token_budget", fields.thinking_budget);
  write_if(writer, "truncate_prompt_tokens", fields.prompt_tokens_max);
  if (fields.cuts_right) writer.key("truncation_side").string("right");
  if (fields.repetition) {
    writer.key("repetition_detection").begin_object();
    writer.key("max_pattern_size").integer(fields.repetition->pattern_max);
    writer.key("min_pattern_size").integer(fields.repetition->pattern_min);
    writer.key("min_count").integer(fields.repetition->count).end_object();
  }
  if (prompt.logprobs >= 0) writer.key("logprobs").integer(prompt.logprobs);
  if (!fields.logprob_token_ids.empty()) {
    writer.key("logprob_token_ids").begin_array();
    for (const TokenId token : fields.logprob_token_ids) writer.integer(token);
    writer.end_array();
  }
  write_if(writer, "prompt_logprobs", fields.prompt_logprobs);
  writer.end_object();
}

}  // namespace

std::string generate_body(std::string_view id, std::span<const GeneratedChoice> choices,
                          const std::vector<PromptTokenLogprobs>* prompt, const Usage& usage) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("request_id").string(id).key("choices").begin_array();
  for (const GeneratedChoice& choice : choices) write_choice(writer, choice);
  writer.end_array();
  if (prompt != nullptr) {
    writer.key("prompt_logprobs");
    write_prompt_logprobs(writer, *prompt);
  }
  writer.key("usage");
  write_usage(writer, usage);
  writer.end_object();
  return body;
}

void append_generate_chunk(std::string_view id, const GeneratedChoice& choice, std::string& out) {
  JsonWriter writer(out);
  writer.begin_object().key("request_id").string(id).key("choices").begin_array();
  write_choice(writer, choice);
  writer.end_array().end_object();
}

void append_generate_usage(std::string_view id, const Usage& usage, std::string& out) {
  JsonWriter writer(out);
  writer.begin_object().key("request_id").string(id).key("choices").begin_array().end_array();
  writer.key("usage");
  write_usage(writer, usage);
  writer.end_object();
}

void append_rendered(const RenderedPrompt& prompt, std::string& out) {
  const GenerationFields& fields = prompt.generation;
  JsonWriter writer(out);
  writer.begin_object().key("request_id").string(prompt.id).key("model").string(prompt.model);
  writer.key("prompt").string(prompt.text);
  writer.key("count").integer(static_cast<int64_t>(prompt.tokens.size()));
  writer.key("token_ids").begin_array();
  for (const TokenId token : prompt.tokens) writer.integer(token);
  writer.end_array();
  write_sampling(writer, prompt);
  writer.key("stream").boolean(fields.stream);
  if (fields.stream && fields.include_usage) {
    writer.key("stream_options").begin_object().key("include_usage").boolean(true).end_object();
  }
  writer.key("priority").integer(fields.priority);
  if (!fields.cache_salt.empty()) writer.key("cache_salt").string(fields.cache_salt);
  if (fields.timeout_s) writer.key("timeout").number(*fields.timeout_s);
  if (!fields.user.empty()) writer.key("user").string(fields.user);
  writer.end_object();
}

}  // namespace pelton::api
