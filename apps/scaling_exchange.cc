#include "apps/scaling_exchange.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "access/audited_exchange.h"
#include "apps/scaled_pools.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

constexpr size_t kWaitingMax = 64;
constexpr int64_t kWaitMax_ms = 60'000;
constexpr int64_t kWanted_ns = 1'000'000'000;  // whoever acts asks five times in it
constexpr std::string_view kInvalid = "invalid_exchange";

net::HttpResponse refusal(int status, std::string code, std::string message) {
  return net::error_response(
      {.status = status, .code = std::move(code), .message = std::move(message)});
}

// A number of the query; 0 where it is none.
int64_t number_of(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    if (!part.starts_with(key) || part.size() <= key.size() || part[key.size()] != '=') continue;
    int64_t value = 0;
    const char* const begin = part.data() + key.size() + 1;
    const auto [end, error] = std::from_chars(begin, part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() ? value : 0;
  }
  return 0;
}

}  // namespace

int64_t DemandCount::count() {
  std::lock_guard lock(mutex_);
  return count_;
}

void DemandCount::notify() {
  std::vector<std::shared_ptr<Waiting>> waiting;
  {
    std::lock_guard lock(mutex_);
    ++count_;
    waiting = std::exchange(waiting_, {});
  }
  for (const std::shared_ptr<Waiting>& one : waiting) {
    const std::shared_ptr<net::Exchange> exchange = one->exchange.lock();
    if (exchange == nullptr) continue;
    exchange->post([this, one] {
      if (const auto kept = one->exchange.lock()) send(kept, *one, count());
    });
  }
}

void DemandCount::send(const std::shared_ptr<net::Exchange>& exchange, Waiting& waiting,
                       int64_t count) {
  if (std::exchange(waiting.is_answered, true)) return;
  exchange->send(net::json_response(fmt::format("{{\"count\":{}}}", count)));
}

void DemandCount::answer(const std::shared_ptr<net::Exchange>& exchange, int64_t after,
                         std::chrono::milliseconds wait) {
  const auto one = std::make_shared<Waiting>(Waiting{.exchange = exchange});
  {
    std::lock_guard lock(mutex_);
    // Those whose client has gone, or whose time was over.
    std::erase_if(waiting_, [](const auto& other) { return other->exchange.expired(); });
    if (count_ <= after && waiting_.size() < kWaitingMax && wait.count() > 0) {
      waiting_.push_back(one);
    } else {
      wait = std::chrono::milliseconds(0);
    }
  }
  // It keeps the exchange until then.
  const auto over = [this, exchange, one] { send(exchange, *one, count()); };
  if (wait.count() == 0) return over();
  exchange->post_after(wait, over);
}

bool ScalingExchange::handle(const net::HttpRequest& request,
                             const std::shared_ptr<net::Exchange>& exchange, std::string_view who) {
  const bool is_order = request.path == "/v1/autoscaler/exchange";
  const bool is_demand = request.path == "/v1/autoscaler/demand";
  if (!is_order && !is_demand) return false;
  if (request.method != (is_order ? "POST" : "GET")) {
    exchange->send(refusal(405, "method_not_allowed",
                           fmt::format("{} is for {}", request.path, is_order ? "POST" : "GET")));
  } else if (is_demand) {
    const int64_t wait_ms =
        std::clamp<int64_t>(number_of(request.query, "wait_ms"), 0, kWaitMax_ms);
    demand_.answer(exchange, number_of(request.query, "after"), std::chrono::milliseconds(wait_ms));
  } else {
    exchange->send(this->exchange(request, who));
  }
  return true;
}

// Why it is no autoscaler's of this gateway; none: it is, as far as it is left.
std::optional<ScalingExchange::Refused> ScalingExchange::not_ours(
    launch::ExchangeOrder& order) const {
  if (launch::OrderFence::is_ahead(order.epoch, clock_.unix_ms())) {
    return Refused{.code = kInvalid,
                   .message = fmt::format("epoch {} is more than a day ahead of this machine's "
                                          "clock",
                                          order.epoch)};
  }
  const std::shared_ptr<const gateway::GatewayConfig> config = gateway_.in_force();
  const launch::OrderRules rules = order_rules(*config);
  launch::leave_out_foreign(order, rules);
  std::optional<launch::OrderFault> fault = launch::check_order(order, last_.launched, rules);
  if (!fault) return std::nullopt;
  return Refused{.code = fault->code, .message = std::move(fault->message)};
}

// Once in a while, however often it is tried: what was said of the first one.
net::HttpResponse ScalingExchange::refuse(const net::HttpRequest& request, std::string_view who,
                                          const Refused& refused) const {
  if (gateway_.audit() != nullptr) {
    gateway_.audit()->note_often(
        {.who = std::string(who),
         .from = access::address_of(request),
         .what = "scale",
         .target = refused.epoch == 0 ? "autoscaler" : fmt::format("autoscaler {}", refused.epoch),
         .result = fmt::format("refused: {} {}", refused.status, refused.code),
         .detail = {refused.message}});
  }
  return refusal(refused.status, std::string(refused.code), refused.message);
}

std::optional<ScalingExchange::Refused> ScalingExchange::obey(const net::HttpRequest& request,
                                                              std::string_view who,
                                                              launch::ExchangeOrder& order) {
  std::lock_guard lock(mutex_);
  if (std::optional<Refused> refused = not_ours(order)) return refused;
  if (!fence_.takes(order.epoch, clock_.now_ns())) {
    return Refused{
        .status = 409,
        .code = "superseded",
        .message = fmt::format("a newer autoscaler ({}) is obeyed here", fence_.newest())};
  }
  keep_unknown(order);
  apply(order);
  audit(request, who, order);
  last_ = order;
  return std::nullopt;
}

net::HttpResponse ScalingExchange::exchange(const net::HttpRequest& request, std::string_view who) {
  // A page that an operator looks at may not command the fleet.
  if (!request.headers.get("Origin").empty()) {
    return refuse(request, who,
                  {.status = 403,
                   .code = "forbidden_origin",
                   .message = "replicas are not commanded by pages in a browser"});
  }
  Result<launch::ExchangeOrder> order = launch::parse_order_body(request.body);
  if (!order.ok()) {
    return refuse(request, who, {.code = kInvalid, .message = order.error().message});
  }
  if (order->advises) return net::json_response(launch::report_body(report(*order)));
  if (std::optional<Refused> refused = obey(request, who, *order)) {
    refused->epoch = order->epoch;
    return refuse(request, who, *refused);
  }
  return net::json_response(launch::report_body(report(*order)));
}

void ScalingExchange::note_wanted(bool advises, const std::string& pool,
                                  autoscaler::GatewayReport& report) {
  const int64_t now_ns = clock_.now_ns();
  if (advises) {
    if (report.held > 0) wanted_ns_[pool] = now_ns;
    return;
  }
  const auto wanted = wanted_ns_.find(pool);
  if (wanted == wanted_ns_.end()) return;
  if (now_ns - wanted->second < kWanted_ns) report.held = std::max(report.held, 1);
  wanted_ns_.erase(wanted);
}

launch::ExchangeReport ScalingExchange::report(const launch::ExchangeOrder& order) {
  launch::ExchangeReport report;
  std::lock_guard lock(mutex_);
  for (const launch::ExchangeOrder::Pool& pool : order.pools) {
    launch::ExchangeReport::Pool said{
        .name = pool.name, .report = std::nullopt, .workers = scaled_workers(gateway_, pool.name)};
    const std::vector<autoscaler::GatewayReport> reports = gateway_.demand(pool.name);
    if (!reports.empty()) {
      said.report = reports[0];
      note_wanted(order.advises, pool.name, *said.report);
    }
    report.pools.push_back(std::move(said));
  }
  return report;
}

// Of pools that this autoscaler has not seen yet whoever served for the last one goes on.
void ScalingExchange::keep_unknown(launch::ExchangeOrder& order) const {
  const auto is_unknown = [&](const launch::ScaledFleet::Address& one) {
    return std::ranges::find(order.unknown, one.pool) != order.unknown.end();
  };
  std::ranges::copy_if(last_.launched, std::back_inserter(order.launched), is_unknown);
  std::ranges::copy_if(last_.draining, std::back_inserter(order.draining), is_unknown);
  std::ranges::copy_if(last_.released, std::back_inserter(order.released), is_unknown);
}

// Where it sends requests and where no longer, as far as that is another than it was.
void ScalingExchange::audit(const net::HttpRequest& request, std::string_view who,
                            const launch::ExchangeOrder& order) const {
  if (gateway_.audit() == nullptr) return;
  using Addresses = std::vector<launch::ScaledFleet::Address>;
  access::AuditEvent event{.who = std::string(who),
                           .from = access::address_of(request),
                           .what = "scale",
                           .target = fmt::format("autoscaler {}", order.epoch),
                           .result = "done"};
  const auto add_missing = [&](std::string_view words, const Addresses& some,
                               const Addresses& others) {
    for (const auto& one : some) {
      if (std::ranges::find(others, one) != others.end()) continue;
      event.detail.push_back(
          fmt::format("{} {} of {}", words, net::format_host_port(one.host, one.port), one.pool));
    }
  };
  add_missing("+ worker", order.launched, last_.launched);
  add_missing("- worker", last_.launched, order.launched);
  add_missing("+ drain", order.draining, last_.draining);
  add_missing("- drain", last_.draining, order.draining);
  add_missing("+ standby", order.released, last_.released);
  add_missing("- standby", last_.released, order.released);
  if (!event.detail.empty()) gateway_.audit()->note(std::move(event));
}

// What is as it was is not said again: an operator's own `fleet drain` stands.
void ScalingExchange::apply(const launch::ExchangeOrder& order) {
  const auto has = [](const std::vector<launch::ScaledFleet::Address>& all,
                      const launch::ScaledFleet::Address& one) {
    return std::ranges::find(all, one) != all.end();
  };
  if (order.launched != last_.launched) gateway_.set_launched(launched_workers(order.launched));
  for (const auto& one : order.draining) {
    if (!has(last_.draining, one)) gateway_.set_draining(one.host, one.port, true);
  }
  for (const auto& one : order.released) {
    if (!has(last_.released, one)) gateway_.release_memory(one.host, one.port);
  }
  for (const auto& one : last_.draining) {
    const bool is_there = has(order.launched, one);
    if (is_there && !has(order.draining, one)) gateway_.set_draining(one.host, one.port, false);
  }
  for (const launch::ExchangeOrder::Pool& pool : order.pools) {
    gateway_.retire(pool.name, pool.retirement);
    gateway_.announce(pool.name, pool.announcement);
  }
}

}  // namespace pelton::apps
