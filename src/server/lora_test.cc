// Adapters over the listener: who may load them, and what becomes of requests whose model is
// unloaded while they wait for one.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/loader_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

struct NoWeights final : request::AdapterWeights {};

// Loads take until the test lets them.
class Adapters {
 public:
  std::shared_ptr<AdapterRegistry> make() {
    AdapterRegistry::Options options;
    options.load = [this](const std::string& path) -> Result<AdapterRegistry::Loaded> {
      while (held_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      AdapterRegistry::Loaded loaded{.digest = path, .rank = 8, .bytes = 100};
      loaded.adapter = {.identity = 7, .weights = std::make_shared<NoWeights>()};
      return loaded;
    };
    options.folders = {testing::TempDir()};
    options.resident_max = 1;
    return std::make_shared<AdapterRegistry>(std::move(options), clock_, log_);
  }

  std::atomic<bool> held_up = false;

 private:
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

void load(AdapterRegistry& registry, const std::string& name) {
  std::promise<Result<void>> outcome;
  ASSERT_TRUE(registry
                  .load({.name = name, .path = name}, AdapterRegistry::InPlace::kNo,
                        [&](const Result<void>& done) { outcome.set_value(done); })
                  .ok());
  ASSERT_TRUE(outcome.get_future().get().ok());
}

TEST(Lora, LoadingAsksForAnOperatorsKeyAndCountsAgainstIt) {
  Adapters adapters;
  ServerFixture::Options options;
  options.server.lora_updating = true;
  ASSERT_TRUE(options.server.keys
                  .add_file("client wheel\noperator wheel rpm=1 role=admin\n"
                            "chief wheel role=admin\n",
                            "keys")
                  .ok());
  options.executor = [](auto& executor) { executor.capacity.adapters_max = 4; };
  options.model = [&](ServedModel& model) { model.adapters = adapters.make(); };
  ServerFixture fixture(kLoaderScript, std::move(options));
  const auto ask = [&](const std::string& key, const std::string& path, std::string body) {
    net::HttpCall call = fixture.call("POST", path, std::move(body));
    if (!key.empty()) call.headers.add("Authorization", "Bearer " + key);
    return fixture.fetch(std::move(call));
  };
  const std::string load = "/v1/load_lora_adapter";
  const std::string unload = "/v1/unload_lora_adapter";
  const std::string body = R"({"lora_name":"a","lora_path":")" + testing::TempDir() + R"("})";
  EXPECT_EQ(ask("", load, body).status, 401);
  for (const std::string& path : {load, unload}) {
    const net::HttpResponse refused = ask("client", path, body);
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("admin_key_required"));
  }
  EXPECT_EQ(ask("operator", load, body).status, 200);
  EXPECT_EQ(ask("chief", unload, R"({"lora_name":"a"})").status, 200);
  EXPECT_EQ(ask("chief", unload, R"({"lora_name":"a"})").status, 404);
  const net::HttpResponse refused = ask("operator", load, body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_FALSE(refused.headers.get("Retry-After").empty());
}

class AdaptersOfModels : public ModelLoaderTest {
 protected:
  AdaptersOfModels()
      : ModelLoaderTest([] {
          ServerFixture::Options options;
          options.server.lora_updating = true;
          return options;
        }()) {}
};

TEST_F(AdaptersOfModels, WhoWaitsForOneOfAModelThatIsUnloadedIsTold503) {
  Adapters adapters;
  const std::shared_ptr<AdapterRegistry> registry = adapters.make();
  ASSERT_TRUE(load({.names = {.id = "m"},
                    .load =
                        [&](const ModelLoader::Stop&) {
                          auto made = make("m");
                          (*made)->adapters = registry;
                          return made;
                        }})
                  .get()
                  .ok());
  server::load(*registry, "sql");
  server::load(*registry, "other");  // in the only place
  adapters.held_up = true;
  auto answer = std::async(
      std::launch::async, [&] { return fixture_.post("/v1/chat/completions", body("sql", "hi")); });
  while (registry->stats().waiting == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Outcome unloaded = unload("m");
  adapters.held_up = false;
  const net::HttpResponse refused = answer.get();
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("'m' is being unloaded"));
  EXPECT_FALSE(refused.headers.get("Retry-After").empty());
  EXPECT_TRUE(unloaded.get().ok());
  EXPECT_EQ(fixture_.post("/v1/chat/completions", body("sql", "hi")).status, 404);
}

}  // namespace
}  // namespace pelton::server
