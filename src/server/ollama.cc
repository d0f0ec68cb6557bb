// Ollama's API: /api/chat, /api/generate, /api/embed, /api/tags, /api/show, /api/ps and
// /api/version, on the way of /v1's requests.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/json_object.h"
#include "api/ollama_request.h"
#include "api/ollama_response.h"
#include "base/json_writer.h"
#include "server/answer_guide.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/embedding_request.h"
#include "server/endpoints.h"
#include "server/fill_in_middle.h"
#include "server/ollama_answer.h"
#include "server/pooled_work.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

api::ApiError ollama_error(const Error& error) {
  return api::api_error(api::in_ollama_words(error));
}

// Either of the two that sample: through the model's chat format, or as a plain text.
class OllamaGeneration final : public ModelRequest {
 public:
  enum class Route { kChat, kGenerate };
  explicit OllamaGeneration(Route route) : route_(route) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    const api::RequestLimits limits = scope.model.request_limits();
    auto asked = route_ == Route::kChat
                     ? api::parse_ollama_chat(body, limits)
                     : api::parse_ollama_generate(body, limits, scope.model.chat != nullptr);
    if (!asked.ok()) return api::api_error(asked.error());
    asked_ = *std::move(asked);
    if (asked_.is_chat) {
      auto parsed = api::parse_chat_request(asked_.body, limits);
      if (!parsed.ok()) return ollama_error(parsed.error());
      chat_ = std::make_shared<const api::ChatRequest>(*std::move(parsed));
    } else {
      auto parsed = api::parse_completion_request(asked_.body, limits);
      if (!parsed.ok()) return ollama_error(parsed.error());
      text_ = std::make_shared<const api::CompletionRequest>(*std::move(parsed));
    }
    asked_.body.clear();
    return std::nullopt;
  }

  Fields fields(const ServedModel& model) const override {
    return chat_ != nullptr ? fields_of(chat_->generation, chat_->model, warnings_of(*chat_, model))
                            : fields_of(text_->generation, text_->model, text_->warnings);
  }

  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (asked_.loads) return std::nullopt;
    const std::optional<Error> error =
        chat_ != nullptr ? scope.model.no_chat() : scope.model.no_text("prompt", TextUse::kPrompt);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    if (chat_ != nullptr) return chat_guide_of(chat_, model);
    return [request = text_, &model](const GrammarStore::TenantView& grammars) {
      return text_guide(request->generation.format, model, grammars);
    };
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    head_.head = {.model = scope.model.shown_name(chat_ != nullptr ? chat_->model : text_->model),
                  .is_chat = route_ == Route::kChat};
    head_.clock = &scope.services.clock;
    head_.shows_logprobs = (chat_ != nullptr ? chat_->top_logprobs : text_->logprobs) >= 0;
    if (asked_.loads) return std::nullopt;
    return chat_ != nullptr ? prepare_chat(with, scope) : prepare_text(with, scope);
  }

  void start(Call call, Services& services) override {
    head_.arrived_ns = call.arrived_ns;
    if (asked_.loads) return send_loaded(call, services);
    const ServedModel& model = *call.model;  // which goes with the call
    if (chat_ == nullptr) {
      const api::GenerationFields& fields = text_->generation;
      const bool stream = fields.stream;
      StopStrings stop = stop_strings(fields);
      return start_generation(std::move(call), services, std::move(work_), [&] {
        return std::make_unique<TextAnswer>(
            model, TextAnswer::Options{.stop = std::move(stop), .stream = stream},
            ollama_text_writer(head_));
      });
    }
    work_.has_sampled_turns = has_sampled_turns_;
    start_generation(std::move(call), services, std::move(work_), [&] {
      return std::make_unique<OllamaAnswer>(
          model, OllamaAnswer::Options{.head = head_,
                                       .turn = std::move(turn_),
                                       .shows_thinking = asked_.shows_thinking,
                                       .stream = chat_->generation.stream});
    });
  }

 private:
  std::optional<api::ApiError> prepare_chat(Prepared& with, const Scope& scope) {
    turn_ = turn_options(*chat_, scope.model);
    Result<ChatPrompt> made = scope.services.chat_prompt_of(*chat_, scope.model, scope.tenant,
                                                            scope.identity, turn_.opening);
    if (!made.ok()) return ollama_error(made.error());
    ChatPrompt prompt = *std::move(made);
    scope.use_known_prompt(prompt.tokens);
    turn_.place = {.turns = &scope.services.turn_cache, .history = prompt.history};
    has_sampled_turns_ = prompt.has_sampled_turns;
    return keep(
        engine_work(scope, chat_->generation,
                    {.id = random_id("ollama-", {.seed = scope.identity.draw(), .counter = 0}),
                     .prompt = std::move(prompt.tokens),
                     .prompt_field = route_ == Route::kChat ? "messages" : "prompt",
                     .prompt_kind = api::ContextLength::Prompt::kMessages,
                     .deadline_ns = with.deadline_ns,
                     .logprobs = chat_->top_logprobs,
                     .guide = std::move(with.guide),
                     .seed_if_none = scope.identity.draw_seed(),
                     .may_call = !chat_->tools.empty(),
                     .reasoning = prompt.reasoning}),
        work_);
  }

  std::optional<api::ApiError> prepare_text(Prepared& with, const Scope& scope) {
    const ServedModel& model = scope.model;
    const bool has_suffix = !text_->suffix.empty();
    auto tokens = completion_prompt(text_->prompts.front(), model, "prompt", !has_suffix);
    if (!tokens.ok()) return ollama_error(tokens.error());
    std::vector<TokenId> stops;
    if (has_suffix) {
      auto middle = fill_in_middle(model.tokenizer, *tokens, model.tokenizer.encode(text_->suffix));
      if (!middle.ok()) return ollama_error(middle.error());
      tokens = std::move(middle->prompt);
      const std::span<const TokenId> begin = model.tokenizer.prompt_begin();
      tokens->insert(tokens->begin(), begin.begin(), begin.end());
      stops = std::move(middle->stops);
    }
    auto error =
        keep(engine_work(scope, text_->generation,
                         {.id = random_id("ollama-", {.seed = scope.identity.draw(), .counter = 0}),
                          .prompt = *std::move(tokens),
                          .prompt_field = "prompt",
                          .deadline_ns = with.deadline_ns,
                          .logprobs = text_->logprobs,
                          .guide = std::move(with.guide),
                          .seed_if_none = scope.identity.draw_seed()}),
             work_);
    std::vector<TokenId>& all = work_.request.stop.stop_tokens;
    all.insert(all.end(), stops.begin(), stops.end());
    return error;
  }

  // It is in memory by now, and stays there where models do not sleep, whatever is asked.
  void send_loaded(const Call& call, Services& services) {
    const bool goes = asked_.unloads && call.model->state->on_idle != nullptr;
    const api::OllamaEnd end{.reason = goes ? "unload" : "load", .timings = {}};
    std::string body;
    api::append_ollama_object(head_.head, services.clock.unix_ms(), {}, &end, body);
    call.send(json_reply(std::move(body)));
  }

  const Route route_;
  api::OllamaRequest asked_;
  std::shared_ptr<const api::ChatRequest> chat_;  // one of the two
  std::shared_ptr<const api::CompletionRequest> text_;
  OllamaAnswerHead head_;
  ChatTurn::Options turn_;
  bool has_sampled_turns_ = false;
  EngineWork work_;
};

class OllamaEmbedding final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    const api::RequestLimits limits = scope.model.request_limits();
    auto asked = api::parse_ollama_embed(body, limits);
    if (!asked.ok()) return api::api_error(asked.error());
    truncates_ = asked->truncates;
    auto parsed = api::parse_embedding_request(asked->body, limits);
    if (!parsed.ok()) return ollama_error(parsed.error());
    request_ = *std::move(parsed);
    return std::nullopt;
  }
  Fields fields(const ServedModel&) const override {
    const api::EmbeddingFields& fields = request_.fields;
    return {.model = fields.model,
            .warnings = fields.warnings,
            .timeout_s = fields.timeout_s,
            .user = fields.user,
            .keep_alive_ns = fields.keep_alive_ns,
            .asked = {.dimensions = request_.dimensions}};
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (auto error = dimensions_error(scope.model, request_.dimensions, "dimensions")) return error;
    const std::optional<Error> error = no_text_inputs(scope.model, request_.inputs, "input");
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }
  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    model_ = scope.model.shown_name(request_.fields.model);
    const Result<std::string> ahead = prompt_ahead(scope.model, request_.fields);
    if (!ahead.ok()) return ollama_error(ahead.error());
    PooledPrompts prompts;
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      put_ahead(*ahead, request_.inputs[i]);
      auto tokens =
          completion_prompt(request_.inputs[i], scope.model, "input", request_.adds_special);
      if (!tokens.ok()) return ollama_error(tokens.error());
      if (truncates_) {
        scope.model.tokenizer.cut_prompt(*tokens, static_cast<size_t>(text_tokens_max(scope.model)),
                                         tokenizer::Tokenizer::Cut::kEnd);
      }
      prompts.add(api::item_path("input", i), *std::move(tokens));
    }
    const std::string id = random_id("embd-", {.seed = scope.identity.draw(), .counter = 0});
    return keep(std::move(prompts).work(id, request_.fields, with, scope), work_);
  }
  void start(Call call, Services& services) override {
    const int64_t arrived_ns = call.arrived_ns;
    start_pooling(
        std::move(call), services, std::move(work_),
        [model = std::move(model_), dimensions = request_.dimensions,
         normalises = request_.normalises, arrived_ns, &clock = services.clock](Embeddings made) {
          finish_vectors(made.vectors, {.dimensions = dimensions, .normalises = normalises});
          return api::ollama_embedding_body(model, made.vectors, made.prompt_tokens,
                                            clock.now_ns() - arrived_ns);
        });
  }

 private:
  api::EmbeddingRequest request_;
  bool truncates_ = true;
  std::string model_;
  PooledWork work_;
};

// Where there are several models, the one that is asked for by the name that they know.
void run_ollama(Call call, Services& services, std::unique_ptr<ModelRequest> request, Work work) {
  if (services.catalogue.only() == nullptr) {
    Result<std::string> asked = api::model_asked(call.request.body);
    if (asked.ok()) call.model_asked = std::string(api::without_latest(*asked));
  }
  run_request(std::move(call), services, std::move(request), work);
}

api::OllamaModel described(const ServedModel& model, const std::string& name) {
  api::OllamaModel shown{.name = name,
                         .modified_s = model.created,
                         .digest = api::ollama_digest(name),
                         .context_max = model.context_limit(),
                         .vocab_size = model.vocab_size,
                         .can_chat = model.chat != nullptr,
                         .can_embed = !model.engine.capacity().generates()};
  if (model.runtime) {
    for (const auto& [key, value] : model.runtime()) {
      if (key == "weights") shown.quantization = value;
    }
  }
  if (model.description != nullptr) shown.license = model.description->license_text;
  return shown;
}

// Under `name`, of the model that computes it. Its licence is its own, and no part of these
// answers.
api::OllamaModel described(const AdapterRegistry::Info& adapter, api::OllamaModel base) {
  base.parent = std::exchange(base.name, adapter.name);
  base.modified_s = adapter.created;
  base.digest = api::ollama_digest(adapter.name);
  base.license.clear();
  return base;
}

// Those of a model; `which` is asked of each.
template <typename Which>
void add_adapters(const std::shared_ptr<AdapterRegistry>& adapters, const api::OllamaModel& base,
                  std::vector<api::OllamaModel>& models, const Which& which) {
  if (adapters == nullptr) return;
  for (const AdapterRegistry::Info& adapter : adapters->list()) {
    if (which(adapter)) models.push_back(described(adapter, base));
  }
}

api::OllamaModel described(const ModelCatalogue::Entry& asleep) {
  return {.name = asleep.names.id,
          .modified_s = asleep.created,
          .digest = api::ollama_digest(asleep.names.id),
          .context_max = asleep.context_max};
}

// Of those that are in memory, by each of their names.
std::vector<std::pair<std::shared_ptr<const ServedModel>, api::OllamaModel>> all_models(
    const Services& services) {
  std::vector<std::pair<std::shared_ptr<const ServedModel>, api::OllamaModel>> all;
  for (const auto& model : services.catalogue.serving()) {
    all.emplace_back(model, described(*model, model->id));
    for (const std::string& alias : model->aliases)
      all.emplace_back(model, described(*model, alias));
  }
  return all;
}

}  // namespace

void ollama_chat(Call call, Services& services) {
  run_ollama(std::move(call), services,
             std::make_unique<OllamaGeneration>(OllamaGeneration::Route::kChat), Work::kSampled);
}

void ollama_generate(Call call, Services& services) {
  run_ollama(std::move(call), services,
             std::make_unique<OllamaGeneration>(OllamaGeneration::Route::kGenerate),
             Work::kSampled);
}

void ollama_embed(Call call, Services& services) {
  run_ollama(std::move(call), services, std::make_unique<OllamaEmbedding>(), Work::kPooled);
}

// One that sleeps answers as the others do, and so is listed.
void ollama_tags(Call call, Services& services) {
  std::vector<api::OllamaModel> models;
  for (auto& [model, shown] : all_models(services)) models.push_back(std::move(shown));
  const auto table = services.catalogue.table();
  for (const ModelCatalogue::Entry& entry : table->entries) {
    const bool serves = entry.state == ModelCatalogue::State::kServing;
    if (!serves && !entry.is_dormant()) continue;
    const api::OllamaModel base =
        serves ? described(*entry.model, entry.names.id) : described(entry);
    if (!serves) models.push_back(base);
    add_adapters(entry.adapters, base, models, [](const auto&) { return true; });
  }
  call.send(json_reply(api::ollama_tags_body(models)));
}

void ollama_ps(Call call, Services& services) {
  std::vector<api::OllamaModel> models;
  std::vector<int64_t> ends_ms;
  for (const auto& model : services.catalogue.serving()) {
    const api::OllamaModel base = described(*model, model->id);
    models.push_back(base);
    add_adapters(model->adapters, base, models,
                 [](const AdapterRegistry::Info& adapter) { return !adapter.digest.empty(); });
    const int64_t keeps_ns = model->state->keep_alive_ns;
    const bool stays = keeps_ns == ModelState::kStays;
    ends_ms.resize(models.size(),
                   stays ? INT64_MAX : services.clock.unix_ms() + keeps_ns / 1'000'000);
  }
  call.send(json_reply(api::ollama_ps_body(models, ends_ms)));
}

void ollama_show(Call call, Services& services) {
  const Result<std::string> name = api::parse_ollama_show(call.request.body, {});
  if (!name.ok()) return call.send(api::api_error(name.error()));
  if (const std::shared_ptr<const ServedModel> model = services.catalogue.find(*name)) {
    return call.send(json_reply(api::ollama_show_body(described(*model, *name))));
  }
  const auto table = services.catalogue.table();
  const ModelCatalogue::Entry* const entry = table->find_adapters_of(*name);
  std::vector<api::OllamaModel> found;
  if (entry != nullptr) {
    const api::OllamaModel base =
        entry->model == nullptr ? described(*entry) : described(*entry->model, entry->names.id);
    add_adapters(entry->adapters, base, found,
                 [&](const AdapterRegistry::Info& adapter) { return adapter.name == *name; });
  }
  if (found.empty()) return call.send(services.no_model(*name));
  call.send(json_reply(api::ollama_show_body(found.front())));
}

}  // namespace pelton::server
