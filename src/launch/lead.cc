#include "launch/lead.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::launch {
namespace {

// Between its last order and the next one's first: what an order may take on its way.
constexpr int64_t kMargin_ns = 1'000'000'000;

int64_t steady_ns() {
  return base::SystemClock().now_ns();
}

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

Lead::Lead(std::unique_ptr<LeadStore> store, std::chrono::seconds lease, SharedClock& clock,
           base::Log& log)
    : store_(std::move(store)), lease_(lease), clock_(clock), log_(log), name_(random_name()) {}

Lead::~Lead() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  if (renewing_.joinable()) renewing_.join();
  if (writing_.joinable()) writing_.join();
  const Result<void> given_up = store_->give_up();
  if (!given_up.ok()) log_.info("the lead ends with its lease");
}

bool Lead::leads() const {
  return steady_ns() < leads_until_ns_.load();
}

void Lead::note(const Result<void>& done) {
  const std::string trouble = done.ok() ? "" : done.error().message;
  if (trouble != trouble_ && !trouble.empty()) log_.warning("lead: " + trouble);
  trouble_ = trouble;
}

bool Lead::try_to_lead() {
  const int64_t asked_ns = steady_ns();
  const Result<std::optional<LeadStore::Term>> entered = store_->enter(name_);
  if (!entered.ok()) {
    note(entered.error());
    return false;
  }
  note({});
  if (!*entered) return false;
  epoch_ = (*entered)->epoch;
  leads_until_ns_ = asked_ns + (*entered)->left.count() - kMargin_ns;
  log_.info(fmt::format("leads, epoch {}", epoch_));
  renewing_ = std::thread([this] { renew(); });
  pthread_setname_np(renewing_.native_handle(), "pelton-lead");
  writing_ = std::thread([this] { write_kept(); });
  pthread_setname_np(writing_.native_handle(), "pelton-keep");
  return true;
}

void Lead::renew() {
  const std::chrono::milliseconds pause(std::chrono::milliseconds(lease_) / 4);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (woken_.wait_for(lock, pause, [this] { return stopping_; })) return;
    }
    const int64_t asked_ns = steady_ns();
    // One whose time was over has acted as if it had none: it is not to lead again.
    if (!leads()) return;
    const Result<std::chrono::nanoseconds> left = store_->renew();
    note(left.ok() ? Result<void>() : left.error());
    if (!left.ok()) {
      if (left.error().code == ErrorCode::kNotFound) leads_until_ns_ = 0;
      continue;
    }
    const int64_t until_ns = asked_ns + left->count() - kMargin_ns;
    // Whoever writes may have seen meanwhile that another one leads.
    int64_t before_ns = leads_until_ns_.load();
    while (before_ns != 0 && !leads_until_ns_.compare_exchange_weak(before_ns, until_ns)) {
    }
    if (before_ns == 0) return;
  }
}

void Lead::write_kept() {
  std::string trouble;
  for (;;) {
    std::vector<FleetScaler::Memory> kept;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return stopping_ || has_kept_; });
      if (!std::exchange(has_kept_, false)) return;
      kept = std::move(kept_);
    }
    const Result<void> written = write(kept);
    const std::string now = written.ok() ? "" : written.error().message;
    if (now != trouble && !now.empty())
      log_.warning("lead: what is remembered is not kept: " + now);
    trouble = now;
  }
}

Result<std::vector<FleetScaler::Memory>> Lead::memories() {
  TRY_ASSIGN(const std::vector<LeadStore::Entry> entries, store_->read());
  std::vector<FleetScaler::Memory> all;
  for (const LeadStore::Entry& one : entries) {
    const Result<Json> json = Json::parse(one.text);
    const Json* memory = json.ok() && json->is_object() ? json->find("memory") : nullptr;
    const std::optional<int64_t> at_ns = memory == nullptr ? std::nullopt : json->integer("at_ns");
    if (!at_ns) {
      log_.warning(fmt::format("lead: what is kept of pool '{}' is passed over", one.pool));
      continue;
    }
    // A minute is a clock that is set wrong; what is ahead by more is not waited for.
    constexpr int64_t kAheadMax_ns = 60'000'000'000;
    if (*at_ns - clock_.now_ns() > kAheadMax_ns) continue;
    clock_.advance_to(*at_ns);
    all.push_back({.pool = one.pool, .text = memory->dump()});
  }
  return all;
}

void Lead::keep(std::vector<FleetScaler::Memory> memories) {
  {
    std::lock_guard lock(mutex_);
    kept_ = std::move(memories);
    has_kept_ = !kept_.empty();
  }
  woken_.notify_all();
}

Result<void> Lead::write(const std::vector<FleetScaler::Memory>& memories) {
  for (const FleetScaler::Memory& one : memories) {
    std::string text;
    base::JsonWriter w(text);
    w.begin_object().key("at_ns").integer(clock_.now_ns()).key("memory").raw(one.text).end_object();
    TRY_ASSIGN(const bool is_ours, store_->write({.pool = one.pool, .text = std::move(text)}));
    if (is_ours) continue;
    leads_until_ns_ = 0;
    return Error{ErrorCode::kUnavailable, "another one leads", {}};
  }
  return {};
}

}  // namespace pelton::launch
