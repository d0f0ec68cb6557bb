#include "executor/rank_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

using testing::HasSubstr;

RankJob job() {
  RankJob job{.model = "/models/a",
              .kernels = "auto",
              .kernels_name = "avx512",
              .threads = 3,
              .batch_tokens_max = 512,
              .logit_rows_max = 16,
              .weights = {1, 2},
              .experts = {{{0}, {1}, {0, 1}}, {}},
              .load_mode = checkpoint::LoadMode::kRead,
              .reads_ahead = false,
              .scrub_period_ns = 86'400'000'000'000};
  job.kv.dtype = tensor::DType::kI8;
  job.kv.block_tokens = 16;
  job.kv.groups.resize(2);
  job.kv.groups[0].block_count = 40;
  job.kv.groups[1].block_count = 30;
  job.swap.block_tokens = 16;
  return job;
}

TEST(RankJob, TravelsAsJson) {
  const Result<Json> text = Json::parse(job().to_json().dump());
  ASSERT_TRUE(text.ok());
  const Result<RankJob> got = RankJob::from_json(*text);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->to_json(), job().to_json());
  EXPECT_EQ(got->kv.groups[1].block_count, 30);
  EXPECT_EQ(got->kv.dtype, tensor::DType::kI8);
  EXPECT_EQ(got->weights, (std::vector<int>{1, 2}));
  EXPECT_EQ(got->experts, (layers::ExpertTable{{{0}, {1}, {0, 1}}, {}}));
  EXPECT_EQ(got->load_mode, checkpoint::LoadMode::kRead);
  EXPECT_FALSE(got->reads_ahead);
  EXPECT_EQ(got->scrub_period_ns, 86'400'000'000'000);
}

TEST(RankJob, WhatIsMissingIsNamed) {
  const Json whole = job().to_json();
  for (const Json::Member& member : whole.as_object()) {
    Json less;
    for (const Json::Member& other : whole.as_object()) {
      if (other.key != member.key) less.set(other.key, other.value);
    }
    const Result<RankJob> got = RankJob::from_json(less);
    ASSERT_FALSE(got.ok()) << member.key;
    EXPECT_THAT(got.error().message, HasSubstr(member.key));
  }
}

TEST(RankJob, AnotherProtocolIsRefusedWithBoth) {
  RankJob newer = job();
  newer.protocol = RankJob::kProtocol + 1;
  const auto read = RankJob::from_json(newer.to_json());
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr(fmt::format("protocol: {} at the leader, {} here",
                                                          newer.protocol, RankJob::kProtocol)));
}

TEST(RankJob, AFactThatDiffersIsNamed) {
  const std::map<std::string, std::string> leader = {{"kernels", "avx512"}, {"a", "1"}};
  EXPECT_TRUE(check_facts(leader, leader).ok());
  EXPECT_THAT(check_facts(leader, {{"kernels", "avx2"}, {"a", "1"}}).error().message,
              HasSubstr("kernels: avx512 at the leader, avx2 here"));
  EXPECT_THAT(check_facts(leader, {{"kernels", "avx512"}}).error().message,
              HasSubstr("a: 1 at the leader, nothing here"));
}

}  // namespace
}  // namespace pelton::executor
