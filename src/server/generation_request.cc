#include "server/generation_request.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "access/api_keys.h"
#include "api/logprobs.h"

namespace pelton::server {
namespace {

request::DryPenalty dry_of(const ServedModel& model, const api::DryFields& fields) {
  request::DryPenalty dry{.multiplier = static_cast<float>(fields.multiplier),
                          .base = static_cast<float>(fields.base),
                          .allowed_length = fields.allowed_length,
                          .last_n = fields.last_n,
                          .breakers = nullptr};
  static const std::vector<std::string> kBreakers = {"\n", ":", "\"", "*"};
  if (fields.multiplier > 0.0 && model.has_text) {
    dry.breakers =
        model.state->token_sets.containing(fields.breakers.value_or(kBreakers), model.tokenizer);
  }
  return dry;
}

// Each word as it begins a text, and as it stands within one: "word" and " word", which may be of
// other tokens, and of another number of them. (vLLM leaves the second out where their numbers
// differ, and such a word is said all the same.) Where the blank is a token by itself, the first
// bans both.
std::vector<std::vector<TokenId>> bad_word_tokens(const ServedModel& model,
                                                  const std::vector<std::string>& words) {
  std::vector<std::vector<TokenId>> all;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    if (bare.empty()) {
      all.push_back(model.tokenizer.encode(word));
      continue;
    }
    std::vector<TokenId> plain = model.tokenizer.encode(bare);
    std::vector<TokenId> spaced = model.tokenizer.encode(" " + bare);
    const bool is_banned =
        spaced.size() >= plain.size() && std::equal(plain.rbegin(), plain.rend(), spaced.rbegin());
    all.push_back(std::move(plain));
    if (!is_banned) all.push_back(std::move(spaced));
  }
  return all;
}

request::SamplingParams sampling_of(const ServedModel& model, const api::GenerationFields& fields,
                                    const GenerationSource& source) {
  const SamplingDefaults& defaults = model.sampling;
  return {.temperature = static_cast<float>(fields.temperature.value_or(defaults.temperature)),
          .top_k = fields.top_k.value_or(defaults.top_k),
          .top_p = static_cast<float>(fields.top_p.value_or(defaults.top_p)),
          .min_p = static_cast<float>(fields.min_p.value_or(defaults.min_p)),
          .repetition_penalty =
              static_cast<float>(fields.repetition_penalty.value_or(defaults.repetition_penalty)),
          .frequency_penalty = static_cast<float>(fields.frequency_penalty),
          .presence_penalty = static_cast<float>(fields.presence_penalty),
          .penalty_last_n = fields.penalty_last_n,
          .dry = dry_of(model, fields.dry),
          .typical_p = static_cast<float>(fields.typical_p),
          .top_n_sigma = static_cast<float>(fields.top_n_sigma),
          .xtc_probability = static_cast<float>(fields.xtc_probability),
          .xtc_threshold = static_cast<float>(fields.xtc_threshold),
          .dynatemp_range = static_cast<float>(fields.dynatemp_range),
          .dynatemp_exponent = static_cast<float>(fields.dynatemp_exponent),
          .mirostat = {.target = static_cast<float>(fields.mirostat_tau),
                       .rate = static_cast<float>(fields.mirostat_eta)},
          .bad_words = bad_word_tokens(model, fields.bad_words),
          .allowed_tokens = fields.allowed_tokens,
          .logit_bias = fields.logit_bias,
          .seed = fields.seed.value_or(source.seed_if_none),
          .logprobs = source.logprobs,
          .logprob_tokens = fields.logprob_token_ids,
          .prompt_logprobs = source.prompt_logprobs};
}

// Reasoning has so many tokens; then comes the answer or, where functions are offered, whatever the
// model chooses, until it chooses to reason once more.
request::ThinkingBudget reasoning_quota(const ServedModel& model, int64_t tokens_max,
                                        const GenerationSource& source) {
  using chat::AfterReasoning;
  const chat::ReasoningMarkers& markers = model.chat->reasoning();
  return {.tokens_max = tokens_max,
          .begins = markers.begins,
          .ends = markers.ends,
          .then = model.chat->reasoning_end(source.may_call ? AfterReasoning::kFreeMessage
                                                            : AfterReasoning::kFinalAnswer),
          .then_at_once = model.chat->reasoning_end(AfterReasoning::kFinalAnswer),
          .begun = source.reasoning == chat::PromptReasoning::kOpen};
}

// Where the prompt has opened the reasoning, the answer's grammar is amid it from its first token;
// where the prompt has closed it, behind it: it does not come again.
void enter_turn(const ServedModel& model, chat::PromptReasoning reasoning,
                grammar::GrammarState& guide) {
  if (reasoning == chat::PromptReasoning::kNotBegun) return;
  const chat::ReasoningMarkers& markers = model.chat->reasoning();
  for (const TokenId marker : markers.begins) {
    if (!guide.accept(marker)) return;  // a call that must come: nothing is thought before it
  }
  if (reasoning == chat::PromptReasoning::kOver && !markers.ends.empty()) {
    (void)guide.accept(markers.ends.front());
  }
}

// As many tokens as are asked for; of -1 those that leave the answer its room. A bos token stays.
void truncate_prompt(const ServedModel& model, const api::GenerationFields& fields,
                     std::vector<TokenId>& prompt) {
  if (!fields.prompt_tokens_max) return;
  const int64_t answer = std::max({fields.max_tokens.value_or(1), fields.min_tokens, int64_t{1}});
  const int64_t fits = std::max<int64_t>(model.context_limit() - answer, 1);
  const int64_t asked = *fields.prompt_tokens_max < 0 ? fits : *fields.prompt_tokens_max;
  using Cut = tokenizer::Tokenizer::Cut;
  model.tokenizer.cut_prompt(prompt, static_cast<size_t>(asked),
                             fields.cuts_right ? Cut::kEnd : Cut::kBegin);
}

// The schema that the model is shown (one with a name), if it is most of the prompt: then it is
// what must get shorter, and not what was said. Counted as it would be alone.
void blame_schema(const ServedModel& model, const api::GenerationFields& fields,
                  int64_t prompt_tokens, api::ApiError& error) {
  if (!fields.format || fields.format->name.empty()) return;
  const std::string schema = fields.format->schema.dump();
  const auto tokens = static_cast<int64_t>(model.tokenizer.encode(schema).size());
  if (tokens <= prompt_tokens / 2) return;
  error.param = fields.format->field;
  error.message += fmt::format(" '{}', which the model is shown, takes {} of them.",
                               fields.format->field, tokens);
}

// A field whose texts must become tokens; "": there is none.
std::string_view field_of_texts(const api::GenerationFields& fields) {
  if (!fields.bad_words.empty()) return "bad_words";
  const bool has_breakers = fields.dry.breakers && !fields.dry.breakers->empty();
  return has_breakers && fields.dry.multiplier > 0.0 ? "dry_sequence_breakers" : "";
}

std::optional<Error> line_ends_not_spared(const api::GenerationFields& fields,
                                          const request::SamplingParams& sampling) {
  if (fields.spares_line_ends.empty() || !sampling.has_penalties()) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("'{}': sparing line ends by the penalties is not supported by this "
                           "server, and the request or the model's generation_config.json has some",
                           fields.spares_line_ends),
               std::string(fields.spares_line_ends)};
}

}  // namespace

chat::PromptReasoning reasoning_at_end(const ServedModel& model, std::span<const TokenId> prompt) {
  using chat::PromptReasoning;
  if (!model.chat) return PromptReasoning::kNotBegun;
  const chat::ReasoningMarkers& markers = model.chat->reasoning();
  if (markers.begins.empty()) return PromptReasoning::kNotBegun;
  const auto begin =
      std::find_end(prompt.begin(), prompt.end(), markers.begins.begin(), markers.begins.end());
  if (begin == prompt.end()) return PromptReasoning::kNotBegun;
  const auto behind = begin + std::ssize(markers.begins);
  const bool is_over = std::any_of(behind, prompt.end(), [&](TokenId token) {
    return std::ranges::find(markers.ends, token) != markers.ends.end();
  });
  return is_over ? PromptReasoning::kNotBegun : PromptReasoning::kOpen;
}

std::optional<Error> too_many_prompt_logprobs(int64_t count, const api::GenerationFields& fields) {
  if (count <= api::kPromptLogprobsMax) return std::nullopt;
  const std::string_view field = fields.prompt_logprobs ? "prompt_logprobs" : "logprobs";
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' would report {} numbers of the prompt; at most {} are reported: ask for "
                  "fewer alternatives or send a shorter prompt",
                  field, count, api::kPromptLogprobsMax),
      std::string(field)};
}

std::variant<request::GenerationRequest, api::ApiError> generation_request(
    const ServedModel& model, const api::GenerationFields& fields, GenerationSource source) {
  if (fields.prompt_logprobs && source.prompt_logprobs < 0) {
    return api::api_error(
        {ErrorCode::kUnsupported, "'prompt_logprobs' is not supported here", "prompt_logprobs"});
  }
  if (const std::string_view field = field_of_texts(fields); !field.empty()) {
    if (const auto error = model.no_text(field, TextUse::kOption)) return api::api_error(*error);
  }
  if (fields.thinking_budget && model.chat && model.chat->reasoning().in_text) {
    return api::api_error({ErrorCode::kUnsupported,
                           "'thinking_token_budget' (also 'thinking.budget_tokens' and other names "
                           "of it): this model marks its reasoning by several tokens, which nobody "
                           "can count towards a budget; leave it out, or bound the whole answer "
                           "by 'max_tokens'",
                           "thinking_token_budget"});
  }
  truncate_prompt(model, fields, source.prompt);
  const int64_t prompt_tokens = static_cast<int64_t>(source.prompt.size());
  const int64_t context_max = model.context_limit();
  const int64_t room = context_max - prompt_tokens;
  const int64_t wanted = std::max(fields.max_tokens.value_or(0), fields.min_tokens);
  if (room < 1 || wanted > room) {
    // A prompt as long as the context leaves no room for a first token.
    api::ApiError error =
        api::context_length_exceeded({.prompt = source.prompt_kind,
                                      .prompt_tokens = prompt_tokens,
                                      .output_tokens = room < 0 ? 0 : std::max<int64_t>(wanted, 1),
                                      .context_max = context_max},
                                     source.prompt_field);
    blame_schema(model, fields, prompt_tokens, error);
    return error;
  }
  if (source.prompt_logprobs >= 0) {
    const int64_t count = prompt_tokens * (source.prompt_logprobs + 1) * fields.n;
    if (std::optional<Error> error = too_many_prompt_logprobs(count, fields)) {
      return api::api_error(*error);
    }
  }
  request::GenerationRequest request;
  request.id = std::move(source.id);
  request.sampling = sampling_of(model, fields, source);
  if (const auto error = line_ends_not_spared(fields, request.sampling)) {
    return api::api_error(*error);
  }
  request.stop.max_new_tokens = static_cast<int>(fields.max_tokens.value_or(room));
  request.stop.min_new_tokens = static_cast<int>(fields.min_tokens);
  if (!fields.ignore_eos) request.stop.stop_tokens = model.all_stop_tokens();
  for (const TokenId id : fields.stop_token_ids) request.stop.stop_tokens.push_back(id);
  if (fields.repetition) {
    request.stop.repetition = {.pattern_min = fields.repetition->pattern_min,
                               .pattern_max = fields.repetition->pattern_max,
                               .count = fields.repetition->count};
  }
  if (fields.thinking_budget && model.chat && !model.chat->reasoning().begins.empty()) {
    request.quota = reasoning_quota(model, *fields.thinking_budget, source);
  }
  request.priority = fields.priority;
  request.deadline_ns = source.deadline_ns;
  request.tenant = access::billing_account(source.tenant, fields.user);
  request.cache_salt = std::move(source.cache_salt);
  request.adapter = ref_of(model.adapter, source.prompt);
  request.prompt = std::move(source.prompt);
  if (source.guide) enter_turn(model, source.reasoning, *source.guide);
  request.guide = std::move(source.guide);
  request.prediction = std::move(source.prediction);
  return request;
}

}  // namespace pelton::server
