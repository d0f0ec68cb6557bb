// POST /v1/audio/speech: text -> pieces -> prompts -> engine -> Generation -> sound. GET
// /v1/audio/voices.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "api/speech_request.h"
#include "net/url.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "server/request_pipeline.h"
#include "server/speech_answer.h"
#include "server/speech_plan.h"
#include "server/speech_use.h"
#include "speech/text_pieces.h"

namespace pelton::server {
namespace {

class Speech final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return plan_.read(body, scope.model);
  }
  Fields fields(const ServedModel&) const override {
    const api::SpeechRequest& request = plan_.request();
    return fields_of(request.generation, request.model, request.warnings);
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    return plan_.refusal(scope.model);
  }
  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override;
  void start(Call call, Services& services) override;

 private:
  SpeechPlan plan_;
  std::vector<EngineWork> work_;  // of each piece
};

std::optional<api::ApiError> Speech::prepare(Prepared with, const Scope& scope) {
  plan_.settle(scope.identity);
  const std::vector<std::string> pieces =
      speech::text_pieces(plan_.request().input, speech::kPieceCharsMax);
  for (size_t i = 0; i < pieces.size(); ++i) {
    EngineWork work;
    if (auto error = keep(plan_.work(i, pieces[i], with.deadline_ns, scope), work)) return error;
    work_.push_back(std::move(work));
  }
  return std::nullopt;
}

void Speech::start(Call call, Services& services) {
  // Sound that has been heard cannot be made again elsewhere from where it broke off.
  call.observer = nullptr;
  call.resumed = nullptr;
  const api::SpeechRequest& request = plan_.request();
  const bool streams = request.generation.stream;
  const auto tokens_max = work_.front().request.stop.max_new_tokens;
  const SpeechAnswer::Options options{
      .pieces = work_.size(),
      .format = request.format,
      .framing = request.is_sse ? SpeechAnswer::Framing::kEvents : SpeechAnswer::Framing::kBytes,
      .is_whole = !streams,
      .encoder = plan_.encoder(*call.model),
      .arrived_ns = call.arrived_ns};
  auto made = services.submit(call, std::move(work_));
  if (!made) return;
  auto answer = std::make_unique<SpeechAnswer>(*call.model, options, services.clock);
  run_generation(services, {.id = plan_.id(),
                            .call = std::move(call),
                            .streams = *std::move(made),
                            .answer = std::move(answer),
                            .mode = streams ? Generation::Mode::kStream : Generation::Mode::kWhole,
                            .output_tokens_max = tokens_max});
}

}  // namespace

void create_speech(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Speech>(), Work::kSampled);
}

void list_voices(Call call, Services& services) {
  const std::vector<std::shared_ptr<const ServedModel>> serving = services.catalogue.serving();
  const std::string asked = net::query_value(call.request.query, "model").value_or("");
  const auto is_meant = [&](const auto& model) { return model->answers_to(asked); };
  if (!asked.empty() && std::ranges::none_of(serving, is_meant)) {
    return call.send(services.no_model(asked));
  }
  std::vector<api::VoiceList> models;
  for (const auto& model : serving) {
    if (model->speech == nullptr || !model->answers_to(asked)) continue;
    models.push_back({.model = model->id, .voices = model->speech->voices});
  }
  call.send(json_reply(api::voices_body(models)));
}

}  // namespace pelton::server
