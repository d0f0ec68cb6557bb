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
    case State::kAsleep:
      return "asleep";
    case State::kWaking:
      return "waking";
    case State::kFailed:
      break;
  }
  return "failed";
}

bool ModelCatalogue::Entry::answers_to(std::string_view name) const {
  return name == names.id ||
         std::find(names.aliases.begin(), names.aliases.end(), name) != names.aliases.end();
}

bool ModelCatalogue::Table::starting() const {
  return named_at_start == 0 || std::ranges::any_of(entries, [](const Entry& entry) {
           return entry.at_start && entry.state == State::kLoading;
         });
}

bool ModelCatalogue::Table::answering() const {
  return std::ranges::any_of(entries, [](const Entry& entry) {
    return entry.state == State::kServing || entry.is_dormant();
  });
}

const ModelCatalogue::Entry* ModelCatalogue::Table::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(entries, [&](const Entry& entry) { return entry.answers_to(name); });
  return found == entries.end() ? nullptr : &*found;
}

const ModelCatalogue::Entry* ModelCatalogue::Table::find_adapters_of(std::string_view name) const {
  const auto found = std::ranges::find_if(entries, [&](const Entry& entry) {
    return entry.adapters != nullptr && entry.adapters->has(name);
  });
  return found == entries.end() ? nullptr : &*found;
}

std::vector<const ModelCatalogue::Entry*> ModelCatalogue::Table::all_adapters_of(
    std::string_view name) const {
  std::vector<const Entry*> all;
  for (const Entry& entry : entries) {
    if (entry.adapters != nullptr && entry.adapters->has(name)) all.push_back(&entry);
  }
  return all;
}

bool ModelCatalogue::Table::has_adapters() const {
  return std::ranges::any_of(entries, [](const Entry& entry) { return entry.adapters != nullptr; });
}

std::vector<std::shared_ptr<const ServedModel>> ModelCatalogue::Table::held() const {
  std::vector<std::shared_ptr<const ServedModel>> models;
  for (const Entry& entry : entries) {
    std::shared_ptr<const ServedModel> model =
        entry.state == State::kServing ? entry.model : entry.unloading.lock();
    if (model != nullptr) models.push_back(std::move(model));
  }
  return models;
}

ModelCatalogue::Entry* ModelCatalogue::entry_of(Table& table, std::string_view id) {
  const auto found =
      std::ranges::find_if(table.entries, [&](const Entry& entry) { return entry.names.id == id; });
  return found == table.entries.end() ? nullptr : &*found;
}

Result<void> ModelCatalogue::check_names(const Names& names, const Table& table) {
  if (table.entries.size() >= kEntriesMax) {
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
    if (const Entry* const base = table.find_adapters_of(all[i])) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("an adapter of '{}' is named '{}'; give this model another name, or "
                               "unload the adapter first",
                               base->names.id, all[i]),
                   field};
    }
    const Entry* const taken = table.find(all[i]);
    if (taken == nullptr) continue;
    return Error{ErrorCode::kUnavailable,
                 fmt::format("a model named '{}' is there already ({}); give this one another "
                             "name, or unload '{}' first",
                             all[i], state_name(taken->state), taken->names.id),
                 field};
  }
  return {};
}

void ModelCatalogue::add(Table& table, Entry entry) {
  if (entry.at_start) {
    ++table.named_at_start;
    table.default_id = table.named_at_start == 1 ? entry.names.id : "";
  }
  table.entries.push_back(std::move(entry));
}

Result<void> ModelCatalogue::begin_load(const Names& names, When when) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  const std::vector<std::string> all = all_of(names);
  std::erase_if(table.entries, [&](const Entry& entry) {
    return entry.state == State::kFailed &&
           std::any_of(all.begin(), all.end(),
                       [&](const std::string& name) { return entry.answers_to(name); });
  });
  if (table.entries.size() >= kEntriesMax) {
    const auto failed = std::ranges::find(table.entries, State::kFailed, &Entry::state);
    if (failed != table.entries.end()) table.entries.erase(failed);
  }
  TRY(check_names(names, table));
  add(table, {.names = names, .state = State::kLoading, .at_start = when == When::kAtStart});
  table_.store(std::make_shared<const Table>(std::move(table)));
  return {};
}

void ModelCatalogue::serve(std::shared_ptr<ServedModel> model) {
  const std::lock_guard lock(changing_);
  model->serial = ++serials_;
  Table table = *table_.load();
  if (entry_of(table, model->id) == nullptr) {
    add(table, {.names = {.id = model->id, .aliases = model->aliases}, .at_start = true});
  }
  Entry& entry = *entry_of(table, model->id);
  CHECK(entry.state == State::kLoading, "one model is served once");
  entry.state = State::kServing;
  entry.names.aliases = model->aliases;
  if (model->state != nullptr) entry.refusals = model->state->refusals;
  entry.adapters = model->adapters;
  entry.model = std::move(model);
  table_.store(std::make_shared<const Table>(std::move(table)));
}

void ModelCatalogue::fail(std::string_view id, Error error) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  Entry* const entry = entry_of(table, id);
  CHECK(entry != nullptr && entry->state == State::kLoading, "what fails was being loaded");
  entry->state = State::kFailed;
  entry->error = std::move(error);
  table_.store(std::make_shared<const Table>(std::move(table)));
}

std::shared_ptr<const ServedModel> ModelCatalogue::retire(std::string_view id, State next) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  Entry* const entry = entry_of(table, id);
  const bool was_asleep = entry != nullptr && entry->state == State::kAsleep;
  if (entry == nullptr || (entry->state != State::kServing && !was_asleep)) return nullptr;
  std::shared_ptr<const ServedModel> model = std::move(entry->model);
  entry->state = next;
  if (next == State::kUnloading) entry->adapters.reset();
  if (!was_asleep) {
    entry->unloading = model;
    entry->created = model->created;
    entry->keeps_blocks = model->engine.keeps_blocks();
    entry->context_max = model->context_limit();
    entry->description = model->description;
    entry->error.reset();
  }
  table_.store(std::make_shared<const Table>(std::move(table)));
  return model;
}

std::shared_ptr<const ServedModel> ModelCatalogue::begin_unload(std::string_view id) {
  return retire(id, State::kUnloading);
}

std::shared_ptr<const ServedModel> ModelCatalogue::begin_sleep(std::string_view id) {
  return retire(id, State::kAsleep);
}

void ModelCatalogue::begin_wake(std::string_view id) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  Entry* const entry = entry_of(table, id);
  CHECK(entry != nullptr && entry->state == State::kAsleep, "who is woken was asleep");
  entry->state = State::kWaking;
  entry->unloading.reset();
  entry->error.reset();
  table_.store(std::make_shared<const Table>(std::move(table)));
}

void ModelCatalogue::woken(std::shared_ptr<ServedModel> model, int64_t wake_ns) {
  const std::lock_guard lock(changing_);
  model->serial = ++serials_;
  Table table = *table_.load();
  Entry* const entry = entry_of(table, model->id);
  CHECK(entry != nullptr && entry->state == State::kWaking, "who has been woken was to be");
  entry->state = State::kServing;
  entry->keeps_blocks = false;
  model->created = entry->created;
  if (model->state != nullptr) model->state->refusals = entry->refusals;
  entry->adapters = model->adapters;
  ++entry->wakes;
  entry->wake_ns += wake_ns;
  entry->last_wake_ns = wake_ns;
  entry->model = std::move(model);
  table_.store(std::make_shared<const Table>(std::move(table)));
}

void ModelCatalogue::sleep_on(std::string_view id, Error error) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  Entry* const entry = entry_of(table, id);
  CHECK(entry != nullptr && entry->state == State::kWaking, "who sleeps on was to be woken");
  entry->state = State::kAsleep;
  entry->error = std::move(error);
  table_.store(std::make_shared<const Table>(std::move(table)));
}

void ModelCatalogue::remove(std::string_view id) {
  const std::lock_guard lock(changing_);
  Table table = *table_.load();
  const Entry* const entry = entry_of(table, id);
  if (entry != nullptr && entry->keeps_blocks) table.left_blocks = entry->names.id;
  std::erase_if(table.entries, [&](const Entry& one) { return one.names.id == id; });
  table_.store(std::make_shared<const Table>(std::move(table)));
}

std::shared_ptr<access::RefusalCounts> ModelCatalogue::refusals_of(std::string_view id) const {
  const std::shared_ptr<const Table> table = table_.load();
  const Entry* const entry = table->find(id);
  return entry == nullptr ? nullptr : entry->refusals;
}

std::shared_ptr<const ServedModel> ModelCatalogue::find(std::string_view name) const {
  const std::shared_ptr<const Table> table = table_.load();
  const Entry* const entry = table->find(name);
  return entry == nullptr ? nullptr : entry->model;
}

std::shared_ptr<const ServedModel> ModelCatalogue::only() const {
  const std::shared_ptr<const Table> table = table_.load();
  if (table->entries.size() != 1 || table->entries.front().names.id != table->default_id ||
      table->has_adapters()) {
    return nullptr;
  }
  return table->entries.front().model;
}

std::vector<std::shared_ptr<const ServedModel>> ModelCatalogue::serving() const {
  const std::shared_ptr<const Table> table = table_.load();
  std::vector<std::shared_ptr<const ServedModel>> models;
  for (const Entry& entry : table->entries) {
    if (entry.state == State::kServing) models.push_back(entry.model);
  }
  return models;
}

}  // namespace pelton::server
