#include "launch/remote_fleet.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "launch/order_fence.h"

namespace pelton::launch {
namespace {

constexpr std::chrono::milliseconds kPushAgain{200};
// Between two, however much changes and however many come that no replica takes.
constexpr std::chrono::milliseconds kPushFewest{5};
constexpr std::chrono::milliseconds kTryAgain{500};
constexpr std::chrono::milliseconds kListenTime{500};
constexpr std::chrono::seconds kAnswerTime{5};
constexpr size_t kAnswerBytesMax = size_t{16} << 20;
constexpr int kStale = 409;
constexpr int64_t kSilent_ns = 10'000'000'000;

}  // namespace

RemoteFleet::RemoteFleet(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      began_ns_(clock.now_ns()),
      client_({.threads = 1}) {
  order_.epoch = options_.epoch;
  order_.advises = options_.advises;
  for (const std::string& pool : options_.pools) order_.pools.push_back({.name = pool});
  for (const std::string& url : options_.gateways) {
    auto gateway = std::make_unique<Gateway>();
    gateway->url = url;
    gateway->pusher = std::thread([this, one = gateway.get()] { push(*one); });
    gateway->listener = std::thread([this, one = gateway.get()] { listen(*one); });
    gateways_.push_back(std::move(gateway));
  }
}

RemoteFleet::~RemoteFleet() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (const std::unique_ptr<Gateway>& one : gateways_) {
    one->pusher.join();
    one->listener.join();
  }
}

bool RemoteFleet::is_stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

// Of what was launched: gateways refuse an order to drain anything else.
ExchangeOrder RemoteFleet::order_to_send() const {
  ExchangeOrder order = order_;
  const auto is_not_launched = [&](const Address& one) {
    return std::ranges::find(order.launched, one) == order.launched.end();
  };
  std::erase_if(order.draining, is_not_launched);
  std::erase_if(order.released, is_not_launched);
  return order;
}

void RemoteFleet::push(Gateway& gateway) {
  uint64_t sent = 0;
  bool asked = false;  // there is demand, of which no report has been heard
  for (;;) {
    ExchangeOrder order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, gateway.trouble.empty() ? kPushAgain : kTryAgain, [&] {
        const bool is_due = version_ != sent || gateway.has_demand;
        return stopping_ || (is_due && gateway.trouble.empty());
      });
      if (stopping_) return;
      order = order_to_send();
      sent = version_;
      asked = std::exchange(gateway.has_demand, false) || asked;
    }
    const Result<void> done = exchange(gateway, order);
    note(gateway, done);
    if (done.ok() && std::exchange(asked, false)) options_.on_demand();
    std::this_thread::sleep_for(kPushFewest);
  }
}

void RemoteFleet::add_key(net::HttpCall& call) const {
  if (!options_.key.empty()) call.headers.add("Authorization", "Bearer " + options_.key);
}

Result<void> RemoteFleet::exchange(Gateway& gateway, const ExchangeOrder& order) {
  TRY_ASSIGN(net::HttpCall call,
             net::make_http_call("POST", gateway.url + "/v1/autoscaler/exchange"));
  add_key(call);
  call.headers.add("Content-Type", "application/json");
  call.body = order_body(order);
  call.repeatable = true;  // it has a version
  call.whole_time_max = kAnswerTime;
  call.body_bytes_max = kAnswerBytesMax;
  TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(client_, std::move(call)));
  if (answer.status == kStale) note_refused(gateway);
  if (answer.status != 200) {
    const Result<Json> json = Json::parse(answer.body);
    const Json* error = json.ok() ? json->find("error") : nullptr;
    return Error{ErrorCode::kIo,
                 fmt::format("it answers {}: {}", answer.status,
                             error == nullptr ? "no reason was given"
                                              : error->string("message").value_or("")),
                 {}};
  }
  TRY_ASSIGN(ExchangeReport report, parse_report_body(answer.body));
  note_foreign(gateway, report);
  const int64_t now_ns = clock_.now_ns();
  // When something was heard counts by our clock, not by theirs.
  for (ExchangeReport::Pool& pool : report.pools) {
    if (pool.report) pool.report->at_ns = now_ns;
  }
  std::lock_guard lock(mutex_);
  gateway.report = std::move(report);
  gateway.heard_ns = now_ns;
  gateway.refused_ns = 0;
  return {};
}

void RemoteFleet::note_refused(Gateway& gateway) {
  constexpr int64_t kGrace_ns = OrderFence::kSilent_ns + 3'000'000'000;
  const int64_t now_ns = clock_.now_ns();
  if (gateway.refused_ns == 0) gateway.refused_ns = now_ns;
  {
    std::lock_guard lock(mutex_);
    const bool has_obeyed = gateway.heard_ns > 0;
    if (!has_obeyed && now_ns - gateway.refused_ns < kGrace_ns) return;
  }
  superseded_ = true;
  options_.on_demand();
}

bool RemoteFleet::is_silent(const Gateway& gateway, int64_t now_ns) const {
  return now_ns - std::max(gateway.heard_ns, began_ns_) > kSilent_ns;
}

std::vector<ScaledFleet::SilentGateway> RemoteFleet::silent_gateways() {
  const int64_t now_ns = clock_.now_ns();
  std::lock_guard lock(mutex_);
  std::vector<SilentGateway> silent;
  for (const std::unique_ptr<Gateway>& one : gateways_) {
    if (is_silent(*one, now_ns)) silent.push_back({.url = one->url, .why = one->trouble});
  }
  return silent;
}

// Its file is another one than ours: read before or after it was changed.
void RemoteFleet::note_foreign(Gateway& gateway, const ExchangeReport& report) {
  std::string names;
  for (const ExchangeReport::Pool& one : report.pools) {
    if (!one.report) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", one.name);
  }
  if (names == gateway.foreign) return;
  if (!names.empty()) {
    log_.warning(
        fmt::format("gateway {}: its file has no [pool.scale] of {}: it sends requests to none of "
                    "their replicas",
                    gateway.url, names));
  }
  gateway.foreign = names;
}

void RemoteFleet::note(Gateway& gateway, const Result<void>& done) {
  const std::string trouble = done.ok() ? "" : done.error().message;
  if (trouble == gateway.trouble) return;
  if (trouble.empty()) {
    log_.info(fmt::format("gateway {} answers again", gateway.url));
  } else {
    log_.warning(fmt::format("gateway {}: {}", gateway.url, trouble));
  }
  std::lock_guard lock(mutex_);
  gateway.trouble = trouble;
}

void RemoteFleet::listen(Gateway& gateway) {
  int64_t count = 0;
  while (!is_stopping()) {
    const Result<int64_t> heard = [&]() -> Result<int64_t> {
      const std::string query =
          fmt::format("/v1/autoscaler/demand?after={}&wait_ms={}", count, kListenTime.count());
      TRY_ASSIGN(net::HttpCall call, net::make_http_call("GET", gateway.url + query));
      add_key(call);
      call.whole_time_max = kAnswerTime;
      TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(client_, std::move(call)));
      TRY_ASSIGN(const Json json, Json::parse(answer.body));
      const std::optional<int64_t> said = json.integer("count");
      if (answer.status != 200 || !said) return Error{ErrorCode::kIo, "it does not say", {}};
      return *said;
    }();
    if (!heard.ok()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kTryAgain, [this] { return stopping_; });
      continue;
    }
    // Less: another start of that gateway.
    if (*heard != count) {
      count = *heard;
      {
        std::lock_guard lock(mutex_);
        gateway.has_demand = true;
      }
      changed_.notify_all();
    }
    std::this_thread::sleep_for(kPushFewest);  // however soon it answers
  }
}

std::vector<autoscaler::GatewayReport> RemoteFleet::reports(const std::string& pool) {
  std::lock_guard lock(mutex_);
  std::vector<autoscaler::GatewayReport> reports;
  for (const std::unique_ptr<Gateway>& gateway : gateways_) {
    for (const ExchangeReport::Pool& one : gateway->report.pools) {
      if (one.name == pool && one.report) reports.push_back(*one.report);
    }
    // One that has never been heard may send requests all the same, and holds for nobody.
    if (gateway->heard_ns == 0) reports.push_back({.gateway = gateway->url});
  }
  return reports;
}

// As all gateways together see them: ready if one sends it requests, silent if nobody hears it. One
// that is silent itself counts only while all are.
std::vector<ScaledFleet::Worker> RemoteFleet::workers(const std::string& pool) {
  const int64_t now_ns = clock_.now_ns();
  std::lock_guard lock(mutex_);
  const bool some_speak = std::ranges::any_of(
      gateways_, [&](const auto& one) { return one->heard_ns > 0 && !is_silent(*one, now_ns); });
  std::map<std::pair<std::string, int>, Worker> all;
  for (const std::unique_ptr<Gateway>& gateway : gateways_) {
    if (some_speak && is_silent(*gateway, now_ns)) continue;
    for (const ExchangeReport::Pool& one : gateway->report.pools) {
      if (one.name != pool) continue;
      for (const Worker& seen : one.workers) {
        const auto [found, is_new] = all.try_emplace({seen.host, seen.port}, seen);
        if (is_new) continue;
        Worker& known = found->second;
        // Whoever takes it for ready knows what it has.
        if (seen.is_ready && !(known.is_ready && known.lacks.empty())) known.lacks = seen.lacks;
        known.is_ready = known.is_ready || seen.is_ready;
        known.is_silent = known.is_silent && seen.is_silent;
        known.slots = std::max(known.slots, seen.slots);
        known.open += seen.open;
        known.running = std::max(known.running, seen.running);
        known.waiting = std::max(known.waiting, seen.waiting);
        known.kv_used = std::max(known.kv_used, seen.kv_used);
        if (seen.model.is_known()) known.model = seen.model;  // all hear the same of it
      }
    }
  }
  std::vector<Worker> workers;
  for (auto& [address, worker] : all) workers.push_back(std::move(worker));
  return workers;
}

template <typename Change>
void RemoteFleet::change(const Change& change) {
  if (options_.advises) return;  // what would be in force
  {
    std::lock_guard lock(mutex_);
    const ExchangeOrder before = order_;
    change();
    if (order_ == before) return;
    ++version_;
  }
  changed_.notify_all();
}

ExchangeOrder::Pool* RemoteFleet::pool_of(const std::string& name) {
  const auto found = std::ranges::find(order_.pools, name, &ExchangeOrder::Pool::name);
  return found == order_.pools.end() ? nullptr : &*found;
}

void RemoteFleet::set_launched(const std::vector<Address>& addresses,
                               const std::vector<std::string>& unknown) {
  change([&] {
    order_.launched = addresses;
    order_.unknown = unknown;
    const auto is_gone = [&](const Address& one) {
      return std::ranges::find(addresses, one) == addresses.end();
    };
    std::erase_if(order_.draining, is_gone);
    std::erase_if(order_.released, is_gone);
  });
}

void RemoteFleet::set_draining(const Address& address, bool draining) {
  change([&] {
    std::erase(order_.draining, address);
    if (draining) order_.draining.push_back(address);
    if (!draining) std::erase(order_.released, address);
  });
}

void RemoteFleet::release_memory(const Address& address) {
  change([&] {
    std::erase(order_.released, address);
    order_.released.push_back(address);
  });
}

void RemoteFleet::retire(const std::string& pool, uint64_t retirement) {
  change([&] {
    if (ExchangeOrder::Pool* found = pool_of(pool)) found->retirement = retirement;
  });
}

void RemoteFleet::announce(const std::string& pool,
                           const autoscaler::PoolAnnouncement& announcement) {
  change([&] {
    if (ExchangeOrder::Pool* found = pool_of(pool)) found->announcement = announcement;
  });
}

}  // namespace pelton::launch
