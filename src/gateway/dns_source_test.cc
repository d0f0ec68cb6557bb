#include "gateway/dns_source.h"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"

namespace pelton::gateway {
namespace {

TEST(DnsSource, EveryAddressIsAWorkerAndTheLastGoodOnesStay) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kError});
  std::atomic<int> asked = 0;
  std::atomic<bool> fails = false;
  std::atomic<int> changes = 0;
  const auto resolve = [&](const std::string& host) -> Result<std::vector<std::string>> {
    ++asked;
    if (fails) return Error{ErrorCode::kUnavailable, host + ": no such name", {}};
    return std::vector<std::string>{"10.0.0.2", "10.0.0.1", "10.0.0.2"};
  };
  DnsSource source(
      {.interval = std::chrono::milliseconds(1), .resolve = resolve}, [&] { ++changes; }, log);
  EXPECT_TRUE(source.found().empty());
  source.set_pools({{.name = "a", .models = {"m"}, .dns_host = "workers", .dns_port = 9000},
                    {.name = "b", .models = {"n"}}},
                   {});
  while (changes == 0) std::this_thread::yield();
  const std::vector<WorkerConfig> both = {{.pool = "a", .host = "10.0.0.1", .port = 9000},
                                          {.pool = "a", .host = "10.0.0.2", .port = 9000}};
  EXPECT_EQ(source.found(), both);
  fails = true;
  const int before = asked;
  while (asked < before + 3) std::this_thread::yield();
  EXPECT_EQ(source.found(), both) << "FT-29: an unknown name takes nobody out";
  EXPECT_EQ(changes, 1);
  source.set_pools({}, {});
  EXPECT_TRUE(source.found().empty());
}

// Each host with its port; of several priorities the first, as the others are spare.
TEST(DnsSource, AServiceSaysThePorts) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kError});
  std::atomic<int> changes = 0;
  const auto service = [](const std::string& name,
                          const net::HostPort&) -> Result<std::vector<SrvTarget>> {
    EXPECT_EQ(name, "_fleet._tcp.workers.local");
    return std::vector<SrvTarget>{
        {"two", 9002, 1}, {"one", 9001, 1}, {"gone", 9003, 1}, {"one", 9004, 2}};
  };
  const auto host = [](const std::string& name,
                       const net::HostPort& server) -> Result<std::vector<std::string>> {
    EXPECT_EQ(server.port, 8600);
    if (name == "gone") return Error{ErrorCode::kUnavailable, name + ": no such name", {}};
    return std::vector<std::string>{name == "one" ? "10.0.0.1" : "10.0.0.2"};
  };
  DnsSource source(
      {.interval = std::chrono::milliseconds(1), .resolve_service = service, .resolve_host = host},
      [&] { ++changes; }, log);
  source.set_pools({{.name = "a", .models = {"m"}, .dns_service = "_fleet._tcp.workers.local"}},
                   {.host = "127.0.0.1", .port = 8600});
  while (changes == 0) std::this_thread::yield();
  const std::vector<WorkerConfig> both = {{.pool = "a", .host = "10.0.0.1", .port = 9001},
                                          {.pool = "a", .host = "10.0.0.2", .port = 9002}};
  EXPECT_EQ(source.found(), both);
}

// FT-29: as long as the service names it, one failed answer takes nobody out; whom it no longer
// names is gone.
TEST(DnsSource, AServicesHostKeepsTheAddressesThatItHad) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kError});
  std::atomic<int> changes = 0;
  std::atomic<int> asked = 0;
  std::atomic<bool> fails = false;
  std::atomic<bool> is_gone = false;
  const auto service = [&](const std::string&,
                           const net::HostPort&) -> Result<std::vector<SrvTarget>> {
    ++asked;
    std::vector<SrvTarget> targets = {{"one", 9001, 1}, {"two", 9002, 1}};
    if (is_gone) targets.pop_back();
    return targets;
  };
  const auto host = [&](const std::string& name,
                        const net::HostPort&) -> Result<std::vector<std::string>> {
    if (name == "one") return std::vector<std::string>{"10.0.0.1"};
    if (!fails) return std::vector<std::string>{"10.0.0.2"};
    return Error{ErrorCode::kUnavailable, name + ": no answer", {}};
  };
  DnsSource source(
      {.interval = std::chrono::milliseconds(1), .resolve_service = service, .resolve_host = host},
      [&] { ++changes; }, log);
  source.set_pools({{.name = "a", .models = {"m"}, .dns_service = "workers"}},
                   {.host = "127.0.0.1", .port = 8600});
  while (changes == 0) std::this_thread::yield();
  const std::vector<WorkerConfig> both = {{.pool = "a", .host = "10.0.0.1", .port = 9001},
                                          {.pool = "a", .host = "10.0.0.2", .port = 9002}};
  EXPECT_EQ(source.found(), both);
  fails = true;
  const int before = asked;
  while (asked < before + 4) std::this_thread::yield();
  EXPECT_EQ(source.found(), both);
  EXPECT_EQ(changes, 1);
  is_gone = true;
  while (changes == 1) std::this_thread::yield();
  EXPECT_EQ(source.found().size(), 1u);
}

TEST(DnsSource, TheSystemKnowsThisMachine) {
  const auto addresses = DnsSource::resolve_by_system("127.0.0.1");
  ASSERT_TRUE(addresses.ok());
  EXPECT_EQ(*addresses, std::vector<std::string>{"127.0.0.1"});
  EXPECT_FALSE(DnsSource::resolve_by_system("nobody.invalid").ok());
}

}  // namespace
}  // namespace pelton::gateway
