#include "server/model_catalogue.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::server {
namespace {

constexpr size_t kNameBytesMax = 256;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

// The id first.
std::vector<std::string> all_of(const ModelCatalogue::Names& names) {
  std::vector<std::string> all = {names.id};
  all.insert(all.end(), names.aliases.begin(), names.aliases.end());
  return all;
}

}  // namespace

std::string_view ModelCatalogue::state_name(State state) {
  switch (state) {
    case State::kLoading:
      return "loading";
    case State::kServing:
      return "serving";
    case State::kUnloading:
      return "unloading";
    case State::kFailed:
      break;
  }
  return "failed";
}

bool ModelCatalogue::Entry::answers_to(std::string_view name) const {
  return name == names.id ||
         std::find(names.aliases.begin(), names.aliases.end(), name) != names.aliases.end();
}

ModelCatalogue::Table::iterator ModelCatalogue::entry_of(Table& table, std::string_view id) {
  return std::find_if(table.begin(), table.end(),
                      [&](const Entry& entry) { return entry.names.id == id; });
}

Result<void> ModelCatalogue::check_names(const Names& names, const Table& table) const {
  if (table.size() >= kEntriesMax) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("there are {} models, the most that can be; unload one", kEntriesMax)};
  }
  if (names.aliases.size() > kAliasesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'aliases' may be {} at most", kAliasesMax), "aliases"};
  }
  const std::vector<std::string> all = all_of(names);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string field = i == 0 ? "name" : "aliases";
    if (!is_name(all[i])) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' must be 1 to {} bytes without control characters", field,
                               kNameBytesMax),
                   field};
    }
    if (std::count(all.begin(), all.end(), all[i]) > 1) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is given twice", all[i]), field};
    }
    for (const Entry& entry : table) {
      if (!entry.answers_to(all[i])) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("a model named '{}' is there already ({}); give this one another "
                               "name, or unload '{}' first",
                               all[i], state_name(entry.state), entry.names.id),
                   field};
    }
  }
  return {};
}

Result<void> ModelCatalogue::begin_load(const Names& names) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  const std::vector<std::string> all = all_of(names);
  std::erase_if(table, [&](const Entry& entry) {
    return entry.state == State::kFailed &&
           std::any_of(all.begin(), all.end(),
                       [&](const std::string& name) { return entry.answers_to(name); });
  });
  TRY(check_names(names, table));
  table.push_back({.names = names, .state = State::kLoading});
  table_.store(std::make_shared<const Table>(std::move(table)));
  return {};
}

void ModelCatalogue::serve(std::shared_ptr<ServedModel> model) {
  const std::lock_guard lock(changing_);
  model->serial = ++serials_;
  Table table = *table_.load();
  Entry served{.names = {.id = model->id, .aliases = model->aliases}, .state = State::kServing};
  served.model = std::move(model);
  const auto at = entry_of(table, served.names.id);
  if (at == table.end()) {
    table.push_back(std::move(served));
  } else {
    CHECK(at->state == State::kLoading, "one model is served once");
    *at = std::move(served);
  }
  table_.store(std::make_shared<const Table>(std::move(table)));
}

void ModelCatalogue::fail(std::string_view id, Error error) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  const auto at = entry_of(table, id);
  CHECK(at != table.end() && at->state == State::kLoading, "what fails was being loaded");
  at->state = State::kFailed;
  at->error = std::move(error);
  table_.store(std::make_shared<const Table>(std::move(table)));
}

std::shared_ptr<const ServedModel> ModelCatalogue::begin_unload(std::string_view id) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  const auto at = entry_of(table, id);
  if (at == table.end() || at->state != State::kServing) return nullptr;
  std::shared_ptr<const ServedModel> model = std::move(at->model);
  at->state = State::kUnloading;
  table_.store(std::make_shared<const Table>(std::move(table)));
  return model;
}

void ModelCatalogue::remove(std::string_view id) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  std::erase_if(table, [&](const Entry& entry) { return entry.names.id == id; });
  table_.store(std::make_shared<const Table>(std::move(table)));
}

std::shared_ptr<const ServedModel> ModelCatalogue::find(std::string_view name) const {
  const std::shared_ptr<const Table> table = table_.load();
  for (const Entry& entry : *table) {
    if (entry.state == State::kServing && entry.answers_to(name)) return entry.model;
  }
  return nullptr;
}

std::shared_ptr<const ServedModel> ModelCatalogue::only() const {
  const std::shared_ptr<const Table> table = table_.load();
  const Entry* only = nullptr;
  for (const Entry& entry : *table) {
    if (entry.state != State::kServing && entry.state != State::kLoading) continue;
    if (only != nullptr) return nullptr;
    only = &entry;
  }
  return only == nullptr ? nullptr : only->model;
}

std::vector<std::shared_ptr<const ServedModel>> ModelCatalogue::serving() const {
  const std::shared_ptr<const Table> table = table_.load();
  std::vector<std::shared_ptr<const ServedModel>> models;
  for (const Entry& entry : *table) {
    if (entry.state == State::kServing) models.push_back(entry.model);
  }
  return models;
}

}  // namespace pelton::server
