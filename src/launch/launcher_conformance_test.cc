// What every launcher must do, whatever its replicas are: processes of this machine, pods of a
// Deployment or a StatefulSet (an API server of the tests' own), batch jobs (small programs in
// place of Slurm's), machines of a provider that is played.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "launch/kubernetes_site.h"
#include "launch/local_launcher.h"
#include "launch/simulated_provider.h"
#include "launch/site_launcher.h"
#include "launch/slurm_site.h"
#include "launch/test_kubernetes.h"
#include "launch/test_slurm.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;
using testing::HasSubstr;

constexpr const char* kServes = "echo 'fleet on 127.0.0.1:4711'; echo x >> $STARTS; exec sleep 60";
constexpr const char* kFails = "echo x >> $STARTS; exit 4";
// One that has something to do before it ends.
constexpr const char* kDrains =
    "trap 'sleep 0.3; echo x >> $STARTS.ended; exit 0' TERM; echo 'fleet on 127.0.0.1:4711'; "
    "echo x >> $STARTS; while :; do sleep 0.02; done";

SiteLauncher::Options quick() {
  using std::chrono::milliseconds;
  return {.look_soon = milliseconds(20),
          .look_later = milliseconds(50),
          .try_again = milliseconds(20),
          .give_up = milliseconds(2'000)};
}

// Where replicas run, and what may befall them there.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual Result<std::unique_ptr<Launcher>> open(const char* script) = 0;
  virtual int starts() = 0;
  // Of those that were given time, how many have ended by themselves; none: what ends a pod says
  // its own description, and what a job the batch system.
  virtual std::optional<int> ends() { return std::nullopt; }
  virtual void kill_all() = 0;

  base::SystemClock clock;
  base::Log log{clock, {.level = base::LogLevel::kNone}};
};

class LocalRig final : public Rig {
 public:
  Result<std::unique_ptr<Launcher>> open(const char* script) override {
    ::setenv("STARTS", folder_.file("starts").c_str(), 1);
    TRY_ASSIGN(std::unique_ptr<LocalLauncher> launcher,
               LocalLauncher::open({.folder = folder_.file("state"),
                                    .program = "/bin/sh",
                                    .pools = {{"a", {"-c", script}}}},
                                   clock, log));
    last_ = launcher.get();
    return std::unique_ptr<Launcher>(std::move(launcher));
  }
  int starts() override { return folder_.lines("starts"); }
  std::optional<int> ends() override { return folder_.lines("starts.ended"); }
  void kill_all() override { last_->stop_all(std::chrono::milliseconds(0)); }

 private:
  TestFolder folder_;
  LocalLauncher* last_ = nullptr;
};

class SimulatedRig final : public Rig {
 public:
  Result<std::unique_ptr<Launcher>> open(const char* script) override {
    ::setenv("STARTS", folder_.file("starts").c_str(), 1);
    TRY_ASSIGN(std::unique_ptr<LocalLauncher> processes,
               LocalLauncher::open({.folder = folder_.file("state"),
                                    .program = "/bin/sh",
                                    .pools = {{"a", {"-c", script}}}},
                                   clock, log));
    last_ = processes.get();
    return std::unique_ptr<Launcher>(std::make_unique<SimulatedProvider>(
        std::map<std::string, ProvidedMachines>{{"a", {.lead_s = 0.05, .lead_p90_s = 0.1}}},
        std::move(processes), clock, log));
  }
  int starts() override { return folder_.lines("starts"); }
  std::optional<int> ends() override { return folder_.lines("starts.ended"); }
  void kill_all() override { last_->stop_all(std::chrono::milliseconds(0)); }

 private:
  TestFolder folder_;
  LocalLauncher* last_ = nullptr;
};

class KubernetesRig final : public Rig {
 public:
  explicit KubernetesRig(KubernetesSite::Kind kind)
      : kind_(kind), api_(kind != KubernetesSite::Kind::kDeployment, log) {
    EXPECT_TRUE(base::write_file(folder_.file("token"), "first\n").ok());
  }
  Result<std::unique_ptr<Launcher>> open(const char* script) override {
    {
      std::lock_guard lock(api_.mutex);
      api_.new_pods_fail = script == kFails;
    }
    auto site = std::make_unique<KubernetesSite>(
        KubernetesSite::Options{
            .api = {.api = api_.url(), .token_file = folder_.file("token")},
            .workloads =
                {{.pool = "a", .name_space = "ml", .kind = kind_, .name = "w", .port = 4711}}},
        clock, log);
    TRY_ASSIGN(std::unique_ptr<SiteLauncher> launcher,
               SiteLauncher::open(std::move(site), quick(), clock, log));
    return std::unique_ptr<Launcher>(std::move(launcher));
  }
  int starts() override {
    std::lock_guard lock(api_.mutex);
    return api_.created;
  }
  void kill_all() override {
    {
      std::lock_guard lock(api_.mutex);
      api_.replicas = 0;  // so that nothing takes their place
    }
    for (const TestKubernetes::Pod& one : api_.all_pods()) api_.remove(one.name);
  }

 private:
  const KubernetesSite::Kind kind_;
  TestFolder folder_;
  TestKubernetes api_;
};

class SlurmRig final : public Rig {
 public:
  Result<std::unique_ptr<Launcher>> open(const char* script) override {
    ::setenv("STARTS", folder_.file("starts").c_str(), 1);
    SlurmSite::Options options{.folder = folder_.file("state")};
    options.pools["a"] = {.words = {"/bin/sh", "-c", script}, .sbatch = {"--partition=main"}};
    TRY_ASSIGN(std::unique_ptr<SlurmSite> site, SlurmSite::open(std::move(options), clock, log));
    TRY_ASSIGN(std::unique_ptr<SiteLauncher> launcher,
               SiteLauncher::open(std::move(site), quick(), clock, log));
    return std::unique_ptr<Launcher>(std::move(launcher));
  }
  int starts() override { return folder_.lines("starts"); }
  void kill_all() override { slurm_.kill_all(); }

 private:
  TestFolder folder_;
  TestSlurm slurm_;
};

struct Made {
  const char* name;
  std::function<std::unique_ptr<Rig>()> make;
};

class LauncherConformance : public testing::TestWithParam<Made> {
 protected:
  void SetUp() override { rig_ = GetParam().make(); }
  void TearDown() override {
    rig_->kill_all();
    launcher_.reset();
  }
  void open(const char* script = kServes) {
    auto opened = rig_->open(script);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    launcher_ = *std::move(opened);
  }
  static ReplicaOrder order(int ordinal, uint64_t token) {
    return {.pool = "a", .ordinal = ordinal, .token = token};
  }
  LaunchedReplica wait(int ordinal, const std::function<bool(const LaunchedReplica&)>& is_so) {
    LaunchedReplica seen;
    for (int i = 0; i < 1'000; ++i) {
      for (const LaunchedReplica& one : launcher_->list()) {
        if (one.order.ordinal == ordinal) seen = one;
      }
      if (seen.order.token != 0 && is_so(seen)) return seen;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "it did not come to be so: " << static_cast<int>(seen.state) << seen.ended;
    return seen;
  }
  static bool has_port(const LaunchedReplica& one) { return one.port != 0; }
  static bool has_ended(const LaunchedReplica& one) { return one.state == State::kEnded; }

  std::unique_ptr<Rig> rig_;
  std::unique_ptr<Launcher> launcher_;
};

TEST_P(LauncherConformance, TheSameOrderTwiceIsOneReplica) {
  open();
  ASSERT_TRUE(launcher_->start(order(0, 5)).ok());
  ASSERT_TRUE(launcher_->start(order(0, 5)).ok());
  EXPECT_EQ(wait(0, has_port).order, order(0, 5));
  ASSERT_TRUE(launcher_->start(order(0, 5)).ok());
  EXPECT_EQ(wait(0, has_port).port, 4711);
  EXPECT_EQ(launcher_->list().size(), 1u);
  EXPECT_EQ(rig_->starts(), 1);
  EXPECT_EQ(launcher_->newest_token(), 5u);
}

TEST_P(LauncherConformance, AnOlderOrderAndATakenPlaceAreRefused) {
  open();
  ASSERT_TRUE(launcher_->start(order(0, 5)).ok());
  EXPECT_THAT(launcher_->start(order(0, 4)).error().message, HasSubstr("older"));
  EXPECT_THAT(launcher_->start(order(0, 6)).error().message, HasSubstr("still runs"));
  EXPECT_FALSE(launcher_->start({.pool = "b", .ordinal = 0, .token = 7}).ok());
  wait(0, has_port);
  // Of another start nothing is stopped.
  launcher_->stop(order(0, 4), std::chrono::milliseconds(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(wait(0, has_port).state, State::kRunning);
}

TEST_P(LauncherConformance, WhoHasLostTheLeadIsRefusedAtEveryPlace) {
  open();
  ASSERT_TRUE(launcher_->start(order(0, (uint64_t{3} << kTokenNumberBits) + 1)).ok());
  EXPECT_THAT(launcher_->start(order(1, (uint64_t{2} << kTokenNumberBits) + 9)).error().message,
              HasSubstr("older"));
  EXPECT_TRUE(launcher_->start(order(1, (uint64_t{3} << kTokenNumberBits) + 2)).ok());
  wait(0, has_port);
  wait(1, has_port);
  EXPECT_EQ(rig_->starts(), 2);
}

TEST_P(LauncherConformance, TheNextLauncherFindsWhatRunsAndStopsIt) {
  open();
  ASSERT_TRUE(launcher_->start(order(0, 9)).ok());
  ASSERT_TRUE(launcher_->start(order(1, 10)).ok());
  wait(0, has_port);
  wait(1, has_port);
  launcher_.reset();
  open();
  EXPECT_EQ(launcher_->newest_token(), 10u);
  EXPECT_EQ(wait(0, has_port).order, order(0, 9));
  EXPECT_EQ(wait(0, has_port).state, State::kRunning);
  EXPECT_TRUE(launcher_->start(order(0, 9)).ok()) << "the same order still";
  launcher_->stop(order(0, 9), std::chrono::milliseconds(0));
  launcher_->stop(order(0, 9), std::chrono::milliseconds(0));
  wait(0, has_ended);
  EXPECT_EQ(wait(1, has_port).order, order(1, 10)) << "the other one stays";
  EXPECT_EQ(wait(1, has_port).state, State::kRunning);
  // A place that is free again is given to newer orders only.
  EXPECT_FALSE(launcher_->start(order(0, 8)).ok());
  EXPECT_TRUE(launcher_->start(order(0, 11)).ok());
  EXPECT_EQ(wait(0, has_port).order.token, 11u);
  EXPECT_EQ(rig_->starts(), 3);
}

TEST_P(LauncherConformance, WhatDiesIsSeen) {
  open();
  ASSERT_TRUE(launcher_->start(order(0, 1)).ok());
  wait(0, has_port);
  rig_->kill_all();
  EXPECT_NE(wait(0, has_ended).ended, "");
  ASSERT_TRUE(launcher_->start(order(0, 2)).ok());
  wait(0, has_port);
}

TEST_P(LauncherConformance, AStartThatFailsSaysHow) {
  open(kFails);
  ASSERT_TRUE(launcher_->start(order(0, 1)).ok());
  const LaunchedReplica ended = wait(0, has_ended);
  EXPECT_THAT(ended.ended, HasSubstr("exit code 4"));
  EXPECT_TRUE(ended.is_hopeless);
  ASSERT_TRUE(launcher_->start(order(0, 2)).ok());
  wait(0, [](const LaunchedReplica& one) { return one.order.token == 2 && has_ended(one); });
  EXPECT_EQ(rig_->starts(), 2) << "none but those that were ordered";
}

TEST_P(LauncherConformance, WhatIsStoppedBeforeItRunsIsGone) {
  open();
  ASSERT_TRUE(launcher_->start(order(0, 1)).ok());
  launcher_->stop(order(0, 1), std::chrono::milliseconds(0));
  wait(0, has_ended);
  launcher_->stop(order(7, 1), std::chrono::milliseconds(0));  // what is not there has stopped
  ASSERT_TRUE(launcher_->start(order(0, 2)).ok());
  EXPECT_EQ(wait(0, has_port).order.token, 2u);
}

TEST_P(LauncherConformance, WhatIsStoppedHasItsTime) {
  if (!rig_->ends()) GTEST_SKIP() << "not this launcher's to say";
  open(kDrains);
  ASSERT_TRUE(launcher_->start(order(0, 1)).ok());
  ASSERT_TRUE(launcher_->start(order(1, 2)).ok());
  wait(0, has_port);
  wait(1, has_port);
  launcher_->stop(order(0, 1), std::chrono::minutes(1));
  launcher_->stop(order(0, 1), std::chrono::minutes(2));  // twice is once
  launcher_->stop(order(1, 2), std::chrono::milliseconds(0));
  wait(1, has_ended);
  EXPECT_FALSE(launcher_->start(order(0, 3)).ok()) << "its place is not free yet";
  EXPECT_THAT(wait(0, has_ended).ended, HasSubstr("exit code 0"));
  EXPECT_EQ(rig_->ends(), 1) << "the other one had no time";
  EXPECT_EQ(rig_->starts(), 2);
}

INSTANTIATE_TEST_SUITE_P(
    All, LauncherConformance,
    testing::Values(
        Made{"Local", [] { return std::make_unique<LocalRig>(); }},
        Made{"Deployment",
             [] { return std::make_unique<KubernetesRig>(KubernetesSite::Kind::kDeployment); }},
        Made{"StatefulSet",
             [] { return std::make_unique<KubernetesRig>(KubernetesSite::Kind::kStatefulSet); }},
        Made{
            "LeaderWorkerSet",
            [] { return std::make_unique<KubernetesRig>(KubernetesSite::Kind::kLeaderWorkerSet); }},
        Made{"Slurm", [] { return std::make_unique<SlurmRig>(); }},
        Made{"Simulated", [] { return std::make_unique<SimulatedRig>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pelton::launch
