#include "server/model_sleep.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace pelton::server {
namespace {

Error no_loader() {
  return {ErrorCode::kUnavailable, "The server is shutting down", ""};
}

}  // namespace

void ModelSleep::set_loader(Loader loader) {
  const std::lock_guard lock(mutex_);
  loader_ = std::move(loader);
}

Result<void> ModelSleep::locked_room_for(const Waiter& waiter) const {
  int own = 0;
  int64_t bytes = waiter.bytes;
  for (const Entry& entry : waiting_) {
    own += entry.waiter.tenant == waiter.tenant ? 1 : 0;
    bytes += entry.waiter.bytes;
  }
  const bool fits = static_cast<int>(waiting_.size()) < kWaitingMax && own < kWaitingPerTenantMax &&
                    bytes <= kWaitingBytesMax;
  if (fits) return {};
  return Error{ErrorCode::kOverloaded,
               fmt::format("The model '{}' is being woken, and {} requests wait for it already",
                           waiter.id, waiting_.size())};
}

Result<std::function<void()>> ModelSleep::wait(Waiter waiter) {
  {
    const std::lock_guard lock(mutex_);
    if (!loader_.wake) return no_loader();
    TRY(locked_room_for(waiter));
    TRY_ASSIGN(const std::optional<uint64_t> load, loader_.wake(waiter.id));
    if (load) {
      const uint64_t ticket = ++tickets_;
      waiting_.push_back({.ticket = ticket, .load = *load, .waiter = std::move(waiter)});
      return std::function<void()>([this, ticket] { cancel(ticket); });
    }
  }
  waiter.done({});
  return std::function<void()>([] {});
}

Result<void> ModelSleep::sleep(const std::string& id, std::optional<int64_t> drain_ms, Done done) {
  const std::lock_guard lock(mutex_);
  if (!loader_.sleep) return no_loader();
  return loader_.sleep(id, drain_ms, std::move(done));
}

void ModelSleep::ended(uint64_t load, const Result<void>& outcome) {
  std::list<Entry> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto next = std::next(at);
      if (at->load == load) ended.splice(ended.end(), waiting_, at);
      at = next;
    }
  }
  for (const Entry& entry : ended) entry.waiter.done(outcome);
}

void ModelSleep::close() {
  std::list<Entry> ended;
  {
    const std::lock_guard lock(mutex_);
    loader_ = {};
    ended.swap(waiting_);
  }
  for (const Entry& entry : ended) entry.waiter.done(no_loader());
}

void ModelSleep::cancel(uint64_t ticket) {
  std::list<Entry> cancelled;  // what it holds goes without the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(waiting_, ticket, &Entry::ticket);
  if (found != waiting_.end()) cancelled.splice(cancelled.end(), waiting_, found);
}

int ModelSleep::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(waiting_.size());
}

}  // namespace pelton::server
