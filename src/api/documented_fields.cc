#include "api/documented_fields.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace pelton::api {
namespace {

using Effect = DocumentedField::Effect;

constexpr DocumentedField kFields[] = {
    {"access_programs", Effect::kNone},
    {"activation", Effect::kChanges},
    {"adaptive_decay", Effect::kNone},  // of adaptive_target
    {"adaptive_target", Effect::kChanges, "-1"},
    {"add_generation_prompt", Effect::kChanges, "true"},
    {"add_special_tokens", Effect::kNone},  // the vocabulary's encoding adds none
    {"allowed_token_ids"},
    {"audio"},
    {"backend_sampling", Effect::kNone},
    {"background"},
    {"bad_words"},
    {"best_of", Effect::kChanges, "0 1"},
    {"bootstrap_host"},
    {"bootstrap_port"},
    {"bootstrap_room"},
    {"cache_control", Effect::kNone},
    {"cache_prompt", Effect::kNone},
    {"cache_salt", Effect::kNone},
    {"chat_template"},
    {"chat_template_kwargs"},
    {"client_metadata", Effect::kNone},
    {"container"},
    {"content"},
    {"context_management", Effect::kStyle},
    {"continue_final_message"},
    {"conversation"},
    {"custom_logit_processor"},
    {"custom_params"},
    {"data_parallel_rank", Effect::kNone},
    {"detokenize", Effect::kChanges, "true"},
    {"diagnostics", Effect::kNone},
    {"dimensions"},
    {"documents"},
    {"dry_allowed_length", Effect::kNone},  // of dry_multiplier
    {"dry_base", Effect::kNone},
    {"dry_multiplier", Effect::kChanges, "0"},
    {"dry_penalty_last_n", Effect::kNone},
    {"dry_sequence_breakers", Effect::kNone},
    {"dynatemp_exponent", Effect::kNone},  // of dynatemp_range
    {"dynatemp_range", Effect::kChanges, "0"},
    {"ebnf"},
    {"echo"},
    {"embd_normalize", Effect::kChanges, "2"},
    {"embed_dtype", Effect::kChanges, "float32"},
    {"embedding_types"},
    {"enable_response_messages"},
    {"encoding_format", Effect::kChanges, "float"},
    {"endianness", Effect::kChanges, "native little"},
    {"extra_key", Effect::kNone},
    {"features"},
    {"flat_logprobs"},
    {"frequency_penalty", Effect::kText, "0"},
    {"function_call", Effect::kChanges, "none auto"},
    {"functions"},
    {"generate", Effect::kChanges, "true"},
    {"grammar"},
    {"grammar_lazy"},
    {"grammar_triggers"},
    {"guided_choice"},
    {"guided_decoding"},
    {"guided_decoding_backend", Effect::kNone},
    {"guided_grammar"},
    {"guided_json"},
    {"guided_json_object"},
    {"guided_regex"},
    {"guided_whitespace_pattern"},
    {"id_slot", Effect::kNone},
    {"ignore_eos", Effect::kText},
    {"image", Effect::kNone},
    {"image_data"},
    {"images"},
    {"include"},
    {"include_reasoning", Effect::kChanges, "true"},
    {"include_stop_str_in_output"},
    {"inference_geo"},
    {"input"},
    {"input_embeds"},
    {"input_extra"},
    {"input_ids"},
    {"input_prefix"},
    {"input_suffix"},
    {"input_type", Effect::kStyle},
    {"inputs"},
    {"instruction"},
    {"instructions"},
    {"json_schema"},
    {"kv_transfer_params"},
    {"length_penalty", Effect::kNone},  // of beam search
    {"logit_bias", Effect::kText},
    {"logits_processors"},
    {"logprob_start_len", Effect::kChanges, "-1"},
    {"logprob_token_ids"},
    {"logprobs", Effect::kText},
    {"lora"},
    {"lora_path"},
    {"lora_request"},
    {"max_chunks_per_doc", Effect::kStyle},
    {"max_completion_tokens", Effect::kText},
    {"max_new_tokens"},
    {"max_output_tokens"},
    {"max_tokens", Effect::kText},
    {"max_tokens_per_doc"},
    {"max_tokens_to_sample"},
    {"max_tool_calls", Effect::kNone},  // counts a server's own tools
    {"mcp_servers"},
    {"media_io_kwargs", Effect::kNone},  // of what is no text, as mm_processor_kwargs
    {"messages"},
    {"metadata", Effect::kNone},
    {"min_keep", Effect::kChanges, "0"},
    {"min_new_tokens", Effect::kChanges, "0"},
    {"min_p", Effect::kText, "0"},
    {"min_tokens", Effect::kText, "0"},
    {"mirostat", Effect::kChanges, "0"},
    {"mirostat_eta", Effect::kNone},  // of mirostat
    {"mirostat_tau", Effect::kNone},
    {"mm_processor_kwargs", Effect::kNone},
    {"modalities"},
    {"model", Effect::kNone},
    {"moderation"},
    {"multimodal_data"},
    {"n", Effect::kText, "1"},
    {"n_cache_reuse", Effect::kNone},
    {"n_discard", Effect::kNone},  // nothing is shifted out of the context, as n_keep
    {"n_indent", Effect::kChanges, "0"},
    {"n_keep", Effect::kNone},
    {"n_predict", Effect::kText, "-1"},
    {"n_probs", Effect::kChanges, "0"},
    {"no_stop_trim"},
    {"normalize", Effect::kChanges, "true"},
    {"output_config"},
    {"output_dimension"},
    {"output_format"},
    {"output_kind", Effect::kNone},
    {"parallel_tool_calls", Effect::kChanges, "true"},
    {"parse_tool_calls", Effect::kChanges, "true"},
    {"penalize_nl", Effect::kStyle},
    {"pooling"},
    {"post_sampling_probs"},
    {"prediction", Effect::kNone},
    {"presence_penalty", Effect::kText, "0"},
    {"preserved_tokens"},
    {"previous_input_messages"},
    {"previous_response_id"},
    {"priority", Effect::kNone},
    {"prompt"},
    {"prompt_cache_key", Effect::kNone},
    {"prompt_cache_options", Effect::kNone},
    {"prompt_cache_retention", Effect::kNone},
    {"prompt_embeds"},
    {"prompt_logprobs"},
    {"queries"},
    {"query"},
    {"rank_fields"},
    {"raw_scores"},
    {"reasoning"},
    {"reasoning_budget", Effect::kChanges, "-1"},
    {"reasoning_control", Effect::kNone},
    {"reasoning_effort"},
    {"reasoning_format", Effect::kChanges, "auto deepseek"},
    {"regex"},
    {"repeat_last_n", Effect::kStyle},
    {"repeat_penalty", Effect::kText, "1"},
    {"repetition_detection"},
    {"repetition_penalty", Effect::kText, "1"},
    {"request_id", Effect::kNone},
    {"response_fields"},
    {"response_format"},
    {"return_documents", Effect::kChanges, "true"},
    {"return_hidden_states"},
    {"return_logprob"},
    {"return_mm_kwargs"},
    {"return_progress", Effect::kStyle},
    {"return_prompt_text"},
    {"return_text"},
    {"return_text_in_logprobs"},
    {"return_token_ids"},
    {"return_token_offsets"},
    {"return_token_strs", Effect::kNone},  // of /tokenize, whose chats are read as chats
    {"return_tokens"},
    {"return_tokens_as_token_ids"},
    {"rid", Effect::kNone},
    {"safety_identifier", Effect::kNone},
    {"samplers", Effect::kStyle},
    {"sampling_params"},
    {"sampling_seed"},
    {"seed", Effect::kText, "-1"},
    {"separate_reasoning", Effect::kChanges, "true"},
    {"service_tier", Effect::kNone},
    {"session_id", Effect::kNone},
    {"session_params"},
    {"skip_special_tokens", Effect::kChanges, "true"},
    {"softmax"},
    {"spaces_between_special_tokens", Effect::kNone},  // the vocabulary puts none
    {"speed", Effect::kNone},
    {"stop", Effect::kText},
    {"stop_regex"},
    {"stop_sequences", Effect::kText},
    {"stop_token_ids", Effect::kText},
    {"store", Effect::kStyle},
    {"stream"},
    {"stream_interval", Effect::kNone},
    {"stream_options"},
    {"stream_reasoning", Effect::kNone},
    {"structural_tag"},
    {"structured_outputs"},
    {"suffix"},
    {"system"},
    {"t_max_predict_ms", Effect::kChanges, "-1 0"},
    {"t_max_prompt_ms", Effect::kChanges, "-1 0"},
    {"temperature", Effect::kText, "1"},
    {"text"},
    {"text_1"},
    {"text_2"},
    {"texts"},
    {"thinking"},
    {"thinking_budget_tokens", Effect::kChanges, "-1"},
    {"thinking_forced_open"},
    {"thinking_token_budget"},
    {"thread"},
    {"timeout", Effect::kNone},
    {"timings"},
    {"timings_per_token"},
    {"token_ids"},
    {"token_ids_logprob"},
    {"tokens"},
    {"tool_choice", Effect::kChanges, "auto none"},
    {"tools"},
    {"top_a", Effect::kChanges, "0"},
    {"top_k", Effect::kText, "-1 0"},
    {"top_logprobs", Effect::kText, "0"},
    {"top_logprobs_num", Effect::kChanges, "0"},
    {"top_n"},
    {"top_n_sigma", Effect::kChanges, "-1 0"},
    {"top_p", Effect::kText, "1"},
    {"truncate"},
    {"truncate_prompt_tokens"},
    {"truncation", Effect::kChanges, "disabled"},
    {"truncation_side", Effect::kNone},  // of truncate_prompt_tokens
    {"typ_p", Effect::kChanges, "1"},
    {"typical_p", Effect::kChanges, "1"},
    {"use_activation"},
    {"use_beam_search"},
    {"user", Effect::kNone},
    {"user_profile_id", Effect::kNone},
    {"verbosity", Effect::kStyle, "medium"},
    {"vllm_xargs"},
    {"web_search_options", Effect::kStyle},
    {"workspace_id", Effect::kNone},
    {"xtc_probability", Effect::kChanges, "0"},
    {"xtc_threshold", Effect::kNone},  // of xtc_probability
};

constexpr bool by_name(const DocumentedField& a, const DocumentedField& b) {
  return a.name < b.name;
}
static_assert(std::is_sorted(std::begin(kFields), std::end(kFields), by_name));

const DocumentedField* documented(std::string_view name) {
  const auto* const found =
      std::lower_bound(std::begin(kFields), std::end(kFields), DocumentedField{name}, by_name);
  return found != std::end(kFields) && found->name == name ? found : nullptr;
}

bool is_neutral_word(std::string_view word, const Json& value) {
  if (value.is_string()) return value.as_string() == word;
  if (value.is_bool()) return word == (value.as_bool() ? "true" : "false");
  if (!value.is_number()) return false;
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && number == value.as_number();
}

bool asks_for_nothing(const DocumentedField& field, const Json& value) {
  if (value.is_object()) return value.as_object().empty();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_string() && value.as_string().empty()) return true;
  if (value.is_bool() && !value.as_bool() && field.neutral != "true") return true;
  std::string_view words = field.neutral;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (is_neutral_word(words.substr(0, end), value)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace

std::span<const DocumentedField> documented_fields() {
  return kFields;
}

std::string unread_warning(std::string_view path, std::string_view why) {
  constexpr size_t kShownMax = 64;
  std::string shown(path.substr(0, kShownMax));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c <= 0x20 || c >= 0x7F; }, '?');
  return fmt::format("{} ignored: {}", shown, why);
}

void check_unread_fields(const Fields& body, Output output, std::vector<std::string>& warnings) {
  size_t told = 0;
  const auto warn = [&](const std::string& key, std::string_view why) {
    if (++told <= kFieldWarningsMax) warnings.push_back(unread_warning(body.path(key), why));
  };
  body.unread([&](const std::string& key, const Json& value) {
    const DocumentedField* const field = documented(key);
    if (field == nullptr) {
      warn(key, "an unknown field");
    } else if (field->effect == Effect::kNone || asks_for_nothing(*field, value)) {
      return;
    } else if (field->effect == Effect::kStyle ||
               (field->effect == Effect::kText && output == Output::kVectors)) {
      warn(key, "this endpoint does not do it");
    } else {
      body.refuse(key, fmt::format("'{}' is not supported at this endpoint", body.path(key)));
    }
  });
}

}  // namespace pelton::api
