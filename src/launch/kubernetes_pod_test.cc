#include "launch/kubernetes_pod.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

using testing::HasSubstr;

Result<KubernetesPod> parse(std::string_view text) {
  TRY_ASSIGN(const Json json, Json::parse(text));
  return parse_kubernetes_pod(json);
}

KubernetesPod waiting(const std::string& reason, int exit_code = 0) {
  return *parse(
      R"({"metadata":{"name":"p"},"status":{"phase":"Running","containerStatuses":[{"state":{"waiting":{"reason":")" +
      reason + R"(","message":"m"}},"lastState":{"terminated":{"exitCode":)" +
      std::to_string(exit_code) + "}}}]}}");
}

TEST(KubernetesPod, IsReadAsFarAsItIsThere) {
  const auto pod = parse(R"({"metadata":{"name":"w-3","creationTimestamp":"t",
    "annotations":{"pelton/replica":"1.5","controller.kubernetes.io/pod-deletion-cost":"-1000"},
    "labels":{"leaderworkerset.sigs.k8s.io/group-index":"3","leaderworkerset.sigs.k8s.io/worker-index":"1"},
    "deletionTimestamp":"t"},"status":{"phase":"Running","podIP":"10.1.2.3"}})");
  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->replica, "1.5");
  EXPECT_EQ(pod->index, 3);
  EXPECT_TRUE(pod->is_of_a_group);
  EXPECT_TRUE(pod->has_cost);
  EXPECT_TRUE(pod->is_ending);
  EXPECT_TRUE(pod->is_running);
  EXPECT_EQ(pod->address, "10.1.2.3");
  EXPECT_FALSE(parse("{}").ok());
  EXPECT_FALSE(parse("7").ok());
  EXPECT_FALSE(parse(R"({"metadata":{"name":7}})").ok());
  EXPECT_EQ(parse(R"({"metadata":{"name":"p"},"status":{"podIP":"evil.example"}})")->address, "");
  EXPECT_TRUE(parse(R"({"metadata":{"name":"p","labels":7,"annotations":[]},"status":"x"})").ok());
}

TEST(KubernetesPod, ASetsPodIsKnownByItsNameWhereLabelsDoNotSayIt) {
  EXPECT_EQ(
      parse(R"({"metadata":{"name":"w-12","ownerReferences":[{"kind":"StatefulSet"}]}})")->index,
      12);
  EXPECT_EQ(
      parse(R"({"metadata":{"name":"w-12","ownerReferences":[{"kind":"ReplicaSet"}]}})")->index,
      -1);
  EXPECT_EQ(parse(R"({"metadata":{"name":"w","ownerReferences":[{"kind":"StatefulSet"}]}})")->index,
            -1);
}

TEST(KubernetesPod, WhatWillNotComeToRunSaysWhy) {
  EXPECT_EQ(waiting("ContainerCreating").failed, "");
  EXPECT_EQ(waiting("ErrImagePull").failed, "") << "it is tried again";
  EXPECT_EQ(waiting("ImagePullBackOff").failed, "pod p: ImagePullBackOff: m");
  EXPECT_FALSE(waiting("ImagePullBackOff").is_hopeless);
  EXPECT_TRUE(waiting("InvalidImageName").is_hopeless);
  EXPECT_EQ(waiting("CrashLoopBackOff", 4).failed, "pod p: ended with exit code 4");
  EXPECT_TRUE(waiting("CrashLoopBackOff", 4).is_hopeless);
  EXPECT_FALSE(waiting("CrashLoopBackOff", 137).is_hopeless);
  const auto evicted =
      parse(R"({"metadata":{"name":"p"},"status":{"phase":"Failed","reason":"Evicted"}})");
  EXPECT_EQ(evicted->failed, "pod p has failed: Evicted");
}

TEST(KubernetesPod, AStartThatAdvancesIsAnotherText) {
  const auto pulling = parse(R"({"metadata":{"name":"p"},"status":{"phase":"Pending"}})");
  const auto running = parse(
      R"({"metadata":{"name":"p"},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}]}})");
  EXPECT_NE(pulling->progress, running->progress);
}

}  // namespace
}  // namespace pelton::launch
