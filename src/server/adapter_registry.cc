#include "server/adapter_registry.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "api/lora_request.h"

namespace pelton::server {
namespace {

// For so long after a load that failed a request for the same one costs no load, and no other its
// place.
constexpr int64_t kRefusalNs = 5'000'000'000;

using api::is_adapter_name;

// Of a name that a request gives: one folder below, and none elsewhere.
bool is_folder_name(std::string_view name) {
  return is_adapter_name(name) && name.find('/') == std::string_view::npos;
}

Error unknown(std::string_view name) {
  return {ErrorCode::kNotFound,
          fmt::format("there is no adapter named '{}'", name.substr(0, api::kAdapterNameBytesMax)),
          std::string(kUnknownAdapter)};
}

bool is_adapter_folder(const std::string& path) {
  std::error_code unknown_state;
  const bool is_there = std::filesystem::exists(path + "/adapter_config.json", unknown_state);
  return is_there || unknown_state;  // what cannot be looked at may be there
}

// Whoever asks by name learns nothing of where its files are.
Error without_path(Error error, const std::string& path) {
  const auto replace = [&](const std::string& what, std::string_view with) {
    for (size_t at = 0; (at = error.message.find(what, at)) != std::string::npos;) {
      error.message.replace(at, what.size(), with);
      at += with.size();
    }
  };
  if (path.empty()) return error;
  replace(path + "/", "");
  replace(path, "its folder");
  return error;
}

Error leaving() {
  return {ErrorCode::kUnavailable, "the model is being unloaded", ""};
}

}  // namespace

bool is_lasting_refusal(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kBadCheckpoint:
    case ErrorCode::kNotFound:
      return true;
    case ErrorCode::kDoesNotFit:
      return error.field != kUnknownAdapter;  // which is no_room()'s, of all that are pinned
    default:
      return false;
  }
}

request::AdapterRef ref_of(const std::shared_ptr<const AdapterHold>& hold,
                           std::span<const TokenId> prompt) {
  if (hold == nullptr) return {};
  const std::optional<int32_t> from = request::acts_from(hold->invocation(), prompt);
  if (!from) return {};
  return {.identity = hold->identity(),
          .weights = std::shared_ptr<const request::AdapterWeights>(hold, hold->weights()),
          .acts_from = *from};
}

void AdapterRegistry::Shared::locked_note() {
  if (clock != nullptr) changed_unix_ms = clock->unix_ms();
}

AdapterRegistry::AdapterRegistry(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)),
      folders_(options_.folders),
      clock_(clock),
      log_(log),
      load_rate_(options_.loads_per_second, options_.resident_max, clock.now_ns()) {
  shared_->clock = &clock;
  swept_ns_ = clock.now_ns();
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
  if (!is_adapter_name(source.name)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'lora_name' must be 1 to {} bytes of UTF-8 without control "
                             "characters, and no part of it between slashes '.', '..' or empty",
                             api::kAdapterNameBytesMax),
                 "lora_name"};
  }
  if (std::ranges::find(options_.model_names, source.name) != options_.model_names.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is the model's own name", source.name), "lora_name"};
  }
  const bool is_taken = names_.contains(source.name);
  if (is_taken && in_place == InPlace::kNo) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("an adapter named '{}' is there already; unload it first, or replace "
                             "it with \"load_inplace\": true",
                             source.name),
                 "lora_name"};
  }
  const bool is_new = !is_taken && !unloaded_.contains(source.name);
  if (is_new && names_.size() + unloaded_.size() + queue_.size() >= kNamesMax) {
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
    const std::shared_ptr<Named> named = locked_find(name);
    if (named == nullptr) return unknown(name);
    names_.erase(named->source.name);
    ++names_version_;
    if (is_folder_name(name) && folders_.find(name)) unloaded_.insert(named->source.name);
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
  const bool is_models =
      std::ranges::find(options_.model_names, name) != options_.model_names.end();
  if (!is_folder_name(name) || is_models || unloaded_.contains(name)) return nullptr;
  if (names_.size() + unloaded_.size() >= kNamesMax) return nullptr;
  std::optional<std::string> path = folders_.find(name);
  if (!path) return nullptr;
  const auto named = std::make_shared<Named>();
  named->source = {.name = std::string(name), .path = *std::move(path), .is_confined = true};
  named->is_found = true;
  named->created = clock_.unix_ms() / 1000;
  names_.emplace(named->source.name, named);
  ++names_version_;
  return named;
}

bool AdapterRegistry::has(std::string_view name) {
  const std::lock_guard lock(shared_->mutex);
  return locked_find(name) != nullptr;
}

void AdapterRegistry::find_in_folders() {
  for (const std::string& name : folders_.names()) {
    const auto& models = options_.model_names;
    if (std::ranges::find(models, name) != models.end() && folders_.find(name)) {
      log_.warning(fmt::format(
          "the adapter in --lora-folder named '{}' is not served: that is the model's own name",
          name));
    }
    (void)has(name);
  }
}

// One whose folder is gone is as one that never was there.
void AdapterRegistry::locked_forget(const Named& named) {
  const auto found = names_.find(named.source.name);
  if (found == names_.end() || found->second.get() != &named) return;
  found->second->removed = true;
  names_.erase(found);
  ++names_version_;
}

// On the loader's thread.
void AdapterRegistry::sweep(std::unique_lock<std::mutex>& lock) {
  const auto is_idle = [](const Named& named) {
    return named.is_found && named.version == nullptr && !named.queued;
  };
  std::vector<std::shared_ptr<Named>> all;
  std::set<std::string, std::less<>> known(unloaded_.begin(), unloaded_.end());
  for (const auto& [name, named] : names_) {
    if (is_idle(*named)) all.push_back(named);
    known.insert(name);
  }
  lock.unlock();
  std::erase_if(all, [](const auto& named) { return is_adapter_folder(named->source.path); });
  // Gateways know those that are listed: who came later is found before anybody asks here.
  for (const std::string& name : folders_.names()) {
    if (!known.contains(name) && folders_.find(name)) (void)has(name);
  }
  lock.lock();
  for (const auto& named : all) {
    if (is_idle(*named)) locked_forget(*named);
  }
  swept_ns_ = clock_.now_ns();
}

std::shared_ptr<const api::ModelDescription> AdapterRegistry::description(std::string_view name) {
  Source source;
  {
    const std::lock_guard lock(shared_->mutex);
    const std::shared_ptr<Named> named = locked_find(name);
    if (named == nullptr || !options_.describe) return nullptr;
    source = named->source;
  }
  auto made = std::make_shared<const api::ModelDescription>(options_.describe(
      source.path,
      [&](const std::string& file) { return !source.is_confined || folders_.holds_file(file); }));
  return made->text.empty() && made->license.empty() && made->license_text.empty() ? nullptr : made;
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
                                             version->loaded.adapter, version->loaded.invocation,
                                             std::move(release));
}

std::shared_ptr<const AdapterHold> AdapterRegistry::hold(std::string_view name) {
  const std::lock_guard lock(shared_->mutex);
  const std::shared_ptr<Named> named = locked_find(name);
  if (named == nullptr || named->version == nullptr || named->version->leaving) return nullptr;
  ++counted_.hits;
  locked_count_request(*named);
  return locked_hold(named);
}

Result<std::function<void()>> AdapterRegistry::wait(std::string_view name, Waiter waiter) {
  std::shared_ptr<const AdapterHold> held;
  {
    const std::lock_guard lock(shared_->mutex);
    const std::shared_ptr<Named> named = locked_find(name);
    if (named == nullptr) return unknown(name);
    if (named->version == nullptr || named->version->leaving) {
      const bool is_refused = named->refusal && clock_.now_ns() - named->refused_ns < kRefusalNs;
      if (is_refused) return *named->refusal;
      const auto of_tenant = waiting_of_tenant_.find(waiter.tenant);
      const int own = of_tenant == waiting_of_tenant_.end() ? 0 : of_tenant->second.count;
      if (waiting_ >= kWaitingMax || own >= kWaitingPerTenantMax ||
          waiting_bytes_ + waiter.bytes > kWaitingBytesMax) {
        return Error{ErrorCode::kOverloaded,
                     fmt::format("{} requests wait for adapters to be loaded already", waiting_),
                     "model"};
      }
      ++waiting_;
      TenantWaits& waits = waiting_of_tenant_[waiter.tenant];
      if (waits.count++ == 0) waits.turn = turn_;
      waiting_bytes_ += waiter.bytes;
      ++counted_.misses;
      locked_count_request(*named);
      const uint64_t ticket = ++tickets_;
      named->waiting.push_back(
          {.ticket = ticket, .waiter = std::move(waiter), .since_ns = clock_.now_ns()});
      shared_->locked_note();
      locked_queue(named);
      return std::function<void()>([shared = shared_, registry = this, named, ticket] {
        cancel(shared, registry, named, ticket);
      });
    }
    ++counted_.hits;
    locked_count_request(*named);
    held = locked_hold(named);
  }
  waiter.done(std::move(held));
  return std::function<void()>([] {});
}

void AdapterRegistry::locked_count_request(const Named& named) {
  const std::string& name = named.source.name;
  const bool is_counted = requests_.contains(name) || requests_.size() < kCountedMax;
  ++requests_[is_counted ? name : std::string(kOthers)];
}

void AdapterRegistry::locked_count_out(const Waiter& waiter) {
  --waiting_;
  waiting_bytes_ -= waiter.bytes;
  const auto own = waiting_of_tenant_.find(waiter.tenant);
  if (--own->second.count == 0) waiting_of_tenant_.erase(own);
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
  shared->locked_note();
  shared->changed.notify_all();  // others may stay that were to make room for it
}

// --- the loader's thread ---

int64_t AdapterRegistry::locked_bytes() const {
  int64_t bytes = 0;
  for (const auto& version : versions_) bytes += version->loaded.bytes;
  return bytes;
}

// The one that nobody uses whose last use is longest ago.
std::shared_ptr<AdapterRegistry::Version> AdapterRegistry::locked_idle(const Version* but) const {
  std::shared_ptr<Version> idle;
  for (const auto& version : versions_) {
    if (version->uses > 0 || version->pins > 0 || version.get() == but) continue;
    if (idle == nullptr || version->last_use < idle->last_use) idle = version;
  }
  return idle;
}

// Its place is free for the one that replaces it: that one is the one more that is planned for
// while it is being read, and until the old one's last use has ended nothing else is.
const AdapterRegistry::Version* AdapterRegistry::locked_replaced(const Named& named) const {
  if (!named.is_candidate || named.in_place == InPlace::kNo) return nullptr;
  const auto before = names_.find(named.source.name);
  if (before == names_.end() || before->second->version == nullptr) return nullptr;
  const Version& version = *before->second->version;
  return version.names.size() == 1 ? &version : nullptr;
}

int64_t AdapterRegistry::bytes_to_come(const Named& named) const {
  if (named.known_bytes > 0 || !options_.bytes_of) return named.known_bytes;
  return options_.bytes_of(named.source.path);
}

AdapterRegistry::Room AdapterRegistry::locked_make_room(
    const Named& named, std::vector<std::shared_ptr<Version>>& gone) {
  const int64_t bytes = bytes_to_come(named);
  if (bytes > options_.bytes_max) return Room::kTooLarge;
  const Version* const replaced = locked_replaced(named);
  const int64_t free_places = replaced == nullptr ? 0 : 1;
  const int64_t free_bytes = replaced == nullptr ? 0 : replaced->loaded.bytes;
  // One place more is planned for, whatever the one that is replaced takes.
  const int64_t place_bytes = options_.bytes_max / std::max(options_.resident_max, 1);
  const auto is_full = [&] {
    return std::ssize(versions_) - free_places >= options_.resident_max ||
           locked_bytes() - free_bytes + bytes > options_.bytes_max ||
           locked_bytes() - place_bytes + bytes > options_.bytes_max;
  };
  while (is_full()) {
    const std::shared_ptr<Version> idle = locked_idle(replaced);
    if (idle == nullptr) {
      const bool all_pinned = std::ranges::all_of(versions_, [&](const auto& version) {
        return version->pins > 0 || version.get() == replaced;
      });
      return all_pinned ? Room::kAllPinned : Room::kWait;
    }
    locked_evict(idle);
    gone.push_back(idle);
  }
  for (const auto& version : versions_) version->leaving = false;
  return Room::kYes;
}

Error AdapterRegistry::no_room(const Named& named, Room room) const {
  if (room == Room::kTooLarge) {
    return {ErrorCode::kDoesNotFit,
            fmt::format("'{}' ('lora_path'): its tensors take {} bytes, and all adapters together "
                        "may take {} (--max-cpu-loras, --max-lora-rank, --lora-targets)",
                        named.source.path, bytes_to_come(named), options_.bytes_max),
            "lora_path"};
  }
  return {ErrorCode::kDoesNotFit,
          fmt::format("there is no room for the adapter '{}': {} may be in memory (--max-cpu-loras)"
                      ", of {} bytes together, and those that are pinned stay, as one does that is "
                      "being replaced",
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
  const bool is_wanted = std::ranges::any_of(queue_, [this](const std::shared_ptr<Named>& named) {
    return named->is_candidate || (locked_wants(*named) && named->version == nullptr);
  });
  if (is_wanted) return;
  for (const auto& version : versions_) version->leaving = false;
}

// Whoever has waited for long has the place of the one that has been in memory longest. One whose
// names are gone leaves by itself: to ask it would keep the others from being asked.
void AdapterRegistry::locked_ask_to_leave() {
  std::shared_ptr<Version> oldest;
  for (const auto& version : versions_) {
    if (version->pins > 0 || version->names.empty()) continue;
    if (version->leaving) return;
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

// On the loader's thread, without the lock.
Result<AdapterRegistry::Loaded> AdapterRegistry::read(const Source& source) const {
  if (source.is_confined) TRY(folders_.check(source.path));
  TRY_ASSIGN(Loaded loaded, options_.load(source.path));
  if (!source.is_3d || loaded.is_3d.value_or(false) == *source.is_3d) return loaded;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'is_3d_lora_weight' is {}, and the adapter's file holds {}",
                           *source.is_3d, loaded.layout),
               "is_3d_lora_weight"};
}

// Before it makes room: what can be refused by its configuration and its file's header costs no
// other its place, and requests none of their loads.
void AdapterRegistry::check_one(std::unique_lock<std::mutex>& lock,
                                const std::shared_ptr<Named>& named) {
  if (!options_.check) return;
  const Source source = named->source;
  lock.unlock();
  const Result<void> confined = source.is_confined ? folders_.check(source.path) : Result<void>();
  const Result<void> checked = confined.ok() ? options_.check(source.path) : confined;
  const bool is_gone = !checked.ok() && named->is_found && !is_adapter_folder(source.path);
  lock.lock();
  if (checked.ok()) return;
  std::erase(queue_, named);
  finish(lock, named, locked_refuse(*named, is_gone, checked.error()));
}

// Notes why it is not loaded, and gives what those who wait are to hear.
Error AdapterRegistry::locked_refuse(Named& named, bool is_gone, const Error& error) {
  log_.warning(fmt::format("adapter '{}' is not loaded: {}", named.source.name, error.message));
  ++counted_.failed_loads;
  if (is_gone) locked_forget(named);
  const Error shown = is_gone ? unknown(named.source.name) : error;
  named.refusal = without_path(shown, named.source.path);
  named.refused_ns = clock_.now_ns();
  return shown;
}

void AdapterRegistry::load_one(std::unique_lock<std::mutex>& lock,
                               const std::shared_ptr<Named>& named) {
  const Source source = named->source;
  loading_ = named;
  lock.unlock();
  const int64_t began_ns = clock_.now_ns();
  Result<Loaded> loaded = read(source);
  const int64_t took_ns = clock_.now_ns() - began_ns;
  const bool is_gone = !loaded.ok() && named->is_found && !is_adapter_folder(source.path);
  if (loaded.ok()) {
    log_.info(fmt::format("adapter '{}': {} of rank {}, {} bytes, loaded in {:.1f} ms", source.name,
                          loaded->digest.substr(0, 12), loaded->rank, loaded->bytes,
                          static_cast<double>(took_ns) * 1e-6));
  }
  std::vector<std::shared_ptr<Version>> gone;
  lock.lock();
  loading_ = nullptr;
  std::optional<Result<void>> outcome;
  if (loaded.ok()) {
    named->refusal.reset();
    ++counted_.loads;
    counted_.load_ns += took_ns;
    outcome = locked_keep(named, *std::move(loaded), gone);
  } else {
    outcome = locked_refuse(*named, is_gone, loaded.error());
  }
  // Without giving the lock back meanwhile: whose waiting is cancelled is looked for here.
  if (outcome) {
    finish(lock, named, *outcome);
  } else {
    queue_.push_front(named);
  }
  lock.unlock();
  gone.clear();
  lock.lock();
}

// What was loaded is what the name leads to, unless it is in memory by another name.
std::optional<Result<void>> AdapterRegistry::locked_keep(
    const std::shared_ptr<Named>& named, Loaded loaded,
    std::vector<std::shared_ptr<Version>>& gone) {
  const auto same = std::ranges::find_if(versions_, [&](const auto& version) {
    return version->loaded.digest == loaded.digest && !version->leaving;
  });
  const int64_t bytes = loaded.bytes;
  auto version = std::make_shared<Version>(Version{.loaded = std::move(loaded)});
  if (same != versions_.end()) {
    gone.push_back(std::exchange(version, *same));
  } else if (asleep_ && !locked_is_awaited(*named)) {
    gone.push_back(std::exchange(version, nullptr));
  } else {
    // It may take more than its file said.
    named->known_bytes = bytes;
    const Room room = locked_make_room(*named, gone);
    if (room != Room::kYes) gone.push_back(std::move(version));
    if (room == Room::kWait) return std::nullopt;
    if (room != Room::kYes) {
      const Error error = no_room(*named, room);
      named->known_bytes = 0;  // its file may be another one tomorrow
      return error;
    }
    version->last_use = version->loaded_as = ++shared_->ticks;
    versions_.push_back(version);
  }
  if (named->is_candidate) {
    const Result<void> is_named = locked_name(named);
    if (!is_named.ok()) return is_named;
  }
  if (!named->removed) locked_set_version(*named, std::move(version));
  return Result<void>();
}

// By its own waiters, or by those of the one that it replaces.
bool AdapterRegistry::locked_is_awaited(const Named& named) const {
  if (!named.is_candidate) return !named.waiting.empty();
  const auto before = names_.find(named.source.name);
  return before != names_.end() && !before->second->waiting.empty();
}

// A candidate gets its name, if need be another's.
Result<void> AdapterRegistry::locked_name(const std::shared_ptr<Named>& named) {
  const auto before = names_.find(named->source.name);
  if (before != names_.end()) {
    // It may have come meanwhile.
    if (named->in_place == InPlace::kNo) return locked_check_name(named->source, InPlace::kNo);
    locked_set_version(*before->second, nullptr);
    before->second->removed = true;
    named->waiting.splice(named->waiting.end(), before->second->waiting);
  }
  names_[named->source.name] = named;
  ++names_version_;
  unloaded_.erase(named->source.name);
  named->is_candidate = false;
  return {};
}

// Tells all who wait.
void AdapterRegistry::finish(std::unique_lock<std::mutex>& lock,
                             const std::shared_ptr<Named>& named, const Result<void>& outcome) {
  named->queued = named->checked = false;
  std::list<WaitingEntry> waiting;
  waiting.swap(named->waiting);
  Done done = std::exchange(named->done, nullptr);
  std::vector<Held> held;
  for (const WaitingEntry& entry : waiting) {
    locked_count_out(entry.waiter);
    if (!outcome.ok()) {
      held.emplace_back(without_path(outcome.error(), named->source.path));
    } else if (named->version == nullptr) {
      held.emplace_back(unknown(named->source.name));
    } else {
      held.emplace_back(locked_hold(named));
      locked_note_wait(clock_.now_ns() - entry.since_ns);
    }
  }
  shared_->locked_note();
  lock.unlock();
  size_t i = 0;
  for (const WaitingEntry& entry : waiting) entry.waiter.done(std::move(held[i++]));
  if (done) done(outcome);
  // What they hold may be uses.
  waiting.clear();
  held.clear();
  done = nullptr;
  lock.lock();
}

void AdapterRegistry::locked_note_wait(int64_t waited_ns) {
  constexpr double kNewestShare = 0.1;
  const double waited_s = static_cast<double>(waited_ns) * 1e-9;
  double& average_s = counted_.wait_s;
  average_s += (average_s == 0 ? 1 : kNewestShare) * (waited_s - average_s);
}

void AdapterRegistry::sleep() {
  std::vector<std::shared_ptr<Version>> gone;
  const std::lock_guard lock(shared_->mutex);
  asleep_ = true;
  for (const auto& [name, named] : names_) locked_set_version(*named, nullptr);
  locked_drop_orphans(gone);
}

void AdapterRegistry::wake() {
  const std::lock_guard lock(shared_->mutex);
  asleep_ = false;
  for (const auto& [name, named] : names_) {
    if (named->source.pinned && named->version == nullptr) locked_queue(named);
  }
}

}  // namespace pelton::server
