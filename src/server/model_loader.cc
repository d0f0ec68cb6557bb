#include "server/model_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/check.h"
#include "base/refused_resource.h"
#include "speech/transcriber.h"

namespace pelton::server {
namespace {

// How often what still begins is ended, once a model's time is over: a request that had chosen it
// before may have been read and tokenised until then.
constexpr int64_t kEndAgainNs = 1'000'000'000;

Error unloaded_meanwhile(const std::string& id) {
  return {ErrorCode::kCancelled, fmt::format("'{}' was unloaded while it was being loaded", id),
          ""};
}

// The clock's end is far beyond what a wait may be asked for.
constexpr int64_t kWaitMostNs = 3600'000'000'000;

int64_t after_ns(int64_t now_ns, int64_t ns) {
  return ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + ns;
}

Error not_loaded_here(std::string_view id) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' was not loaded by this server's loader and stays", id), "name"};
}

// A thread or memory that the system refuses ends this load only.
Result<std::shared_ptr<ServedModel>> load_within(const ModelLoader::Order& order,
                                                 const ModelLoader::Stop& stop) {
  try {
    return order.load(stop);
  } catch (...) {
    return base::refused_resource();
  }
}

}  // namespace

ModelLoader::ModelLoader(Options options, Services& services)
    : options_(std::move(options)), services_(services) {
  services_.model_sleep.set_loader(
      {.wake = [this](const std::string& id) { return wake(id); },
       .sleep = [this](const std::string& id, std::optional<int64_t> drain_ms,
                       Done done) { return sleep(id, drain_ms, std::move(done)); }});
  load_thread_ = std::thread([this] { run_loads(); });
  try {
    unload_thread_ = std::thread([this] { run_unloads(); });
  } catch (...) {
    {
      const std::lock_guard lock(shared_->mutex);
      stopping_ = true;
    }
    shared_->changed.notify_all();
    load_thread_.join();
    services_.model_sleep.close();
    throw;
  }
}

ModelLoader::~ModelLoader() {
  stop_loading();
  {
    const std::lock_guard lock(shared_->mutex);
    stopping_ = true;
  }
  shared_->changed.notify_all();
  load_thread_.join();
  const int64_t deadline_ns = services_.clock.now_ns() + options_.holds_ms_max * 1'000'000;
  std::vector<std::shared_ptr<const ServedModel>> holds;  // let go without the lock
  {
    const std::lock_guard lock(shared_->mutex);
    for (const std::shared_ptr<Model>& model : models_) {
      holds.push_back(services_.catalogue.begin_unload(model->id));
      model->unloading = true;
      model->deadline_ns = deadline_ns;
    }
  }
  holds.clear();
  shared_->changed.notify_all();
  unload_thread_.join();
}

Result<void> ModelLoader::load(Order order, ModelCatalogue::When when, Done done) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (loading_stopped_ || services_.leaving) {
      return Error{ErrorCode::kUnavailable, "The server is shutting down", ""};
    }
    TRY(services_.catalogue.begin_load(order.names, when));
    pending_.push_back(std::make_shared<PendingLoad>(PendingLoad{
        .number = ++loads_, .order = std::move(order), .when = when, .done = std::move(done)}));
  }
  shared_->changed.notify_all();
  changed();
  return {};
}

void ModelLoader::stop_loading() {
  {
    const std::lock_guard lock(shared_->mutex);
    loading_stopped_ = true;
  }
  services_.model_sleep.close();
}

void ModelLoader::drain(int64_t ms) const {
  const int64_t end_ns = services_.clock.now_ns() + ms * 1'000'000;
  for (const std::shared_ptr<const ServedModel>& model : services_.catalogue.held()) {
    const auto left_ms = [&] {
      return std::max<int64_t>((end_ns - services_.clock.now_ns()) / 1'000'000, 0);
    };
    model->engine.drain(left_ms());
    if (model->transcriber != nullptr) model->transcriber->drain(left_ms());
  }
}

void ModelLoader::run_loads() {
  pthread_setname_np(pthread_self(), "pelton-load");
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    shared_->changed.wait(lock, [&] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    const std::shared_ptr<PendingLoad> load = pending_.front();
    const bool begins = !load->cancelled && !loading_stopped_;
    lock.unlock();
    const Stop stop = [this, &load] {
      const std::lock_guard asking(shared_->mutex);
      return load->cancelled || loading_stopped_;
    };
    finish(load, begins ? load_within(load->order, stop)
                        : Error{ErrorCode::kCancelled, "The server is shutting down", ""});
    lock.lock();
  }
}

// It stays the first of those pending until its state in the catalogue is another one, so that
// whoever asks for it to go finds it in either place.
void ModelLoader::finish(const std::shared_ptr<PendingLoad>& load,
                         Result<std::shared_ptr<ServedModel>> loaded) {
  const std::string& id = load->order.names.id;
  Result<void> outcome;
  std::unique_lock lock(shared_->mutex);
  if (loaded.ok() && !load->cancelled && !loading_stopped_) {
    locked_serve(*load, *std::move(loaded));
  } else {
    lock.unlock();
    const Error error = loaded.ok() ? unloaded_meanwhile(id) : loaded.error();
    loaded = error;  // what was made goes before its name is free
    lock.lock();
    outcome = load->cancelled ? unloaded_meanwhile(id) : error;
    if (load->cancelled) {
      services_.catalogue.remove(id);
    } else if (load->wakes) {
      asleep_.emplace(id, load->order.load);
      services_.catalogue.sleep_on(id, error);
    } else {
      services_.catalogue.fail(id, error);
    }
  }
  pending_.pop_front();
  lock.unlock();
  if (!outcome.ok() && load->when == ModelCatalogue::When::kAtRunTime) {
    services_.log.error(fmt::format("'{}' is not served: {}", id, outcome.error().message));
  }
  changed();
  if (load->done) load->done(outcome);
  services_.model_sleep.ended(load->number, outcome);
  for (const Done& unloaded : load->unloaded) unloaded({});
}

void ModelLoader::locked_serve(const PendingLoad& load, std::shared_ptr<ServedModel> made) {
  std::shared_ptr<ServedModel> served = locked_add(std::move(made), load.order.load);
  if (!load.wakes) return services_.catalogue.serve(std::move(served));
  const int64_t took_ns = services_.clock.now_ns() - load.began_ns;
  services_.catalogue.woken(std::move(served), took_ns);
  services_.log.info(fmt::format("'{}' is awake: it took {:.3f} s", load.order.names.id,
                                 static_cast<double>(took_ns) * 1e-9));
}

std::shared_ptr<ServedModel> ModelLoader::locked_add(std::shared_ptr<ServedModel> parts,
                                                     Load load) {
  const auto model = std::make_shared<Model>();
  model->id = parts->id;
  model->load = std::move(load);
  if (options_.sleep_after_ns) {
    parts->state->keep_alive_ns = *options_.sleep_after_ns;
    parts->state->idle_since_ns = services_.clock.now_ns();
    parts->state->on_idle = [shared = shared_] {
      const std::lock_guard lock(shared->mutex);
      shared->changed.notify_all();
    };
    shared_->changed.notify_all();  // its time begins
  }
  model->parts = std::move(parts);
  models_.push_back(model);
  // The last hold goes on whichever thread answered last: it only says so.
  return {model->parts.get(), [shared = shared_, model](ServedModel*) {
            {
              const std::lock_guard lock(shared->mutex);
              model->released = true;
            }
            shared->changed.notify_all();
          }};
}

Result<const ModelCatalogue::Entry*> entry_named(const ModelCatalogue::Table& table,
                                                 std::string_view id) {
  const ModelCatalogue::Entry* const entry = table.find(id);
  if (entry == nullptr) {
    return Error{ErrorCode::kNotFound, fmt::format("There is no model '{}'", id), "name"};
  }
  if (entry->names.id != id) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is an alias of '{}': say that name", id, entry->names.id),
                 "name"};
  }
  return entry;
}

Result<const ModelCatalogue::Entry*> ModelLoader::entry_to_go(const ModelCatalogue::Table& table,
                                                              std::string_view id) const {
  TRY_ASSIGN(const ModelCatalogue::Entry* const entry, entry_named(table, id));
  if (entry->state == ModelCatalogue::State::kServing && entry->model->is_stuck()) {
    return Error{ErrorCode::kUnavailable, entry->model->unfit()->message, ""};
  }
  return entry;
}

Result<void> ModelLoader::unload(std::string_view id, int64_t drain_ms, Done done) {
  using State = ModelCatalogue::State;
  const int64_t deadline_ns = services_.clock.now_ns() + drain_ms * 1'000'000;
  // Both may be a last hold: let go without the lock.
  std::shared_ptr<const ModelCatalogue::Table> table;
  std::shared_ptr<const ServedModel> hold;
  std::unique_lock lock(shared_->mutex);
  table = services_.catalogue.table();
  TRY_ASSIGN(const ModelCatalogue::Entry* const entry, entry_to_go(*table, id));
  if (entry->state == State::kLoading || entry->state == State::kWaking) {
    return unload_pending(lock, id, std::move(done));
  }
  const auto sleeping = asleep_.find(id);
  if (entry->state == State::kFailed || sleeping != asleep_.end()) {
    if (sleeping != asleep_.end()) asleep_.erase(sleeping);
    services_.catalogue.remove(id);
    lock.unlock();
    changed();
    if (done) done({});
    return {};
  }
  const auto found = std::ranges::find(models_, id, &Model::id);
  if (found == models_.end()) return not_loaded_here(id);
  Model& model = **found;
  if (done) model.unloaded.push_back(std::move(done));
  model.deadline_ns = model.unloading ? std::min(model.deadline_ns, deadline_ns) : deadline_ns;
  model.unloading = true;
  model.sleeps = false;
  hold = services_.catalogue.begin_unload(id);
  lock.unlock();
  shared_->changed.notify_all();
  changed();
  return {};
}

Result<void> ModelLoader::sleep(std::string_view id, std::optional<int64_t> drain_ms, Done done) {
  using State = ModelCatalogue::State;
  const int64_t now_ns = services_.clock.now_ns();
  const int64_t deadline_ns = drain_ms ? after_ns(now_ns, *drain_ms * 1'000'000) : INT64_MAX;
  std::shared_ptr<const ModelCatalogue::Table> table;  // may be a last hold, as above
  std::unique_lock lock(shared_->mutex);
  table = services_.catalogue.table();
  TRY_ASSIGN(const ModelCatalogue::Entry* const entry, entry_to_go(*table, id));
  if (entry->state != State::kServing && entry->state != State::kAsleep) {
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("'{}' cannot sleep: it is {}", id, ModelCatalogue::state_name(entry->state)),
        "name"};
  }
  const auto found = std::ranges::find(models_, id, &Model::id);
  if (found == models_.end()) {
    if (entry->state == State::kServing) return not_loaded_here(id);
    lock.unlock();
    if (done) done({});
    return {};
  }
  const std::shared_ptr<Model> model = *found;
  if (done) model->unloaded.push_back(std::move(done));
  begin_sleep(lock, *model,
              model->unloading ? std::min(model->deadline_ns, deadline_ns) : deadline_ns);
  return {};
}

// Gives the lock back: what the catalogue held may be the last hold.
void ModelLoader::begin_sleep(std::unique_lock<std::mutex>& lock, Model& model,
                              int64_t deadline_ns) {
  model.unloading = model.sleeps = true;
  model.deadline_ns = deadline_ns;
  const std::shared_ptr<const ServedModel> hold = services_.catalogue.begin_sleep(model.id);
  lock.unlock();
  shared_->changed.notify_all();
  changed();
}

Result<std::optional<uint64_t>> ModelLoader::wake(const std::string& id) {
  using State = ModelCatalogue::State;
  std::shared_ptr<const ModelCatalogue::Table> table;  // may be a last hold, as above
  const std::lock_guard lock(shared_->mutex);
  table = services_.catalogue.table();
  const ModelCatalogue::Entry* const entry = table->find(id);
  if (entry == nullptr || loading_stopped_) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("The model '{}' cannot be woken any more", id), ""};
  }
  if (entry->state == State::kServing) return std::optional<uint64_t>();
  if (entry->state == State::kWaking || entry->state == State::kLoading) {
    const auto load =
        std::ranges::find_if(pending_, [&](const auto& one) { return one->order.names.id == id; });
    CHECK(load != pending_.end(), "what is loading is pending");
    return std::optional((*load)->number);
  }
  if (entry->state != State::kAsleep) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("The model '{}' cannot be woken: it is {}", id,
                             ModelCatalogue::state_name(entry->state)),
                 ""};
  }
  const auto found = std::ranges::find(models_, id, &Model::id);
  if (found == models_.end()) {
    locked_wake(id, ++loads_);
    return std::optional(loads_);
  }
  // What it still answers ends first.
  if ((*found)->wanted_as == 0) (*found)->wanted_as = ++loads_;
  return std::optional((*found)->wanted_as);
}

void ModelLoader::locked_wake(const std::string& id, uint64_t number) {
  const auto found = asleep_.find(id);
  CHECK(found != asleep_.end(), "what sleeps can be loaded");
  services_.catalogue.begin_wake(id);
  const auto load = std::make_shared<PendingLoad>();
  load->number = number;
  load->order = {.names = {.id = id}, .load = std::move(found->second)};
  load->when = ModelCatalogue::When::kAtRunTime;
  load->wakes = true;
  load->began_ns = services_.clock.now_ns();
  asleep_.erase(found);
  pending_.push_back(load);
  shared_->changed.notify_all();
}

// The one that is being loaded ends when its load looks; those behind it go at once.
Result<void> ModelLoader::unload_pending(std::unique_lock<std::mutex>& lock, std::string_view id,
                                         Done done) {
  const auto found =
      std::ranges::find_if(pending_, [&](const auto& load) { return load->order.names.id == id; });
  CHECK(found != pending_.end(), "what is loading is pending");
  const std::shared_ptr<PendingLoad> load = *found;
  if (found == pending_.begin()) {
    load->cancelled = true;
    if (done) load->unloaded.push_back(std::move(done));
    return {};
  }
  pending_.erase(found);
  services_.catalogue.remove(id);
  lock.unlock();
  changed();
  const Error unloaded = unloaded_meanwhile(load->order.names.id);
  if (load->done) load->done(unloaded);
  services_.model_sleep.ended(load->number, unloaded);
  if (done) done({});
  return {};
}

// When all who are answered are done, or, at the end, have had their time.
std::shared_ptr<ModelLoader::Model> ModelLoader::locked_next_gone() const {
  const int64_t now_ns = services_.clock.now_ns();
  const auto found = std::ranges::find_if(models_, [&](const std::shared_ptr<Model>& model) {
    return model->unloading && (model->released || (stopping_ && now_ns >= model->deadline_ns));
  });
  return found == models_.end() ? nullptr : *found;
}

std::shared_ptr<ModelLoader::Model> ModelLoader::locked_next_deadline() const {
  std::shared_ptr<Model> next;
  for (const std::shared_ptr<Model>& model : models_) {
    if (!model->unloading) continue;
    if (next == nullptr || model->deadline_ns < next->deadline_ns) next = model;
  }
  return next;
}

void ModelLoader::run_unloads() {
  pthread_setname_np(pthread_self(), "pelton-unload");
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    if (const std::shared_ptr<Model> gone = locked_next_gone()) {
      lock.unlock();
      dismantle(gone);
      lock.lock();
      continue;
    }
    if (stopping_ && models_.empty()) return;
    int64_t wake_ns = INT64_MAX;
    if (const std::shared_ptr<Model> idle = locked_next_idle(wake_ns)) {
      services_.log.info(fmt::format("'{}' goes to sleep: nobody asks for it", idle->id));
      begin_sleep(lock, *idle, INT64_MAX);
      lock.lock();
      continue;
    }
    const std::shared_ptr<Model> next = locked_next_deadline();
    const int64_t now_ns = services_.clock.now_ns();
    if (next != nullptr && next->deadline_ns <= now_ns) {
      next->deadline_ns = now_ns + kEndAgainNs;
      lock.unlock();
      end_answers(*next);
      lock.lock();
      continue;
    }
    if (next != nullptr) wake_ns = std::min(wake_ns, next->deadline_ns);
    if (wake_ns == INT64_MAX) {
      shared_->changed.wait(lock);
      continue;
    }
    shared_->changed.wait_for(lock,
                              std::chrono::nanoseconds(std::min(wake_ns - now_ns, kWaitMostNs)));
  }
}

std::shared_ptr<ModelLoader::Model> ModelLoader::locked_next_idle(int64_t& at_ns) const {
  if (!options_.sleep_after_ns || loading_stopped_) return nullptr;
  const int64_t now_ns = services_.clock.now_ns();
  for (const std::shared_ptr<Model>& model : models_) {
    const ModelState& state = *model->parts->state;
    if (model->unloading || state.uses != 0 || model->parts->is_stuck()) continue;
    const int64_t idle_at_ns = after_ns(state.idle_since_ns, state.keep_alive_ns);
    if (idle_at_ns <= now_ns) return model;
    at_ns = std::min(at_ns, idle_at_ns);
  }
  return nullptr;
}

void ModelLoader::end_answers(const Model& model) {
  const Error error{
      ErrorCode::kUnavailable,
      fmt::format("The model '{}' is being unloaded, and its answers have had their time",
                  model.id),
      ""};
  int count = model.parts->engine.abandon(error);
  if (model.parts->transcriber != nullptr) count += model.parts->transcriber->abandon(error);
  if (count == 0) return;
  services_.log.warning(fmt::format(
      "'{}' is being unloaded: {} answers ended before they were done", model.id, count));
}

// Its memory first, then its name.
void ModelLoader::dismantle(const std::shared_ptr<Model>& model) {
  model->parts.reset();
  std::vector<Done> unloaded;
  uint64_t ended = 0;  // a load that will not be
  {
    const std::lock_guard lock(shared_->mutex);
    std::erase(models_, model);
    if (model->sleeps && !stopping_) {
      services_.log.info(fmt::format("'{}' is asleep: its memory has been given back", model->id));
      asleep_.emplace(model->id, std::move(model->load));
      if (model->wanted_as != 0) locked_wake(model->id, model->wanted_as);
    } else {
      if (!stopping_) services_.log.info(fmt::format("'{}' is unloaded", model->id));
      services_.catalogue.remove(model->id);
      ended = model->wanted_as;
    }
    unloaded = std::move(model->unloaded);
  }
  changed();
  if (ended != 0) services_.model_sleep.ended(ended, unloaded_meanwhile(model->id));
  for (const Done& done : unloaded) done({});
}

void ModelLoader::changed() const {
  if (options_.on_change) options_.on_change();
}

}  // namespace pelton::server
