// [pool.scale], [pool.launch] and [autoscaler] of the gateway's file.
#include "gateway/scaling_config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "gateway/config.h"
#include "gateway/config_text.h"

namespace pelton::gateway {
namespace {

const std::string kPool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n";

TEST(ScalingConfig, IsReadAndWrittenAgain) {
  const std::string text =
      "[autoscaler]\nstate_dir = \"/tmp/r\"\nlisten = \"127.0.0.1:8092\"\n"
      "keda_listen = \"0.0.0.0:9090\"\n"
      "gateways = [\"http://127.0.0.1:8091\"]\nlead = \"etcd\"\nlease_seconds = 9\n" +
      kPool +
      "[pool.scale]\nmin = 1\nmax = 9\npolicy = \"kpa\"\nmode = \"advise\"\n"
      "window = 30\ntarget_utilization = 70\nconcurrency_target = 8\n"
      "hold_seconds = 20.5\ngpus = 2\nmax_gpus = 18\nprice = 2.5\n"
      "max_price = 30\n"
      "schedules = [{days = \"mon-fri\", from = \"22:00\", to = \"06:30\", "
      "zone = \"-03:30\", max = 4}, {days = [\"sat\", \"sun\"], "
      "from = \"10:00\", to = \"24:00\", min = 2}]\n"
      "[pool.launch]\nserve = [\"m\", \"--max-num-seqs\", \"8\"]\n"
      "start_seconds = 3\nroll = true\n";
  const Result<GatewayConfig> read = parse_gateway_config(text, "f", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->autoscaler.state_dir, "/tmp/r");
  EXPECT_EQ(read->autoscaler.gateways, (std::vector<std::string>{"http://127.0.0.1:8091"}));
  EXPECT_EQ(read->autoscaler.port, 8092);
  const ScalingConfig& scaling = read->pools.at(0).scaling.value();
  EXPECT_EQ(scaling.policy.replicas_min, 1);
  EXPECT_EQ(scaling.policy.replicas_max, 9);
  EXPECT_EQ(scaling.policy.rule, autoscaler::PoolPolicy::Rule::kKnative);
  EXPECT_EQ(scaling.policy.target_utilization, 0.7);
  EXPECT_EQ(scaling.policy.concurrency_target, 8);
  EXPECT_EQ(scaling.policy.scale_down_delay_s, std::nullopt);
  EXPECT_TRUE(scaling.is_advised_only);
  EXPECT_EQ(scaling.hold.time_max_s, 20.5);
  EXPECT_EQ(scaling.policy.gpus_max, 18);
  EXPECT_EQ(scaling.policy.affordable(), 9);
  ASSERT_EQ(scaling.policy.schedules.size(), 2u);
  EXPECT_EQ(scaling.policy.schedules[0].days, 0x1f);
  EXPECT_EQ(scaling.policy.schedules[0].from_minute, 22 * 60);
  EXPECT_EQ(scaling.policy.schedules[0].to_minute, 6 * 60 + 30);
  EXPECT_EQ(scaling.policy.schedules[0].utc_offset_minutes, -210);
  EXPECT_EQ(scaling.policy.schedules[1].days, 0x60);
  EXPECT_EQ(scaling.policy.schedules[1].replicas_min, 2);
  EXPECT_EQ(scaling.launch.value().serve.size(), 3u);
  EXPECT_EQ(scaling.launch->start_s, 3);
  EXPECT_TRUE(scaling.launch->rolls);
  EXPECT_EQ(scaling.launch->place, "f:26");

  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(scaling_text(*again->pools.at(0).scaling), scaling_text(scaling));
  EXPECT_EQ(again->autoscaler.state_dir, read->autoscaler.state_dir);
  EXPECT_EQ(again->autoscaler.gateways, read->autoscaler.gateways);
  EXPECT_EQ(again->autoscaler.port, 8092);
  EXPECT_EQ(again->autoscaler.keda_host, "0.0.0.0");
  EXPECT_EQ(again->autoscaler.keda_port, 9090);
  EXPECT_EQ(again->autoscaler.lead, AutoscalerConfig::Lead::kEtcd);
  EXPECT_EQ(again->autoscaler.lease_s, 9);
}

TEST(ScalingConfig, AnObjectiveIsReadAndWrittenAgain) {
  const std::string text = kPool +
                           "[pool.scale]\nmax = 9\npolicy = \"slo\"\nttft = 0.8\nitl = 0.04\n"
                           "percentile = 99.9\n";
  const Result<GatewayConfig> read = parse_gateway_config(text, "f", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  const autoscaler::PoolPolicy& policy = read->pools.at(0).scaling->policy;
  EXPECT_EQ(policy.rule, autoscaler::PoolPolicy::Rule::kSlo);
  EXPECT_EQ(policy.slo.first_token_s, 0.8);
  EXPECT_EQ(policy.slo.gap_s, 0.04);
  EXPECT_NEAR(policy.slo.percentile, 0.999, 1e-9);
  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(scaling_text(*again->pools.at(0).scaling), scaling_text(*read->pools.at(0).scaling));
}

TEST(ScalingConfig, PodsAndBatchJobsAreReadAndWrittenAgain) {
  const std::string text =
      "[autoscaler]\nlead = \"kubernetes\"\nlease = \"ml/pelton-autoscaler\"\n" + kPool +
      "[pool.scale]\nmax = 2\n[pool.launch]\nkind = \"kubernetes\"\n"
      "workload = \"ml/statefulset/w\"\nport = 8001\n"
      "[[pool]]\nname = \"b\"\nmodel = \"n\"\n[pool.scale]\n[pool.launch]\nkind = \"slurm\"\n"
      "serve = [\"n\"]\nsbatch = [\"--partition=gpu\", \"--time=1:00:00\"]\ndrain_seconds = 90\n";
  const Result<GatewayConfig> read = parse_gateway_config(text, "f", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->autoscaler.lead, AutoscalerConfig::Lead::kKubernetes);
  EXPECT_EQ(read->autoscaler.lease_namespace, "ml");
  EXPECT_EQ(read->autoscaler.lease_name, "pelton-autoscaler");
  const LaunchConfig& pods = read->pools.at(0).scaling->launch.value();
  EXPECT_EQ(pods.kind, LaunchConfig::Kind::kKubernetes);
  EXPECT_EQ(pods.workload, LaunchConfig::Workload::kStatefulSet);
  EXPECT_EQ(pods.name_space + " " + pods.workload_name, "ml w");
  EXPECT_EQ(pods.port, 8001);
  EXPECT_EQ(pods.progress_s, 1800) << "nothing is seen of a container's start";
  const LaunchConfig& jobs = read->pools.at(1).scaling->launch.value();
  EXPECT_EQ(jobs.kind, LaunchConfig::Kind::kSlurm);
  EXPECT_EQ(jobs.sbatch, (std::vector<std::string>{"--partition=gpu", "--time=1:00:00"}));
  EXPECT_EQ(jobs.drain_s, 90);
  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(scaling_text(*again->pools.at(0).scaling), scaling_text(*read->pools.at(0).scaling));
  EXPECT_EQ(scaling_text(*again->pools.at(1).scaling), scaling_text(*read->pools.at(1).scaling));
}

TEST(ScalingConfig, StandbyAndAPlayedProviderAreReadAndWrittenAgain) {
  const std::string text =
      kPool +
      "[pool.scale]\nmin = 1\nmax = 4\nstandby = 2\n[pool.launch]\nkind = \"simulated\"\n"
      "serve = [\"m\"]\nquota = 3\nlead_seconds = 20\nlead_p90 = 60.5\n"
      "stock_outs = [{at = 100, for = 50.5}, {at = 900, for = 1}]\nreclaim_after = 3600\n"
      "reclaim_notice = 120\n";
  const Result<GatewayConfig> read = parse_gateway_config(text, "f", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->pools.at(0).scaling->policy.standby, 2);
  const LaunchConfig& launch = read->pools.at(0).scaling->launch.value();
  EXPECT_EQ(launch.kind, LaunchConfig::Kind::kSimulated);
  EXPECT_EQ(launch.simulated.quota, 3);
  EXPECT_EQ(launch.simulated.lead_p90_s, 60.5);
  ASSERT_EQ(launch.simulated.stock_outs.size(), 2u);
  EXPECT_EQ(launch.simulated.stock_outs[0].for_s, 50.5);
  EXPECT_EQ(launch.simulated.reclaim_notice_s, 120);
  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(scaling_text(*again->pools.at(0).scaling), scaling_text(*read->pools.at(0).scaling));
}

struct Bad {
  std::string text;
  const char* message;
};
void refuse(const Bad& bad) {
  const Result<GatewayConfig> config = parse_gateway_config(bad.text, "f", {});
  ASSERT_FALSE(config.ok()) << bad.text;
  EXPECT_EQ(config.error().code, ErrorCode::kBadConfig);
  EXPECT_TRUE(config.error().message.starts_with(bad.message)) << config.error().message;
}

// What runs in their pods their workload says; without any, they are advised on.
TEST(ScalingConfig, PoolsOfOtherKindsAreReadAndWrittenAgain) {
  const std::string foreign = kPool + "kind = \"vllm\"\n[pool.scale]\nconcurrency_target = 16\n";
  const std::string pods =
      "[pool.launch]\nkind = \"kubernetes\"\nworkload = \"ml/deployment/vllm\"\nport = 8000\n";
  const Result<GatewayConfig> read = parse_gateway_config(foreign + pods, "f", {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->pools.at(0).scaling->launch->kind, LaunchConfig::Kind::kKubernetes);
  EXPECT_EQ(read->pools.at(0).scaling->launch->port, 8000);
  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(config_text(*again), config_text(*read));
  EXPECT_TRUE(parse_gateway_config(foreign + "mode = \"advise\"\n", "f", {}).ok());
  // Requests are held while its servers are away: nobody decides on it.
  const std::string alone = kPool + "kind = \"vllm\"\n[pool.scale]\n";
  EXPECT_TRUE(parse_gateway_config(alone, "f", {}).ok());
  const Bad bads[] = {
      {foreign + "[pool.launch]\nserve = [\"m\"]\n",
       "f:7: [[pool]]: 'launch': 'kind' must be kubernetes"},
      {foreign + "[pool.launch]\nkind = \"slurm\"\nserve = [\"m\"]\n",
       "f:8: [[pool]]: 'launch': 'kind' must be kubernetes"},
      {alone + pods, "f:5: [[pool]]: 'scale' needs 'concurrency_target'"},
      {alone + "mode = \"advise\"\n", "f:5: [[pool]]: 'scale' needs 'concurrency_target'"},
      {foreign + "max = 3\nstandby = 1\n" + pods, "f:5: [[pool]]: 'scale' 'standby' is of"},
      {foreign + "policy = \"slo\"\nttft = 1\n" + pods,
       "f:5: [[pool]]: 'scale' 'policy' cannot be slo"},
  };
  for (const Bad& bad : bads) refuse(bad);
}

TEST(ScalingConfig, WhatIsWrongOfPodsJobsAndLeadIsRefusedByLine) {
  const std::string launch = kPool + "[pool.scale]\n[pool.launch]\n";
  const Bad bads[] = {
      {"[autoscaler]\nlead = \"zookeeper\"\n" + kPool, "f:2: [autoscaler]: 'lead' must be etcd"},
      {"[autoscaler]\nlead = \"kubernetes\"\n" + kPool, "f:1: [autoscaler]: 'lease' must be"},
      {"[autoscaler]\nlead = \"kubernetes\"\nlease = \"a/B\"\n" + kPool,
       "f:3: [autoscaler]: 'lease' must be NAMESPACE/NAME"},
      {"[autoscaler]\nlead = \"kubernetes\"\nlease = \"a.b/c\"\n" + kPool,
       "f:3: [autoscaler]: 'lease' must be NAMESPACE/NAME"},
      {"[autoscaler]\nlease = \"a/b\"\n" + kPool, "f:2: [autoscaler]: 'lease' says nothing"},
      {"[autoscaler]\nlead = \"etcd\"\nlease_seconds = 1\n" + kPool,
       "f:3: [autoscaler]: 'lease_seconds' must be"},
      {"[autoscaler]\nlease_seconds = 9\n" + kPool,
       "f:2: [autoscaler]: 'lease_seconds' says nothing without 'lead'"},
      {launch + "kind = \"slurn\"\n",
       "f:6: [[pool]]: 'launch': 'kind' must be local (processes of this machine), kubernetes, "
       "slurm or simulated; did you mean 'slurm'?"},
      {launch + "kind = \"simulated\"\nserve = [\"m\"]\nlead_seconds = -1\n",
       "f:8: [[pool]]: 'launch': 'lead_seconds' must be"},
      {launch + "kind = \"simulated\"\nserve = [\"m\"]\nlead_seconds = 9\nlead_p90 = 8\n",
       "f:9: [[pool]]: 'launch': 'lead_p90' (8) is less than 'lead_seconds' (9)"},
      {launch + "kind = \"simulated\"\nserve = [\"m\"]\nquota = 0\n",
       "f:8: [[pool]]: 'launch': 'quota' must be"},
      {launch + "kind = \"simulated\"\nserve = [\"m\"]\nstock_outs = [{at = 1, to = 2}]\n",
       "f:8: [[pool]]: 'launch': 'stock_outs' has no key 'to'"},
      {launch + "kind = \"simulated\"\nserve = [\"m\"]\nstock_outs = [{at = 1}]\n",
       "f:8: [[pool]]: 'launch': 'stock_outs': 'for' is missing"},
      {launch + "kind = \"simulated\"\nserve = [\"m\"]\nreclaim_notice = 5\n",
       "f:8: [[pool]]: 'launch': 'reclaim_notice' says nothing without 'reclaim_after'"},
      {launch + "kind = \"simulated\"\n", "f:5: [[pool]]: 'launch': 'serve' is missing"},
      {launch + "serve = [\"m\"]\nquota = 3\n", "f:7: [[pool]]: 'launch' has no key 'quota'"},
      {launch + "kind = \"kubernetes\"\nworkloat = \"a/deployment/b\"\n",
       "f:7: [[pool]]: 'launch' has no key 'workloat'; did you mean 'workload'?"},
      {launch + "kind = \"kubernetes\"\nworkload = \"a/job/b\"\nport = 1\n",
       "f:7: [[pool]]: 'launch': 'workload' must be NAMESPACE/KIND/NAME"},
      {launch + "kind = \"kubernetes\"\nworkload = \"a/deployment/b\"\n",
       "f:5: [[pool]]: 'launch': 'port' is missing"},
      {launch + "kind = \"kubernetes\"\nworkload = \"a/deployment/b\"\nport = 1\n"
                "[[pool]]\nname = \"b\"\nmodel = \"n\"\n[pool.scale]\n[pool.launch]\n"
                "kind = \"kubernetes\"\nworkload = \"a/deployment/b\"\nport = 1\n",
       "f:13: [[pool]]: 'launch' has the workload a/deployment/b, which is 'a''s too"},
      {launch + "kind = \"slurm\"\nserve = [\"m\"]\nsbatch = [\"--comment=x\"]\n",
       "f:8: [[pool]]: 'launch': 'sbatch' has --comment=x, which the launcher gives"},
      {launch + "kind = \"slurm\"\nserve = [\"m\"]\nsbatch = [\"-p\", \"gpu\"]\n",
       "f:8: [[pool]]: 'launch': 'sbatch' has 'gpu': give --flag=value"},
  };
  for (const Bad& bad : bads) refuse(bad);
}

// By every spelling that sbatch takes; others are the user's.
TEST(ScalingConfig, FlagsThatHideAJobAreRefused) {
  const auto with = [](const std::string& flag) {
    return kPool + "[pool.scale]\n[pool.launch]\nkind = \"slurm\"\nserve = [\"m\"]\nsbatch = [\"" +
           flag + "\"]\n";
  };
  for (const char* flag :
       {"--output=/tmp/x", "--outp=/tmp/x", "-o/tmp/x", "--comm=", "-a1-5", "-J", "--clusters=far",
        "-Mfar", "--wrap=x", "--wait", "-W", "-HW", "--uid=0", "--test-only"}) {
    refuse({with(flag), "f:8: [[pool]]: 'launch': 'sbatch' has -"});
  }
  for (const char* flag : {"--partition=gpu", "-pgpu", "--exclusive", "-H", "--reservation=a"}) {
    EXPECT_TRUE(parse_gateway_config(with(flag), "f", {}).ok()) << flag;
  }
}

TEST(ScalingConfig, SchedulesByAPlacesClock) {
  if (!base::read_file("/usr/share/zoneinfo/Europe/Berlin").ok()) GTEST_SKIP() << "no tzdata";
  const auto with = [](const std::string& schedules) {
    return parse_gateway_config(kPool + "[pool.scale]\nmax = 4\nschedules = [" + schedules + "]\n",
                                "f", {});
  };
  const std::string night =
      R"({days = "sun", from = "22:00", to = "02:00", zone = "Europe/Berlin", min = 2})";
  const Result<GatewayConfig> read = with(night);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const autoscaler::Schedule& schedule = read->pools.at(0).scaling->policy.schedules.at(0);
  constexpr int64_t kSummer_s = 1'774'814'400;  // Sunday 2026-03-29 20:00 UTC: it is 22:00 there
  EXPECT_TRUE(schedule.covers(kSummer_s));
  EXPECT_FALSE(schedule.covers(kSummer_s - 1));
  EXPECT_FALSE(schedule.covers(kSummer_s - int64_t{7} * 86'400)) << "the week before it is 21:00";
  const Result<GatewayConfig> again = parse_gateway_config(config_text(*read), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->pools.at(0).scaling->policy.schedules.at(0).zone, schedule.zone);
  const Result<GatewayConfig> near =
      with(R"({from = "07:00", to = "08:00", zone = "Europe/Berlln", max = 1})");
  ASSERT_FALSE(near.ok());
  EXPECT_NE(near.error().message.find("did you mean 'Europe/Berlin'?"), std::string::npos)
      << near.error().message;
}

TEST(ScalingConfig, SchedulesThatAreNoneAreRefusedByLine) {
  const std::string scale = kPool + "[pool.scale]\n";
  const Bad bads[] = {
      {scale + "schedules = 3\n", "f:5: [[pool]]: 'scale': 'schedules' must be a list"},
      {scale + "schedules = [{from = \"7\", to = \"08:00\", min = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'from' must be a time"},
      {scale + "schedules = [{from = \"07:00\", to = \"08:00\"}]\n",
       "f:5: [[pool]]: 'scale': 'schedules' does not fit: a schedule needs a min or a max"},
      {scale + "schedules = [{from = \"07:00\", to = \"07:00\", max = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules' does not fit: a schedule ends when it begins"},
      {scale + "schedules = [{from = \"07:00\", to = \"08:00\", min = 1.5}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'min' must be a whole number"},
      {scale + "schedules = [{from = \"07:00\", to = \"08:00\", max = 2.9}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'max' must be a whole number"},
      {scale + "schedules = [{days = \"day\", from = \"07:00\", to = \"08:00\", min = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'days' must be days"},
      {scale + "schedules = [{zone = \"Atlantis\", from = \"07:00\", to = \"08:00\", min = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'zone' 'Atlantis' is not in /usr/share/zoneinfo"},
      {scale + "schedules = [{zone = \"../../../etc/passwd\", from = \"07:00\", to = \"08:00\", "
               "min = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'zone' must be UTC, an offset"},
      {scale + "schedules = [{zone = \"+15:00\", from = \"07:00\", to = \"08:00\", min = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'zone' must be at most 14 hours"},
      {scale + "max = 2\nschedules = [{from = \"07:00\", to = \"08:00\", min = 3}]\n",
       "f:6: [[pool]]: 'scale': 'schedules' does not fit: a schedule's min (3) is more than"},
      {scale + "schedules = [{from = \"07:00\", to = \"09:00\", min = 1}, "
               "{from = \"08:00\", to = \"10:00\", max = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules' does not fit: schedule 2 overlaps"},
  };
  for (const Bad& bad : bads) refuse(bad);
}

// Who sets one means it to do something.
TEST(ScalingConfig, KeysThatWouldDoNothingAreRefusedByLine) {
  const std::string scale = kPool + "[pool.scale]\n";
  const std::string roles =
      "[gateway]\nfleet_key_file = \"k\"\n[[pool]]\nname = \"a\"\nmodel = \"m\"\n"
      "tokenizer = \"t\"\nsplit = \"auto\"\n[pool.scale]\npolicy = \"slo\"\nttft = 1\nitl = 0.1\n";
  const Bad bads[] = {
      {scale + "panic_window = 10\n",
       "f:5: [[pool]]: 'scale': 'panic_window' says nothing without"},
      {scale + "policy = \"slo\"\nttft = 1\npanic_window = 10\n",
       "f:7: [[pool]]: 'scale': 'panic_window' says nothing without"},
      {scale + "policy = \"kpa\"\nbacklog = 10\n",
       "f:6: [[pool]]: 'scale': 'backlog' says nothing with"},
      {scale + "policy = \"kpa\"\nmax_scale_down_rate = 100\n",
       "f:6: [[pool]]: 'scale': 'max_scale_down_rate' says nothing with"},
      {scale + "min = 2\nmax = 2\nmax_scale_down_rate = 50\n",
       "f:7: [[pool]]: 'scale': 'max_scale_down_rate' says nothing where 'min' is 'max' (2)"},
      {scale + "hold_seconds = 10\nhold_keepalive_seconds = 11\n",
       "f:6: [[pool]]: 'scale': 'hold_keepalive_seconds' (11) is not less than 'hold_seconds' "
       "(10)"},
      {scale + "hold_keepalive_seconds = 3600\n",
       "f:5: [[pool]]: 'scale': 'hold_keepalive_seconds' (3600) is not less than"},
      {scale + "schedules = [{days = [], from = \"07:00\", to = \"08:00\", min = 1}]\n",
       "f:5: [[pool]]: 'scale': 'schedules': 'days' is empty"},
      {scale + "[pool.launch]\nkind = \"simulated\"\nserve = [\"m\"]\nlead_p90 = 8\n",
       "f:8: [[pool]]: 'launch': 'lead_p90' says nothing without 'lead_seconds'"},
      {scale + "gpus = 1\nmax_gpus = 2.5\n",
       "f:6: [[pool]]: 'scale': 'max_gpus' must be a whole number"},
      {roles + "concurrency_target = 4\n",
       "f:8: [[pool]]: 'scale' 'concurrency_target' says nothing of a pool with 'split'"},
      {roles + "max_scale_down_rate = 100\n",
       "f:8: [[pool]]: 'scale' 'max_scale_down_rate' says nothing of a pool with 'split'"},
      {roles + "[[pool]]\nname = \"a:prefill\"\nmodel = \"n\"\n",
       "f:13: [[pool]]: 'name' is confused with 'a'"},
  };
  for (const Bad& bad : bads) refuse(bad);
  EXPECT_TRUE(parse_gateway_config(roles, "f", {}).ok())
      << parse_gateway_config(roles, "f", {}).error().message;
  EXPECT_TRUE(parse_gateway_config(scale + "policy = \"kpa\"\npanic_window = 20\n", "f", {}).ok());
}

// Defaults that say nothing beside what was set: what is printed is read again.
TEST(ScalingConfig, WhatIsPrintedIsReadAgain) {
  for (const char* const keys : {"min = 2\nmax = 2\n", "hold_seconds = 3\n",
                                 "min = 1\nmax = 1\nmax_scale_down_rate = 20\n"
                                 "schedules = [{from = \"07:00\", to = \"08:00\", max = 2}]\n"}) {
    const std::string text = kPool + "[pool.scale]\n" + keys;
    const Result<GatewayConfig> read = parse_gateway_config(text, "f", {.allows_empty = true});
    ASSERT_TRUE(read.ok()) << read.error().message;
    const Result<GatewayConfig> again =
        parse_gateway_config(config_text(*read), "f", {.allows_empty = true});
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(scaling_text(*again->pools.at(0).scaling), scaling_text(*read->pools.at(0).scaling));
  }
}

TEST(ScalingConfig, WhatIsWrongIsRefusedByLine) {
  const std::string scale = kPool + "[pool.scale]\n";
  const std::string launch = scale + "[pool.launch]\n";
  const Bad bads[] = {
      {scale + "maxx = 3\n", "f:5: [[pool]]: 'scale' has no key 'maxx'; did you mean 'max'?"},
      {scale + "min = 3\nmax = 2\n", "f:5: [[pool]]: 'scale': 'min' (3) is more than 'max' (2)"},
      {scale + "min = 2\n", "f:5: [[pool]]: 'scale': 'min' (2) is more than 'max' (1)"},
      {scale + "max = 3\nstandby = 4\n", "f:6: [[pool]]: 'scale': 'standby' does not fit"},
      {scale + "min = 2\nmax = 3\nstandby = 2\n", "f:7: [[pool]]: 'scale': 'standby' does not fit"},
      {scale + "standby = -1\n", "f:5: [[pool]]: 'scale': 'standby' must be"},
      {scale + "max = 0\n", "f:5: [[pool]]: 'scale': 'max' must be"},
      {scale + "target_utilization = 0\n", "f:5: [[pool]]: 'scale': 'target_utilization' must be"},
      {scale + "target_utilization = 300\n",
       "f:5: [[pool]]: 'scale': 'target_utilization' must be"},
      {scale + "max_scale_down_rate = 0\n",
       "f:5: [[pool]]: 'scale': 'max_scale_down_rate' must be"},
      {scale + "window = 0\n", "f:5: [[pool]]: 'scale': 'window' must be"},
      {scale + "window = \"60\"\n", "f:5: [[pool]]: 'scale': 'window' must be"},
      {scale + "mode = \"advice\"\n",
       "f:5: [[pool]]: 'scale': 'mode' must be act or advise; did you mean 'advise'?"},
      {scale + "max_gpus = 4\n",
       "f:5: [[pool]]: 'scale': 'max_gpus' does not fit: max_gpus says nothing without gpus,"},
      {scale + "[pool.launch]\nkind = \"simulated\"\nserve = [\"m\"]\nreclaim_after = 60\n"
               "reclaim_notice = 60\n",
       "f:9: [[pool]]: 'launch': 'reclaim_notice' (60) is not less than 'reclaim_after' (60)"},
      {scale + "policy = \"hpa\"\n", "f:5: [[pool]]: 'scale': 'policy' must be concurrency"},
      {scale + "policy = \"slo\"\n", "f:5: [[pool]]: 'scale': 'policy' slo needs 'ttft', 'itl'"},
      {scale + "itl = 0.05\n", "f:5: [[pool]]: 'scale': 'itl' is kept by policy"},
      {scale + "percentile = 99\n", "f:5: [[pool]]: 'scale': 'percentile' says nothing without"},
      {scale + "policy = \"slo\"\nttft = 1\ntarget_utilization = 70\n",
       "f:7: [[pool]]: 'scale': 'target_utilization' does not fit"},
      {scale + "policy = \"slo\"\nttft = 0\n", "f:6: [[pool]]: 'scale': 'ttft' must be"},
      {scale + "policy = \"slo\"\nttft = 1\npercentile = 100\n",
       "f:7: [[pool]]: 'scale': 'percentile' must be"},
      {scale + "mode = \"talk\"\n", "f:5: [[pool]]: 'scale': 'mode' must be act or advise"},
      {scale + "hold_requests = 0\n", "f:5: [[pool]]: 'scale': 'hold_requests' must be"},
      {scale + "max_gpus = 4\n", "f:5: [[pool]]: 'scale': 'max_gpus' does not fit: max_gpus says"},
      {scale + "price = -1\n", "f:5: [[pool]]: 'scale': 'price' must be"},
      {scale + "min = 1\ngpus = 8\nmax_gpus = 4\n",
       "f:7: [[pool]]: 'scale': 'max_gpus' does not fit: the limits by GPUs and price allow 0"},
      {"[autoscaler]\ngateways = [\"127.0.0.1:8091\"]\n",
       "f:2: [autoscaler]: 'gateways' must be URLs"},
      {"[autoscaler]\nlisten = \"here\"\n", "f:2: [autoscaler]: 'listen' must be ADDRESS:PORT"},
      {kPool + "scale = 3\n", "f:4: [[pool]]: 'scale' must be a table"},
      {kPool + "[pool.launch]\nserve = [\"m\"]\n",
       "f:4: [[pool]]: 'launch' says nothing without [pool.scale]"},
      {launch, "f:5: [[pool]]: 'launch': 'serve' is missing"},
      {launch + "serve = []\n", "f:6: [[pool]]: 'launch': 'serve' is missing"},
      {launch + "serve = [\"m\"]\nroll = 1\n", "f:7: [[pool]]: 'launch': 'roll' must be true or"},
      {launch + "kind = \"slurm\"\nserve = [\"m\"]\nroll = true\n",
       "f:8: [[pool]]: 'launch' has no key 'roll'"},
      {launch + "serve = [\"m\", \"--fleet-port\", \"1\"]\n",
       "f:6: [[pool]]: 'launch': 'serve' has --fleet-port, which the launcher gives"},
      {launch + "serve = [\"m\", \"--port=1\"]\n", "f:6: [[pool]]: 'launch': 'serve' has --port"},
      {launch + "serve = [\"m\"]\nkind = \"ssh\"\n",
       "f:7: [[pool]]: 'launch': 'kind' must be local"},
      {"[autoscaler]\nstate = \"x\"\n", "f:2: [autoscaler] has no key 'state'"},
      {"[autoscaler]\nstate_dir = \"\"\n", "f:2: [autoscaler]: 'state_dir' is empty"},
  };
  for (const Bad& bad : bads) refuse(bad);
}

}  // namespace
}  // namespace pelton::gateway
