#include "gateway/config.h"

#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway/config_text.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kSound = R"([gateway]
listen = "127.0.0.1:9001"
admin = "[::1]:9002"
retries = 1
resume_budget = 2.5
[[pool]]
name = "oss"
model = ["gpt-oss-20b", "gpt-oss"]
[[worker]]
pool = "oss"
url = "http://10.0.0.5:9000"
zone = "a"
[[worker]]
pool = "oss"
url = "http://10.0.0.6:9000"
)";

TEST(GatewayConfig, IsReadAsItIsWritten) {
  const Result<GatewayConfig> config = parse_gateway_config(kSound, "f", {});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->port, 9001);
  EXPECT_EQ(config->admin_host, "::1");
  EXPECT_EQ(config->admin_port, 9002);
  EXPECT_EQ(config->retries_max, 1);
  EXPECT_EQ(config->resume_budget_s, 2.5);
  ASSERT_EQ(config->workers.size(), 2u);
  EXPECT_EQ(config->workers[0],
            (WorkerConfig{.pool = "oss", .host = "10.0.0.5", .port = 9000, .zone = "a"}));
  EXPECT_EQ(config->pools.at(0).models.size(), 2u);
}

struct Bad {
  std::string text;
  const char* message;
};

void expect_refused(std::span<const Bad> bads) {
  for (const Bad& bad : bads) {
    const Result<GatewayConfig> config = parse_gateway_config(bad.text, "f", {});
    ASSERT_FALSE(config.ok()) << bad.text;
    EXPECT_EQ(config.error().code, ErrorCode::kBadConfig);
    EXPECT_TRUE(config.error().message.starts_with(bad.message)) << config.error().message;
  }
}

std::string rolled_out(std::string_view keys, std::string_view sticky = "session",
                       std::string_view arms = R"([{pool = "a"}, {pool = "b", arm = "new"}])") {
  return fmt::format(
      "[gateway]\nrollouts_file = \"r.json\"\nkeys_file = \"k\"\n[[pool]]\nname = "
      "\"a\"\nmodel = \"m\"\n[[pool]]\nname = \"b\"\nmodel = \"m\"\n[[route]]\n"
      "model = \"m\"\nto = {}\nsticky = \"{}\"\n[route.rollout]\n{}",
      arms, sticky, keys);
}

TEST(GatewayConfig, ReadsARolloutAndWritesItAsItIs) {
  const std::string text = rolled_out(
      "arm = \"new\"\nname = \"v2\"\nsteps = [0.5, 7, 100]\nmin_requests = [50, 500]\n"
      "min_seconds = 60\nfalse_alarms = 1\nwatch = [\"errors\", \"length\"]\n"
      "ttft_tolerance = 30\n");
  const Result<GatewayConfig> config = parse_gateway_config(text, "f", {.allows_empty = true});
  ASSERT_TRUE(config.ok()) << config.error().message;
  const RolloutPlan wanted{.name = "v2",
                           .arm = "new",
                           .shares = {0.005, 0.07, 1},
                           .requests_min = {50, 500},
                           .seconds_min = {60, 60},
                           .false_alarms = 0.01,
                           .watched = {.errors = true, .ttft = false, .length = true},
                           .ttft_tolerance = 0.3};
  EXPECT_EQ(config->routes.at(0).rollout, wanted);
  const Result<GatewayConfig> again =
      parse_gateway_config(config_text(*config), "f", {.allows_empty = true});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->routes.at(0).rollout, wanted) << config_text(*config);
}

// Each with the line of the key that is wrong.
TEST(GatewayConfig, RefusesRolloutsThatCannotBe) {
  const std::string arm = "arm = \"new\"\n";
  const std::string two_arms = R"([{pool = "a"}, {pool = "b", arm = "new", weight = 5}])";
  const std::string one_pool = R"([{pool = "a"}, {pool = "a", arm = "new"}])";
  const std::string alone = R"([{pool = "a", weight = 0}, {pool = "b", arm = "new"}])";
  struct {
    std::string text;
    const char* words;
  } const bads[] = {
      {rolled_out(arm + "stepps = [1]\n"), "has no key 'stepps'; did you mean 'steps'?"},
      {rolled_out(arm + "steps = [0, 5, 100]\n"),
       "f:16: [[route]]: 'rollout': 'steps' has a share of 0"},
      {rolled_out(arm + "steps = [1, 120]\n"), "'steps' must be a number from 0 to 100"},
      {rolled_out(arm + "steps = [1, -5, 100]\n"), "'steps' must be a number from 0 to 100"},
      {rolled_out(arm + "steps = [1, 25, 5, 100]\n"), "goes from 25 % to 5 %"},
      {rolled_out(arm + "steps = [1, 1, 100]\n"), "goes from 1 % to 1 %"},
      {rolled_out(arm + "steps = [1, 50]\n"), "must end with 100"},
      {rolled_out(arm + "steps = [100]\n"), "has one step only"},
      {rolled_out(arm + "steps = \"1, 5\"\n"), "'steps' must be a number"},
      {rolled_out(arm + "steps = []\n"), "'steps' must be a number"},
      {rolled_out(arm + "min_requests = 0\n"), "'min_requests' must be a number from 1"},
      {rolled_out(arm + "min_requests = 1.5\n"), "'min_requests' must be whole numbers"},
      {rolled_out(arm + "min_requests = [1, 2]\n"), "has 2 numbers for the 3 steps"},
      {rolled_out(arm + "min_seconds = 1e9\n"), "'min_seconds' must be a number from 0 to"},
      {rolled_out(arm + "false_alarms = 0\n"), "'false_alarms' must be a number from"},
      {rolled_out(arm + "watch = [\"error\"]\n"), "has 'error'; did you mean 'errors'?"},
      {rolled_out("arm = \"nwe\"\n"), "names no arm of the route: 'nwe'; did you mean 'new'?"},
      {rolled_out("name = \"v2\"\n"), "'arm' is missing or empty"},
      {rolled_out(arm + "name = \"a/b\"\n"), "has a '/'"},
      {rolled_out(arm, "session", two_arms), "has a weight in 'to', which means nothing"},
      {rolled_out(arm, "session", one_pool), "there would be no difference"},
      {rolled_out(arm, "session", alone), "has no weight above 0 beside it"},
      {rolled_out(arm, "tenant"), "cannot be met"},
      {rolled_out(arm).replace(rolled_out(arm).find("rollouts_file = \"r.json\"\n"), 25, ""),
       "is not rolled out without 'rollouts_file'"},
  };
  for (const auto& [text, words] : bads) {
    const Result<GatewayConfig> config = parse_gateway_config(text, "f", {.allows_empty = true});
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.error().code, ErrorCode::kBadConfig);
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
    EXPECT_TRUE(config.error().message.starts_with("f:1")) << config.error().message;
  }
}

// GW-01: what is wrong is refused with its line.
TEST(GatewayConfig, RefusesWhatIsWrongByLine) {
  const std::string pool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n";
  const Bad bads[] = {
      {"[gateway]\nlistn = \"x\"\n", "f:2: [gateway] has no key 'listn'"},
      {"[gateway]\nlisten = 8000\n", "f:2: [gateway]: 'listen' must be a text"},
      {"[gateway]\nlisten = \"127.0.0.1:70000\"\n",
       "f:2: [gateway]: 'listen' must be ADDRESS:PORT"},
      {"[gateway]\nresume_budget = -1\n",
       "f:2: [gateway]: 'resume_budget' must be a number from 0"},
      {"[gateway]\nretries = 1.5\n", "f:2: [gateway]: 'retries' must be a whole number"},
      {"[gateway]\nthreads = 0\n", "f:2: [gateway]: 'threads' must be"},
      {"[gateways]\n", "f:1: the file has no key 'gateways'"},
      {"gateway = 3\n", "f:1: 'gateway' is a table"},
      {"[pool]\nname = \"a\"\n", "f:1: 'pool' is written [[pool]]"},
      {"[[pool]]\nmodel = \"m\"\n", "f:1: [[pool]]: 'name' is missing"},
      {"[[pool]]\nname = \"a\"\n", "f:1: [[pool]]: 'model' is missing"},
      {pool + pool, "f:5: [[pool]]: 'name' is another pool's too"},
      {pool + "[[pool]]\nname = \"b\"\nmodel = \"m\"\n", "f:6: [[pool]]: 'model' 'm' is the pool"},
      {pool + "[[worker]]\npool = \"b\"\nurl = \"http://h:1\"\n",
       "f:5: [[worker]]: 'pool' names no"},
      {pool + "[[worker]]\npool = \"a\"\nurl = \"h:1\"\n", "f:6: [[worker]]: 'url' must be"},
      {pool + "[[worker]]\npool = \"a\"\nurl = \"http://h:0\"\n", "f:6: [[worker]]: 'url'"},
      {pool + "[[worker]]\npool = \"a\"\nurl = \"http://h:1\"\n[[worker]]\npool = \"a\"\nurl = "
              "\"http://h:1\"\n",
       "f:9: [[worker]]: 'url' is another worker's too"},
      {pool + "[[worker]]\npool = \"a\"\nurl = \"http://h\"\n",
       "f:6: [[worker]]: 'url' has no port"},
      {pool + "[[worker]]\npool = \"a\"\nurl = \"https://h:1\"\n",
       "f:6: [[worker]]: 'url' must begin with http://"},
      {pool + "kind = \"mlx\"\n",
       "f:4: [[pool]]: 'kind' must be pelton, openai, vllm, sglang or llamacpp"},
      {pool + "tls = true\n", "f:4: [[pool]]: 'tls' is for workers of other kinds"},
      {pool + "kind = \"vllm\"\ntls = 1\n", "f:5: [[pool]]: 'tls' must be true or false"},
      {pool + "api_key_file = \"k\"\n", "f:4: [[pool]]: 'api_key_file' is for workers of other"},
      {pool + "continue = false\n", "f:4: [[pool]]: 'continue' is for workers of other kinds"},
      {"[etcd]\nendpoints = [\"a:1\"]\nuser = \"u\"\n",
       "f:3: [etcd]: 'user' and 'password_file' go"},
      {"[etcd]\nendpoints = [\"a:1\"]\nca_file = \"u\"\n", "f:1: [etcd]: 'tls' is not true"},
      {"[gateway]\ngrpc_listen = \"0.0.0.0:1\"\n", "f:2: [gateway]: 'grpc_listen' 0.0.0.0 lets"},
      {"[[pool]]\nname = \"a\"\nmodel = \"\"\n", "f:3: [[pool]]: 'model' must be names"},
      {"[[pool]]\nname = \"a\"\nmodel = [\"m\", \"m\"]\n", "f:3: [[pool]]: 'model' has 'm' twice"},
      {"[gateway]\nlisten = \"127.0.0.1:80\"\nadmin = \"127.0.0.1:80\"\n",
       "f:3: [gateway]: 'admin' is where 'listen' is"},
      {"[gateway]\nlisten = \"0.0.0.0:80\"\nkeys_file = \"k\"\nadmin = \"127.0.0.1:80\"\n",
       "f:4: [gateway]: 'admin' is where 'listen' is"},
      {"[gateway]\nlisten = \"myhost:80\"\n",
       "f:2: [gateway]: 'listen' 'myhost' is not an IPv4 or IPv6 address"},
      {"[gateway]\nadmin = \"0:80\"\n",
       "f:2: [gateway]: 'admin' '0' is not an IPv4 or IPv6 address"},
      {"[gateway]\nadmin = \"127.0.0.1:81\"\ngrpc_listen = \"127.0.0.1:81\"\n",
       "f:3: [gateway]: 'grpc_listen' is where 'admin' is"},
      {"[gateway]\nlisten = \"0.0.0.0:80\"\n",
       "f:2: [gateway]: 'listen' 0.0.0.0 lets anyone who reaches this machine use the models"},
      {"[gateway]\nkeys_file = \"k\"\nlisten = \"[::]:80\"\nadmin = \"10.0.0.1:81\"\n",
       "f:4: [gateway]: 'admin' 10.0.0.1 lets anyone who reaches this machine command the fleet"},
      {pool, "f:1: there is no [[worker]]"},
      {"a = \"b\na\"", "f:1:"},
  };
  expect_refused(bads);
}

// Likewise of routes, zones and where workers are found.
TEST(GatewayConfig, RefusesWrongRoutesAndPlacesByLine) {
  const std::string pool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n";
  const Bad bads[] = {
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nsticky = \"luck\"\n",
       "f:7: [[route]]: 'sticky' must be none, session, tenant or user"},
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nshadow = {pool = \"b\", share = "
              "0.1}\n",
       "f:7: [[route]]: 'shadow' names no [[pool]]: 'b'"},
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nfallback = [\"b\"]\n",
       "f:7: [[route]]: 'fallback' names no [[pool]]: 'b'"},
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nfallback = [\"a\", \"a\"]\n",
       "f:7: [[route]]: 'fallback' has 'a' twice"},
      {pool + "fingerprint = \"abc\"\n", "f:4: [[pool]]: 'fingerprint' is 32 hexadecimal digits"},
      {pool + "kind = \"openai\"\nfingerprint = \"0123456789abcdef0123456789abcdef\"\n",
       "f:5: [[pool]]: 'fingerprint' is for workers of our own"},
      {"[gateway]\nretry_budget = 1.5\n" + pool, "f:2: [gateway]: 'retry_budget' must be a number"},
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nshadow = {pool = \"a\"}\n",
       "f:7: [[route]]: 'shadow': 'share' is missing"},
      {pool +
           "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nshadow = {pool = \"a\", share = 2}\n",
       "f:7: [[route]]: 'shadow': 'share' must be a number from 0 to 1"},
      {pool + "dns_srv = \"_fleet._tcp.x:1\"\n",
       "f:4: [[pool]]: 'dns_srv' must be a service's name"},
      {"[gateway]\ndns_server = \"names:53\"\n", "f:2: [gateway]: 'dns_server' must be an IPv4"},
      {pool + "kind = \"openai\"\nkv_events_port = 5557\n",
       "f:5: [[pool]]: 'kv_events_port' is for workers of the kinds vllm"},
      {pool + "kind = \"vllm\"\nkv_replay_port = 5558\n", "f:5: [[pool]]: 'kv_replay_port' means"},
      {"[gateway]\ndns_server = \"names:0\"\n", "f:2: [gateway]: 'dns_server' must be an IPv4"},
      {"[gateway]\ndns_server = \"127.0.0.1:0\"\n", "f:2: [gateway]: 'dns_server' must be an IPv4"},
      {pool + "dns_srv = \"a b\"\n", "f:4: [[pool]]: 'dns_srv' must be a service's name"},
      {pool + "kind = \"vllm\"\nkv_events_port = 5557\n",
       "f:5: [[pool]]: 'kv_events_port' means nothing without 'tokenizer'"},
      {pool + "kind = \"vllm\"\nkv_events_port = 5557\nkv_replay_port = 5557\n",
       "f:6: [[pool]]: 'kv_replay_port' is 'kv_events_port' too"},
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\nshadow = {pool = \"a\", share = "
              "0.1}\n",
       "f:7: [[route]]: 'shadow' names the pool 'a', which is one of its arms"},
      {"[gateway]\nkeys_file = \"k\"\n" + pool + "[[tenant]]\nname = \"t\"\nregion = \"eu\"\n",
       "f:8: [[tenant]]: 'region' is no [[pool]]'s and no [[region]]: 'eu'"},
      {"[gateway]\nkeys_file = \"k\"\n" + pool +
           "region = \"us\"\n[[pool]]\nname = \"b\"\nmodel = \"n\"\nregion = \"eu\"\n"
           "[[tenant]]\nname = \"t\"\npool = \"a\"\nregion = \"eu\"\n",
       "f:14: [[tenant]]: 'region' is not that of its pool 'a'"},
      {pool + "[[route]]\nmodel = \"m\"\nto = [{pool = \"a\"}]\n[[route]]\nmodel = \"m\"\n"
              "to = [{pool = \"a\"}]\n",
       "f:8: [[route]]: 'model' 'm' has a route above that takes all of its requests"},
      {"[gateway]\nzone = \"a\"\n[zones]\na = 1\n", "f:4: [zones]: 'a' is the gateway's own zone"},
      {"[zones]\nb = 50\n", "f:2: [zones]: 'b' means nothing without 'zone' of [gateway]"},
      {"[gateway]\nzone = \"a\"\n[zones]\nb = -1\n",
       "f:4: [zones]: 'b' must be a number from 0 to 60000"},
  };
  expect_refused(bads);
}

TEST(GatewayConfig, APoolMayMakeImagesAndVideos) {
  const std::string pool =
      "[[pool]]\nname = \"a\"\nmodel = \"m\"\nkind = \"openai\"\n[pool.media]\n";
  const auto parse = [](const std::string& text) {
    return parse_gateway_config(text, "f", {.allows_empty = true});
  };
  const Result<GatewayConfig> config =
      parse(pool + "makes = [\"images\", \"videos\"]\nsteps_max = 8\ntime_max = 2.5\n");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const MediaConfig& media = config->pools.at(0).media;
  EXPECT_TRUE(media.images && media.videos);
  EXPECT_EQ(media.steps, 8) << "no more than may be asked for";
  EXPECT_EQ(media.time_max_s, 2.5);
  const Result<GatewayConfig> again = parse(config_text(*config));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->pools.at(0).media, media);
  const Result<GatewayConfig> queued =
      parse(pool + "makes = \"images\"\nat_once = 2\nqueue_requests = 8\nqueue_seconds = 30\n");
  ASSERT_TRUE(queued.ok()) << queued.error().message;
  EXPECT_EQ(queued->pools.at(0).media.at_once, 2);
  EXPECT_EQ(queued->pools.at(0).media.queue.requests_max, 8);
  EXPECT_EQ(queued->pools.at(0).media.queue.time_max_s, 30);
  EXPECT_EQ(parse(config_text(*queued))->pools.at(0).media, queued->pools.at(0).media);
  const std::string scaled = "[pool.scale]\nmax = 2\nconcurrency_target = 2\n";
  const Result<GatewayConfig> both = parse(pool + "makes = \"images\"\n" + scaled);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(config_text(*both).find("queue_requests"), std::string::npos);
  EXPECT_TRUE(parse(config_text(*both)).ok());
  EXPECT_FALSE(parse("[[pool]]\nname = \"a\"\nmodel = \"m\"\n")->pools.at(0).media.any());
  const Bad bads[] = {
      {pool, "f:5: [[pool]]: 'media': 'makes' is missing"},
      {pool + "makes = \"sound\"\n", "f:6: [[pool]]: 'media': 'makes' must be"},
      {pool + "makes = \"images\"\nsteps_max = 0\n",
       "f:7: [[pool]]: 'media': 'steps_max' must be a whole number"},
      {pool + "makes = \"images\"\nsteps_max = 4\nsteps = 5\n",
       "f:8: [[pool]]: 'media': 'steps' must be a whole number from 1 to 4"},
      {pool + "makes = \"images\"\npixels = 4\n", "f:7: "},
      {pool + "makes = \"images\"\nat_once = 0\n",
       "f:7: [[pool]]: 'media': 'at_once' must be a whole number"},
      {pool + "makes = \"images\"\nqueue_seconds = 9\n" + scaled,
       "f:7: [[pool]]: 'media': 'queue_seconds' is said by 'hold_seconds'"},
      {"[[pool]]\nname = \"a\"\nmodel = \"m\"\n[pool.media]\nmakes = \"images\"\n",
       "f:4: [[pool]]: 'media' is for workers of other kinds"},
  };
  expect_refused(bads);
}

TEST(GatewayConfig, FurtherWorkersComeFromAFileOrAName) {
  constexpr std::string_view kPool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n";
  constexpr std::string_view kWorker = "[[worker]]\npool = \"a\"\nurl = \"http://h:1\"\n";
  Result<GatewayConfig> config = parse_gateway_config(
      "[gateway]\nworkers_file = \"w\"\n" + std::string(kPool) + std::string(kWorker), "f", {});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->workers_file, "w");
  const std::string more =
      std::string(kWorker) + "[[worker]]\npool = \"a\"\nurl = \"http://h:2\"\n";
  ASSERT_TRUE(add_workers(more, "w", *config).ok());
  EXPECT_EQ(config->workers.size(), 2u) << "found twice is one";
  const Result<void> bad =
      add_workers("[[worker]]\npool = \"b\"\nurl = \"http://h:3\"\n", "w", *config);
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(bad.error().message.starts_with("w:2: [[worker]]: 'pool' names no"));
  EXPECT_FALSE(add_workers(kPool, "w", *config).ok()) << "workers only";
  EXPECT_EQ(config->workers.size(), 2u);
  const Result<GatewayConfig> named =
      parse_gateway_config(std::string(kPool) + "dns = \"workers.local:9000\"\n", "f", {});
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->pools.at(0).dns_host, "workers.local");
  EXPECT_EQ(named->pools.at(0).dns_port, 9000);
}

TEST(GatewayConfig, ListensBeyondThisMachineOnlyIfThatIsMeant) {
  const std::string text = "[gateway]\nlisten = \"0.0.0.0:80\"\nadmin = \"0.0.0.0:81\"\n";
  EXPECT_FALSE(parse_gateway_config(text, "f", {.allows_empty = true}).ok());
  EXPECT_TRUE(parse_gateway_config(text, "f", {.allows_empty = true, .open = true}).ok());
}

TEST(GatewayConfig, ZonesAreAsFarAsItSays) {
  const Result<GatewayConfig> config = parse_gateway_config(
      "[gateway]\nzone = \"a\"\n[zones]\nb = 50\n", "f", {.allows_empty = true});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->zones.distance_s("a"), 0);
  EXPECT_EQ(config->zones.distance_s("b"), 0.05);
  EXPECT_EQ(config->zones.distance_s("c"), 0.001) << "another one, of which nothing is said";
  EXPECT_EQ(config->zones.distance_s(""), 0) << "of a worker that does not say it";
  EXPECT_EQ(ZoneConfig{}.distance_s("c"), 0) << "a gateway that knows of no zones";
}

// GW-02: no worker at all is a mistake, unless it is meant.
TEST(GatewayConfig, NoWorkerOnlyIfAllowed) {
  EXPECT_TRUE(parse_gateway_config("", "f", {.allows_empty = true}).ok());
}

}  // namespace
}  // namespace pelton::gateway
