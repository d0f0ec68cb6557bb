// Whose turn it is to be loaded, and what costs no other its place.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/adapter_registry.h"
#include "server/reply.h"
#include "store/temporary_folder.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;
using testing::Not;

struct NoWeights final : request::AdapterWeights {};

// Of its names those with "bad" are refused by what is looked at before they are read, those with
// "nan" by their numbers, those with "away" by the disk.
class AdapterQueueTest : public testing::Test {
 protected:
  void start(int resident_max, double loads_per_second = 0) {
    AdapterRegistry::Options options;
    options.check = [](const std::string& path) -> Result<void> {
      if (path.find("bad") == std::string::npos) return {};
      return Error{ErrorCode::kUnsupported, path + "/adapter_config.json: use_dora", ""};
    };
    options.load = [this](const std::string& path) -> Result<AdapterRegistry::Loaded> {
      while (held_up_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (path.find("nan") != std::string::npos) {
        return Error{ErrorCode::kBadCheckpoint, path + "/adapter_model.safetensors: NaN", ""};
      }
      if (path.find("away") != std::string::npos) return Error{ErrorCode::kIo, path, ""};
      const std::lock_guard lock(mutex_);
      loaded_.push_back(path.substr(path.rfind('/') + 1));
      AdapterRegistry::Loaded loaded{.digest = path, .rank = 8, .bytes = 100};
      loaded.adapter.identity = static_cast<int64_t>(std::hash<std::string>()(path) >> 1) | 1;
      loaded.adapter.weights = std::make_shared<NoWeights>();
      return loaded;
    };
    options.folders = {folder_.path("many")};
    options.resident_max = resident_max;
    options.loads_per_second = loads_per_second;
    registry_ = std::make_unique<AdapterRegistry>(std::move(options), clock_, log_);
  }
  void add(const std::string& name) {
    const std::string path = folder_.path("many/" + name);
    std::filesystem::create_directories(path);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
      std::ofstream(path + "/" + file) << "{}";
    }
  }
  std::future<AdapterRegistry::Held> wait(const std::string& name,
                                          const std::string& tenant = "t") {
    auto outcome = std::make_shared<std::promise<AdapterRegistry::Held>>();
    auto future = outcome->get_future();
    const auto begun = registry_->wait(
        name, {.tenant = tenant, .bytes = 1, .done = [outcome](AdapterRegistry::Held held) {
                 outcome->set_value(std::move(held));
               }});
    if (!begun.ok()) outcome->set_value(begun.error());
    return future;
  }
  Error refused(const std::string& name) {
    const AdapterRegistry::Held held = wait(name).get();
    EXPECT_FALSE(held.ok()) << name;
    return held.ok() ? Error{} : held.error();
  }
  std::vector<std::string> loaded() {
    const std::lock_guard lock(mutex_);
    return loaded_;
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  store::TemporaryFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> loaded_;
  std::atomic<bool> held_up_ = false;
  std::unique_ptr<AdapterRegistry> registry_;  // last
};

TEST_F(AdapterQueueTest, one_that_is_refused_by_its_header_costs_no_other_its_place) {
  for (const char* name : {"a", "b", "bad-0", "bad-1", "bad-2"}) add(name);
  start(2, 1e-3);  // a burst of two, and no more within this test
  EXPECT_TRUE(wait("a").get().ok());
  for (const char* name : {"bad-0", "bad-1", "bad-2"}) {
    EXPECT_EQ(refused(name).code, ErrorCode::kUnsupported);
  }
  EXPECT_TRUE(wait("b").get().ok());  // the burst's second
  for (const char* name : {"a", "b"}) EXPECT_NE(registry_->hold(name), nullptr) << name;
  EXPECT_EQ(registry_->stats().evictions, 0);
  EXPECT_EQ(registry_->stats().failed_loads, 3);
}

TEST_F(AdapterQueueTest, who_asks_for_one_waits_behind_one_of_each_other) {
  constexpr int kMany = 30;
  for (int i = 0; i < kMany; ++i) add("a" + std::to_string(i));
  for (const char* name : {"first", "b", "c"}) add(name);
  start(4);
  held_up_ = true;
  std::vector<std::future<AdapterRegistry::Held>> answers;
  answers.push_back(wait("first", "ann"));
  for (int i = 0; i < kMany; ++i) answers.push_back(wait("a" + std::to_string(i), "ann"));
  answers.push_back(wait("b", "bob"));
  answers.push_back(wait("c", "cem"));
  held_up_ = false;
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
  const std::vector<std::string> order = loaded();
  ASSERT_EQ(order.size(), answers.size());
  const auto place = [&](const std::string& name) {
    return std::ranges::find(order, name) - order.begin();
  };
  // "first" is being loaded when they come, and one more of ann's may go before them.
  EXPECT_LE(place("b"), 3);
  EXPECT_LE(place("c"), 3);
  for (int i = 1; i < kMany; ++i) {
    EXPECT_LT(place("a" + std::to_string(i - 1)), place("a" + std::to_string(i)));
  }
}

TEST_F(AdapterQueueTest, a_lasting_refusal_is_the_askers_and_says_nothing_of_folders) {
  for (const char* name : {"bad", "nan", "away"}) add(name);
  start(1);
  for (const char* name : {"bad", "nan"}) {
    for (int i = 0; i < 2; ++i) {  // also where the refusal is remembered
      const api::ApiError shown = adapter_not_loaded(name, refused(name));
      EXPECT_EQ(shown.status, 400);
      EXPECT_EQ(shown.code, "adapter_refused");
      EXPECT_EQ(shown.retry_after_s, 0);
      EXPECT_THAT(shown.message, HasSubstr("adapter_"));
      EXPECT_THAT(shown.message, Not(HasSubstr(folder_.path("many"))));
    }
  }
  const api::ApiError away = adapter_not_loaded("away", refused("away"));
  EXPECT_EQ(away.status, 503);
  EXPECT_EQ(away.code, kAdapterUnavailable);
  EXPECT_GT(away.retry_after_s, 0);
  EXPECT_THAT(away.message, Not(HasSubstr(folder_.path("many"))));
}

TEST_F(AdapterQueueTest, pinned_ones_may_leave_later) {
  add("asked");
  start(1);
  std::promise<Result<void>> outcome;
  ASSERT_TRUE(registry_
                  ->load({.name = "pinned", .path = "/pinned", .pinned = true},
                         AdapterRegistry::InPlace::kNo,
                         [&](const Result<void>& done) { outcome.set_value(done); })
                  .ok());
  ASSERT_TRUE(outcome.get_future().get().ok());
  const api::ApiError shown = adapter_not_loaded("asked", refused("asked"));
  EXPECT_EQ(shown.status, 503);
  EXPECT_EQ(shown.code, kAdapterUnavailable);
}

}  // namespace
}  // namespace pelton::server
