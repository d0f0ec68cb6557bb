#include "server/adapter_registry.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace pelton::server {
namespace {

constexpr std::string_view kConfigFile = "adapter_config.json";

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= AdapterRegistry::kNameBytesMax &&
         std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

// Of a name that a request gives: one folder below, and none elsewhere.
bool is_folder_name(std::string_view name) {
  return is_name(name) && name.find('/') == std::string_view::npos && name != "." && name != "..";
}

bool is_adapter(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder + "/" + std::string(kConfigFile), ignored);
}

Error unknown(std::string_view name) {
  return {
      ErrorCode::kNotFound,
      fmt::format("there is no adapter named '{}'", name.substr(0, AdapterRegistry::kNameBytesMax)),
      std::string(kUnknownAdapter)};
}

Error leaving() {
  return {ErrorCode::kUnavailable, "the model is being unloaded", ""};
}

}  // namespace

request::AdapterRef ref_of(const std::shared_ptr<const AdapterHold>& hold) {
  if (hold == nullptr) return {};
  return {.identity = hold->identity(),
          .weights = std::shared_ptr<const request::AdapterWeights>(hold, hold->weights())};
}

void AdapterRegistry::Shared::locked_note() {
  if (clock != nullptr) changed_unix_ms = clock->unix_ms();
}

AdapterRegistry::AdapterRegistry(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      burst_(options_.resident_max),
      burst_at_ns_(clock.now_ns()) {
  shared_->clock = &clock;
  thread_ = std::thread([this] { run(); });
}

AdapterRegistry::~AdapterRegistry() {
  std::vector<Waiter> waiters;
  std::vector<Done> dones;
  {
    const std::lock_guard lock(shared_->mutex);
    stopping_ = true;
    shared_->clock = nullptr;
    shared_->changed.notify_all();
  }
  thread_.join();
  {
    const std::lock_guard lock(shared_->mutex);
    for (const std::shared_ptr<Named>& named : queue_) {
      for (WaitingEntry& entry : named->waiting) waiters.push_back(std::move(entry.waiter));
      named->waiting.clear();
      if (named->done) dones.push_back(std::move(named->done));
    }
    queue_.clear();
  }
  for (const Waiter& waiter : waiters) waiter.done(leaving());
  for (const Done& done : dones) done(leaving());
}

// --- names ---

Result<void> AdapterRegistry::locked_check_name(const Source& source, InPlace in_place) const {
  if (!is_name(source.name)) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("'lora_name' must be 1 to {} bytes without control characters", kNameBytesMax),
        "lora_name"};
  }
  const bool is_taken = names_.contains(source.name);
  if (is_taken && in_place == InPlace::kNo) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("an adapter named '{}' is there already; unload it first, or replace "
                             "it with \"load_inplace\": true",
                             source.name),
                 "lora_name"};
  }
  if (!is_taken && names_.size() + queue_.size() >= kNamesMax) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("there are {} adapters, the most that can be; unload one", kNamesMax),
                 "lora_name"};
  }
  return {};
}

Result<void> AdapterRegistry::load(Source source, InPlace in_place, Done done) {
  const std::lock_guard lock(shared_->mutex);
  TRY(locked_check_name(source, in_place));
  const auto named = std::make_shared<Named>();
  named->source = std::move(source);
  named->created = clock_.unix_ms() / 1000;
  named->is_candidate = true;
  named->in_place = in_place;
  named->done = std::move(done);
  locked_queue(named);
  return {};
}

Result<void> AdapterRegistry::unload(std::string_view name) {
  std::list<WaitingEntry> waiting;
  {
    const std::lock_guard lock(shared_->mutex);
    const auto found = names_.find(name);
    if (found == names_.end()) return unknown(name);
    const std::shared_ptr<Named> named = found->second;
    names_.erase(found);
    named->removed = true;
    locked_set_version(*named, nullptr);
    waiting.swap(named->waiting);
    for (const WaitingEntry& entry : waiting) locked_count_out(entry.waiter);
    shared_->locked_note();
    shared_->changed.notify_all();
  }
  for (const WaitingEntry& entry : waiting) entry.waiter.done(unknown(name));
  return {};
}

std::shared_ptr<AdapterRegistry::Named> AdapterRegistry::locked_find(std::string_view name) {
  if (const auto found = names_.find(name); found != names_.end()) return found->second;
  if (!is_folder_name(name) || names_.size() >= kNamesMax) return nullptr;
  for (const std::string& folder : options_.folders) {
    std::string path = fmt::format("{}/{}", folder, name);
    if (!is_adapter(path)) continue;
    const auto named = std::make_shared<Named>();
    named->source = {.name = std::string(name), .path = std::move(path)};
    named->created = clock_.unix_ms() / 1000;
    names_.emplace(named->source.name, named);
    return named;
  }
  return nullptr;
}

bool AdapterRegistry::has(std::string_view name) {
  const std::lock_guard lock(shared_->mutex);
  return locked_find(name) != nullptr;
}

void AdapterRegistry::find_in_folders() {
  for (const std::string& folder : options_.folders) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      (void)has(entry.path().filename().string());
    }
  }
}

// --- uses ---

std::shared_ptr<const AdapterHold> AdapterRegistry::locked_hold(
    const std::shared_ptr<Named>& named) {
  const std::shared_ptr<Version> version = named->version;
  ++version->uses;
  ++named->uses;
  version->last_use = ++shared_->ticks;
  shared_->locked_note();
  auto release = [shared = shared_, named, used = version]() mutable {
    const std::lock_guard lock(shared->mutex);
    --named->uses;
    used->last_use = ++shared->ticks;
    shared->locked_note();
    if (--used->uses == 0) shared->changed.notify_all();
    used.reset();  // the registry's is the last: its thread frees the memory
  };
  return std::make_shared<const AdapterHold>(named->source.name, version->loaded.digest,
                                             version->loaded.adapter, std::move(release));
}

std::shared_ptr<const AdapterHold> AdapterRegistry::hold(std::string_view name) {
  const std::lock_guard lock(shared_->mutex);
  const std::shared_ptr<Named> named = locked_find(name);
  if (named == nullptr || named->version == nullptr || named->version->leaving) return nullptr;
  ++counted_.hits;
  ++named->requests;
  return locked_hold(named);
}

Result<std::function<void()>> AdapterRegistry::wait(std::string_view name, Waiter waiter) {
  std::shared_ptr<const AdapterHold> held;
  {
    const std::lock_guard lock(shared_->mutex);
    const std::shared_ptr<Named> named = locked_find(name);
    if (named == nullptr) return unknown(name);
    if (named->version == nullptr || named->version->leaving) {
      const auto of_tenant = waiting_of_tenant_.find(waiter.tenant);
      const int own = of_tenant == waiting_of_tenant_.end() ? 0 : of_tenant->second;
      if (waiting_ >= kWaitingMax || own >= kWaitingPerTenantMax ||
          waiting_bytes_ + waiter.bytes > kWaitingBytesMax) {
        return Error{ErrorCode::kOverloaded,
                     fmt::format("{} requests wait for adapters to be loaded already", waiting_),
                     "model"};
      }
      ++waiting_;
      ++waiting_of_tenant_[waiter.tenant];
      waiting_bytes_ += waiter.bytes;
      ++counted_.misses;
      ++named->requests;
      const uint64_t ticket = ++tickets_;
      named->waiting.push_back({.ticket = ticket, .waiter = std::move(waiter)});
      shared_->locked_note();
      locked_queue(named);
      return std::function<void()>([shared = shared_, registry = this, named, ticket] {
        cancel(shared, registry, named, ticket);
      });
    }
    ++counted_.hits;
    ++named->requests;
    held = locked_hold(named);
  }
  waiter.done(std::move(held));
  return std::function<void()>([] {});
}

void AdapterRegistry::locked_count_out(const Waiter& waiter) {
  --waiting_;
  waiting_bytes_ -= waiter.bytes;
  const auto own = waiting_of_tenant_.find(waiter.tenant);
  if (--own->second == 0) waiting_of_tenant_.erase(own);
}

void AdapterRegistry::cancel(const std::shared_ptr<Shared>& shared, AdapterRegistry* registry,
                             const std::shared_ptr<Named>& named, uint64_t ticket) {
  std::list<WaitingEntry> cancelled;  // what it holds goes without the lock
  const std::lock_guard lock(shared->mutex);
  if (shared->clock == nullptr) return;
  const auto found = std::ranges::find(named->waiting, ticket, &WaitingEntry::ticket);
  if (found == named->waiting.end()) return;
  registry->locked_count_out(found->waiter);
  cancelled.splice(cancelled.end(), named->waiting, found);
  shared->changed.notify_all();  // others may stay that were to make room for it
}

// --- the loader's thread ---

void AdapterRegistry::locked_queue(const std::shared_ptr<Named>& named) {
  if (named->queued) return;
  named->queued = true;
  queue_.push_back(named);
  shared_->changed.notify_all();
}

void AdapterRegistry::run() {
  pthread_setname_np(pthread_self(), "pelton-lora");
  std::unique_lock lock(shared_->mutex);
  int64_t blocked_since_ns = 0;
  const Named* blocked = nullptr;
  while (!stopping_) {
    std::vector<std::shared_ptr<Version>> gone;  // freed without the lock
    locked_drop_orphans(gone);
    if (!gone.empty()) {
      lock.unlock();
      gone.clear();
      lock.lock();
      continue;
    }
    locked_let_stay();
    const std::shared_ptr<Named> next = locked_next();
    if (next.get() != blocked) blocked_since_ns = 0;
    blocked = next.get();
    if (next == nullptr) {
      shared_->changed.wait(lock);
      continue;
    }
    // By another of its names, or it need not make room any more.
    if (!next->is_candidate && next->version != nullptr && !next->version->leaving) {
      queue_.pop_front();
      finish(lock, next, {});
      continue;
    }
    const int64_t now_ns = clock_.now_ns();
    const int64_t wait_ns = next->is_candidate ? 0 : turn_in_ns(now_ns);
    if (wait_ns > 0) {
      shared_->changed.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      continue;
    }
    const Room room = locked_make_room(*next, gone);
    if (!gone.empty()) {
      lock.unlock();
      gone.clear();
      lock.lock();
    }
    if (room == Room::kWait) {
      if (blocked_since_ns == 0) blocked_since_ns = now_ns;
      const int64_t left_ns = blocked_since_ns + options_.patience_ns - now_ns;
      if (left_ns > 0) {
        shared_->changed.wait_for(lock, std::chrono::nanoseconds(left_ns));
      } else {
        locked_ask_to_leave();
        shared_->changed.wait(lock);
      }
      continue;
    }
    blocked_since_ns = 0;
    queue_.pop_front();
    if (room == Room::kNever) {
      finish(lock, next, no_room(*next));
      continue;
    }
    if (!next->is_candidate) burst_ -= 1;
    load_one(lock, next);
  }
}

// The first that is still wanted.
std::shared_ptr<AdapterRegistry::Named> AdapterRegistry::locked_next() {
  while (!queue_.empty()) {
    const std::shared_ptr<Named> named = queue_.front();
    const bool is_wanted = named->is_candidate || (!named->removed && !named->waiting.empty());
    if (is_wanted) return named;
    named->queued = false;
    queue_.pop_front();
  }
  return nullptr;
}

// How long until a load may begin.
int64_t AdapterRegistry::turn_in_ns(int64_t now_ns) {
  if (options_.loads_per_second <= 0) {
    burst_ = 1;
    return 0;
  }
  const double passed_s = static_cast<double>(now_ns - burst_at_ns_) * 1e-9;
  burst_at_ns_ = now_ns;
  burst_ = std::min(burst_ + passed_s * options_.loads_per_second,
                    static_cast<double>(std::max(options_.resident_max, 1)));
  if (burst_ >= 1) return 0;
  return static_cast<int64_t>((1 - burst_) / options_.loads_per_second * 1e9) + 1;
}

int64_t AdapterRegistry::locked_bytes() const {
  int64_t bytes = 0;
  for (const auto& version : versions_) bytes += version->loaded.bytes;
  return bytes;
}

// The one that nobody uses whose last use is longest ago.
std::shared_ptr<AdapterRegistry::Version> AdapterRegistry::locked_idle() const {
  std::shared_ptr<Version> idle;
  for (const auto& version : versions_) {
    if (version->uses > 0 || version->pins > 0) continue;
    if (idle == nullptr || version->last_use < idle->last_use) idle = version;
  }
  return idle;
}

AdapterRegistry::Room AdapterRegistry::locked_make_room(
    const Named& named, std::vector<std::shared_ptr<Version>>& gone) {
  const int64_t bytes = named.known_bytes > 0 || !options_.bytes_of
                            ? named.known_bytes
                            : options_.bytes_of(named.source.path);
  if (bytes > options_.bytes_max) return Room::kNever;
  while (std::ssize(versions_) >= options_.resident_max ||
         locked_bytes() + bytes > options_.bytes_max) {
    const std::shared_ptr<Version> idle = locked_idle();
    if (idle == nullptr) {
      const bool all_pinned =
          std::ranges::all_of(versions_, [](const auto& version) { return version->pins > 0; });
      return all_pinned ? Room::kNever : Room::kWait;
    }
    locked_evict(idle);
    gone.push_back(idle);
  }
  for (const auto& version : versions_) version->leaving = false;
  return Room::kYes;
}

Error AdapterRegistry::no_room(const Named& named) const {
  return {ErrorCode::kDoesNotFit,
          fmt::format("there is no room for the adapter '{}': {} may be in memory (--max-cpu-loras)"
                      ", of {} bytes together, and those that are pinned stay",
                      named.source.name, options_.resident_max, options_.bytes_max),
          "lora_name"};
}

void AdapterRegistry::locked_evict(const std::shared_ptr<Version>& version) {
  for (Named* const named : version->names) named->version = nullptr;
  version->names.clear();
  versions_.remove(version);
  ++counted_.evictions;
}

// Those who were asked to leave, if everybody who waits has an adapter in memory: the request that
// they made room for was cancelled.
void AdapterRegistry::locked_let_stay() {
  const bool is_wanted = std::ranges::any_of(queue_, [](const std::shared_ptr<Named>& named) {
    return named->is_candidate ||
           (!named->removed && !named->waiting.empty() && named->version == nullptr);
  });
  if (is_wanted) return;
  for (const auto& version : versions_) version->leaving = false;
}

// Whoever has waited for long has the place of the one that has been in memory longest.
void AdapterRegistry::locked_ask_to_leave() {
  std::shared_ptr<Version> oldest;
  for (const auto& version : versions_) {
    if (version->leaving) return;
    if (version->pins > 0) continue;
    if (oldest == nullptr || version->loaded_as < oldest->loaded_as) oldest = version;
  }
  if (oldest != nullptr) oldest->leaving = true;
}

// Whose names are gone, and who is not used any more.
void AdapterRegistry::locked_drop_orphans(std::vector<std::shared_ptr<Version>>& gone) {
  for (auto at = versions_.begin(); at != versions_.end();) {
    const std::shared_ptr<Version>& version = *at;
    if (version->names.empty() && version->uses == 0) {
      gone.push_back(version);
      at = versions_.erase(at);
    } else {
      ++at;
    }
  }
}

void AdapterRegistry::locked_set_version(Named& named, std::shared_ptr<Version> version) {
  const int pins = named.source.pinned ? 1 : 0;
  if (named.version != nullptr) {
    std::erase(named.version->names, &named);
    named.version->pins -= pins;
  }
  named.version = std::move(version);
  if (named.version != nullptr) {
    named.version->names.push_back(&named);
    named.version->pins += pins;
  }
}

void AdapterRegistry::load_one(std::unique_lock<std::mutex>& lock,
                               const std::shared_ptr<Named>& named) {
  const std::string path = named->source.path;
  lock.unlock();
  const int64_t began_ns = clock_.now_ns();
  Result<Loaded> loaded = options_.load(path);
  const int64_t took_ns = clock_.now_ns() - began_ns;
  if (loaded.ok()) {
    log_.info(fmt::format("adapter '{}': {} of rank {}, {} bytes, loaded in {:.1f} ms",
                          named->source.name, loaded->digest.substr(0, 12), loaded->rank,
                          loaded->bytes, static_cast<double>(took_ns) * 1e-6));
  } else {
    log_.warning(
        fmt::format("adapter '{}' is not loaded: {}", named->source.name, loaded.error().message));
  }
  std::vector<std::shared_ptr<Version>> gone;
  lock.lock();
  Result<void> outcome;
  if (loaded.ok()) {
    ++counted_.loads;
    counted_.load_ns += took_ns;
    outcome = locked_keep(named, *std::move(loaded), gone);
  } else {
    ++counted_.failed_loads;
    outcome = loaded.error();
  }
  if (!gone.empty()) {
    lock.unlock();
    gone.clear();
    lock.lock();
  }
  finish(lock, named, outcome);
}

// What was loaded is what the name leads to, unless it is in memory by another name.
Result<void> AdapterRegistry::locked_keep(const std::shared_ptr<Named>& named, Loaded loaded,
                                          std::vector<std::shared_ptr<Version>>& gone) {
  const auto same = std::ranges::find_if(versions_, [&](const auto& version) {
    return version->loaded.digest == loaded.digest && !version->leaving;
  });
  std::shared_ptr<Version> version;
  if (same != versions_.end()) {
    version = *same;
    gone.push_back(std::make_shared<Version>(Version{.loaded = std::move(loaded)}));
  } else {
    // It takes more than its file said: where there is no room, it is loaded when there is.
    named->known_bytes = loaded.bytes;
    version = std::make_shared<Version>(Version{.loaded = std::move(loaded)});
    if (locked_make_room(*named, gone) != Room::kYes) {
      gone.push_back(std::move(version));
      return no_room(*named);
    }
    version->last_use = version->loaded_as = ++shared_->ticks;
    versions_.push_back(version);
  }
  if (named->is_candidate) {
    const auto before = names_.find(named->source.name);
    if (before != names_.end() && named->in_place == InPlace::kNo) {
      return locked_check_name(named->source, InPlace::kNo);  // it has come meanwhile
    }
    if (before != names_.end()) {
      locked_set_version(*before->second, nullptr);
      before->second->removed = true;
      named->waiting.splice(named->waiting.end(), before->second->waiting);
    }
    names_[named->source.name] = named;
    named->is_candidate = false;
  }
  if (!named->removed) locked_set_version(*named, std::move(version));
  return {};
}

// Tells all who wait.
void AdapterRegistry::finish(std::unique_lock<std::mutex>& lock,
                             const std::shared_ptr<Named>& named, const Result<void>& outcome) {
  named->queued = false;
  std::list<WaitingEntry> waiting;
  waiting.swap(named->waiting);
  const Done done = std::move(named->done);
  named->done = nullptr;
  std::vector<Held> held;
  for (const WaitingEntry& entry : waiting) {
    locked_count_out(entry.waiter);
    if (!outcome.ok()) {
      held.emplace_back(outcome.error());
    } else if (named->version == nullptr) {
      held.emplace_back(unknown(named->source.name));
    } else {
      held.emplace_back(locked_hold(named));
    }
  }
  shared_->locked_note();
  lock.unlock();
  size_t i = 0;
  for (const WaitingEntry& entry : waiting) entry.waiter.done(std::move(held[i++]));
  waiting.clear();
  held.clear();
  if (done) done(outcome);
  lock.lock();
}

void AdapterRegistry::clear() {
  std::vector<std::shared_ptr<Version>> gone;
  const std::lock_guard lock(shared_->mutex);
  for (const auto& [name, named] : names_) locked_set_version(*named, nullptr);
  locked_drop_orphans(gone);
}

// --- reports ---

std::vector<AdapterRegistry::Info> AdapterRegistry::list() const {
  const std::lock_guard lock(shared_->mutex);
  std::vector<Info> all;
  all.reserve(names_.size());
  for (const auto& [name, named] : names_) {
    Info info{.name = name,
              .path = named->source.path,
              .created = named->created,
              .uses = named->uses,
              .waiting = static_cast<int>(named->waiting.size()),
              .requests = named->requests,
              .pinned = named->source.pinned};
    if (named->version != nullptr) {
      info.digest = named->version->loaded.digest;
      info.rank = named->version->loaded.rank;
      info.bytes = named->version->loaded.bytes;
    }
    all.push_back(std::move(info));
  }
  return all;
}

AdapterRegistry::Stats AdapterRegistry::stats() const {
  const std::lock_guard lock(shared_->mutex);
  Stats stats = counted_;
  stats.resident = static_cast<int>(versions_.size());
  stats.in_use = static_cast<int>(
      std::ranges::count_if(versions_, [](const auto& version) { return version->uses > 0; }));
  stats.bytes = locked_bytes();
  stats.waiting = waiting_;
  stats.changed_unix_ms = shared_->changed_unix_ms;
  return stats;
}

}  // namespace pelton::server
