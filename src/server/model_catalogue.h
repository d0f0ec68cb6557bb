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
  enum class State { kLoading, kServing, kUnloading, kFailed };
  static std::string_view state_name(State state);

  struct Names {
    std::string id;                    // unique, among the aliases too
    std::vector<std::string> aliases;  // other names it answers to; likewise
  };
  struct Entry {
    Names names;
    State state = State::kLoading;
    // kServing: held. Empty otherwise: nobody is to find what goes away.
    std::shared_ptr<const ServedModel> model = {};
    std::optional<Error> error = {};  // kFailed: why
    bool answers_to(std::string_view name) const;
  };
  using Table = std::vector<Entry>;  // in the order in which they came

  static constexpr size_t kEntriesMax = 64;
  static constexpr size_t kAliasesMax = 64;

  // nothing -> kLoading. One that has failed makes room for another of its names. Errors:
  // kInvalidArgument with the field, "name" or "aliases" (a name is taken, empty, too long or given
  // twice), kOverloaded (too many models).
  Result<void> begin_load(const Names& names);
  // nothing or kLoading -> kServing, under model->id and model->aliases: found from now on.
  void serve(std::shared_ptr<ServedModel> model);
  // kLoading -> kFailed.
  void fail(std::string_view id, Error error);
  // kServing -> kUnloading. Gives back the catalogue's hold; null: no model of this id is served.
  std::shared_ptr<const ServedModel> begin_unload(std::string_view id);
  // Whatever its state is -> nothing.
  void remove(std::string_view id);

  // The served model of this name; null: there is none.
  std::shared_ptr<const ServedModel> find(std::string_view name) const;
  // The one that a request means that names none: the only one that is served or being loaded, if
  // it is served; null otherwise.
  std::shared_ptr<const ServedModel> only() const;
  std::vector<std::shared_ptr<const ServedModel>> serving() const;
  // As it is now; never null.
  std::shared_ptr<const Table> table() const { return table_.load(); }

 private:
  Result<void> check_names(const Names& names, const Table& table) const;
  static Table::iterator entry_of(Table& table, std::string_view id);

  std::mutex changing_;
  uint64_t serials_ = 0;  // guarded by changing_
  std::atomic<std::shared_ptr<const Table>> table_ = std::make_shared<const Table>();
};

}  // namespace pelton::server
