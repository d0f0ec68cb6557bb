#include "node/model_names.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/hub_cache.h"

namespace pelton::node {
namespace {

// The name as it is written, a link's own: only a path that ends in none ("..", "/") is resolved.
std::string id_of(const std::string& model) {
  std::error_code failed;
  if (!std::filesystem::is_directory(model, failed)) return model;
  std::filesystem::path path(model);
  while (path.has_parent_path() && (path.filename().empty() || path.filename() == ".")) {
    if (path == path.parent_path()) break;
    path = path.parent_path();
  }
  if (path.filename().empty() || path.filename() == "." || path.filename() == "..") {
    path = std::filesystem::canonical(path, failed);
  }
  return failed || path.filename().empty() ? model : path.filename().string();
}

bool is_called(const NamedModel& model, std::string_view name) {
  return model.id == name ||
         std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

Error alias_error(const std::string& alias, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("--alias {}: {}", alias, why), "alias"};
}

// Of "x=A".
Result<void> add_alias(const std::string& alias, std::vector<NamedModel>& models) {
  const size_t equals = alias.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == alias.size()) {
    return alias_error(alias, "give it as NAME=MODEL");
  }
  const std::string name = alias.substr(0, equals);
  const std::string model = alias.substr(equals + 1);
  const auto meant = std::ranges::find_if(
      models, [&](const NamedModel& one) { return one.model == model || one.id == model; });
  if (meant == models.end()) {
    return alias_error(alias, fmt::format("no MODEL of this command is '{}'", model));
  }
  for (const NamedModel& one : models) {
    if (!is_called(one, name)) continue;
    return alias_error(alias, fmt::format("'{}' is called '{}' already", one.model, name));
  }
  meant->aliases.push_back(name);
  return {};
}

// What each is called before any alias is given.
Result<void> check_distinct(const std::vector<NamedModel>& models) {
  for (size_t i = 1; i < models.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (models[i].model == models[j].model) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("MODEL '{}' is given twice", models[i].model), "MODEL"};
      }
      if (!is_called(models[j], models[i].id) && !is_called(models[i], models[j].id)) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("MODEL '{}' and '{}' would both be called '{}'; give one of the "
                               "folders another name, or a link of another name",
                               models[j].model, models[i].model,
                               is_called(models[j], models[i].id) ? models[i].id : models[j].id),
                   "MODEL"};
    }
  }
  return {};
}

}  // namespace

NamedModel name_model(const std::string& model) {
  NamedModel named{.model = model, .id = id_of(model), .aliases = {}};
  std::set<std::string> others = {model, checkpoint::hub_id_of(model)};
  others.erase(named.id);
  named.aliases.assign(others.begin(), others.end());
  return named;
}

Result<std::vector<NamedModel>> name_models(const GivenNames& given) {
  if (!given.served_names.empty() && given.models.size() > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "--served-model-name names one model, and there are several; give each another "
                 "name with --alias NAME=MODEL",
                 "served-model-name"};
  }
  std::vector<NamedModel> models;
  for (const std::string& model : given.models) models.push_back(name_model(model));
  if (!given.served_names.empty()) {
    models.front().id = given.served_names.front();
    models.front().aliases.assign(given.served_names.begin() + 1, given.served_names.end());
  }
  TRY(check_distinct(models));
  for (const std::string& alias : given.aliases) TRY(add_alias(alias, models));
  return models;
}

std::string step_log_of(const std::string& file, const std::string& id, bool is_only_model) {
  if (file.empty() || is_only_model) return file;
  std::string name = id;
  std::replace(name.begin(), name.end(), '/', '_');
  return file + "." + name;
}

}  // namespace pelton::node
