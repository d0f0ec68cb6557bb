// The models of `pelton serve`, each with an engine of its own, under one budget of memory and on
// one set of compute threads. Loaded one after the other beside those that are served already:
// those of the command line in its order, others as the admin listener asks. One that cannot be
// loaded does not keep the others from being served. Owned by the verb; outlives the listeners.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/load_model_request.h"
#include "apps/weights_from.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "executor/compute_threads.h"
#include "node/loaded_model.h"
#include "node/memory_budget.h"
#include "node/model_names.h"
#include "server/admin_server.h"
#include "server/model_loader.h"
#include "server/models_report.h"
#include "server/server.h"

namespace pelton::apps {

// --alias --served-model-name --step-log.
std::vector<cli::Flag> model_name_flags();
// --generation-config --current-date --reasoning-field --pooling --rerank-by
// --allow-control-tokens.
std::vector<cli::Flag> answer_flags();

// Of the command line. Errors: kInvalidArgument.
Result<std::vector<node::NamedModel>> named_models(const cli::Arguments& arguments);

class ModelHost {
 public:
  using Limits = std::vector<std::pair<std::string, int64_t>>;
  struct Parts {  // all outlive it
    const cli::Arguments& arguments;
    const cli::Interrupt& interrupt;
    server::Server& server;
    const base::Clock& clock;
    base::Log& log;
    server::FaultInjection& faults;  // of those that compute nothing
    node::TokenizerCache& tokenizers;
    std::optional<int64_t> sleep_after_ns;  // none: models do not
    // Models came or went, or one is in doubt; on any thread.
    std::function<void()> health_changed;
    // What a model with such an engine is served within, for /server_info; on the load thread.
    std::function<Limits(const engine::Engine::Options&)> limits;
    WeightsFrom* weights = nullptr;  // null: models are here, or come from the hub
  };

  explicit ModelHost(Parts parts);
  ~ModelHost();

  // What the flags say of a model. Errors: kInvalidArgument.
  static Result<node::LoadedModel::Options> options_of(const cli::Arguments& arguments,
                                                       const base::Clock& clock);

  // Those that the server begins with; returns when all have been tried. Gives a line of each, what
  // a person wants to know of it: "NAME: avx512 kernels, ...". Errors: of names; of the only
  // model, or the first one's where none could be loaded; kCancelled when the interrupt is pending.
  Result<std::vector<std::string>> load(const std::vector<node::NamedModel>& models);

  // What the admin listener asks it for; `listener`: the public one.
  server::AdminServer::Parts administration(const net::HttpServer& listener);

  // Lets the answers of all models go on for so long, together; no load begins any more.
  void drain(int64_t ms);
  // health_changed is called no more.
  void stop_watching();

 private:
  struct Hosted;
  // One load: what the flags and the request say of it.
  struct Plan {
    node::NamedModel named;
    std::shared_ptr<const cli::Arguments> arguments;
    node::LoadedModel::Options options;
    // Made by its first load, kept while it sleeps; null: it has none.
    std::shared_ptr<std::shared_ptr<server::AdapterRegistry>> adapters =
        std::make_shared<std::shared_ptr<server::AdapterRegistry>>();
    bool is_only = false;  // no other model is served: lines of the log need not name it
    // Whether words of --lora-modules and --lora-folder that name no model are its own.
    bool has_unnamed_modules = true;
    bool has_unnamed_folders = true;
    bool has_unnamed_speech = true;  // likewise of --speech-decoder
  };

  // Errors: kInvalidArgument with the field.
  Result<server::ModelLoader::Order> order(const api::LoadModelRequest& asked);
  server::ModelMemory memory() const;
  server::ModelLoader::Order order_of(Plan plan, std::shared_ptr<std::string> line);
  Result<std::shared_ptr<Hosted>> load_one(const Plan& plan, const server::ModelLoader::Stop& stop);
  // Of all models; made by the first one.
  const std::shared_ptr<executor::ComputeThreads>& compute_threads(
      const executor::LocalExecutor::Options& options);
  Result<std::shared_ptr<Hosted>> load_speech(const Plan& plan, const std::string& folder);
  Result<void> add_adapters(const Plan& plan, Hosted& hosted, const std::function<bool()>& stopped);
  Result<void> finish(const Plan& plan, Hosted& hosted);
  void report_health();

  const Parts parts_;
  node::MemoryBudget budget_;
  std::shared_ptr<executor::ComputeThreads> compute_threads_;  // the load thread's; null: none yet
  std::mutex health_mutex_;
  bool reports_health_ = true;  // guarded by health_mutex_
  server::ModelLoader loader_;  // last: its threads use all of the above
};

}  // namespace pelton::apps
