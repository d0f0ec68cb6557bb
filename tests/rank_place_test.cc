// Which rank a launcher makes of a process, and how often a group may be started anew.
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "apps/launcher_session.h"
#include "apps/rank_flags.h"
#include "apps/rank_restarts.h"

namespace pelton::apps {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<RankPlace> place(const std::string& launcher, const Variables& variables) {
  return place_of(launcher, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_place(const Result<RankPlace>& got, const RankPlace& want) {
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->rank, want.rank);
  EXPECT_EQ(got->ranks, want.ranks);
  EXPECT_EQ(got->local_rank, want.local_rank);
  EXPECT_EQ(got->local_ranks, want.local_ranks);
}

TEST(RankPlace, AsEachLauncherSaysIt) {
  expect_place(place("env", {{"RANK", "1"}, {"WORLD_SIZE", "3"}}), {.rank = 1, .ranks = 3});
  expect_place(
      place("env",
            {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}),
      {.rank = 3, .ranks = 4, .local_rank = 1, .local_ranks = 2});
  expect_place(place("mpi", {{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
               {.rank = 1, .ranks = 2, .local_rank = 1, .local_ranks = 2});
  expect_place(place("mpi", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), {.rank = 0, .ranks = 2});
  expect_place(place("slurm", {{"SLURM_PROCID", "5"},
                               {"SLURM_NTASKS", "6"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_TASKS_PER_NODE", "2(x3)"}}),
               {.rank = 5, .ranks = 6, .local_rank = 1, .local_ranks = 2});
  // Hosts with different numbers of ranks: each has its binding, or all of the host.
  expect_place(place("slurm", {{"SLURM_PROCID", "2"},
                               {"SLURM_NTASKS", "3"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_TASKS_PER_NODE", "4(x2),3"}}),
               {.rank = 2, .ranks = 3});
}

TEST(RankPlace, WhatIsMissingOrWrongIsNamed) {
  EXPECT_THAT(place("env", {{"OMPI_COMM_WORLD_RANK", "1"}}).error().message, HasSubstr("$RANK"));
  EXPECT_THAT(place("env", {{"RANK", "1"}}).error().message, HasSubstr("$RANK"));
  EXPECT_THAT(place("mpi", {}).error().message, HasSubstr("$OMPI_COMM_WORLD_RANK, $PMI_RANK"));
  EXPECT_THAT(place("env", {{"RANK", "one"}, {"WORLD_SIZE", "2"}}).error().message,
              HasSubstr("RANK is a number from 0 on, not 'one'"));
  EXPECT_THAT(place("env", {{"RANK", ""}, {"WORLD_SIZE", "2"}}).error().message,
              HasSubstr("not ''"));
  EXPECT_THAT(place("env", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error().message,
              HasSubstr("RANK=2, WORLD_SIZE=2"));
  EXPECT_THAT(place("env", {{"RANK", "0"}, {"WORLD_SIZE", "65"}}).error().message,
              HasSubstr("64 at most"));
  EXPECT_FALSE(place("env", {{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).ok());
}

TEST(HourlyBound, CountsOneHour) {
  constexpr int64_t kMinuteNs = int64_t{60} * 1'000'000'000;
  HourlyBound bound(2);
  EXPECT_TRUE(bound.take(0));
  EXPECT_TRUE(bound.take(10 * kMinuteNs));
  EXPECT_FALSE(bound.take(59 * kMinuteNs));
  EXPECT_TRUE(bound.take(60 * kMinuteNs));
  EXPECT_FALSE(bound.take(61 * kMinuteNs));
  EXPECT_TRUE(bound.take(70 * kMinuteNs));
}

Result<std::optional<LauncherSession>> session(const Variables& variables) {
  return launcher_session([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

const Variables kByMpirun = {
    {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "4711"}};

TEST(LauncherSession, AsEachLauncherLeavesIt) {
  EXPECT_FALSE(session({})->has_value());
  const LauncherSession mpi = session(kByMpirun)->value();
  EXPECT_EQ(mpi.launcher, "mpi");
  EXPECT_EQ(mpi.place.rank, 1);
  EXPECT_EQ(mpi.job, "mpi 4711");
  const LauncherSession slurm = session({{"SLURM_PROCID", "0"},
                                         {"SLURM_NTASKS", "3"},
                                         {"SLURM_STEP_NUM_TASKS", "3"},
                                         {"SLURM_JOB_ID", "7"},
                                         {"SLURM_STEP_ID", "2"}})
                                    ->value();
  EXPECT_EQ(slurm.launcher, "slurm");
  EXPECT_EQ(slurm.job, "slurm 7.2");
  EXPECT_EQ(session({{"RANK", "0"}, {"WORLD_SIZE", "2"}})->value().launcher, "env");
  // One process is none of several, and a batch script's shell is not one of srun's tasks.
  EXPECT_FALSE(session({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->has_value());
  EXPECT_FALSE(session({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})->has_value());
  EXPECT_FALSE(session({{"WORLD_SIZE", "2"}})->has_value());
  EXPECT_THAT(session({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error().message, HasSubstr("RANK=2"));
}

TEST(LauncherSession, ProcessesOfAJobMeetAndThoseOfAnotherDoNot) {
  const std::string folder = testing::TempDir() + "/pelton_rank_key_" + std::to_string(::getpid());
  const LauncherSession one = session(kByMpirun)->value();
  LauncherSession other = one;
  other.job = "mpi 4712";
  const std::string secret = session_secret(one, folder).value();
  EXPECT_GE(secret.size(), 32U);
  EXPECT_EQ(session_secret(one, folder).value(), secret);
  EXPECT_NE(session_secret(other, folder).value(), secret);
  EXPECT_NE(meeting_port(other), meeting_port(one));
  EXPECT_THAT(session_secret(one, "").error().message, HasSubstr("--rank-token-file"));
  std::filesystem::resize_file(folder + "/rank_key", 5);
  EXPECT_THAT(session_secret(one, folder).error().message, HasSubstr("not a key of 32 bytes"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::apps
