#include "server/model_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/check.h"
#include "base/refused_resource.h"

namespace pelton::server {
namespace {

// How often what still begins is ended, once a model's time is over: a request that had chosen it
// before may have been read and tokenised until then.
constexpr int64_t kEndAgainNs = 1'000'000'000;

Error unloaded_meanwhile(const std::string& id) {
  return {ErrorCode::kCancelled, fmt::format("'{}' was unloaded while it was being loaded", id),
          ""};
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
    pending_.push_back(std::make_shared<PendingLoad>(
        PendingLoad{.order = std::move(order), .when = when, .done = std::move(done)}));
  }
  shared_->changed.notify_all();
  changed();
  return {};
}

void ModelLoader::stop_loading() {
  const std::lock_guard lock(shared_->mutex);
  loading_stopped_ = true;
}

void ModelLoader::drain(int64_t ms) const {
  const int64_t end_ns = services_.clock.now_ns() + ms * 1'000'000;
  for (const std::shared_ptr<const ServedModel>& model : services_.catalogue.held()) {
    model->engine.drain(std::max<int64_t>((end_ns - services_.clock.now_ns()) / 1'000'000, 0));
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
    services_.catalogue.serve(locked_add(*std::move(loaded)));
  } else {
    lock.unlock();
    const Error error = loaded.ok() ? unloaded_meanwhile(id) : loaded.error();
    loaded = error;  // what was made goes before its name is free
    lock.lock();
    outcome = load->cancelled ? unloaded_meanwhile(id) : error;
    if (load->cancelled) {
      services_.catalogue.remove(id);
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
  for (const Done& unloaded : load->unloaded) unloaded({});
}

std::shared_ptr<ServedModel> ModelLoader::locked_add(std::shared_ptr<ServedModel> parts) {
  const auto model = std::make_shared<Model>();
  model->id = parts->id;
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

Result<void> ModelLoader::unload(std::string_view id, int64_t drain_ms, Done done) {
  using State = ModelCatalogue::State;
  const int64_t deadline_ns = services_.clock.now_ns() + drain_ms * 1'000'000;
  // Both may be a last hold: let go without the lock.
  std::shared_ptr<const ModelCatalogue::Table> table;
  std::shared_ptr<const ServedModel> hold;
  std::unique_lock lock(shared_->mutex);
  table = services_.catalogue.table();
  const ModelCatalogue::Entry* const entry = table->find(id);
  if (entry == nullptr) {
    return Error{ErrorCode::kNotFound, fmt::format("There is no model '{}'", id), "name"};
  }
  if (entry->names.id != id) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is an alias of '{}': unload it by that name", id, entry->names.id),
        "name"};
  }
  if (entry->state == State::kLoading) return unload_pending(lock, id, std::move(done));
  if (entry->state == State::kFailed) {
    services_.catalogue.remove(id);
    lock.unlock();
    changed();
    if (done) done({});
    return {};
  }
  if (entry->state == State::kServing && entry->model->is_stuck()) {
    return Error{ErrorCode::kUnavailable, entry->model->unfit()->message, ""};
  }
  const auto found = std::ranges::find(models_, id, &Model::id);
  if (found == models_.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' was not loaded by this server's loader and stays", id), "name"};
  }
  Model& model = **found;
  if (done) model.unloaded.push_back(std::move(done));
  model.deadline_ns = model.unloading ? std::min(model.deadline_ns, deadline_ns) : deadline_ns;
  model.unloading = true;
  hold = services_.catalogue.begin_unload(id);
  lock.unlock();
  shared_->changed.notify_all();
  changed();
  return {};
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
  if (load->done) load->done(unloaded_meanwhile(load->order.names.id));
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
    const std::shared_ptr<Model> next = locked_next_deadline();
    if (next == nullptr) {
      shared_->changed.wait(lock);
      continue;
    }
    const int64_t left_ns = next->deadline_ns - services_.clock.now_ns();
    if (left_ns > 0) {
      shared_->changed.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    next->deadline_ns += kEndAgainNs - left_ns;
    lock.unlock();
    end_answers(*next);
    lock.lock();
  }
}

void ModelLoader::end_answers(const Model& model) {
  const int count = model.parts->engine.abandon(
      {ErrorCode::kUnavailable,
       fmt::format("The model '{}' is being unloaded, and its answers have had their time",
                   model.id),
       ""});
  if (count == 0) return;
  services_.log.warning(fmt::format(
      "'{}' is being unloaded: {} answers ended before they were done", model.id, count));
}

// Its memory first, then its name.
void ModelLoader::dismantle(const std::shared_ptr<Model>& model) {
  model->parts.reset();
  std::vector<Done> unloaded;
  {
    const std::lock_guard lock(shared_->mutex);
    if (!stopping_) services_.log.info(fmt::format("'{}' is unloaded", model->id));
    services_.catalogue.remove(model->id);
    std::erase(models_, model);
    unloaded = std::move(model->unloaded);
  }
  changed();
  for (const Done& done : unloaded) done({});
}

void ModelLoader::changed() const {
  if (options_.on_change) options_.on_change();
}

}  // namespace pelton::server
