#include "apps/lora_flags.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "api/lora_request.h"
#include "base/json.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using Source = server::AdapterRegistry::Source;

struct Module {
  Source source;
  std::string base;  // empty: it names none
};

Error bad_module(const std::string& word, std::string_view why) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("--lora-modules '{}': {}; it is NAME=PATH, or {{\"name\": NAME, \"path\": "
                      "PATH}}",
                      word.substr(0, 256), why),
          "lora-modules"};
}

Result<Module> parse_json_module(const std::string& word) {
  const Result<Json> json = Json::parse(word);
  if (!json.ok()) return bad_module(word, json.error().message);
  if (!json->is_object()) return bad_module(word, "no object");
  Module module;
  for (const Json::Member& member : json->as_object()) {
    std::string* const to = member.key == "name"              ? &module.source.name
                            : member.key == "path"            ? &module.source.path
                            : member.key == "base_model_name" ? &module.base
                                                              : nullptr;
    if (to == nullptr) return bad_module(word, fmt::format("unknown member '{}'", member.key));
    if (!member.value.is_string()) {
      return bad_module(word, fmt::format("'{}' is no text", member.key));
    }
    *to = member.value.as_string();
  }
  return module;
}

Result<Module> parse_module(const std::string& word) {
  Module module;
  if (word.starts_with('{')) {
    TRY_ASSIGN(module, parse_json_module(word));
  } else {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return bad_module(word, "no '='");
    module.source = {.name = word.substr(0, equals), .path = word.substr(equals + 1)};
  }
  if (module.source.name.empty()) return bad_module(word, "no name");
  if (module.source.path.empty()) return bad_module(word, "no path");
  if (!api::is_adapter_name(module.source.name)) {
    return bad_module(word, fmt::format("its name has to fit into paths: at most {} bytes, no part "
                                        "of it between slashes empty, '.' or '..', and no control "
                                        "characters",
                                        api::kAdapterNameBytesMax));
  }
  return module;
}

std::vector<std::string> names_of(const node::NamedModel& model) {
  std::vector<std::string> names = model.aliases;
  names.push_back(model.id);
  return names;
}

// Of "MODEL=DIR" with a model of these names the folder: by the longest that fits, as both may hold
// an "=". Nothing: it names none of them.
std::optional<std::string> folder_of(const std::string& word,
                                     const std::vector<std::string>& names) {
  size_t longest = 0;
  for (const std::string& name : names) {
    if (word.starts_with(name + "=")) longest = std::max(longest, name.size() + 1);
  }
  return longest == 0 ? std::nullopt : std::optional(word.substr(longest));
}

Error bad_folder(const std::string& word, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("--lora-folder '{}': {}", word, why),
          "lora-folder"};
}

// Whose each folder is, and that it is nobody else's.
Result<void> check_folders(const std::vector<std::string>& words,
                           const std::vector<node::NamedModel>& models) {
  std::map<std::string, std::string> owners;  // by the folder
  for (const std::string& word : words) {
    std::optional<std::string> folder;
    std::string owner = models.size() == 1 ? models.front().id : "";
    for (const node::NamedModel& model : models) {
      std::optional<std::string> own = folder_of(word, names_of(model));
      if (!own || (folder && folder->size() < own->size())) continue;
      folder = std::move(own);
      owner = model.id;
    }
    if (!folder && models.size() > 1) {
      return bad_folder(word, "of several models MODEL=DIR says whose adapters lie in it");
    }
    std::error_code ignored;
    const std::string path = folder.value_or(word);
    const auto [known, is_new] =
        owners.emplace(std::filesystem::weakly_canonical(path, ignored).string(), owner);
    if (is_new || known->second == owner) continue;
    return bad_folder(word, fmt::format("its adapters are those of '{}'", known->second));
  }
  return {};
}

Flag count(std::string name, std::string help, std::string fallback, double most) {
  return {.name = std::move(name),
          .value = "N",
          .help = std::move(help),
          .kind = Flag::Kind::kInteger,
          .default_text = std::move(fallback),
          .least = 1,
          .most = most};
}

void only_with_lora(std::vector<Flag>& flags) {
  for (Flag& flag : flags) {
    if (flag.name != "--enable-lora") flag.only_with = {{"--enable-lora"}};
  }
}

}  // namespace

std::vector<Flag> lora_memory_flags() {
  Flag loras = count("--max-loras", "maximum number of different adapters in a batch", "8", 4096);
  loras.aliases = {"--max-loras-per-batch"};
  Flag kept =
      count("--max-cpu-loras",
            "maximum number of adapters in memory; default as many as --max-loras", "", 16384);
  Flag rank = count("--max-lora-rank", "the highest rank of an adapter", "16", 256);
  std::vector<Flag> flags = {
      {.name = "--enable-lora",
       .help = "serve LoRA adapters of the model: a request's \"model\" may name one",
       .kind = Flag::Kind::kSwitch,
       .negations = {"--no-enable-lora"}},
      std::move(loras),
      std::move(kept),
      std::move(rank),
      {.name = "--lora-targets",
       .value = "WHICH",
       .help = "matrices that adapters may add to; what is not allowed takes no memory",
       .default_text = "all",
       .choices = {"attention", "experts", "all"}}};
  only_with_lora(flags);
  return flags;
}

std::vector<Flag> lora_flags() {
  std::vector<Flag> flags = lora_memory_flags();
  flags.push_back({.name = "--lora-modules",
                   .value = "NAME=PATH",
                   .help = "adapters to serve: folders as PEFT writes them, or JSON as "
                           "'{\"name\":\"sql\",\"path\":\"./sql\",\"base_model_name\":\"m\"}'",
                   .aliases = {"--lora-paths"},
                   .many = true});
  flags.push_back({.name = "--lora-folder",
                   .value = "[MODEL=]DIR",
                   .help = "a folder of adapters: each is served by its own folder's name, and "
                           "loaded when it is first asked for; of several models 'MODEL=DIR'",
                   .many = true});
  flags.push_back({.name = "--allow-runtime-lora-updating",
                   .help = "callers may load adapters from --lora-folder, and unload them "
                           "(/v1/load_lora_adapter)",
                   .kind = Flag::Kind::kSwitch,
                   .variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING"}});
  flags.push_back({.name = "--lora-loads-per-second",
                   .value = "N",
                   .help = "maximum rate at which requests have adapters loaded; 0: no bound",
                   .kind = Flag::Kind::kNumber,
                   .default_text = "16",
                   .most = 1e6});
  flags.push_back({.name = "--fully-sharded-loras",
                   .help = "means nothing here: a model is computed by this one process",
                   .kind = Flag::Kind::kSwitch});
  flags.back().ignored = true;
  only_with_lora(flags);
  return flags;
}

Result<LoraPlaces> read_lora_places(const cli::Arguments& arguments) {
  LoraPlaces places{.active = static_cast<int>(arguments.integer("--max-loras"))};
  places.kept = places.active;
  if (!arguments.has("--max-cpu-loras")) return places;
  places.kept = static_cast<int>(arguments.integer("--max-cpu-loras"));
  if (places.kept >= places.active) return places;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--max-cpu-loras {} is less than --max-loras, which is {}", places.kept,
                           places.active),
               "max-cpu-loras"};
}

Result<void> read_lora_memory_flags(const cli::Arguments& arguments,
                                    executor::LocalExecutor::Options& options) {
  if (!arguments.has("--enable-lora")) return {};
  TRY_ASSIGN(const LoraPlaces places, read_lora_places(arguments));
  options.adapters_max = places.active;
  options.adapters_kept_max = places.kept;
  options.adapter_limits.rank_max = static_cast<int>(arguments.integer("--max-lora-rank"));
  TRY_ASSIGN(options.adapter_limits.targets, lora::parse_targets(arguments.text("--lora-targets")));
  return {};
}

Result<void> check_lora_bases(const cli::Arguments& arguments,
                              const std::vector<node::NamedModel>& models) {
  std::set<std::string> names;
  for (const std::string& word : arguments.list("--lora-modules")) {
    TRY_ASSIGN(const Module module, parse_module(word));
    if (!names.insert(module.source.name).second)
      return bad_module(word, "its name is there twice");
    if (module.base.empty() && models.size() > 1) {
      return bad_module(word, "of several models 'base_model_name' says whose adapter it is");
    }
    const bool is_served =
        module.base.empty() || std::ranges::any_of(models, [&](const node::NamedModel& model) {
          return model.id == module.base ||
                 std::ranges::find(model.aliases, module.base) != model.aliases.end();
        });
    if (!is_served) return bad_module(word, fmt::format("no model is named '{}'", module.base));
  }
  return check_folders(arguments.list("--lora-folder"), models);
}

Result<std::vector<Source>> lora_modules(const cli::Arguments& arguments, const LoraOwner& owner) {
  std::vector<Source> sources;
  for (const std::string& word : arguments.list("--lora-modules")) {
    TRY_ASSIGN(Module module, parse_module(word));
    const bool is_ours = module.base.empty()
                             ? owner.has_unnamed_modules
                             : owner.names.empty() ||
                                   std::ranges::find(owner.names, module.base) != owner.names.end();
    if (is_ours) sources.push_back(std::move(module.source));
  }
  return sources;
}

std::vector<std::string> lora_folders(const cli::Arguments& arguments, const LoraOwner& owner) {
  std::vector<std::string> folders;
  for (const std::string& word : arguments.list("--lora-folder")) {
    if (std::optional<std::string> own = folder_of(word, owner.names)) {
      folders.push_back(*std::move(own));
    } else if (owner.has_unnamed_folders) {
      folders.push_back(word);
    }
  }
  return folders;
}

}  // namespace pelton::apps
