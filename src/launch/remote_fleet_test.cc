// Over the loopback, with a gateway that is played.
#include "launch/remote_fleet.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "net/http_server.h"

namespace pelton::launch {
namespace {

using autoscaler::PoolPhase;

class PlayedGateway {
 public:
  explicit PlayedGateway(base::Log& log)
      : server_(
            {.address = "127.0.0.1", .port = 0},
            [this](const net::HttpRequest& request,
                   const std::shared_ptr<net::Exchange>& exchange) {
              exchange->send(answer(request));
            },
            log) {
    EXPECT_TRUE(server_.start().ok());
  }
  ~PlayedGateway() { server_.stop(std::chrono::milliseconds(0)); }
  PlayedGateway(const PlayedGateway&) = delete;
  PlayedGateway& operator=(const PlayedGateway&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_.port()); }
  ExchangeOrder last() {
    std::lock_guard lock(mutex_);
    return last_;
  }
  void set_worker(ScaledFleet::Worker worker) {
    std::lock_guard lock(mutex_);
    worker_ = std::move(worker);
  }
  // So many are held now, and that is an event.
  void demand(int held) {
    std::lock_guard lock(mutex_);
    ++count_;
    held_ = held;
  }
  // There is more of it whenever it is asked.
  void demand_without_end() {
    std::lock_guard lock(mutex_);
    endless_ = true;
  }
  int exchanges() {
    std::lock_guard lock(mutex_);
    return exchanges_;
  }
  int refused() {
    std::lock_guard lock(mutex_);
    return refused_;
  }
  void refuse(std::string why) {
    std::lock_guard lock(mutex_);
    refusal_ = std::move(why);
  }
  void obey_only(uint64_t epoch) {
    std::lock_guard lock(mutex_);
    epoch_ = epoch;
  }

 private:
  net::HttpResponse answer(const net::HttpRequest& request) {
    std::lock_guard lock(mutex_);
    if (request.path == "/v1/autoscaler/demand") {
      if (endless_) ++count_;
      return {.status = 200, .headers = {}, .body = fmt::format("{{\"count\":{}}}", count_)};
    }
    const Result<ExchangeOrder> order = parse_order_body(request.body);
    EXPECT_TRUE(order.ok());
    if (!order.ok()) return {.status = 400, .headers = {}, .body = {}};
    if (order->epoch < epoch_ && !order->advises) {
      ++refused_;
      return {.status = 409, .headers = {}, .body = "{}"};
    }
    if (!refusal_.empty()) {
      return {.status = 400,
              .headers = {},
              .body = fmt::format(R"({{"error":{{"message":"{}"}}}})", refusal_)};
    }
    last_ = *order;
    ++exchanges_;
    ExchangeReport report;
    report.pools.push_back(
        {.name = "p",
         .report =
             autoscaler::GatewayReport{
                 .gateway = url(), .incarnation = 1, .sequence = 5, .held = held_},
         .workers = {worker_}});
    return {.status = 200, .headers = {}, .body = report_body(report)};
  }

  std::mutex mutex_;
  ExchangeOrder last_;  // guarded by mutex_, as all below
  ScaledFleet::Worker worker_{.host = "h", .port = 7, .is_silent = true};
  int64_t count_ = 0;
  int held_ = 0;
  bool endless_ = false;
  int exchanges_ = 0;
  uint64_t epoch_ = 0;
  int refused_ = 0;
  std::string refusal_;
  net::HttpServer server_;
};

class RemoteFleetTest : public testing::Test {
 protected:
  void connect(std::vector<std::string> gateways) {
    fleet_ = std::make_unique<RemoteFleet>(RemoteFleet::Options{.gateways = std::move(gateways),
                                                                .pools = {"p"},
                                                                .epoch = 10,
                                                                .on_demand = [this] { ++asked_; }},
                                           clock_, log_);
  }
  // For ever, on a busy machine: the test's own bound ends it.
  template <typename Condition>
  static void wait(const Condition& is_so) {
    while (!is_so()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::atomic<int> asked_ = 0;
  std::unique_ptr<RemoteFleet> fleet_;
};

TEST_F(RemoteFleetTest, WhatIsInForceReachesTheGatewayAndWhatItKnowsComesBack) {
  PlayedGateway gateway(log_);
  connect({gateway.url()});
  const ScaledFleet::Address address{"p", "h", 7};
  fleet_->set_launched({address}, {});
  fleet_->set_draining(address, true);
  fleet_->retire("p", 3);
  fleet_->announce("p", {.phase = PoolPhase::kStarting, .eta_s = 4});
  wait([&] { return !gateway.last().pools.empty() && gateway.last().pools[0].retirement == 3; });
  wait([&] { return gateway.last().pools[0].announcement.eta_s == 4; });
  EXPECT_EQ(gateway.last().epoch, 10u);
  EXPECT_EQ(gateway.last().launched, std::vector{address});
  EXPECT_EQ(gateway.last().draining, std::vector{address});
  fleet_->release_memory(address);
  wait([&] { return gateway.last().released == std::vector{address}; });
  // Woken, it is not one of those any more.
  fleet_->set_draining(address, false);
  wait([&] { return gateway.last().released.empty(); });
  fleet_->set_draining(address, true);
  fleet_->release_memory(address);
  wait([&] { return gateway.last().released == std::vector{address}; });
  // A replica that is gone does not drain.
  fleet_->set_launched({}, {});
  wait([&] { return gateway.last().launched.empty(); });
  EXPECT_TRUE(gateway.last().draining.empty());
  EXPECT_TRUE(gateway.last().released.empty());
  // Nor does one that was not launched: the gateway would refuse all of the order.
  fleet_->set_draining(address, true);
  fleet_->release_memory(address);
  fleet_->retire("p", 4);
  wait([&] { return gateway.last().pools[0].retirement == 4; });
  EXPECT_TRUE(gateway.last().draining.empty());
  EXPECT_TRUE(gateway.last().released.empty());

  wait([&] { return !fleet_->workers("p").empty(); });
  EXPECT_EQ(fleet_->workers("p")[0].port, 7);
  EXPECT_TRUE(fleet_->workers("other").empty());
  ASSERT_EQ(fleet_->reports("p").size(), 1u);
  EXPECT_EQ(fleet_->reports("p")[0].gateway, gateway.url());
  EXPECT_GT(fleet_->reports("p")[0].at_ns, 0) << "by our clock";
}

TEST_F(RemoteFleetTest, SeveralGatewaysSeeOneFleet) {
  PlayedGateway one(log_);
  PlayedGateway two(log_);
  one.set_worker({.host = "h", .port = 7, .is_ready = true, .slots = 8, .open = 2, .running = 5});
  two.set_worker({.host = "h", .port = 7, .is_silent = true, .slots = 8, .open = 3, .running = 4});
  connect({one.url(), two.url()});
  wait([&] { return !fleet_->workers("p").empty() && fleet_->workers("p")[0].open == 5; });
  const ScaledFleet::Worker seen = fleet_->workers("p")[0];
  EXPECT_TRUE(seen.is_ready) << "one of them sends it requests";
  EXPECT_FALSE(seen.is_silent) << "one of them hears it";
  EXPECT_EQ(seen.running, 5);
  EXPECT_EQ(fleet_->workers("p").size(), 1u);
  EXPECT_EQ(fleet_->reports("p").size(), 2u);
}

// Whoever decides at it decides on a report that has it: the last one may be 200 ms old.
TEST_F(RemoteFleetTest, DemandIsAnEventThatComesBehindItsReport) {
  PlayedGateway gateway(log_);
  std::atomic<RemoteFleet*> hears = nullptr;
  std::atomic<int> held = -1;
  RemoteFleet fleet({.gateways = {gateway.url()},
                     .pools = {"p"},
                     .epoch = 10,
                     .on_demand = [&] { held = hears.load()->reports("p")[0].held; }},
                    clock_, log_);
  hears = &fleet;
  wait([&] { return gateway.exchanges() > 0; });
  int last = held;
  for (int count = 1; count <= 5; ++count) {
    gateway.demand(count);
    wait([&] { return held != last; });
    EXPECT_EQ(held, count);
    last = held;
  }
}

TEST_F(RemoteFleetTest, DemandWithoutEndIsNoBusyLoop) {
  PlayedGateway gateway(log_);
  gateway.demand_without_end();
  connect({gateway.url()});
  wait([&] { return gateway.exchanges() > 0; });
  const auto begin = std::chrono::steady_clock::now();
  const int before = gateway.exchanges();
  wait([&] { return gateway.exchanges() >= before + 20 && asked_ > 10; });
  // A pause of 5 ms behind each one.
  const auto fewest = std::chrono::milliseconds((gateway.exchanges() - before - 1) * 5);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, fewest);
}

// It may send requests to a replica, so nothing goes to nothing while it is not heard.
TEST_F(RemoteFleetTest, AGatewayThatNeverAnsweredHoldsForNobody) {
  PlayedGateway gateway(log_);
  connect({gateway.url(), "http://127.0.0.1:1"});
  wait([&] { return !fleet_->workers("p").empty(); });
  const std::vector<autoscaler::GatewayReport> reports = fleet_->reports("p");
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[1].holds_for, 0u);
}

// It has died: what it saw of replicas is so no longer, where another one sees them.
TEST_F(RemoteFleetTest, WhatASilentGatewaySawIsForgotten) {
  auto one = std::make_unique<PlayedGateway>(log_);
  PlayedGateway two(log_);
  const std::string url = one->url();
  one->set_worker({.host = "h", .port = 7, .is_ready = true, .open = 2, .running = 5});
  two.set_worker({.host = "h", .port = 7, .is_silent = true, .running = 1});
  base::VirtualClock clock(1'000'000);
  clock.advance_ns(1);
  RemoteFleet fleet({.gateways = {url, two.url()}, .pools = {"p"}, .epoch = 10, .on_demand = [] {}},
                    clock, log_);
  const auto seen = [&] { return fleet.workers("p"); };
  wait([&] { return !seen().empty() && seen()[0].open == 2 && seen()[0].running == 5; });
  wait([&] { return fleet.reports("p").size() == 2; });
  EXPECT_TRUE(fleet.silent_gateways().empty());
  one.reset();
  clock.advance_ns(11'000'000'000);
  wait([&] { return !seen().empty() && seen()[0].is_silent; });
  EXPECT_EQ(seen()[0].open, 0);
  EXPECT_EQ(seen()[0].running, 1);
  wait([&] { return fleet.silent_gateways().size() == 1; });
  EXPECT_EQ(fleet.silent_gateways()[0].url, url);
}

TEST_F(RemoteFleetTest, OfAGatewayThatRefusesItsWordsAreSaid) {
  PlayedGateway gateway(log_);
  gateway.refuse("no such place");
  base::VirtualClock clock(1'000'000);
  clock.advance_ns(1);
  RemoteFleet fleet({.gateways = {gateway.url()}, .pools = {"p"}, .epoch = 10, .on_demand = [] {}},
                    clock, log_);
  clock.advance_ns(11'000'000'000);
  const auto why = [&]() -> std::string {
    const std::vector<ScaledFleet::SilentGateway> silent = fleet.silent_gateways();
    return silent.empty() ? "" : silent[0].why;
  };
  wait([&] { return !why().empty(); });
  EXPECT_EQ(why(), "it answers 400: no such place");
}

// A replica is ready by the word of a gateway that knows what it has.
TEST_F(RemoteFleetTest, WhatAReplicaLacksIsSaid) {
  PlayedGateway gateway(log_);
  gateway.set_worker({.host = "h", .port = 7, .is_ready = true, .lacks = "it serves as 'a'"});
  connect({gateway.url()});
  wait([&] { return !fleet_->workers("p").empty(); });
  EXPECT_EQ(fleet_->workers("p")[0].lacks, "it serves as 'a'");
}

// Whom no gateway has obeyed yet may have begun after a clock was set back.
TEST_F(RemoteFleetTest, OneThatIsRefusedFromTheBeginningAsksAgainForAWhile) {
  PlayedGateway gateway(log_);
  gateway.obey_only(11);
  base::VirtualClock clock(1'000'000);
  clock.advance_ns(1);
  std::atomic<int> asked = 0;
  RemoteFleet fleet(
      {.gateways = {gateway.url()}, .pools = {"p"}, .epoch = 10, .on_demand = [&] { ++asked; }},
      clock, log_);
  wait([&] { return gateway.refused() > 1; });
  EXPECT_FALSE(fleet.is_superseded());
  gateway.obey_only(10);
  wait([&] { return !fleet.reports("p").empty() && fleet.reports("p")[0].at_ns > 0; });
  EXPECT_FALSE(fleet.is_superseded());
  gateway.obey_only(11);  // and now another one is newer
  wait([&] { return fleet.is_superseded(); });
}

// It hears what an acting one hears, whoever is obeyed, and says nothing that would have to be.
TEST_F(RemoteFleetTest, WhoOnlyAdvisesOrdersNothing) {
  PlayedGateway gateway(log_);
  gateway.obey_only(11);
  std::atomic<int> asked = 0;
  RemoteFleet fleet({.gateways = {gateway.url()},
                     .pools = {"p"},
                     .epoch = 10,
                     .advises = true,
                     .on_demand = [&] { ++asked; }},
                    clock_, log_);
  fleet.set_launched({{"p", "h", 7}}, {"p"});
  fleet.set_draining({"p", "h", 7}, true);
  fleet.release_memory({"p", "h", 7});
  fleet.retire("p", 3);
  fleet.announce("p", {.phase = PoolPhase::kStarting, .eta_s = 4});
  wait([&] { return !fleet.workers("p").empty(); });
  EXPECT_EQ(gateway.last(),
            (ExchangeOrder{.epoch = 10, .advises = true, .pools = {{.name = "p"}}}));
  EXPECT_EQ(gateway.refused(), 0);
  EXPECT_FALSE(fleet.is_superseded());
}

TEST_F(RemoteFleetTest, ANewerAutoscalerIsTheEndOfThis) {
  PlayedGateway gateway(log_);
  connect({gateway.url()});
  wait([&] { return gateway.last().epoch == 10; });
  EXPECT_FALSE(fleet_->is_superseded());
  gateway.obey_only(11);
  wait([&] { return fleet_->is_superseded(); });
}

}  // namespace
}  // namespace pelton::launch
