#include "server/kv_event_publisher.h"

#include <chrono>
#include <utility>

#include "engine/engine.h"
#include "engine/executor.h"

namespace pelton::server {
namespace {

constexpr std::chrono::milliseconds kInterval{20};
constexpr int kEventsMax = 4096;               // of one batch
constexpr size_t kKnownMax = size_t{1} << 16;  // blocks whose tokens are kept: some ten MiB
// Prompts that wait for the thread; what comes beyond that is published when a later prompt has it.
constexpr size_t kWaitingTokensMax = size_t{1} << 22;

}  // namespace

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::open(const Options& options,
                                                                 const base::Clock& clock) {
  TRY_ASSIGN(auto publisher, cluster::VllmPublisher::bind(options.endpoint));
  return std::unique_ptr<KvEventPublisher>(
      new KvEventPublisher(options, clock, std::move(publisher)));
}

KvEventPublisher::KvEventPublisher(const Options& options, const base::Clock& clock,
                                   std::unique_ptr<cluster::VllmPublisher> publisher)
    : options_(options),
      clock_(clock),
      publisher_(std::move(publisher)),
      blocks_(options.block_seed, kKnownMax) {}

void KvEventPublisher::note_prompt(const ServedModel& model,
                                   const request::GenerationRequest& request) {
  // Others' readers know nothing of tenants.
  if (!request.cache_salt.empty() || request.adapter.identity != 0) return;
  const int block_tokens = model.engine.capacity().block_tokens;
  std::lock_guard lock(mutex_);
  if (prompt_tokens_ + request.prompt.size() > kWaitingTokensMax) return;
  prompt_tokens_ += request.prompt.size();
  prompts_.push_back({.tokens = request.prompt, .block_tokens = block_tokens});
}

void KvEventPublisher::start(const ModelCatalogue& catalogue) {
  thread_ = std::make_unique<base::PeriodicThread>(
      base::PeriodicThread::Options{.name = "pelton-kvpub", .interval = kInterval},
      [this, &catalogue] { turn(catalogue); });
}

void KvEventPublisher::turn(const ModelCatalogue& catalogue) {
  const auto models = catalogue.serving();
  std::vector<cluster::VllmEvent> said;
  const std::optional<uint64_t> serial =
      models.size() == 1 ? std::optional(models.front()->serial) : std::nullopt;
  std::vector<Prompt> prompts;
  {
    std::lock_guard lock(mutex_);
    prompts.swap(prompts_);
    prompt_tokens_ = 0;
  }
  for (const Prompt& prompt : prompts) blocks_.learn(prompt.tokens, prompt.block_tokens);
  if (serial != model_) {
    blocks_.clear(said);
    next_event_ = 0;
    model_ = serial;
  }
  if (serial) {
    const engine::Engine& engine = models.front()->engine;
    const int group = widest_group(engine.capacity().groups);
    const auto reading = engine.kv_events().read({.from = next_event_, .events_max = kEventsMax});
    // What was removed unheard would be taken for held.
    if (reading.missed > 0) blocks_.clear(said);
    next_event_ = reading.next;
    for (const auto& event : reading.events) {
      if (event.tier == 0 && event.group == group) blocks_.apply(event, said);  // on the device
    }
    blocks_.say_learnt(said);
  }
  if (said.empty()) return;
  publisher_->publish(said, options_.form, static_cast<double>(clock_.unix_ms()) * 1e-3);
}

}  // namespace pelton::server
