// POST /v1/completions: text or tokens -> engine -> Generation, n choices for each prompt.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "api/completion_request.h"
#include "base/random.h"
#include "server/answer_guide.h"
#include "server/beam_completion.h"
#include "server/completion_answer.h"
#include "server/completion_prompt.h"
#include "server/endpoints.h"
#include "server/fill_in_middle.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/random_id.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

CompletionAnswer::Options answer_options(const api::CompletionRequest& request,
                                         const ServedModel& model, const std::string& id,
                                         int64_t created_s) {
  const api::GenerationFields& fields = request.generation;
  return {.head = {.id = id, .created = created_s, .model = model.shown_name(request.model)},
          .choice_count = request.prompts.size() * static_cast<size_t>(fields.n),
          .choices_per_prompt = static_cast<size_t>(fields.n),
          .choices_shown = static_cast<size_t>(request.choices_shown),
          .stop = stop_strings(fields),
          .logprobs = request.logprobs,
          .prompt_logprobs = fields.prompt_logprobs,
          .prompt_alone = fields.max_tokens == 0,
          .stream = fields.stream,
          .include_usage = fields.include_usage,
          .continuous_usage = fields.continuous_usage,
          .timings = fields.timings,
          .shows_marks = request.shows_marks,
          .ends_marked = fields.ignore_eos,
          .tokens_as_ids = fields.tokens_as_ids || !model.has_text,
          .token_ids = fields.return_token_ids,
          .stop_token_ids = fields.stop_token_ids};
}

// "max_tokens": 0: the prompts alone, as echoes or counts; the engine is not asked.
void end_without_tokens(const std::vector<int64_t>& prompt_sizes, int n, CompletionAnswer& answer) {
  for (size_t i = 0; i < prompt_sizes.size() * static_cast<size_t>(n); ++i) {
    answer.end(i, {.reason = engine::FinishReason::kLength,
                   .prompt_tokens = static_cast<int>(prompt_sizes[i / static_cast<size_t>(n)])});
  }
}

class Completion final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_completion_request(body, scope.model.request_limits()), request_);
  }

  Fields fields(const ServedModel&) const override {
    return fields_of(request_->generation, request_->model, request_->warnings);
  }

  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return [request = request_, &model](const GrammarStore::TenantView& grammars) {
      return text_guide(request->generation.format, model, grammars);
    };
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override;
  void start(Call call, Services& services) override;

 private:
  // An echo's log-probabilities are as many as the answer's.
  int prompt_logprobs() const {
    return std::max(request_->generation.prompt_logprobs.value_or(-1),
                    request_->echo ? request_->logprobs : -1);
  }
  std::optional<api::ApiError> prepare_prompt(size_t index, const Prepared& with,
                                              const Scope& scope);
  void describe_prompts(const ServedModel& model);
  void start_beams(Call call, Services& services);

  std::shared_ptr<const api::CompletionRequest> request_;
  std::string id_;
  uint64_t seed_if_none_ = 0;
  int64_t logprobs_shown_ = 0;    // of the prompts so far
  std::vector<EngineWork> work_;  // of each prompt
  std::vector<TokenId> suffix_;   // one for all of them
  std::vector<int64_t> prompt_sizes_;
  CompletionAnswer::Options options_;
};

std::optional<api::ApiError> Completion::prepare(Prepared with, const Scope& scope) {
  id_ = answer_id("cmpl-", request_->generation.request_id, scope.identity.draw());
  seed_if_none_ = scope.identity.draw_seed();
  options_ = answer_options(*request_, scope.model, id_, scope.identity.created_s());
  if (!request_->suffix.empty()) {
    if (const auto error = scope.model.no_text("suffix", TextUse::kOption))
      return api::api_error(*error);
    suffix_ = scope.model.tokenizer.encode(request_->suffix);
  }
  for (size_t i = 0; i < request_->prompts.size(); ++i) {
    if (auto error = prepare_prompt(i, with, scope)) return error;
  }
  describe_prompts(scope.model);
  return std::nullopt;
}

std::optional<api::ApiError> Completion::prepare_prompt(size_t index, const Prepared& with,
                                                        const Scope& scope) {
  const api::GenerationFields& fields = request_->generation;
  // Between a beginning and an end nothing begins: what does stands before both.
  const bool adds_special = request_->adds_special && request_->suffix.empty();
  auto tokens = completion_prompt(request_->prompts[index], scope.model, "prompt", adds_special);
  if (!tokens.ok()) return api::api_error(tokens.error());
  std::vector<TokenId> stops;
  if (!request_->suffix.empty()) {
    auto middle = fill_in_middle(scope.model.tokenizer, *tokens, suffix_);
    if (!middle.ok()) return api::api_error(middle.error());
    tokens = std::move(middle->prompt);
    if (request_->adds_special) {
      const std::span<const TokenId> begin = scope.model.tokenizer.prompt_begin();
      tokens->insert(tokens->begin(), begin.begin(), begin.end());
    }
    stops = std::move(middle->stops);
  }
  if (!fields.stop.empty()) {
    if (const auto error = scope.model.no_text("stop", TextUse::kOption))
      return api::api_error(*error);
  }
  const bool chooses = request_->choices_shown < fields.n;  // by what is likeliest
  EngineWork work;
  auto error = keep(engine_work(scope, fields,
                                {.id = fmt::format("{}/{}", id_, index),
                                 .prompt = *std::move(tokens),
                                 .prompt_field = "prompt",
                                 .deadline_ns = with.deadline_ns,
                                 .logprobs = std::max(request_->logprobs, chooses ? 0 : -1),
                                 .prompt_logprobs = prompt_logprobs(),
                                 .guide = with.guide,
                                 .seed_if_none = base::random_bits(seed_if_none_, index)}),
                    work);
  if (error) return error;
  if (!fields.ignore_eos) {
    std::vector<TokenId>& all = work.request.stop.stop_tokens;
    all.insert(all.end(), stops.begin(), stops.end());
  }
  logprobs_shown_ +=
      static_cast<int64_t>(work.request.prompt.size()) * (prompt_logprobs() + 1) * fields.n;
  work_.push_back(std::move(work));
  if (const auto too_many = too_many_prompt_logprobs(logprobs_shown_, fields)) {
    return api::api_error(*too_many);
  }
  return std::nullopt;
}

// What the answer shows of its prompts.
void Completion::describe_prompts(const ServedModel& model) {
  const bool keeps = request_->generation.return_token_ids || prompt_logprobs() >= 0;
  for (const EngineWork& one : work_) {
    const std::vector<TokenId>& prompt = one.request.prompt;
    prompt_sizes_.push_back(static_cast<int64_t>(prompt.size()));
    options_.prompt_tokens += prompt_sizes_.back();
    if (keeps) options_.prompts.push_back(prompt);
    if (!request_->echo) continue;
    // A bos token is shown where other control tokens are (skip_special_tokens: false).
    const std::span<const TokenId> begin = model.tokenizer.prompt_begin();
    const bool begins = !request_->shows_marks && prompt.size() >= begin.size() &&
                        std::equal(begin.begin(), begin.end(), prompt.begin());
    options_.hidden_prompt_tokens.push_back(begins ? begin.size() : 0);
    options_.echoes.push_back(
        model.tokenizer.decode(std::span(prompt).subspan(options_.hidden_prompt_tokens.back())));
  }
}

void Completion::start_beams(Call call, Services& services) {
  const api::BeamFields& beams = *request_->beams;
  auto answer = std::make_unique<CompletionAnswer>(*call.model, std::move(options_));
  start_beam_search(std::move(call), services,
                    {.prompts = std::move(work_),
                     .answer = std::move(answer),
                     .width = beams.width,
                     .shown = request_->generation.n,
                     .length_penalty = beams.length_penalty,
                     .early_stopping = beams.early_stopping,
                     .logprobs = request_->logprobs});
}

void Completion::start(Call call, Services& services) {
  if (request_->beams) return start_beams(std::move(call), services);
  const api::GenerationFields& fields = request_->generation;
  if (fields.max_tokens == 0 && prompt_logprobs() < 0) work_.clear();  // nothing is computed
  for (EngineWork& one : work_) {
    // It comes with what is asked for, and is not shown.
    if (fields.max_tokens == 0) one.request.stop.max_new_tokens = 1;
  }
  auto streams = services.submit(call, std::move(work_));
  if (!streams) return;
  auto answer = std::make_unique<CompletionAnswer>(*call.model, std::move(options_));
  if (streams->empty()) end_without_tokens(prompt_sizes_, fields.n, *answer);
  run_generation(services,
                 {.id = std::move(id_),
                  .call = std::move(call),
                  .streams = *std::move(streams),
                  .answer = std::move(answer),
                  .mode = fields.stream ? Generation::Mode::kStream : Generation::Mode::kWhole,
                  .output_tokens_max = static_cast<int>(fields.max_tokens.value_or(0))});
}

}  // namespace

void completions(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Completion>(), Work::kSampled);
}

}  // namespace pelton::server
