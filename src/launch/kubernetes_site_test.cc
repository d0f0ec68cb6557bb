// What an API server may do to a launcher: answers that are wrong, late, cut, endless, or of
// another one who writes there too.
#include "launch/kubernetes_site.h"

#include <functional>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "launch/site_launcher.h"
#include "launch/test_kubernetes.h"
#include "launch/test_slurm.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;
using testing::HasSubstr;

class KubernetesSiteTest : public testing::Test {
 protected:
  void SetUp() override { write_token("first"); }
  void write_token(const std::string& token) {
    ASSERT_TRUE(base::write_file(folder_.file("token"), token + "\n").ok());
  }
  Result<std::unique_ptr<SiteLauncher>> try_open(const std::string& workload = "w",
                                                 uint64_t epoch = 0) {
    using std::chrono::milliseconds;
    auto site = std::make_unique<KubernetesSite>(
        KubernetesSite::Options{.api = {.api = api_.url(),
                                        .token_file = folder_.file("token"),
                                        .time_max = milliseconds(500)},
                                .workloads = {{.pool = "a",
                                               .name_space = "ml",
                                               .kind = KubernetesSite::Kind::kDeployment,
                                               .name = workload,
                                               .port = 4711}},
                                .epoch = epoch},
        clock_, log_);
    return SiteLauncher::open(std::move(site),
                              {.look_soon = milliseconds(20),
                               .look_later = milliseconds(50),
                               .try_again = milliseconds(20),
                               .give_up = milliseconds(300)},
                              clock_, log_);
  }
  std::unique_ptr<SiteLauncher> open(uint64_t epoch = 0) {
    auto opened = try_open("w", epoch);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  static ReplicaOrder order(int ordinal, uint64_t token) {
    return {.pool = "a", .ordinal = ordinal, .token = token};
  }
  static LaunchedReplica at(Launcher& launcher, int ordinal) {
    for (const LaunchedReplica& one : launcher.list()) {
      if (one.order.ordinal == ordinal) return one;
    }
    return {};
  }
  static void wait(const std::function<bool()>& is_so) {
    for (int i = 0; i < 1'000 && !is_so(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(is_so());
  }
  void fail_with(std::function<std::optional<net::HttpResponse>(const net::HttpRequest&)> fault) {
    std::lock_guard lock(api_.mutex);
    api_.fault = std::move(fault);
  }
  int calls(const std::string& what) {
    std::lock_guard lock(api_.mutex);
    return api_.calls[what];
  }
  // One replica that serves.
  void serve(SiteLauncher& launcher) {
    ASSERT_TRUE(launcher.start(order(0, 1)).ok());
    wait([&] { return at(launcher, 0).port == 4711; });
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  TestFolder folder_;
  TestKubernetes api_{false, log_};
};

TEST_F(KubernetesSiteTest, AWorkloadThatIsNotThereIsAnErrorAtTheStart) {
  const auto opened = try_open("x");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("404: no such workload"));
}

TEST_F(KubernetesSiteTest, PodsThatWereThereBeforeAreReplicas) {
  {
    std::lock_guard lock(api_.mutex);
    api_.replicas = 2;
    api_.pods = {{.number = 0, .name = "w-0"}, {.number = 1, .name = "w-1"}};
  }
  const auto launcher = open();
  ASSERT_NE(launcher, nullptr);
  wait([&] { return at(*launcher, 0).port != 0 && at(*launcher, 1).port != 0; });
  EXPECT_EQ(api_.all_pods().size(), 2u) << "none is stopped";
}

TEST_F(KubernetesSiteTest, PodsThatWereStillToComeAreReplicasToo) {
  {
    std::lock_guard lock(api_.mutex);
    api_.replicas = 2;
    api_.pods = {{.number = 0, .name = "w-0"}};
  }
  const auto launcher = open();
  ASSERT_NE(launcher, nullptr);
  wait([&] { return at(*launcher, 0).port != 0; });
  EXPECT_EQ(at(*launcher, 1).state, State::kRunning);
  EXPECT_EQ(at(*launcher, 1).port, 0) << "it starts";
  std::lock_guard lock(api_.mutex);
  EXPECT_EQ(api_.replicas, 2);
}

// Whoever has written on a pod since it was read is not written over.
TEST_F(KubernetesSiteTest, AMarkIsWrittenOverWhatWasRead) {
  int refused = 0;
  fail_with([&](const net::HttpRequest& request) -> std::optional<net::HttpResponse> {
    if (request.path.find("/pods/") == std::string::npos || refused == 2) return std::nullopt;
    ++refused;
    net::HttpResponse response{.status = 409, .headers = {}, .body = {}};
    response.body = R"({"kind":"Status","message":"the object has been modified"})";
    response.headers.add("Content-Type", "application/json");
    return response;
  });
  const auto launcher = open();
  serve(*launcher);
  wait([&] { return api_.all_pods().at(0).annotations.contains("pelton/replica"); });
  EXPECT_EQ(api_.all_pods().at(0).annotations.at("pelton/replica"), "0.1");
  std::lock_guard lock(api_.mutex);
  EXPECT_EQ(refused, 2);
}

TEST_F(KubernetesSiteTest, ATokenThatRotatesIsReadAgain) {
  const auto launcher = open();
  serve(*launcher);
  {
    std::lock_guard lock(api_.mutex);
    api_.token = "second";
  }
  api_.cut();
  wait([&] { return calls("refused") > 0; });
  write_token("second");
  ASSERT_TRUE(launcher->start(order(1, 2)).ok());
  wait([&] { return at(*launcher, 1).port != 0; });
  EXPECT_EQ(at(*launcher, 0).state, State::kRunning);
}

TEST_F(KubernetesSiteTest, WhateverItAnswersWhatWasKnownStays) {
  const auto launcher = open();
  serve(*launcher);
  const auto status = [](int code, std::string body) {
    return [code, body](const net::HttpRequest&) -> std::optional<net::HttpResponse> {
      if (code == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(700));
        return std::nullopt;
      }
      return net::HttpResponse{.status = code, .headers = {}, .body = body};
    };
  };
  int token = 2;
  for (const auto& [code, body] :
       std::vector<std::pair<int, std::string>>{{0, ""},  // none in time
                                                {200, R"({"metadata":{"resour)"},
                                                {200, "[]"},
                                                {200, std::string(size_t{33} << 20, 'x')},
                                                {500, "{}"},
                                                {403, "no"},
                                                {429, ""},
                                                {503, "<html>"}}) {
    fail_with(status(code, body));
    api_.cut();
    ASSERT_TRUE(launcher->start(order(1, token)).ok());
    wait([&] {
      return at(*launcher, 1).state == State::kEnded &&
             at(*launcher, 1).order.token == static_cast<uint64_t>(token);
    });
    EXPECT_NE(at(*launcher, 1).ended, "");
    EXPECT_EQ(at(*launcher, 0).state, State::kRunning);
    EXPECT_EQ(at(*launcher, 0).port, 4711);
    ++token;
  }
  fail_with(nullptr);
  ASSERT_TRUE(launcher->start(order(1, token)).ok());
  wait([&] { return at(*launcher, 1).port != 0; });
  EXPECT_EQ(api_.all_pods().size(), 2u);
}

TEST_F(KubernetesSiteTest, AnAnswerThatIsLostStartsNoSecondPod) {
  const auto launcher = open();
  // The scale is written, and the answer says that it was not.
  int left = 2;
  fail_with([&](const net::HttpRequest& request) -> std::optional<net::HttpResponse> {
    if (request.method != "POST" || left-- <= 0) return std::nullopt;
    return net::HttpResponse{.status = 500, .headers = {}, .body = "{}"};
  });
  serve(*launcher);
  EXPECT_EQ(api_.all_pods().size(), 1u);
}

TEST_F(KubernetesSiteTest, AConflictIsReadAgain) {
  const auto launcher = open();
  serve(*launcher);
  int conflicts = 3;
  fail_with([&](const net::HttpRequest& request) -> std::optional<net::HttpResponse> {
    if (request.method != "PATCH" || conflicts-- <= 0) return std::nullopt;
    return net::HttpResponse{.status = 409, .headers = {}, .body = "{}"};
  });
  ASSERT_TRUE(launcher->start(order(1, 2)).ok());
  wait([&] { return at(*launcher, 1).port != 0; });
  EXPECT_EQ(api_.all_pods().size(), 2u);
}

TEST_F(KubernetesSiteTest, AWatchThatIsCutOrTooOldGoesOn) {
  const auto launcher = open();
  serve(*launcher);
  for (int round = 0; round < 3; ++round) {
    {
      std::lock_guard lock(api_.mutex);
      api_.lists_expired = round == 1;
    }
    api_.cut();
    const int ordinal = round + 1;
    ASSERT_TRUE(launcher->start(order(ordinal, 10 + round)).ok());
    wait([&] { return at(*launcher, ordinal).port != 0; });
  }
  EXPECT_EQ(api_.all_pods().size(), 4u);
}

TEST_F(KubernetesSiteTest, TheOneThatStopsGoesAndNoOther) {
  const auto launcher = open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(launcher->start(order(i, 1 + i)).ok());
  for (int i = 0; i < 3; ++i) wait([&] { return at(*launcher, i).port != 0; });
  const std::string victim = at(*launcher, 1).host;
  {
    std::lock_guard lock(api_.mutex);
    api_.pods_end = false;
  }
  launcher->stop(order(1, 2), std::chrono::seconds(60));
  wait([&] {
    for (const TestKubernetes::Pod& one : api_.all_pods()) {
      if (one.is_ending) return true;
    }
    return false;
  });
  std::string ending;
  for (const TestKubernetes::Pod& one : api_.all_pods()) {
    if (one.is_ending) ending = one.name;
  }
  EXPECT_EQ(victim, "10.0.0." + std::to_string(std::stoi(ending.substr(2)) + 1));
  wait([&] { return at(*launcher, 1).state == State::kStopping; });
  api_.remove(ending);
  wait([&] { return at(*launcher, 1).state == State::kEnded; });
  EXPECT_EQ(at(*launcher, 0).state, State::kRunning);
  EXPECT_EQ(at(*launcher, 2).state, State::kRunning);
}

TEST_F(KubernetesSiteTest, APodThatWaitsForRoomIsAStartThatAdvancesWithIt) {
  {
    std::lock_guard lock(api_.mutex);
    api_.pods_start = false;
  }
  const auto launcher = open();
  ASSERT_TRUE(launcher->start(order(0, 1)).ok());
  wait([&] { return api_.all_pods().size() == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int64_t before_ns = at(*launcher, 0).progress_ns;
  EXPECT_EQ(at(*launcher, 0).port, 0);
  api_.change("w-0", [](TestKubernetes::Pod& pod) { pod.phase = "Running"; });
  wait([&] { return at(*launcher, 0).port == 4711; });
  EXPECT_GT(at(*launcher, 0).progress_ns, before_ns);
}

TEST_F(KubernetesSiteTest, WhoHasLostTheLeadWritesNothing) {
  const auto old = open(1);
  ASSERT_TRUE(old->start(order(0, (uint64_t{1} << kTokenNumberBits) + 1)).ok());
  wait([&] { return at(*old, 0).port != 0; });
  const auto fresh = open(2);
  ASSERT_NE(fresh, nullptr);
  wait([&] { return at(*fresh, 0).port != 0; });
  const int writes = calls("PATCH scale") + calls("PATCH lease") + calls("PATCH pod");
  // What the old one still wants, at any place, is not done.
  old->stop(at(*old, 0).order, std::chrono::milliseconds(0));
  ASSERT_TRUE(old->start(order(1, (uint64_t{1} << kTokenNumberBits) + 2)).ok());
  wait([&] { return at(*old, 1).state == State::kEnded; });
  EXPECT_THAT(at(*old, 1).ended, HasSubstr("a newer autoscaler leads"));
  EXPECT_EQ(calls("PATCH scale") + calls("PATCH lease") + calls("PATCH pod"), writes);
  EXPECT_EQ(api_.all_pods().size(), 1u);
  EXPECT_EQ(at(*fresh, 0).state, State::kRunning);
}

}  // namespace
}  // namespace pelton::launch
