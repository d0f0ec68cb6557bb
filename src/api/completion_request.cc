#include "api/completion_request.h"

#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "api/token_ids.h"

namespace pelton::api {
namespace {

void add_prompt(const Json& item, const std::string& path, const Fields& body,
                const RequestLimits& limits, std::vector<Prompt>& prompts) {
  const bool empty = (item.is_string() && item.as_string().empty()) ||
                     (item.is_array() && item.as_array().empty());
  if (empty) {
    body.refuse(path, fmt::format("'{}' must not be empty", path));
  } else if (item.is_string()) {
    prompts.emplace_back(item.as_string());
  } else if (item.is_array()) {
    auto tokens = read_token_ids(item.as_array(), path, body, limits);
    if (tokens) prompts.emplace_back(std::move(*tokens));
  } else {
    body.refuse(path, fmt::format("'{}' must be a string or an array of token ids, not {}", path,
                                  item.kind_name()));
  }
}

// A number; what chats call none is none here, too.
void read_logprobs(const Fields& body, const RequestLimits& limits, CompletionRequest& request) {
  const Json* const given = body.find("logprobs");
  if (given != nullptr && given->is_bool() && !given->as_bool()) return;
  if (const auto count = body.integer("logprobs", {.low = 0, .high = limits.top_logprobs_max})) {
    request.logprobs = static_cast<int>(*count);
  }
}

// The text between a prompt and a suffix: whatever shows or cuts a prompt as it stands does not go
// with it.
void read_suffix(const Fields& body, CompletionRequest& request) {
  const std::string* suffix = body.text("suffix", kSuffixBytesMax);
  if (suffix == nullptr || suffix->empty()) return;
  request.suffix = *suffix;
  if (request.echo) body.refuse("suffix", "'suffix' and 'echo' exclude each other");
  if (request.generation.prompt_tokens_max) {
    body.refuse("truncate_prompt_tokens",
                "'truncate_prompt_tokens' and 'suffix' exclude each other");
  }
}

// So many answers to each prompt are made, and of these "n" are shown.
void read_best_of(const Fields& body, CompletionRequest& request) {
  GenerationFields& generation = request.generation;
  request.choices_shown = generation.n;
  const auto best_of = body.integer("best_of", {.low = 0, .high = kBestOfMax});
  if (!best_of || *best_of == 0 || *best_of == generation.n) return;
  if (*best_of < generation.n) {
    body.refuse("best_of", fmt::format("'best_of' is {}; it must be at least 'n', which is {}",
                                       *best_of, generation.n));
  } else if (generation.stream) {
    body.refuse("best_of", "'best_of' above 'n' cannot be streamed: the best is known at the end");
  }
  generation.n = static_cast<int>(*best_of);
}

// What would change a drawn token, and what cannot be held to while beams are compared: named, not
// dropped. A temperature of 0 or 1 and a seed may stand there: nothing is drawn.
void refuse_beside_beams(const Fields& body, const CompletionRequest& request) {
  const GenerationFields& asked = request.generation;
  const bool cuts = asked.typical_p < 1.0 || asked.top_n_sigma > 0.0;
  const std::pair<std::string_view, bool> kActive[] = {
      {"stream", asked.stream},
      {"temperature", asked.temperature.value_or(0.0) != 0.0 && *asked.temperature != 1.0},
      {"top_p", asked.top_p.value_or(1.0) < 1.0},
      {"top_k", asked.top_k.value_or(0) > 0},
      {"min_p", asked.min_p.value_or(0.0) > 0.0},
      {"repetition_penalty", asked.repetition_penalty.value_or(1.0) != 1.0},
      {"frequency_penalty", asked.frequency_penalty != 0.0},
      {"presence_penalty", asked.presence_penalty != 0.0},
      {"dry_multiplier", asked.dry.multiplier > 0.0},
      {asked.typical_p < 1.0 ? "typical_p" : "top_n_sigma", cuts},
      {"xtc_probability", asked.xtc_probability > 0.0},
      {"dynatemp_range", asked.dynatemp_range > 0.0},
      {"mirostat", asked.mirostat_tau > 0.0},
      {"bad_words", !asked.bad_words.empty()},
      {"allowed_token_ids", !asked.allowed_tokens.empty()},
      {"logit_bias", !asked.logit_bias.empty()},
      {"min_tokens", asked.min_tokens > 0},
      {"stop", !asked.stop.empty()},
      {"repetition_detection", asked.repetition.has_value()},
      {"prompt_logprobs", asked.prompt_logprobs.has_value()},
      {"logprob_token_ids", !asked.logprob_token_ids.empty()},
      {"suffix", !request.suffix.empty()},
      {"echo", request.echo && request.logprobs >= 0},
      {asked.format ? std::string_view(asked.format->field) : "", asked.format.has_value()},
      {"max_tokens", asked.max_tokens == 0}};
  for (const auto& [key, is_active] : kActive) {
    if (!is_active) continue;
    body.refuse(key, fmt::format("'{}' does not go with 'use_beam_search', which draws no token "
                                 "and knows its answers at the end",
                                 body.path(key)));
  }
}

// true: enough of them have ended; false, or "never", which here are one: none can become better.
bool read_early_stopping(const Fields& body) {
  constexpr std::string_view kKey = "early_stopping";
  const Json* given = body.find(kKey);
  if (given == nullptr || (given->is_string() && given->as_string() == "never")) return false;
  if (given->is_bool()) return given->as_bool();
  body.refuse(kKey, "'early_stopping' must be true, false or 'never'");
  return false;
}

// As many beams as "beam_width", or else "best_of" (which "n" has become by now), of which the
// "n" of the body are shown.
void read_beams(const Fields& body, CompletionRequest& request) {
  BeamFields beams;
  const bool wanted = body.boolean("use_beam_search").value_or(false);
  const auto width = body.integer("beam_width", {.low = 1, .high = kBeamWidthMax});
  beams.length_penalty =
      body.number("length_penalty", {.low = -100.0, .high = 100.0}).value_or(1.0);
  beams.early_stopping = read_early_stopping(body);
  if (!wanted) {
    if (width) body.refuse("beam_width", "'beam_width' belongs to 'use_beam_search': true");
    return;
  }
  beams.width = static_cast<int>(width.value_or(request.generation.n));
  if (width && request.generation.n != request.choices_shown && request.generation.n != *width) {
    refuse_two_values(body, "beam_width", "best_of");
  } else if (beams.width < request.choices_shown || beams.width > kBeamWidthMax) {
    body.refuse(width ? "beam_width" : "n",
                fmt::format("{} beams for {} choices: there must be as many at least, and at most "
                            "{}",
                            beams.width, request.choices_shown, kBeamWidthMax));
  }
  request.generation.n = request.choices_shown;
  request.beams = beams;
  refuse_beside_beams(body, request);
}

}  // namespace

std::vector<Prompt> read_prompts(const Fields& body, std::string_view key, size_t prompts_max,
                                 const RequestLimits& limits) {
  std::vector<Prompt> prompts;
  const Json* prompt = body.find(key);
  if (prompt == nullptr) {
    body.refuse(key, fmt::format("'{}' is missing", key));
    return prompts;
  }
  const bool several =
      prompt->is_array() && !prompt->as_array().empty() && !prompt->as_array().front().is_number();
  if (!several) {
    add_prompt(*prompt, std::string(key), body, limits, prompts);
    return prompts;
  }
  const Json* items = body.array(key, prompts_max);
  if (items == nullptr) return prompts;
  for (size_t i = 0; i < items->as_array().size() && !body.failed(); ++i) {
    add_prompt(items->as_array()[i], item_path(key, i), body, limits, prompts);
  }
  return prompts;
}

Result<CompletionRequest> read_completion_request(const Json& json, const RequestLimits& limits) {
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  CompletionRequest request;
  if (const std::string* model = fields.text("model", 512)) request.model = *model;
  request.prompts = read_prompts(fields, "prompt", kPromptsMax, limits);
  read_logprobs(fields, limits, request);
  request.echo = fields.boolean("echo").value_or(false);
  request.adds_special = fields.boolean("add_special_tokens").value_or(true);
  request.shows_marks = !fields.boolean("skip_special_tokens").value_or(true);
  // None: the prompt alone, as an echo or a count.
  request.generation =
      read_generation_fields(fields, {.vocab_size = limits.vocab_size,
                                      .output_tokens_min = 0,
                                      .output_tokens_default = kCompletionTokensDefault});
  read_token_reports(fields, limits, request.generation);
  check_logprob_tokens(fields, request.generation, request.logprobs >= 0);
  read_best_of(fields, request);
  read_suffix(fields, request);
  read_beams(fields, request);
  const size_t choices = request.prompts.size() * static_cast<size_t>(request.generation.n);
  if (choices > kCompletionChoicesMax) {
    fields.refuse("n", fmt::format("'n' for {} prompts makes {} choices; at most {} are allowed",
                                   request.prompts.size(), choices, kCompletionChoicesMax));
  }
  if (request.generation.thinking_budget) {
    fields.refuse("thinking_token_budget",
                  "'thinking_token_budget' is for chats: a plain completion has no reasoning");
  }
  check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  return read_completion_request(json, limits);
}

}  // namespace pelton::api
