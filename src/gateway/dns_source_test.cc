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
                    {.name = "b", .models = {"n"}}});
  while (changes == 0) std::this_thread::yield();
  const std::vector<WorkerConfig> both = {{.pool = "a", .host = "10.0.0.1", .port = 9000},
                                          {.pool = "a", .host = "10.0.0.2", .port = 9000}};
  EXPECT_EQ(source.found(), both);
  fails = true;
  const int before = asked;
  while (asked < before + 3) std::this_thread::yield();
  EXPECT_EQ(source.found(), both) << "FT-29: an unknown name takes nobody out";
  EXPECT_EQ(changes, 1);
  source.set_pools({});
  EXPECT_TRUE(source.found().empty());
}

TEST(DnsSource, TheSystemKnowsThisMachine) {
  const auto addresses = DnsSource::resolve_by_system("127.0.0.1");
  ASSERT_TRUE(addresses.ok());
  EXPECT_EQ(*addresses, std::vector<std::string>{"127.0.0.1"});
  EXPECT_FALSE(DnsSource::resolve_by_system("nobody.invalid").ok());
}

}  // namespace
}  // namespace pelton::gateway
