// The LoRA adapters of a model that `pelton serve` has loaded: what the flags say of them becomes a
// registry that reads their files. Used by ModelHost; on the load thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/lora_flags.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "executor/local_executor.h"
#include "node/loaded_model.h"
#include "server/adapter_registry.h"

namespace pelton::apps {

struct AdapterParts {  // all outlive the registry
  const base::Clock& clock;
  base::Log& log;
};

// Null without --enable-lora. Those that --lora-modules names have been loaded when it returns,
// each as a check of its files; as many as may be are in memory. `stopped` is asked between two.
// Errors: with the field "lora-modules" or "lora-folder"; kCancelled.
Result<std::shared_ptr<server::AdapterRegistry>> make_adapters(
    const cli::Arguments& arguments, const node::LoadedModel& model,
    const node::LoadedModel::Options& options, const LoraOwner& owner,
    const std::function<bool()>& stopped, const AdapterParts& parts);
// What of them /server_info says: numbers and words.
std::vector<std::pair<std::string, int64_t>> adapter_limits(
    const executor::LocalExecutor::Options& executor);
std::vector<std::pair<std::string, std::string>> adapter_facts(
    const cli::Arguments& arguments, const executor::LocalExecutor::Options& executor,
    const LoraOwner& owner);

}  // namespace pelton::apps
