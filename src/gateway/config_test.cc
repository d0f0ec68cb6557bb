#include "gateway/config.h"

#include <gtest/gtest.h>

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

// GW-01: what is wrong is refused with its line.
TEST(GatewayConfig, RefusesWhatIsWrongByLine) {
  const std::string pool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n";
  struct Bad {
    std::string text;
    const char* message;
  };
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
      {"[gateway]\nlisten = \"0.0.0.0:80\"\n",
       "f:2: [gateway]: 'listen' 0.0.0.0 lets anyone who reaches this machine use the models"},
      {"[gateway]\nkeys_file = \"k\"\nlisten = \"[::]:80\"\nadmin = \"10.0.0.1:81\"\n",
       "f:4: [gateway]: 'admin' 10.0.0.1 lets anyone who reaches this machine command the fleet"},
      {pool, "f:1: there is no [[worker]]"},
      {"a = \"b\na\"", "f:1:"},
  };
  for (const Bad& bad : bads) {
    const Result<GatewayConfig> config = parse_gateway_config(bad.text, "f", {});
    ASSERT_FALSE(config.ok()) << bad.text;
    EXPECT_EQ(config.error().code, ErrorCode::kBadConfig);
    EXPECT_TRUE(config.error().message.starts_with(bad.message)) << config.error().message;
  }
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

// GW-02: no worker at all is a mistake, unless it is meant.
TEST(GatewayConfig, NoWorkerOnlyIfAllowed) {
  EXPECT_TRUE(parse_gateway_config("", "f", {.allows_empty = true}).ok());
}

}  // namespace
}  // namespace pelton::gateway
