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

// Whether each of --lora-modules and --lora-folder has one of these models as its base, and no name
// or folder two. Errors: kInvalidArgument.
Result<void> check_lora_bases(const cli::Arguments& arguments,
                              const std::vector<node::NamedModel>& models);

// Whose adapters --lora-modules and --lora-folder mean: the model's of these names. Words that name
// no model are the only model's; one that is loaded later has those of its own request.
struct LoraOwner {
  std::vector<std::string> names = {};  // none: whichever model is meant
  bool has_unnamed_modules = true;
  bool has_unnamed_folders = true;
};
// "NAME=PATH" and vLLM's JSON. Errors: kInvalidArgument, naming the flag.
Result<std::vector<server::AdapterRegistry::Source>> lora_modules(const cli::Arguments& arguments,
                                                                  const LoraOwner& owner);
// "DIR" and "MODEL=DIR".
std::vector<std::string> lora_folders(const cli::Arguments& arguments, const LoraOwner& owner);

}  // namespace pelton::apps
