#include "gateway/foreign_load.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

TEST(ForeignLoad, EachKindHasItsNames) {
  const auto vllm = parse_foreign_load(WorkerKind::kVllm,
                                       "# HELP vllm:num_requests_running x\n"
                                       "vllm:num_requests_running{engine=\"0\",model=\"m\"} 3.0\n"
                                       "vllm:num_requests_running{engine=\"1\",model=\"m\"} 2.0\r\n"
                                       "vllm:num_requests_running_total 99\n"
                                       "vllm:num_requests_waiting{model=\"} \"} 4 1700000000\n"
                                       "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
                                       "vllm:kv_cache_usage_perc{engine=\"1\"} 0.5");
  ASSERT_TRUE(vllm);
  EXPECT_EQ(vllm->running, 5);
  EXPECT_EQ(vllm->waiting, 4);
  EXPECT_DOUBLE_EQ(vllm->kv_used, 0.5);
  const auto sglang = parse_foreign_load(
      WorkerKind::kSglang,
      "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\nsglang:token_usage 7\n");
  ASSERT_TRUE(sglang);
  EXPECT_EQ(sglang->running + sglang->waiting, 3);
  EXPECT_DOUBLE_EQ(sglang->kv_used, 1) << "a share is at most all";
  const auto llama = parse_foreign_load(WorkerKind::kLlamaCpp, "llamacpp:requests_processing 2\n");
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->running, 2);
}

// GW-06.
TEST(ForeignLoad, NumbersThatCannotBeAreNone) {
  for (const char* const value : {"NaN", "-1", "+Inf", "many", ""}) {
    EXPECT_FALSE(
        parse_foreign_load(WorkerKind::kVllm, std::string("vllm:num_requests_running ") + value))
        << value;
  }
  EXPECT_EQ(parse_foreign_load(WorkerKind::kVllm, "vllm:num_requests_running 1e18")->running,
            1'000'000);
  EXPECT_FALSE(parse_foreign_load(WorkerKind::kVllm, ""));
  EXPECT_FALSE(parse_foreign_load(WorkerKind::kOpenAi, "vllm:num_requests_running 1"));
  EXPECT_EQ(foreign_load_path(WorkerKind::kOpenAi), "");
}

}  // namespace
}  // namespace pelton::gateway
