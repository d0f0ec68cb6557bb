// The models of `pelton serve`, each with an engine of its own, under one budget of memory and on
// one set of compute threads. Loaded one after the other, in the order of the command line, beside
// those that are served already; one that cannot be loaded does not keep the others from being
// served. Owned by the verb, on its thread; outlives all who ask the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "node/loaded_model.h"
#include "node/memory_budget.h"
#include "node/weight_scrubber.h"
#include "server/model_catalogue.h"
#include "server/server.h"
#include "server/watchdog.h"

namespace pelton::apps {

// --alias --served-model-name --step-log.
std::vector<cli::Flag> model_name_flags();

// A model and what clients call it, as the command line says: MODEL ..., --alias. Errors:
// kInvalidArgument.
struct NamedModel {
  std::string model;  // a folder or a hub id
  server::ModelCatalogue::Names names;
};
Result<std::vector<NamedModel>> named_models(const cli::Arguments& arguments);

class ModelHost {
 public:
  struct Parts {  // all outlive it
    const cli::Arguments& arguments;
    const cli::Interrupt& interrupt;
    server::Server& server;
    const base::Clock& clock;
    base::Log& log;
    std::function<void()> health_changed;  // on the watches' threads
  };
  // Of all models alike.
  struct Settings {
    node::LoadedModel::Options options;
    std::vector<std::pair<std::string, int64_t>> limits;  // for /server_info
  };
  static Result<node::LoadedModel::Options> options_of(const cli::Arguments& arguments,
                                                       const base::Clock& clock);

  explicit ModelHost(Parts parts);
  ~ModelHost();

  // Errors: of names; of the only model, or the first one's where none could be loaded; kCancelled
  // when the interrupt is pending.
  Result<void> load(const std::vector<NamedModel>& models, const Settings& settings);

  // One line each, what a person wants to know of it: "gpt-oss on avx512 kernels, ...".
  std::vector<std::string> lines() const;
  // Lets the answers of all models go on for so long, together.
  void drain(int64_t ms);
  // Nobody looks at the weights any more.
  void stop_watching();

 private:
  struct Hosted;

  Result<void> load_one(const NamedModel& model, const Settings& settings, bool alone);

  const Parts parts_;
  node::MemoryBudget budget_;
  std::vector<std::unique_ptr<Hosted>> hosted_;
};

}  // namespace pelton::apps
