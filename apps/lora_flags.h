// --enable-lora and all that says something of adapters: of `serve`, and of `plan` as far as memory
// is concerned.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "executor/local_executor.h"
#include "node/model_names.h"
#include "server/adapter_registry.h"

namespace pelton::apps {

// --enable-lora --max-loras --max-cpu-loras --max-lora-rank --lora-targets.
std::vector<cli::Flag> lora_memory_flags();
// Those, --lora-modules, --lora-folder and what else serving them takes.
std::vector<cli::Flag> lora_flags();

// --max-loras and --max-cpu-loras. Errors: kInvalidArgument.
struct LoraPlaces {
  int active = 0;  // different ones in a batch
  int kept = 0;    // in memory
};
Result<LoraPlaces> read_lora_places(const cli::Arguments& arguments);

// Nothing without --enable-lora. Errors: kInvalidArgument.
Result<void> read_lora_memory_flags(const cli::Arguments& arguments,
                                    executor::LocalExecutor::Options& options);

// Whether each of --lora-modules has one of these models as its base. Errors: kInvalidArgument.
Result<void> check_lora_bases(const cli::Arguments& arguments,
                              const std::vector<node::NamedModel>& models);

// --lora-modules: those whose base is the model of these names, or that name none; all, where
// `names` is empty. "NAME=PATH" and vLLM's JSON. Errors: kInvalidArgument, naming the flag.
Result<std::vector<server::AdapterRegistry::Source>> lora_modules(
    const cli::Arguments& arguments, const std::vector<std::string>& names);

}  // namespace pelton::apps
