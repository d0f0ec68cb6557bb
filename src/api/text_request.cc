#include "api/text_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "api/json_object.h"

namespace pelton::api {
namespace {

constexpr size_t kTextBytesMax = size_t{16} << 20;
constexpr int64_t kTgiTokensDefault = 100;
constexpr int64_t kSglangTokensDefault = 128;
constexpr int64_t kTokensMax = 1 << 30;

struct Renamed {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Renamed kTgi[] = {{"max_new_tokens", "max_tokens"},
                            {"repetition_penalty", "repetition_penalty"},
                            {"frequency_penalty", "frequency_penalty"},
                            {"seed", "seed"},
                            {"stop", "stop"},
                            {"temperature", "temperature"},
                            {"top_k", "top_k"},
                            {"top_p", "top_p"},
                            {"typical_p", "typical_p"},
                            {"truncate", "truncate_prompt_tokens"},
                            {"grammar", "grammar"},
                            {"adapter_id", "model"}};
constexpr Renamed kSglang[] = {{"max_new_tokens", "max_tokens"},
                               {"min_new_tokens", "min_tokens"},
                               {"temperature", "temperature"},
                               {"top_p", "top_p"},
                               {"top_k", "top_k"},
                               {"min_p", "min_p"},
                               {"frequency_penalty", "frequency_penalty"},
                               {"presence_penalty", "presence_penalty"},
                               {"repetition_penalty", "repetition_penalty"},
                               {"stop", "stop"},
                               {"stop_token_ids", "stop_token_ids"},
                               {"ignore_eos", "ignore_eos"},
                               {"skip_special_tokens", "skip_special_tokens"},
                               {"no_stop_trim", "include_stop_str_in_output"},
                               {"regex", "regex"},
                               {"json_schema", "json_schema"},
                               {"ebnf", "ebnf"},
                               {"seed", "seed"},
                               {"sampling_seed", "seed"}};

std::span<const Renamed> renamed(TextRequest::Form form) {
  return form == TextRequest::Form::kTgi ? std::span<const Renamed>(kTgi) : kSglang;
}

bool asks_for_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json(int64_t{0}) ||
         (value.is_array() && value.as_array().empty()) ||
         (value.is_string() && value.as_string().empty());
}

// Each parameter under the name that it has in the other body; one that is known and not obeyed may
// ask for nothing, all others are refused.
void rename(const Fields& parameters, TextRequest::Form form,
            std::span<const std::string_view> ignored, Json& body) {
  for (const Renamed& one : renamed(form)) {
    if (const Json* value = parameters.find(one.theirs)) body.set(one.ours, *value);
  }
  parameters.unread([&](const std::string& key, const Json& value) {
    if (std::ranges::find(ignored, key) != ignored.end() && asks_for_nothing(value)) return;
    parameters.refuse_unsupported(key.substr(0, 64), "this parameter");
  });
}

// Of anything else the other parser would make several prompts.
void check_ids(const Fields& fields, const Json::Array& ids) {
  for (size_t i = 0; i < ids.size() && !fields.failed(); ++i) {
    if (exact_integer(ids[i])) continue;
    const std::string item = item_path("input_ids", i);
    if (ids[i].is_array()) {
      return fields.refuse_unsupported("input_ids", "several prompts in one request");
    }
    fields.refuse(item, fmt::format("'{}' must be a token id, not {}", item, ids[i].kind_name()));
  }
}

// TGI samples where something of sampling is said, and takes the likeliest token elsewhere.
void choose_greedy(const Fields& parameters, Json& body) {
  const bool samples = parameters.boolean("do_sample").value_or(false);
  static constexpr std::string_view kSampling[] = {"temperature", "top_k", "top_p", "typical_p"};
  const bool says = std::ranges::any_of(
      kSampling, [&](std::string_view key) { return parameters.find(key) != nullptr; });
  if (!samples && !says) body.set("temperature", int64_t{0});
}

Result<TextRequest> parse_tgi(const Fields& fields) {
  TextRequest request{
      .form = TextRequest::Form::kTgi, .parameters = "parameters", .prompt = "inputs"};
  Json body{Json::Object{}};
  const std::string* const inputs = fields.text("inputs", kTextBytesMax);
  if (inputs != nullptr) body.set("prompt", *inputs);
  body.set("stream", fields.boolean("stream").value_or(false));
  body.set("max_tokens", kTgiTokensDefault);
  static const Json kNone{Json::Object{}};
  const Json* const given = fields.object("parameters");
  const Fields parameters(given == nullptr ? kNone : *given, "parameters", fields.complaint(),
                          Fields::Reads::kKept);
  request.shows_details = parameters.boolean("details").value_or(false);
  request.shows_prompt = parameters.boolean("return_full_text").value_or(false);
  choose_greedy(parameters, body);
  const auto best_of = parameters.integer("best_of", {.low = 1, .high = 2});
  if (best_of.value_or(1) > 1) parameters.refuse_unsupported("best_of", "more than 1");
  static constexpr std::string_view kIgnored[] = {"watermark", "top_n_tokens",
                                                  "decoder_input_details"};
  rename(parameters, request.form, kIgnored, body);
  body.set("logprobs", int64_t{0});  // each token is reported with its own
  fields.unread([&](const std::string& key, const Json&) {
    fields.refuse_unsupported(key.substr(0, 64), "this field");
  });
  request.body = body.dump();
  return request;
}

Result<TextRequest> parse_sglang(const Fields& fields) {
  TextRequest request{
      .form = TextRequest::Form::kSglang, .parameters = "sampling_params", .prompt = "text"};
  Json body{Json::Object{}};
  const Json* const text = fields.find("text");
  const Json* const ids = fields.find("input_ids");
  if (text != nullptr && ids != nullptr) {
    fields.refuse("input_ids", "'text' and 'input_ids' exclude each other");
  }
  if (const std::string* one = fields.text("text", kTextBytesMax)) body.set("prompt", *one);
  if (const Json* array = fields.array("input_ids", kTextBytesMax)) {
    request.prompt = "input_ids";
    check_ids(fields, array->as_array());
    body.set("prompt", *array);
  }
  if (const std::string* model = fields.text("model", 512)) body.set("model", *model);
  if (const std::string* lora = fields.text("lora_path", 512)) body.set("model", *lora);
  if (const std::string* rid = fields.text("rid", kRequestIdBytesMax)) body.set("request_id", *rid);
  body.set("stream", fields.boolean("stream").value_or(false));
  body.set("max_tokens", kSglangTokensDefault);
  static const Json kNone{Json::Object{}};
  const Json* const given = fields.object("sampling_params");
  const Fields parameters(given == nullptr ? kNone : *given, "sampling_params", fields.complaint(),
                          Fields::Reads::kKept);
  const auto n = parameters.integer("n", {.low = 1, .high = kTokensMax});
  if (n.value_or(1) > 1) parameters.refuse_unsupported("n", "more than 1");
  static constexpr std::string_view kIgnored[] = {"spaces_between_special_tokens", "custom_params",
                                                  "stop_regex", "logit_bias"};
  // As it is here anyway.
  static_cast<void>(parameters.boolean("spaces_between_special_tokens"));
  rename(parameters, request.form, kIgnored, body);
  static_cast<void>(fields.boolean("log_metrics"));  // no answer is another one
  static constexpr std::string_view kHarmless[] = {
      "return_logprob", "top_logprobs_num", "return_text_in_logprobs", "return_hidden_states"};
  fields.unread([&](const std::string& key, const Json& value) {
    if (std::ranges::find(kHarmless, key) != std::end(kHarmless) && asks_for_nothing(value)) return;
    if (key == "logprob_start_len" && value == Json(int64_t{-1})) return;
    fields.refuse_unsupported(key.substr(0, 64), "this field");
  });
  request.body = body.dump();
  return request;
}

}  // namespace

Result<TextRequest> parse_llama_completion(std::string_view text, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(text));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  TextRequest request{.form = TextRequest::Form::kLlamaCpp};
  request.shows_tokens = fields.boolean("return_tokens").value_or(false);
  static_cast<void>(fields.boolean("timings_per_token"));  // they come at the end
  const Json* const prompt = fields.find("prompt");
  const bool several = prompt != nullptr && prompt->is_array() && !prompt->as_array().empty() &&
                       !prompt->as_array().front().is_number();
  if (several) fields.refuse_unsupported("prompt", "a list of anything but token ids");
  bool says_length = false;
  for (const char* const name :
       {"n_predict", "num_predict", "max_tokens", "max_completion_tokens"}) {
    const Json* const length = fields.find(name);
    says_length = says_length || length != nullptr;
    if (length != nullptr && *length == Json(0)) fields.refuse_unsupported(name, "a length of 0");
  }
  for (const char* const name : {"n", "n_cmpl"}) {
    const auto count = fields.integer(name, {.low = 1, .high = kTokensMax});
    if (count.value_or(1) > 1) fields.refuse_unsupported(name, "more than 1");
  }
  if (complaint) return std::move(*complaint);
  Json body = json;
  std::erase_if(body.as_object(), [](const Json::Member& member) {
    static constexpr std::string_view kRead[] = {"return_tokens", "timings_per_token", "n",
                                                 "n_cmpl"};
    return std::ranges::find(kRead, member.key) != std::end(kRead);
  });
  if (!says_length) body.set("n_predict", int64_t{-1});  // as many as fit
  request.body = body.dump();
  return request;
}

Result<TextRequest> parse_any_generate(std::string_view text, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(text));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  const bool is_tgi = fields.find("inputs") != nullptr;
  for (const char* const other : {"text", "input_ids"}) {
    if (!is_tgi || fields.find(other) == nullptr) continue;
    fields.refuse(other, fmt::format("'{}' is SGLang's and 'inputs' TGI's: one of them", other));
  }
  if (!is_tgi && fields.find("text") == nullptr && fields.find("input_ids") == nullptr) {
    fields.refuse("inputs", "'inputs' (TGI's), or 'text' or 'input_ids' (SGLang's), is missing");
  }
  if (complaint) return std::move(*complaint);
  Result<TextRequest> request = is_tgi ? parse_tgi(fields) : parse_sglang(fields);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<std::string> generate_model_asked(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  const auto text_of = [](const Json* object, std::string_view key) {
    const Json* const value =
        object == nullptr || !object->is_object() ? nullptr : object->find(key);
    return value != nullptr && value->is_string() ? value->as_string() : std::string();
  };
  if (json.find("inputs") != nullptr) return text_of(json.find("parameters"), "adapter_id");
  std::string lora = text_of(&json, "lora_path");
  return lora.empty() ? text_of(&json, "model") : lora;
}

Error named_as_given(const TextRequest& request, Error error) {
  if (request.form == TextRequest::Form::kLlamaCpp) return error;
  const std::string quoted = "'" + error.field + "'";
  std::string theirs;
  constexpr std::string_view kPrompt = "prompt";
  if (error.field == kPrompt || error.field.starts_with("prompt[")) {
    theirs = request.prompt + error.field.substr(kPrompt.size());
  }
  for (const Renamed& one : renamed(request.form)) {
    if (one.ours == error.field) theirs = fmt::format("{}.{}", request.parameters, one.theirs);
    if (one.ours == error.field) break;
  }
  if (theirs.empty()) return error;
  const size_t at = error.message.find(quoted);
  if (at != std::string::npos) error.message.replace(at, quoted.size(), "'" + theirs + "'");
  error.field = std::move(theirs);
  return error;
}

}  // namespace pelton::api
