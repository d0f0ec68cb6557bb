#include "server/request_pipeline.h"

#include <utility>
#include <variant>

#include "server/endpoint.h"
#include "server/generation_facts.h"
#include "server/resumed_answers.h"

namespace pelton::server {
namespace {

// One request on its way. Held by whichever stage it is at.
class Passage : public std::enable_shared_from_this<Passage> {
 public:
  Passage(Services& services, std::unique_ptr<ModelRequest> request)
      : services_(services), request_(std::move(request)) {}

  void begin(Call call, std::optional<Work> work) {
    std::string awaited;
    switch (services_.choose_model(call, awaited)) {
      case Services::Chosen::kAnswered:
        return;
      case Services::Chosen::kAsleep:
        return services_.wait_for_model(
            std::move(call), std::move(awaited),
            [self = shared_from_this(), work](Call woken) { self->begin(std::move(woken), work); });
      case Services::Chosen::kAdapterAway:
        return services_.wait_for_adapter(
            std::move(call), std::move(awaited),
            [self = shared_from_this(), work](Call held) { self->begin(std::move(held), work); });
      case Services::Chosen::kYes:
        break;
    }
    model_ = call.model;
    if (const auto error = wrong_kind(call, work)) return call.send(*error);
    if (work && !services_.admit(call, *work)) return;
    tenant_ = call.tenant;
    if (call.identity == nullptr) {
      call.identity = std::make_shared<RequestIdentity>(
          RequestIdentity{.seed = services_.draw(),
                          .created_ms = services_.clock.unix_ms(),
                          .sampling_seed = services_.draw_sampling_seed()});
    }
    identity_ = call.identity;
    principal_ = call.caller;
    resumed_ = call.resumed;
    body_ = std::move(call.request.body);
    call.request.body.clear();
    services_.prepare_beside(
        std::move(call), Services::Length::kByBody,
        [self = shared_from_this()] {
          self->error_ = self->request_->read(self->body_, self->scope());
          std::string().swap(self->body_);  // it may be large, and is said
        },
        [self = shared_from_this()](Call read) { self->on_read(std::move(read)); });
  }

 private:
  ModelRequest::Scope scope() const {
    ModelRequest::Scope scope{
        .services = services_, .model = *model_, .tenant = tenant_, .identity = *identity_};
    if (resumed_ != nullptr && !resumed_->prompts.empty()) {
      scope.known_prompt = resumed_->prompts.front();
    }
    return scope;
  }

  void on_read(Call call) {
    if (error_) return call.send(*error_);
    ModelRequest::Fields fields = request_->fields(*model_);
    if (!services_.check_model_name(call, fields.model)) return;
    if (const auto error = missing_capability(call)) return call.send(*error);
    if (const auto error = request_->refusal(call, scope())) return call.send(*error);
    const auto deadline_ns = call.deadline_ns(fields.timeout_s, fields.whole);
    if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
    deadline_ns_ = *deadline_ns;
    if (fields.keep_alive_ns) model_->state->keep_alive_ns = *fields.keep_alive_ns;
    call.add_warnings(fields.warnings);
    call.note_asked(fields.asked);
    FormatCompiler::MakeGuide guide = request_->guide(*model_);
    if (!guide) return prepare(std::move(call), std::nullopt);
    services_.with_guide(
        std::move(call),
        {.user = std::string(fields.user), .deadline_ns = deadline_ns_, .make = std::move(guide)},
        [self = shared_from_this()](Call guided, std::optional<grammar::GrammarState> made) {
          self->prepare(std::move(guided), std::move(made));
        });
  }

  // Of a model that hears, or of one that does not.
  std::optional<api::ApiError> wrong_kind(const Call& call, std::optional<Work> work) const {
    const bool hears = call.endpoint != nullptr && call.endpoint->needs == Capability::kTranscribe;
    const bool makes_tokens =
        work || (call.endpoint != nullptr && !hears && call.endpoint->needs != Capability::kNone);
    std::optional<Error> error;
    if (hears) error = model_->no_transcription();
    if (makes_tokens) error = model_->no_tokens();
    if (!error) return std::nullopt;
    api::ApiError refusal = api::api_error(*error);
    if (hears) {  // as speech and pictures are refused where there are none
      refusal.status = 501;
      refusal.code = "modality_not_supported";
    }
    return refusal;
  }

  std::optional<api::ApiError> missing_capability(const Call& call) const {
    if (call.endpoint == nullptr || call.endpoint->needs != Capability::kChat) return std::nullopt;
    const std::optional<Error> error = model_->no_chat();
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  void prepare(Call call, std::optional<grammar::GrammarState> guide) {
    guide_ = std::move(guide);
    // A template is a program.
    const bool runs_template = model_->chat != nullptr && model_->chat->runs_template();
    services_.prepare_beside(
        std::move(call), runs_template ? Services::Length::kUnknown : Services::Length::kByBody,
        [self = shared_from_this()] {
          self->error_ = self->request_->prepare({.guide = std::move(self->guide_),
                                                  .deadline_ns = self->deadline_ns_,
                                                  .principal = self->principal_},
                                                 self->scope());
        },
        [self = shared_from_this()](Call prepared) {
          if (self->error_) return prepared.send(*self->error_);
          self->request_->start(std::move(prepared), self->services_);
        });
  }

  Services& services_;
  std::shared_ptr<const ServedModel> model_;  // goes after what was made of it
  const std::unique_ptr<ModelRequest> request_;
  std::string tenant_;
  std::shared_ptr<RequestIdentity> identity_;
  access::Principal principal_;
  std::shared_ptr<const ResumedAnswers> resumed_;  // null: it begins here
  std::string body_;                               // until it has been read
  std::optional<api::ApiError> error_;
  std::optional<int64_t> deadline_ns_;
  std::optional<grammar::GrammarState> guide_;
};

}  // namespace

void ModelRequest::Scope::use_known_prompt(std::vector<TokenId>& prompt) const {
  if (!known_prompt.empty()) prompt.assign(known_prompt.begin(), known_prompt.end());
}

void run_request(Call call, Services& services, std::unique_ptr<ModelRequest> request,
                 std::optional<Work> work) {
  std::make_shared<Passage>(services, std::move(request))->begin(std::move(call), work);
}

std::variant<EngineWork, api::ApiError> engine_work(const ModelRequest::Scope& scope,
                                                    const api::GenerationFields& fields,
                                                    GenerationSource source) {
  EngineWork work{.id = source.id,
                  .answers = fields.n,
                  .mode = fields.stream ? Generation::Mode::kStream : Generation::Mode::kWhole};
  source.tenant = scope.tenant;
  source.cache_salt = scope.services.access_control.cache_salt(scope.tenant, fields.cache_salt);
  auto made = generation_request(scope.model, fields, std::move(source));
  if (auto* error = std::get_if<api::ApiError>(&made)) return std::move(*error);
  work.request = std::get<request::GenerationRequest>(std::move(made));
  return work;
}

std::weak_ptr<Generation> run_generation(Services& services, Generation::Parts parts) {
  GenerationMeter& meter = parts.call.model->state->meter;  // held with the call
  return Generation::run(std::move(parts), {.log = services.log, .meter = meter});
}

void start_generation(Call call, Services& services, EngineWork work, MakeAnswer make_answer) {
  Generation::Parts parts{.id = work.id,
                          .call = std::move(call),
                          .streams = {},
                          .answer = nullptr,
                          .mode = work.mode,
                          .pacing = work.pacing,
                          .running = work.can_be_controlled ? &services.running_answers : nullptr,
                          .output_tokens_max = work.request.stop.max_new_tokens};
  std::vector<EngineWork> all;
  all.push_back(std::move(work));
  auto streams = services.submit(parts.call, std::move(all));
  if (!streams) return;
  parts.streams = *std::move(streams);
  parts.answer = make_answer();
  run_generation(services, std::move(parts));
}

ModelRequest::Fields fields_of(const api::GenerationFields& generation, std::string_view model,
                               std::vector<std::string> warnings) {
  return {.model = model,
          .warnings = std::move(warnings),
          .timeout_s = generation.timeout_s,
          .whole = generation.stream ? Call::Whole::kNo : Call::Whole::kYes,
          .user = generation.user,
          .keep_alive_ns = generation.keep_alive_ns,
          .asked = sampling_asked(generation)};
}

}  // namespace pelton::server
