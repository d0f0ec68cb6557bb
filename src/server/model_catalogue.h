// The served models by name: which are being loaded, are served, go away or could not be loaded.
// Owned by the Server. Any thread: a lookup reads an immutable table, which those who change it
// replace, so net threads never wait for a load.
//
// Whoever is answered by a model holds it: a model that is unloaded is found by nobody from then
// on, and its parts live until the last hold is gone (whoever puts it in says how they go).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/served_model.h"

namespace pelton::server {

class ModelCatalogue {
 public:
  // kAsleep: nothing of it is in memory once its answers have ended, and a request wakes it.
  enum class State { kLoading, kServing, kUnloading, kFailed, kAsleep, kWaking };
  static std::string_view state_name(State state);

  struct Names {
    std::string id;                    // unique, among the aliases too
    std::vector<std::string> aliases;  // other names it answers to; likewise
  };
  struct Entry {
    Names names;
    State state = State::kLoading;
    bool at_start = false;      // the server began with it
    bool keeps_blocks = false;  // not kServing: its disk has what it has computed
    // kServing: held. Empty otherwise: nobody is to find what goes away.
    std::shared_ptr<const ServedModel> model = {};
    // kUnloading, kAsleep: while anybody is answered by it.
    std::weak_ptr<const ServedModel> unloading = {};
    // Its adapters, also while it sleeps; null: it has none.
    std::shared_ptr<AdapterRegistry> adapters = {};
    // Of requests for it; null until it has been served.
    std::shared_ptr<access::RefusalCounts> refusals = {};
    std::optional<Error> error = {};  // kFailed: why; kAsleep: why it could not be woken
    // kAsleep, kWaking: what is said of it meanwhile.
    int64_t created = 0;
    int64_t context_max = 0;
    std::shared_ptr<const api::ModelDescription> description = {};
    // How often it has been woken, how long that took together and the last time.
    int64_t wakes = 0;
    int64_t wake_ns = 0;
    int64_t last_wake_ns = 0;
    bool is_dormant() const { return state == State::kAsleep || state == State::kWaking; }
    bool answers_to(std::string_view name) const;
  };
  struct Table {
    std::vector<Entry> entries;  // in the order in which they came
    size_t named_at_start = 0;   // models that the server began with, whatever became of them
    // The model that a request means that names none: the only one of the start, also beside others
    // that came later; empty where there were several. Whoever left the name out would otherwise be
    // answered by another model because one could not be loaded, or was unloaded.
    std::string default_id;
    // One that was unloaded and whose disk has what it computed, which nobody here can erase;
    // empty: there is none.
    std::string left_blocks;

    // Those of the start have not all been tried.
    bool starting() const;
    // A request would be answered, if only after a model has been woken.
    bool answering() const;
    // Null: nobody answers to it.
    const Entry* find(std::string_view name) const;
    // The entry of the model that has an adapter of this name: the first one, where there are
    // several.
    const Entry* find_adapters_of(std::string_view name) const;
    std::vector<const Entry*> all_adapters_of(std::string_view name) const;
    bool has_adapters() const;
    // Those that serve, and those that go away while anybody is answered by them.
    std::vector<std::shared_ptr<const ServedModel>> held() const;
  };

  static constexpr size_t kEntriesMax = 64;
  static constexpr size_t kAliasesMax = 64;

  enum class When { kAtStart, kAtRunTime };
  // nothing -> kLoading. One that has failed makes room for another of its names, and for any other
  // where there are too many entries. Errors, with the field, "name" or "aliases": kInvalidArgument
  // (empty, too long or given twice), kUnavailable (the name is taken); kOverloaded (too many
  // models).
  Result<void> begin_load(const Names& names, When when);
  // kLoading, or nothing (a model of the start) -> kServing, under model->id and model->aliases:
  // found from now on.
  void serve(std::shared_ptr<ServedModel> model);
  // kLoading -> kFailed.
  void fail(std::string_view id, Error error);
  // kServing, kAsleep -> kUnloading. Gives back the catalogue's hold; null: no model of this id is
  // served.
  std::shared_ptr<const ServedModel> begin_unload(std::string_view id);
  // kServing -> kAsleep; as begin_unload.
  std::shared_ptr<const ServedModel> begin_sleep(std::string_view id);
  // kAsleep -> kWaking.
  void begin_wake(std::string_view id);
  // kWaking -> kServing, after so long.
  void woken(std::shared_ptr<ServedModel> model, int64_t wake_ns);
  // kWaking -> kAsleep.
  void sleep_on(std::string_view id, Error error);
  // Whatever its state is -> nothing.
  void remove(std::string_view id);

  // Null: no model of this id has been served.
  std::shared_ptr<access::RefusalCounts> refusals_of(std::string_view id) const;
  // The served model of this name; null: there is none.
  std::shared_ptr<const ServedModel> find(std::string_view name) const;
  // The default, if it is served, there is no other entry and no adapter: whatever a request names,
  // it can only be this one or nothing. Null otherwise.
  std::shared_ptr<const ServedModel> only() const;
  std::vector<std::shared_ptr<const ServedModel>> serving() const;
  std::vector<std::shared_ptr<const ServedModel>> held() const { return table()->held(); }
  // As it is now; never null.
  std::shared_ptr<const Table> table() const { return table_.load(); }

 private:
  static Result<void> check_names(const Names& names, const Table& table);
  static void add(Table& table, Entry entry);
  static Entry* entry_of(Table& table, std::string_view id);
  std::shared_ptr<const ServedModel> retire(std::string_view id, State next);

  std::mutex changing_;
  uint64_t serials_ = 0;  // guarded by changing_
  std::atomic<std::shared_ptr<const Table>> table_ = std::make_shared<const Table>();
};

}  // namespace pelton::server
