#include "apps/served_adapters.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/model_card.h"
#include "executor/loaded_adapter.h"
#include "lora/adapter.h"
#include "lora/adapter_file.h"

namespace pelton::apps {
namespace {

using server::AdapterRegistry;

api::ModelDescription described(const std::string& path,
                                const AdapterRegistry::Options::MayRead& may_read) {
  checkpoint::ModelCard card = checkpoint::read_model_card(path, may_read);
  return {.license = std::move(card.license),
          .license_name = std::move(card.license_name),
          .license_link = std::move(card.license_link),
          .license_text = std::move(card.license_text),
          .text = std::move(card.text)};
}

// Outlives the model that it is made of: a copy of its configuration goes with it.
AdapterRegistry::Options options_of(const cli::Arguments& arguments,
                                    const families::ModelConfig& base,
                                    const executor::LocalExecutor::Options& executor,
                                    const LoraOwner& owner) {
  const auto config = std::make_shared<const families::ModelConfig>(base);
  const lora::Limits limits = executor.adapter_limits;
  AdapterRegistry::Options options;
  options.load = [config, limits](const std::string& path) -> Result<AdapterRegistry::Loaded> {
    TRY_ASSIGN(lora::Adapter adapter, lora::Adapter::load(path, *config, limits));
    AdapterRegistry::Loaded loaded{.adapter = {.identity = adapter.identity(), .weights = {}},
                                   .digest = adapter.digest(),
                                   .rank = adapter.rank_max(),
                                   .bytes = adapter.bytes(),
                                   .layout = std::string(lora::layout_words(adapter.layout())),
                                   .invocation = adapter.invocation()};
    if (adapter.layout() != lora::ExpertLayout::kNone) {
      loaded.is_3d = lora::is_3d(adapter.layout());
    }
    loaded.adapter.weights = std::make_shared<executor::LoadedAdapter>(std::move(adapter));
    return loaded;
  };
  options.check = [config, limits](const std::string& path) {
    return lora::Adapter::check(path, *config, limits);
  };
  options.bytes_of = lora::AdapterFile::tensor_bytes_of;
  options.describe = described;
  options.folders = lora_folders(arguments, owner);
  options.model_names = owner.names;
  options.active_max = executor.adapters_max;
  options.resident_max = executor.adapters_kept_max;
  options.bytes_max = executor.adapters_kept_max * executor::adapter_place_bytes(base, limits);
  options.loads_per_second = arguments.number("--lora-loads-per-second");
  return options;
}

Result<void> check_folders(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) continue;
    return Error{ErrorCode::kNotFound, fmt::format("--lora-folder {}: no folder", folder),
                 "lora-folder"};
  }
  return {};
}

// As a name it would never be reached.
Result<void> check_names(const std::vector<AdapterRegistry::Source>& modules,
                         const LoraOwner& owner) {
  for (const AdapterRegistry::Source& module : modules) {
    if (std::ranges::find(owner.names, module.name) == owner.names.end()) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--lora-modules: '{}' is the model's own name", module.name),
                 "lora-modules"};
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<AdapterRegistry>> make_adapters(const cli::Arguments& arguments,
                                                       const node::LoadedModel& model,
                                                       const node::LoadedModel::Options& options,
                                                       const LoraOwner& owner,
                                                       const std::function<bool()>& stopped,
                                                       const AdapterParts& parts) {
  if (!arguments.has("--enable-lora")) return std::shared_ptr<AdapterRegistry>();
  if (model.local_executor() == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "--enable-lora: a modelled executor computes nothing, also no adapters",
                 "enable-lora"};
  }
  TRY_ASSIGN(const std::vector<AdapterRegistry::Source> modules, lora_modules(arguments, owner));
  TRY(check_names(modules, owner));
  TRY(check_folders(lora_folders(arguments, owner)));
  auto registry = std::make_shared<AdapterRegistry>(
      options_of(arguments, model.config(), options.executor, owner), parts.clock, parts.log);
  for (const AdapterRegistry::Source& module : modules) {
    if (stopped()) return Error{ErrorCode::kCancelled, "stopped", ""};
    const auto outcome = std::make_shared<std::promise<Result<void>>>();
    Result<void> loaded =
        registry->load(module, AdapterRegistry::InPlace::kNo,
                       [outcome](const Result<void>& done) { outcome->set_value(done); });
    if (loaded.ok()) loaded = outcome->get_future().get();
    if (loaded.ok()) continue;
    return Error{loaded.error().code,
                 fmt::format("--lora-modules '{}': {}", module.name, loaded.error().message),
                 "lora-modules"};
  }
  registry->find_in_folders();
  if (arguments.has("--allow-runtime-lora-updating") && registry->folders().empty()) {
    parts.log.warning(
        "--allow-runtime-lora-updating: without --lora-folder nothing can be loaded, only "
        "unloaded");
  }
  return registry;
}

std::vector<std::pair<std::string, int64_t>> adapter_limits(
    const executor::LocalExecutor::Options& executor) {
  return {{"loras_max", executor.adapters_max},
          {"cpu_loras_max", executor.adapters_kept_max},
          {"lora_rank_max", executor.adapter_limits.rank_max},
          {"lora_names_max", static_cast<int64_t>(AdapterRegistry::kNamesMax)},
          {"lora_waiting_max", AdapterRegistry::kWaitingMax}};
}

std::vector<std::pair<std::string, std::string>> adapter_facts(
    const cli::Arguments& arguments, const executor::LocalExecutor::Options& executor,
    const LoraOwner& owner) {
  return {{"lora_targets", std::string(lora::targets_name(executor.adapter_limits.targets))},
          {"lora_folders", fmt::format("{}", fmt::join(lora_folders(arguments, owner), ", "))},
          {"lora_loads_per_second", fmt::format("{}", arguments.number("--lora-loads-per-second"))},
          {"lora_updating", arguments.has("--allow-runtime-lora-updating") ? "allowed" : "off"}};
}

}  // namespace pelton::apps
