// serve --kv-events-endpoint: publishes what the served model's prefix cache holds in vLLM's form
// (cluster/vllm_publisher.h), prompts' tokens with it. Where several models are served nothing is
// published: their blocks would be taken for one another's. Owned by the verb; prompts are noted on
// net threads, a thread of its own publishes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/periodic_thread.h"
#include "cluster/published_blocks.h"
#include "cluster/vllm_publisher.h"
#include "request/generation_request.h"
#include "server/model_catalogue.h"

namespace pelton::server {

class KvEventPublisher {
 public:
  struct Options {
    std::string endpoint;  // "tcp://*:5557"
    cluster::VllmForm form = cluster::VllmForm::kMap;
    uint64_t block_seed = 0;  // of its engines' names
  };
  // `clock` outlives it. Errors: kInvalidArgument, kAddressInUse.
  static Result<std::unique_ptr<KvEventPublisher>> open(const Options& options,
                                                        const base::Clock& clock);

  const std::string& endpoint() const { return publisher_->endpoint(); }
  // A prompt on its way to this model's engine.
  void note_prompt(const ServedModel& model, const request::GenerationRequest& request);
  // Until stop(), which `catalogue` outlives.
  void start(const ModelCatalogue& catalogue);
  void stop() { thread_.reset(); }

 private:
  KvEventPublisher(const Options& options, const base::Clock& clock,
                   std::unique_ptr<cluster::VllmPublisher> publisher);
  void turn(const ModelCatalogue& catalogue);

  const Options options_;
  const base::Clock& clock_;
  const std::unique_ptr<cluster::VllmPublisher> publisher_;
  // A prompt as it came: its blocks' names are computed by the thread.
  struct Prompt {
    std::vector<TokenId> tokens;
    int block_tokens = 0;
  };
  std::mutex mutex_;
  std::vector<Prompt> prompts_;  // guarded by mutex_
  size_t prompt_tokens_ = 0;     // of all of prompts_; guarded by mutex_
  // The thread's.
  std::optional<uint64_t> model_;  // whose events are read, by its serial
  int64_t next_event_ = 0;
  cluster::PublishedBlocks blocks_;
  std::unique_ptr<base::PeriodicThread> thread_;
};

}  // namespace pelton::server
