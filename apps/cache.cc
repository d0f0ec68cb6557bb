// pelton cache list, pelton cache purge: the models in the Hugging Face cache, what was packed from
// models, and copies of weights that were fetched.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/kept_copies.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "checkpoint/hub_cache.h"
#include "cli/human_size.h"
#include "hub/cached_models.h"
#include "hub/hub_access.h"
#include "node/packed_cache.h"

namespace pelton::apps {
namespace {

std::string cache() {
  return hub::cache_folder(hub::AccessEnvironment::of_process());
}

cli::Flag weights_cache_flag() {
  return {.name = "--weights-cache",
          .value = "DIR",
          .help =
              "where serve --weights-cache keeps packed weights, and copies of those that "
              "--weights-from fetches",
          .default_text = "none",
          .may_be_empty = false};
}

cli::Flag purged_weights_cache_flag() {
  cli::Flag flag = weights_cache_flag();
  flag.only_with = {{"--packed"}, {"--copies"}};
  return flag;
}

// Empty: there is none.
std::string weights_cache(const cli::Arguments& arguments) {
  const std::string& folder = arguments.text("--weights-cache");
  return folder == "none" ? "" : folder;
}

// A commit by as much of its name as git shows; --json has all of it.
std::string revisions(const hub::CachedModel& model) {
  constexpr size_t kCommit = 40;
  constexpr size_t kShown = 12;
  if (model.revisions.empty()) return "unfinished";
  std::vector<std::string> names = model.revisions;
  for (std::string& name : names) {
    if (name.size() == kCommit) name.resize(kShown);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string table(const std::vector<hub::CachedModel>& models,
                  const std::vector<node::PackedEntry>& packed,
                  const std::vector<weights::Copy>& copies) {
  std::string out;
  if (models.empty()) out = fmt::format("no models in {}\n", cache());
  for (const hub::CachedModel& model : models) {
    out += fmt::format("{:<40} {:>10}  {:>4} files  {}", model.model,
                       cli::format_bytes(static_cast<double>(model.bytes)), model.files,
                       revisions(model));
    if (model.unfinished_bytes > 0) {
      out += fmt::format(" + {} unfinished",
                         cli::format_bytes(static_cast<double>(model.unfinished_bytes)));
    }
    out += '\n';
  }
  for (const node::PackedEntry& entry : packed) {
    out += fmt::format("{:<40} {:>10}  packed from {}, {}\n", entry.folder,
                       cli::format_bytes(static_cast<double>(entry.bytes)), entry.source,
                       entry.weights);
  }
  for (const weights::Copy& copy : copies) out += copy_row(copy);
  return out;
}

Json json_of(const hub::CachedModel& model) {
  Json::Array names(model.revisions.begin(), model.revisions.end());
  Json json;
  json.set("model", model.model);
  json.set("folder", model.folder);
  json.set("revisions", std::move(names));
  json.set("files", model.files);
  json.set("bytes", model.bytes);
  json.set("unfinished_bytes", model.unfinished_bytes);
  json.set("modified", model.modified_unix);
  return json;
}

Json json_of(const node::PackedEntry& entry) {
  Json json;
  json.set("packed_from", entry.source);
  json.set("folder", entry.folder);
  json.set("weights", entry.weights);
  json.set("bytes", entry.bytes);
  return json;
}

Result<void> list(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::vector<hub::CachedModel> models, hub::cached_models(cache()));
  const std::string kept = weights_cache(arguments);
  const std::vector<node::PackedEntry> packed = node::packed_models(kept);
  std::vector<weights::Copy> copies;
  if (!kept.empty()) copies = weights::list_copies(kept);
  if (!arguments.has("--json")) return write_text(table(models, packed, copies));
  Json::Array array;
  for (const hub::CachedModel& model : models) array.push_back(json_of(model));
  for (const node::PackedEntry& entry : packed) array.push_back(json_of(entry));
  for (const weights::Copy& copy : copies) array.push_back(copy_json(copy));
  return write_output(Json(std::move(array)).dump() + "\n");
}

Result<void> purge_one(const std::string& model) {
  TRY_ASSIGN(const int64_t freed, hub::purge(cache(), checkpoint::hub_id_of(model)));
  fmt::print(stderr, "{}: {} freed\n", model, cli::format_bytes(static_cast<double>(freed)));
  return {};
}

// Of `model`, empty: all of them. Returns whether there was one.
Result<bool> purge_copies(const std::string& folder, const std::string& model) {
  bool found = false;
  TRY_ASSIGN(const std::vector<weights::Copy> copies, copies_in(folder));
  for (const weights::Copy& copy : copies) {
    if (!model.empty() && !is_copy_of(copy, model)) continue;
    TRY(erase_kept_copy(copy.folder));
    found = true;
  }
  if (!found) fmt::print(stderr, "copies: none\n");
  return found;
}

// What a server keeps in --weights-cache; of `model`, empty: all of it.
Result<void> purge_kept(const cli::Arguments& arguments, const std::string& model) {
  const std::string folder = weights_cache(arguments);
  const bool wants_packed = arguments.has("--packed");
  if (folder.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} wants --weights-cache DIR too", wants_packed ? "--packed" : "--copies"),
        "weights-cache"};
  }
  bool found = false;
  if (wants_packed) {
    TRY_ASSIGN(const int64_t freed, node::purge_packed(folder, model));
    fmt::print(stderr, "packed weights: {} freed\n", cli::format_bytes(static_cast<double>(freed)));
    found = freed > 0;
  }
  if (arguments.has("--copies")) {
    TRY_ASSIGN(const bool has_copies, purge_copies(folder, model));
    found = found || has_copies;
  }
  if (found || model.empty()) return {};
  return Error{ErrorCode::kNotFound,
               fmt::format("nothing of '{}' is kept in {}; `pelton cache list --weights-cache {}` "
                           "says what is",
                           model, folder, folder),
               "MODEL"};
}

Result<void> purge(const cli::Arguments& arguments) {
  if (!arguments.has("--all") && !arguments.has("MODEL")) {
    return Error{ErrorCode::kInvalidArgument, "name one MODEL, or say --all"};
  }
  if (arguments.has("--packed") || arguments.has("--copies")) {
    return purge_kept(arguments, arguments.has("MODEL") ? arguments.text("MODEL") : "");
  }
  if (!arguments.has("--all")) return purge_one(arguments.text("MODEL"));
  TRY_ASSIGN(const std::vector<hub::CachedModel> models, hub::cached_models(cache()));
  for (const hub::CachedModel& model : models) TRY(purge_one(model.model));
  return {};
}

}  // namespace

cli::Verb cache_list_verb() {
  return {
      .name = "cache list",
      .summary =
          "Lists the models in the Hugging Face cache, packed weights, and copies of weights.",
      .flags = {{.name = "--json",
                 .help = "a JSON array instead of a table",
                 .kind = cli::Flag::Kind::kSwitch},
                weights_cache_flag()},
      .examples = {"pelton cache list", "HF_HUB_CACHE=/data/hub pelton cache list --json"},
      .run = list,
  };
}

cli::Verb cache_purge_verb() {
  return {
      .name = "cache purge",
      .summary = "Deletes a model from the cache, to the last byte.",
      .about =
          "Unfinished downloads and locks too. A model that is being served keeps its bytes until\n"
          "that process ends; one that is being downloaded is left alone.",
      .positionals = {{.name = "MODEL", .help = "a hub id", .required = false}},
      .flags = {{.name = "--all",
                 .help = "every model in the cache",
                 .kind = cli::Flag::Kind::kSwitch},
                {.name = "--packed",
                 .help = "only weights that were packed from MODEL, as `cache list` names it",
                 .kind = cli::Flag::Kind::kSwitch},
                {.name = "--copies",
                 .help = "only copies of MODEL that serve --weights-from keeps: by its name there, "
                         "what they are from, or their folder",
                 .kind = cli::Flag::Kind::kSwitch},
                purged_weights_cache_flag()},
      .exclusive = {{"MODEL", "--all"}},
      .examples = {"pelton cache purge openai/gpt-oss-20b", "pelton cache purge --all",
                   "pelton cache purge --packed --all --weights-cache ./packed",
                   "pelton cache purge --copies my-model --weights-cache /data/weights"},
      .run = purge,
  };
}

cli::Verb list_verb() {
  cli::Verb verb = cache_list_verb();
  verb.name = "list";
  verb.summary = "Lists the models that are kept on this machine: cache list.";
  verb.examples = {"pelton list"};
  return verb;
}

cli::Verb rm_verb() {
  return {
      .name = "rm",
      .summary = "Deletes a model that is kept on this machine: cache purge MODEL.",
      .positionals = {{.name = "MODEL", .help = "a hub id"}},
      .flags = {},
      .examples = {"pelton rm openai/gpt-oss-20b"},
      .run = [](const cli::Arguments& arguments) { return purge_one(arguments.text("MODEL")); }};
}

}  // namespace pelton::apps
