// Loads and unloads models while others are served. Loads run one after the other, in the order of
// asking, on a thread of their own, "pelton-load": whoever asks (a net thread, the program's entry)
// hears the outcome later. What a model is made of goes on another thread, "pelton-unload", when
// the last request that it answers is over. One that sleeps is let go in the same way and loaded
// again by the same order, when a request asks for it (model_sleep.h). Owned by the program's
// entry: made after the Server, gone before it and after all who are answered.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/model_catalogue.h"
#include "server/served_model.h"
#include "server/services.h"

namespace pelton::server {

// The entry that an operator names: by its model's own name. Errors, with the field "name":
// kNotFound, kInvalidArgument (an alias; the message says whose).
Result<const ModelCatalogue::Entry*> entry_named(const ModelCatalogue::Table& table,
                                                 std::string_view id);

class ModelLoader {
 public:
  // Whether the load should end with kCancelled; asked often, by the load.
  using Stop = std::function<bool()>;
  // On the load thread. What it gives owns all that the model is made of, and is let go on the
  // unload thread. An error: nothing of it is left.
  using Load = std::function<Result<std::shared_ptr<ServedModel>>(const Stop& stop)>;
  // Called once, on one of the loader's threads or on the asker's own.
  using Done = std::function<void(const Result<void>& outcome)>;

  struct Options {
    // Models came or went; on any thread. May be empty.
    std::function<void()> on_change;
    int64_t holds_ms_max = 10'000;  // at the end: how long it is waited for those who are answered
    // A model sleeps so long after its last request, unless a request says otherwise; none: it
    // does not, whatever a request says.
    std::optional<int64_t> sleep_after_ns = {};
  };

  // `services` outlives it.
  ModelLoader(Options options, Services& services);
  // Cancels loads and unloads all models, which takes as long as that takes.
  ~ModelLoader();
  ModelLoader(const ModelLoader&) = delete;
  ModelLoader& operator=(const ModelLoader&) = delete;

  struct Order {
    ModelCatalogue::Names names;
    Load load;
  };
  // Reserves the names, and loads when the loads before it are over. One that fails leaves its
  // reason in the catalogue and disturbs no other. Errors: ModelCatalogue::begin_load's, and
  // kUnavailable once the server leaves; `done` does not hear of those. Any thread.
  Result<void> load(Order order, ModelCatalogue::When when, Done done);

  // From now on nobody finds the model. What it answers goes on for `drain_ms` at most and is then
  // ended with kUnavailable; `done` is called when its memory has been given back and its name is
  // free. One that is being loaded is cancelled, one that failed is forgotten. Errors: kNotFound,
  // kInvalidArgument (an alias, or a model that was not loaded here), kUnavailable (a step of it is
  // stuck, so that it cannot go). Any thread.
  Result<void> unload(std::string_view id, int64_t drain_ms, Done done);

  // Lets it sleep: as unload(), but its name is served on, and the next request loads it again.
  // `drain_ms`: none: until what it answers has ended. One that sleeps is let be. Errors: as
  // unload()'s; kUnavailable too where it is being loaded. Any thread.
  Result<void> sleep(std::string_view id, std::optional<int64_t> drain_ms, Done done);

  // No load begins any more, and the one that runs is cancelled. Any thread.
  void stop_loading();
  // Lets what all models answer go on for so long, together; the server refuses new requests.
  void drain(int64_t ms) const;

 private:
  struct PendingLoad {
    uint64_t number = 0;  // from 1 on
    Order order;
    ModelCatalogue::When when;
    Done done;
    bool cancelled = false;
    bool wakes = false;          // it slept,
    int64_t began_ns = 0;        // and was asked for then
    std::vector<Done> unloaded;  // who asked for it to go while it was being loaded
  };
  // A model from the end of its load until its memory has been given back.
  struct Model {
    std::string id;
    std::shared_ptr<ServedModel> parts;
    Load load = {};         // by which it was made
    bool released = false;  // nobody holds it any more
    bool unloading = false;
    bool sleeps = false;      // unloading: it will be woken
    uint64_t wanted_as = 0;   // sleeps: the number of the load that follows at once; 0: none
    int64_t deadline_ns = 0;  // unloading: when its answers are ended
    std::vector<Done> unloaded;
  };
  // Outlives the loader with whoever still holds a model.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
  };

  // Those that begin with `locked_` are called with shared_->mutex held.
  void run_loads();
  void run_unloads();
  void finish(const std::shared_ptr<PendingLoad>& load,
              Result<std::shared_ptr<ServedModel>> loaded);
  void locked_serve(const PendingLoad& load, std::shared_ptr<ServedModel> made);
  Result<void> unload_pending(std::unique_lock<std::mutex>& lock, std::string_view id, Done done);
  // By its own name. Errors: unload()'s.
  Result<const ModelCatalogue::Entry*> entry_to_go(const ModelCatalogue::Table& table,
                                                   std::string_view id) const;
  Result<std::optional<uint64_t>> wake(const std::string& id);
  void locked_wake(const std::string& id, uint64_t number);
  void begin_sleep(std::unique_lock<std::mutex>& lock, Model& model, int64_t deadline_ns);
  std::shared_ptr<ServedModel> locked_add(std::shared_ptr<ServedModel> parts, Load load);
  // The model that has been idle for long enough, or when the next one will have been.
  std::shared_ptr<Model> locked_next_idle(int64_t& at_ns) const;
  std::shared_ptr<Model> locked_next_gone() const;
  std::shared_ptr<Model> locked_next_deadline() const;
  void end_answers(const Model& model);
  void dismantle(const std::shared_ptr<Model>& model);
  void changed() const;

  const Options options_;
  Services& services_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  // Guarded by shared_->mutex.
  std::deque<std::shared_ptr<PendingLoad>> pending_;  // the first is being loaded
  std::list<std::shared_ptr<Model>> models_;
  uint64_t loads_ = 0;                               // numbers given
  std::map<std::string, Load, std::less<>> asleep_;  // how those are loaded that sleep, by id
  bool loading_stopped_ = false;
  bool stopping_ = false;

  std::thread load_thread_;
  std::thread unload_thread_;
};

}  // namespace pelton::server
