#include "server/spoken_item.h"

#include <utility>
#include <variant>
#include <vector>

#include "server/request_pipeline.h"
#include "server/speech_answer.h"
#include "server/speech_plan.h"

namespace pelton::server {
namespace {

class ItemPieces final : public FurtherPieces {
 public:
  struct Parts {
    Services& services;
    std::shared_ptr<SpokenItem> item;
    SpeechPlan plan;
    std::optional<int64_t> deadline_ns;
  };
  explicit ItemPieces(Parts parts) : parts_(std::move(parts)) {}

  void begin(std::shared_ptr<net::Notifier> turns) override {
    parts_.item->turns = std::move(turns);
    parts_.item->notify();  // text may have come meanwhile
  }
  bool is_open() const override { return !parts_.item->committed || !parts_.item->text.is_empty(); }
  Answer::More next(size_t piece, Call& call) override;

 private:
  Parts parts_;
};

Answer::More ItemPieces::next(size_t piece, Call& call) {
  const std::optional<std::string> text = parts_.item->text.next();
  if (!text) return {};
  const ModelRequest::Scope scope{.services = parts_.services,
                                  .model = *call.model,
                                  .tenant = call.tenant,
                                  .identity = *call.identity};
  EngineWork work;
  auto error = keep(parts_.plan.work(piece, *text, parts_.deadline_ns, scope), work);
  if (error) return {.error = std::move(error)};
  auto submitted =
      submit(*call.ticket, *call.model, std::move(work.request),
             {.answers = 1, .outbox = parts_.services.outboxes.of_thread(*call.exchange)});
  if (auto* refused = std::get_if<api::ApiError>(&submitted)) return {.error = std::move(*refused)};
  return {.stream = std::move(std::get<0>(submitted).front())};
}

class ItemRequest final : public ModelRequest {
 public:
  explicit ItemRequest(std::shared_ptr<SpokenItem> item) : item_(std::move(item)) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return plan_.read(body, scope.model);
  }
  Fields fields(const ServedModel&) const override {
    const api::SpeechRequest& request = plan_.request();
    return fields_of(request.generation, request.model, {});
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    return plan_.refusal(scope.model);
  }
  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    plan_.settle(scope.identity);
    deadline_ns_ = with.deadline_ns;
    return keep(plan_.work(0, plan_.request().input, deadline_ns_, scope), work_);
  }
  void start(Call call, Services& services) override;

 private:
  const std::shared_ptr<SpokenItem> item_;
  SpeechPlan plan_;
  std::optional<int64_t> deadline_ns_;
  EngineWork work_;
};

void ItemRequest::start(Call call, Services& services) {
  const int tokens_max = work_.request.stop.max_new_tokens;
  std::vector<EngineWork> first;
  first.push_back(std::move(work_));
  auto made = services.submit(call, std::move(first));
  if (!made) return;
  const SpeechAnswer::Options options{
      .format = plan_.request().format,
      .framing = SpeechAnswer::Framing::kMessages,
      .item_id = item_->id,
      .encoder = plan_.encoder(*call.model),
      .arrived_ns = call.arrived_ns,
      .further = std::make_shared<ItemPieces>(ItemPieces::Parts{
          .services = services, .item = item_, .plan = plan_, .deadline_ns = deadline_ns_})};
  auto answer = std::make_unique<SpeechAnswer>(*call.model, options, services.clock);
  run_generation(services, {.id = plan_.id(),
                            .call = std::move(call),
                            .streams = *std::move(made),
                            .answer = std::move(answer),
                            .mode = Generation::Mode::kStream,
                            .output_tokens_max = tokens_max});
}

}  // namespace

void speak_item(Call call, Services& services, std::shared_ptr<SpokenItem> item) {
  run_request(std::move(call), services, std::make_unique<ItemRequest>(std::move(item)),
              Work::kSampled);
}

}  // namespace pelton::server
