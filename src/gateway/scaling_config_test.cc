// [pool.scale], [pool.launch] and [autoscaler] of the gateway's file.
#include "gateway/scaling_config.h"

#include <gtest/gtest.h>

#include "gateway/config.h"
#include "gateway/config_text.h"

namespace pelton::gateway {
namespace {

const std::string kPool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n";

TEST(ScalingConfig, IsReadAndWrittenAgain) {
  const std::string text = "[autoscaler]\nstate_dir = \"/tmp/r\"\n" + kPool +
                           "[pool.scale]\nmin = 1\nmax = 9\npolicy = \"kpa\"\nmode = \"advise\"\n"
                           "window = 30\ntarget_utilization = 70\nconcurrency_target = 8\n"
                           "hold_seconds = 20.5\n"
                           "[pool.launch]\nserve = [\"m\", \"--max-num-seqs\", \"8\"]\n"
                           "start_seconds = 3\n";
  const Result<GatewayConfig> read = parse_gateway_config(text, "f", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->state_dir, "/tmp/r");
  const ScalingConfig& scaling = read->pools.at(0).scaling.value();
  EXPECT_EQ(scaling.policy.replicas_min, 1);
  EXPECT_EQ(scaling.policy.replicas_max, 9);
  EXPECT_EQ(scaling.policy.rule, autoscaler::PoolPolicy::Rule::kKnative);
  EXPECT_EQ(scaling.policy.target_utilization, 0.7);
  EXPECT_EQ(scaling.policy.concurrency_target, 8);
  EXPECT_EQ(scaling.policy.scale_down_delay_s, std::nullopt);
  EXPECT_TRUE(scaling.is_advised_only);
  EXPECT_EQ(scaling.hold.time_max_s, 20.5);
  EXPECT_EQ(scaling.launch.value().serve.size(), 3u);
  EXPECT_EQ(scaling.launch->start_s, 3);

  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(scaling_text(*again->pools.at(0).scaling), scaling_text(scaling));
  EXPECT_EQ(again->state_dir, read->state_dir);
}

TEST(ScalingConfig, WhatIsWrongIsRefusedByLine) {
  const std::string scale = kPool + "[pool.scale]\n";
  const std::string launch = scale + "[pool.launch]\n";
  struct Bad {
    std::string text;
    const char* message;
  };
  const Bad bads[] = {
      {scale + "maxx = 3\n", "f:5: [[pool]]: 'scale' has no key 'maxx'; did you mean 'max'?"},
      {scale + "min = 3\nmax = 2\n", "f:5: [[pool]]: 'scale': 'min' (3) is more than 'max' (2)"},
      {scale + "min = 2\n", "f:5: [[pool]]: 'scale': 'min' (2) is more than 'max' (1)"},
      {scale + "max = 0\n", "f:5: [[pool]]: 'scale': 'max' must be"},
      {scale + "target_utilization = 0\n", "f:5: [[pool]]: 'scale': 'target_utilization' must be"},
      {scale + "target_utilization = 300\n",
       "f:5: [[pool]]: 'scale': 'target_utilization' must be"},
      {scale + "max_scale_down_rate = 0\n",
       "f:5: [[pool]]: 'scale': 'max_scale_down_rate' must be"},
      {scale + "window = 0\n", "f:5: [[pool]]: 'scale': 'window' must be"},
      {scale + "window = \"60\"\n", "f:5: [[pool]]: 'scale': 'window' must be"},
      {scale + "policy = \"hpa\"\n", "f:5: [[pool]]: 'scale': 'policy' must be concurrency"},
      {scale + "mode = \"talk\"\n", "f:5: [[pool]]: 'scale': 'mode' must be act or advise"},
      {scale + "hold_requests = 0\n", "f:5: [[pool]]: 'scale': 'hold_requests' must be"},
      {kPool + "scale = 3\n", "f:4: [[pool]]: 'scale' must be a table"},
      {kPool + "[pool.launch]\nserve = [\"m\"]\n",
       "f:4: [[pool]]: 'launch' says nothing without [pool.scale]"},
      {launch, "f:5: [[pool]]: 'launch': 'serve' is missing"},
      {launch + "serve = []\n", "f:6: [[pool]]: 'launch': 'serve' is missing"},
      {launch + "serve = [\"m\", \"--fleet-port\", \"1\"]\n",
       "f:6: [[pool]]: 'launch': 'serve' has --fleet-port, which the launcher gives"},
      {launch + "serve = [\"m\", \"--port=1\"]\n", "f:6: [[pool]]: 'launch': 'serve' has --port"},
      {launch + "serve = [\"m\"]\nkind = \"slurm\"\n",
       "f:7: [[pool]]: 'launch': 'kind' must be local"},
      {"[autoscaler]\nstate = \"x\"\n", "f:2: [autoscaler] has no key 'state'"},
      {"[autoscaler]\nstate_dir = \"\"\n", "f:2: [autoscaler]: 'state_dir' is empty"},
  };
  for (const Bad& bad : bads) {
    const Result<GatewayConfig> config = parse_gateway_config(bad.text, "f", {});
    ASSERT_FALSE(config.ok()) << bad.text;
    EXPECT_EQ(config.error().code, ErrorCode::kBadConfig);
    EXPECT_TRUE(config.error().message.starts_with(bad.message)) << config.error().message;
  }
}

}  // namespace
}  // namespace pelton::gateway
