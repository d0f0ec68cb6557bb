// One text continued in other servers' words: llama.cpp's /completion, TGI's and SGLang's
// /generate, on the way of a completion; what llama.cpp's clients ask of the server beside
// (/props, /slots, /apply-template); and why there are no images and no sound.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/llama_slots.h"
#include "api/text_request.h"
#include "base/check.h"
#include "base/json_writer.h"
#include "net/url.h"
#include "server/answer_guide.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/endpoints.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"
#include "server/text_writers.h"

namespace pelton::server {
namespace {

using Form = api::TextRequest::Form;

class TextGeneration final : public ModelRequest {
 public:
  using Parse = Result<api::TextRequest> (*)(std::string_view body,
                                             const api::RequestLimits& limits);
  explicit TextGeneration(Parse parse, bool streams) : parse_(parse), streams_(streams) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    const api::RequestLimits limits = scope.model.request_limits();
    auto asked = parse_(body, limits);
    if (!asked.ok()) return api::api_error(asked.error());
    asked_ = *std::move(asked);
    auto parsed = api::parse_completion_request(asked_.body, limits);
    if (!parsed.ok()) return in_their_words(parsed.error());
    asked_.body.clear();
    if (streams_) parsed->generation.stream = true;
    request_ = std::make_shared<const api::CompletionRequest>(*std::move(parsed));
    return refused();
  }
  Fields fields(const ServedModel&) const override {
    return fields_of(request_->generation, request_->model, request_->warnings);
  }
  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return [request = request_, &model](const GrammarStore::TenantView& grammars) {
      return text_guide(request->generation.format, model, grammars);
    };
  }
  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    const ServedModel& model = scope.model;
    auto tokens =
        completion_prompt(request_->prompts.front(), model, "prompt", request_->adds_special);
    if (!tokens.ok()) return in_their_words(tokens.error());
    if (const auto error = model.no_text("prompt", TextUse::kOption)) return api::api_error(*error);
    head_ = {.id = random_id("cmpl-", {.seed = scope.identity.draw(), .counter = 0}),
             .model = model.shown_name(request_->model),
             .prompt = {},
             .prompt_tokens = static_cast<int64_t>(tokens->size()),
             // Of 53 bits, so that a client whose numbers are doubles can send it again.
             .seed = scope.identity.draw_seed() >> 11,
             .clock = &scope.services.clock,
             .shows_tokens = asked_.shows_tokens,
             .shows_details = asked_.shows_details};
    if (asked_.form == Form::kLlamaCpp || asked_.shows_prompt) {
      head_.prompt = model.tokenizer.decode(*tokens);
    }
    return keep(engine_work(scope, request_->generation,
                            {.id = head_.id,
                             .prompt = *std::move(tokens),
                             .prompt_field = "prompt",
                             .deadline_ns = with.deadline_ns,
                             .logprobs = asked_.form == Form::kTgi ? 0 : -1,
                             .guide = std::move(with.guide),
                             .seed_if_none = head_.seed}),
                work_);
  }
  void start(Call call, Services& services) override {
    const ServedModel& model = *call.model;  // which goes with the call
    head_.arrived_ns = call.arrived_ns;
    head_.seed = request_->generation.seed.value_or(head_.seed);
    TextAnswer::Options options{.stop = stop_strings(request_->generation),
                                .stream = request_->generation.stream,
                                .shows_special = request_->shows_marks};
    if (asked_.form == Form::kTgi) options.last_with_end = work_.request.stop.max_new_tokens;
    start_generation(std::move(call), services, std::move(work_), [&] {
      return std::make_unique<TextAnswer>(model, std::move(options), writer());
    });
  }

 private:
  api::ApiError in_their_words(const Error& error) const {
    return api::api_error(api::named_as_given(asked_, error));
  }
  // What a completion's own answer has and these have not.
  std::optional<api::ApiError> refused() const {
    const auto unsupported = [this](const char* field) {
      return in_their_words({ErrorCode::kUnsupported,
                             fmt::format("'{}' is not supported here (see /v1/completions)", field),
                             field});
    };
    const api::GenerationFields& fields = request_->generation;
    if (request_->beams) return unsupported("use_beam_search");
    if (request_->echo) return unsupported("echo");
    if (!request_->suffix.empty()) return unsupported("suffix");
    if (fields.prompt_logprobs) return unsupported("prompt_logprobs");
    // TGI's tokens have theirs.
    if (asked_.form == Form::kLlamaCpp && request_->logprobs >= 0) return unsupported("logprobs");
    if (fields.return_token_ids) return unsupported("return_token_ids");
    if (fields.tokens_as_ids) return unsupported("return_tokens_as_token_ids");
    if (fields.n > 1) return unsupported("best_of");  // more than one would be made
    if (fields.max_tokens == 0) return unsupported("max_tokens");
    return std::nullopt;
  }
  std::unique_ptr<TextWriter> writer() {
    switch (asked_.form) {
      case Form::kLlamaCpp:
        return llama_writer(std::move(head_));
      case Form::kTgi:
        return tgi_writer(std::move(head_));
      case Form::kSglang:
        return sglang_writer(std::move(head_));
    }
    return nullptr;
  }

  const Parse parse_;
  const bool streams_;
  api::TextRequest asked_;
  std::shared_ptr<const api::CompletionRequest> request_;
  TextHead head_;
  EngineWork work_;
};

// The prompt of a chat as text, and nothing more.
class TemplateApplied final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_chat_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel& model) const override {
    return {.model = request_.model, .warnings = warnings_of(request_, model)};
  }
  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    std::vector<TokenId> opening = turn_options(request_, scope.model).opening;
    const Result<ChatPrompt> prompt =
        scope.services.chat_prompt_of(request_, scope.model, scope.tenant, scope.identity, opening);
    if (!prompt.ok()) return api::api_error(prompt.error());
    base::JsonWriter(answer_)
        .begin_object()
        .key("prompt")
        .string(scope.model.tokenizer.decode(prompt->tokens))
        .end_object();
    return std::nullopt;
  }
  void start(Call call, Services&) override { call.send(json_reply(std::move(answer_))); }

 private:
  api::ChatRequest request_;
  std::string answer_;
};

// The model that llama.cpp's clients mean, which serves one: by "?model=" elsewhere, or the first.
std::shared_ptr<const ServedModel> meant(const Call& call, const Services& services) {
  const auto models = services.catalogue.serving();
  if (models.empty()) {
    call.send(services.no_model(""));
    return nullptr;
  }
  return models.front();
}

// Its model is not where other bodies have theirs.
void run_generate(Call call, Services& services, bool streams) {
  if (services.catalogue.only() == nullptr) {
    Result<std::string> asked = api::generate_model_asked(call.request.body);
    if (asked.ok()) call.model_asked = *std::move(asked);
  }
  run_request(std::move(call), services,
              std::make_unique<TextGeneration>(api::parse_any_generate, streams), Work::kSampled);
}

}  // namespace

void llama_completion(Call call, Services& services) {
  run_request(std::move(call), services,
              std::make_unique<TextGeneration>(api::parse_llama_completion, false), Work::kSampled);
}

void any_generate(Call call, Services& services) {
  run_generate(std::move(call), services, false);
}

void generate_stream(Call call, Services& services) {
  run_generate(std::move(call), services, true);
}

void apply_template(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<TemplateApplied>(), std::nullopt);
}

void llama_props(Call call, Services& services) {
  const auto model = meant(call, services);
  if (model == nullptr) return;
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("default_generation_settings").begin_object();
  writer.key("n_ctx").integer(model->context_limit()).key("params").begin_object();
  writer.key("temperature").number(model->sampling.temperature);
  writer.key("top_k").integer(model->sampling.top_k).key("top_p").number(model->sampling.top_p);
  writer.key("min_p").number(model->sampling.min_p);
  writer.key("repeat_penalty").number(model->sampling.repetition_penalty);
  writer.key("n_predict").integer(-1).end_object().end_object();
  writer.key("total_slots").integer(model->engine.capacity().sequences_max);
  writer.key("model_alias").string(model->id).key("model_path").string(model->id);
  writer.key("chat_template").string("").key("modalities").begin_object();
  writer.key("vision").boolean(false).key("audio").boolean(false).end_object();
  writer.key("build_info").string("pelton " + services.options.version).end_object();
  call.send(json_reply(std::move(body)));
}

void llama_slots(Call call, Services& services) {
  const auto model = meant(call, services);
  if (model == nullptr) return;
  const std::array<api::LlamaSlots, 1> all = {{{.count = model->engine.capacity().sequences_max,
                                                .running = model->engine.stats().running,
                                                .context_tokens = model->context_limit()}}};
  const bool must_be_free =
      !net::query_value(call.request.query, "fail_on_no_slot").value_or("").empty();
  if (must_be_free && !api::has_free_slot(all)) return call.send(api::no_free_slot());
  call.send(json_reply(api::llama_slots_body(all)));
}

// A modality that no model here has: not an address that nobody knows.
void modality_missing(Call call, Services&) {
  struct Missing {
    std::string_view path;
    std::string_view reason;
  };
  constexpr std::array<Missing, 4> kMissing = {
      {{"/v1/images/", "the models that this server runs read and write text, and no images"},
       {"/v1/videos", "the models that this server runs read and write text, and no videos"},
       {"/v1/moderations",
        "no model here judges by OpenAI's categories; a classifier's labels are at /classify"},
       {"/v1/realtime",
        "no model here talks; /v1/realtime?intent=transcription hears, where a Whisper model is "
        "served, and text over a WebSocket is answered at /v1/responses"}}};
  const std::string& path = call.request.path;
  const auto* const missing = std::ranges::find_if(
      kMissing, [&](const Missing& one) { return path.starts_with(one.path); });
  CHECK(missing != kMissing.end());
  call.send({.status = 501,
             .message = fmt::format("{} is not answered here: {}", path, missing->reason),
             .type = "invalid_request_error",
             .param = {},
             .code = "modality_not_supported"});
}

}  // namespace pelton::server
