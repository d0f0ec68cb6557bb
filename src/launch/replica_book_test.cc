#include "launch/replica_book.h"

#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

using Pods = std::map<std::string, KubernetesPod>;
using Had = std::set<std::pair<int, uint64_t>>;

KubernetesPod pod(const std::string& name, const std::string& replica, int index = -1) {
  KubernetesPod one{.name = name, .replica = replica, .address = "10.0.0.1", .is_running = true};
  one.index = index;
  return one;
}

Pods pods_of(std::vector<KubernetesPod> list) {
  Pods pods;
  for (KubernetesPod& one : list) pods[one.name] = std::move(one);
  return pods;
}

TEST(ReplicaBook, IsWrittenAndReadAgain) {
  const ReplicaBook book{.newest = 9,
                         .replicas = {{0, {.token = 5}}, {3, {.token = 9, .stops = true}}}};
  EXPECT_EQ(book_text(book),
            R"({"newest":9,"replicas":{"0":{"token":5},"3":{"token":9,"stops":true}}})");
  EXPECT_EQ(*parse_book(book_text(book)), book);
  for (const char* text :
       {"", "{}", R"({"newest":1})", R"({"newest":-1,"replicas":{}})",
        R"({"newest":1,"replicas":{"x":{"token":1}}})",
        R"({"newest":1,"replicas":{"0":{"token":-1}}})", R"({"newest":1,"replicas":{"0":7}})"}) {
    EXPECT_FALSE(parse_book(text).ok()) << text;
  }
}

TEST(ReplicaBook, WhoHasNoPodGetsOneThatIsNobodys) {
  const ReplicaBook book{.newest = 2, .replicas = {{0, {.token = 1}}, {1, {.token = 2}}}};
  const Pods pods = pods_of({pod("a", "0.1"), pod("b", "")});
  Had had;
  const PodPlan plan = plan_pods(book, pods, Shrinks::kByCost, had);
  EXPECT_EQ(plan.pods, 2);
  ASSERT_EQ(plan.marks.size(), 1u);
  EXPECT_EQ(plan.marks[0], (PodPlan::Mark{.pod = "b", .replica = "1.2"}));
  EXPECT_EQ(had.size(), 2u);
}

TEST(ReplicaBook, WhoLosesHisPodHasEnded) {
  const ReplicaBook book{.newest = 1, .replicas = {{0, {.token = 1}}}};
  Had had = {{0, 1}};
  const Pods pods = pods_of({pod("b", "")});  // what the workload made in its place
  const PodPlan plan = plan_pods(book, pods, Shrinks::kByCost, had);
  EXPECT_EQ(plan.pods, 0);
  EXPECT_TRUE(plan.book.replicas.empty());
  EXPECT_EQ(plan.ended.at(0).how, "its pod is gone");
}

TEST(ReplicaBook, TheOneThatStopsIsMarkedToGoFirst) {
  const ReplicaBook book{.newest = 2,
                         .replicas = {{0, {.token = 1, .stops = true}}, {1, {.token = 2}}}};
  const Pods pods = pods_of({pod("a", "0.1"), pod("b", "1.2")});
  Had had;
  const PodPlan plan = plan_pods(book, pods, Shrinks::kByCost, had);
  EXPECT_EQ(plan.pods, 1);
  ASSERT_EQ(plan.marks.size(), 1u);
  EXPECT_EQ(plan.marks[0], (PodPlan::Mark{.pod = "a", .replica = "0.1", .goes = true}));
}

TEST(ReplicaBook, OfASetTheLastPodGoesUnderTheNameOfWhoStops) {
  const ReplicaBook book{.newest = 2,
                         .replicas = {{0, {.token = 1, .stops = true}}, {1, {.token = 2}}}};
  const Pods pods = pods_of({pod("w-0", "0.1", 0), pod("w-1", "1.2", 1)});
  Had had;
  const PodPlan plan = plan_pods(book, pods, Shrinks::kFromTheEnd, had);
  EXPECT_EQ(plan.of.at(1)->name, "w-0");
  EXPECT_EQ(plan.of.at(0)->name, "w-1");
  EXPECT_EQ(plan.marks.size(), 2u);
}

TEST(ReplicaBook, WhoLostHisPodToTheShrinkingGetsTheOneThatWasToGo) {
  // The workload took the pod of 1, which did not run yet, in place of 0's.
  const ReplicaBook book{.newest = 2,
                         .replicas = {{0, {.token = 1, .stops = true}}, {1, {.token = 2}}}};
  const Pods pods = pods_of({pod("a", "0.1")});
  Had had;
  const PodPlan plan = plan_pods(book, pods, Shrinks::kByCost, had);
  EXPECT_EQ(plan.of.at(1)->name, "a");
  EXPECT_EQ(plan.ended.at(0).how, "stopped");
  EXPECT_EQ(plan.pods, 1);
}

TEST(ReplicaBook, APodThatFailsEndsItsOrderButAmidASetIsLeft) {
  const ReplicaBook book{.newest = 2, .replicas = {{0, {.token = 1}}, {1, {.token = 2}}}};
  KubernetesPod failed = pod("w-0", "0.1", 0);
  failed.failed = "pod w-0: ImagePullBackOff";
  const Pods pods = pods_of({failed, pod("w-1", "1.2", 1)});
  Had had;
  EXPECT_EQ(plan_pods(book, pods, Shrinks::kByCost, had).ended.at(0).how, failed.failed);
  EXPECT_TRUE(plan_pods(book, pods, Shrinks::kFromTheEnd, had).ended.empty());
}

TEST(ReplicaBook, WhatTheClusterTakesIsSeenToStop) {
  const ReplicaBook book{.newest = 1, .replicas = {{0, {.token = 1}}}};
  KubernetesPod evicted = pod("a", "0.1");
  evicted.is_ending = true;
  Had had;
  const Pods pods = pods_of({evicted});
  const PodPlan plan = plan_pods(book, pods, Shrinks::kByCost, had);
  EXPECT_TRUE(plan.book.replicas.at(0).stops);
  EXPECT_TRUE(plan.marks.empty());
}

TEST(ReplicaBook, WhatTheClusterTakesOfASetComesBack) {
  const ReplicaBook book{.newest = 3,
                         .replicas = {{0, {.token = 1}}, {1, {.token = 2}}, {2, {.token = 3}}}};
  KubernetesPod evicted = pod("w-0", "0.1", 0);
  evicted.is_ending = true;
  Had had;
  Pods pods = pods_of({evicted, pod("w-1", "1.2", 1), pod("w-2", "2.3", 2)});
  PodPlan plan = plan_pods(book, pods, Shrinks::kFromTheEnd, had);
  EXPECT_EQ(plan.pods, 3) << "a shorter set would lose its last pod";
  EXPECT_TRUE(plan.marks.empty());
  pods.erase("w-0");
  plan = plan_pods(plan.book, pods, Shrinks::kFromTheEnd, had);
  EXPECT_EQ(plan.pods, 3);
  EXPECT_TRUE(plan.ended.empty());
  pods = pods_of({pod("w-0", "", 0), pod("w-1", "1.2", 1), pod("w-2", "2.3", 2)});
  plan = plan_pods(plan.book, pods, Shrinks::kFromTheEnd, had);
  ASSERT_EQ(plan.marks.size(), 1u);
  EXPECT_EQ(plan.marks[0], (PodPlan::Mark{.pod = "w-0", .replica = "0.1"}));
}

TEST(ReplicaBook, GroupsAreTheirFirstPods) {
  KubernetesPod second = pod("w-0-1", "", 0);
  second.is_of_a_group = true;
  const ReplicaBook book = adopted_book(pods_of({pod("w-0", "", 0), second}), 40, 1);
  EXPECT_EQ(book.replicas.size(), 1u);
  EXPECT_EQ(book.newest, 41u);
}

// Pods that a workload is still to make are replicas that start.
TEST(ReplicaBook, PodsThatAreStillToComeAreAdoptedToo) {
  const auto pods = pods_of({pod("w-0", "", 0)});
  const ReplicaBook book = adopted_book(pods, 40, 3);
  EXPECT_EQ(book.replicas.size(), 3u);
  EXPECT_EQ(book.newest, 43u);
  std::set<std::pair<int, uint64_t>> had;
  const PodPlan plan = plan_pods(book, pods, Shrinks::kByCost, had);
  EXPECT_EQ(plan.pods, 3) << "the number is left as it is";
  EXPECT_EQ(plan.of.size(), 1u);
  EXPECT_TRUE(plan.ended.empty());
}

}  // namespace
}  // namespace pelton::launch
