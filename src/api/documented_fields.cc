#include "api/documented_fields.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "api/documented_objects.h"

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
    // To what the model can read: a longer prompt is refused, a shorter one is left as it is.
    {"truncate_prompt_tokens", Effect::kChanges, "-1"},
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

bool is_neutral(std::string_view words, const Json& value) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (is_neutral_word(words.substr(0, end), value)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// "user or tool", of "user tool".
std::string alternatives(std::string_view words) {
  std::string text;
  for (const char c : words) text += c == ' ' ? std::string(" or ") : std::string(1, c);
  return text;
}

bool asks_for_nothing(const DocumentedField& field, const Json& value) {
  if (value.is_object()) return value.as_object().empty();
  if (value.is_array()) {
    return std::ranges::all_of(value.as_array(), [&](const Json& item) {
      return !item.is_object() && !item.is_array() && is_neutral(field.neutral, item);
    });
  }
  if (value.is_string() && value.as_string().empty()) return true;
  if (value.is_bool() && !value.as_bool() && field.neutral != "true") return true;
  return is_neutral(field.neutral, value);
}

// Where an object stands in the body. Written out only for what is refused or named in a warning:
// a body may have a million objects.
struct Place {
  const Place* parent = nullptr;  // null: the body itself
  std::string_view key;           // in the parent
  std::optional<size_t> index;    // of an item, where that is an array

  std::string member(std::string_view name) const {
    if (parent == nullptr) return std::string(name);
    std::string path = parent->member(key);
    if (index) path = item_path(path, *index);
    return fmt::format("{}.{}", path, name);
  }
};

// Says what becomes of each member that is not read.
class UnreadCheck {
 public:
  UnreadCheck(const Fields& body, BodyKind kind, std::vector<std::string>& warnings)
      : body_(body),
        makes_vectors_(kind == BodyKind::kVectors),
        objects_(documented_objects(kind)),
        warnings_(warnings) {}

  void check(const DocumentedField* field, const Place& place, std::string_view key,
             const Json& value) {
    if (body_.failed()) return;
    if (field == nullptr) {
      warn(place, key, "an unknown field");
    } else if (field->effect == Effect::kNone || asks_for_nothing(*field, value)) {
      return;
    } else if (field->effect == Effect::kStyle ||
               (field->effect == Effect::kText && makes_vectors_)) {
      warn(place, key, "this endpoint does not do it");
    } else {
      const std::string path = place.member(key);
      body_.refuse(path, fmt::format("'{}' is not supported at this endpoint", body_.path(path)));
    }
  }

  // The objects in `parent`, whose own pattern is pattern_.
  void descend(const Json& parent, const Place& place) {
    for (const Json::Member& member : parent.as_object()) {
      const bool is_array = member.value.is_array();
      if (!is_array && !member.value.is_object()) continue;
      const size_t length = pattern_.size();
      if (length > 0) pattern_ += '.';
      pattern_ += member.key;
      if (is_array) pattern_ += "[]";
      if (const DocumentedObject* object = documented_object()) {
        Place inner{.parent = &place, .key = member.key, .index = {}};
        if (!is_array) check_object(*object, member.value, inner);
        const size_t item_count = is_array ? member.value.as_array().size() : 0;
        for (size_t i = 0; i < item_count && !body_.failed(); ++i) {
          inner.index = i;
          check_object(*object, member.value.as_array()[i], inner);
        }
      }
      pattern_.resize(length);
    }
  }

 private:
  const DocumentedObject* documented_object() const {
    const auto found = std::ranges::find(objects_, pattern_, &DocumentedObject::path);
    return found == objects_.end() ? nullptr : &*found;
  }

  void check_object(const DocumentedObject& object, const Json& value, const Place& place) {
    if (!value.is_object()) return;
    const Json* type = object.types.empty() ? nullptr : value.find("type");
    if (type != nullptr && type->is_string() && !has_word(object.types, type->as_string())) return;
    const std::string_view decided =
        object.conditional.empty() ? std::string_view() : decided_in(object, value);
    for (const Json::Member& member : value.as_object()) {
      if (member.value.is_null()) continue;
      if (has_word(object.obeyed, member.key)) {
        check_condition(object, decided, place, member);
        continue;
      }
      const auto field = std::ranges::find(object.others, member.key, &DocumentedField::name);
      check(field == object.others.end() ? nullptr : &*field, place, member.key, member.value);
    }
    descend(value, place);
  }

  static std::string_view decided_in(const DocumentedObject& object, const Json& value) {
    const Json* decider = value.find(object.decider);
    if (decider == nullptr || decider->is_null()) return object.decider_default;
    if (decider->is_bool()) return decider->as_bool() ? "true" : "false";
    return decider->is_string() ? std::string_view(decider->as_string()) : std::string_view();
  }

  void check_condition(const DocumentedObject& object, std::string_view decided, const Place& place,
                       const Json::Member& member) {
    const auto found = std::ranges::find(object.conditional, member.key, &ConditionalMember::name);
    if (found == object.conditional.end() || has_word(found->values, decided)) return;
    if (asks_for_nothing({.name = found->name, .neutral = {}}, member.value)) return;
    if (warned_ >= kFieldWarningsMax) return;
    warn(place, member.key,
         fmt::format("only read where '{}' is {}", object.decider, alternatives(found->values)));
  }

  void warn(const Place& place, std::string_view key, std::string_view why) {
    if (++warned_ > kFieldWarningsMax) return;
    warnings_.push_back(unread_warning(body_.path(place.member(key)), why));
  }

  const Fields& body_;
  const bool makes_vectors_;
  const std::span<const DocumentedObject> objects_;
  std::vector<std::string>& warnings_;
  size_t warned_ = 0;
  std::string pattern_;  // of the object that is looked at, as DocumentedObject::path has it
};

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

void check_unread_fields(const Fields& body, BodyKind kind, std::vector<std::string>& warnings) {
  UnreadCheck check(body, kind, warnings);
  const Place top;
  body.unread([&](const std::string& key, const Json& value) {
    check.check(documented(key), top, key, value);
  });
  if (!body.failed()) check.descend(body.json(), top);
}

}  // namespace pelton::api
