// Adapters over the listener: who may load them, and what becomes of requests whose model is
// unloaded while they wait for one.
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/loader_fixture.h"

namespace pelton::server {
namespace {

using testing::AllOf;
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
    options.describe = [](const std::string& path, const auto&) {
      return api::ModelDescription{.license = path.ends_with("carded") ? "mit" : "",
                                   .license_name = {},
                                   .license_link = {},
                                   .license_text = {},
                                   .text = path.ends_with("carded") ? "# Of " + path : ""};
    };
    options.folders = {testing::TempDir()};
    options.active_max = 5;
    options.resident_max = 1;
    return std::make_shared<AdapterRegistry>(std::move(options), clock_, log_);
  }

  std::atomic<bool> held_up = false;

 private:
  // Registries may outlive it, as they live with their models.
  static inline base::SystemClock clock_;
  static inline base::Log log_{clock_, {.level = base::LogLevel::kNone}};
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

TEST(Lora, WhileTheModelStartsNobodyIsToldThatItHasNone) {
  Adapters adapters;
  ServerFixture::Options options;
  options.server.lora_updating = true;
  options.loaded = false;
  options.executor = [](auto& executor) { executor.capacity.adapters_max = 4; };
  options.model = [&](ServedModel& model) { model.adapters = adapters.make(); };
  ServerFixture fixture(kLoaderScript, std::move(options));
  const std::string load = R"({"lora_name":"a","lora_path":")" + testing::TempDir() + R"("})";
  for (const auto& [route, body] :
       {std::pair("/v1/load_lora_adapter", load),
        std::pair("/v1/unload_lora_adapter", std::string(R"({"lora_name":"a"})"))}) {
    const net::HttpResponse early = fixture.post(route, body);
    EXPECT_EQ(early.status, 503) << early.body;
    EXPECT_FALSE(early.headers.get("Retry-After").empty());
  }
  fixture.load();
  EXPECT_EQ(fixture.post("/v1/load_lora_adapter", load).status, 200);
}

// TGI's and SGLang's clients have other words for it.
TEST(Lora, GenerateNamesAnAdapterAsItsClientsDo) {
  Adapters adapters;
  ServerFixture::Options options;
  options.executor = [](auto& executor) { executor.capacity.adapters_max = 4; };
  options.model = [&](ServedModel& model) {
    model.adapters = adapters.make();
    load(*model.adapters, "sql");
  };
  ServerFixture fixture(kLoaderScript, std::move(options));
  for (const char* route : {"/generate", "/generate_stream"}) {
    for (const char* body : {R"({"inputs":"hi","parameters":{"adapter_id":"sql"}})",
                             R"({"text":"hi","lora_path":"sql"})", R"({"text":"hi","model":"sql"})",
                             R"({"text":"hi","model":"tiny","lora_path":"sql"})"}) {
      const net::HttpResponse answer = fixture.post(route, body);
      EXPECT_EQ(answer.status, 200) << route << body << answer.body;
    }
    for (const char* body : {R"({"inputs":"hi","parameters":{"adapter_id":"nobody"}})",
                             R"({"text":"hi","lora_path":"nobody"})"}) {
      EXPECT_EQ(fixture.post(route, body).status, 404) << route << body;
    }
  }
  const net::HttpResponse metrics = fixture.get("/metrics");
  EXPECT_THAT(metrics.body, HasSubstr(R"(adapter="sql"} 8)"));
}

class AdaptersOfModels : public ModelLoaderTest {
 protected:
  AdaptersOfModels()
      : ModelLoaderTest([] {
          ServerFixture::Options options;
          options.server.lora_updating = true;
          return options;
        }()) {}
  // A model of this name that has these adapters.
  std::shared_ptr<AdapterRegistry> add_model(const std::string& id, Adapters& adapters,
                                             const std::vector<std::string>& names) {
    std::shared_ptr<AdapterRegistry> registry = adapters.make();
    EXPECT_TRUE(load({.names = {.id = id},
                      .load =
                          [this, id, registry](const ModelLoader::Stop&) {
                            auto made = make(id);
                            (*made)->adapters = registry;
                            return made;
                          }})
                    .get()
                    .ok());
    for (const std::string& name : names) server::load(*registry, name);
    return registry;
  }
  std::string error_of(const net::HttpResponse& response, int status) {
    EXPECT_EQ(response.status, status) << response.body;
    return response.body;
  }
};

// Two models' adapters of one name: the first one's answers and is listed, and which one goes has
// to be said.
TEST_F(AdaptersOfModels, OneNameOfTwoIsListedOnceAndUnloadedByItsModel) {
  Adapters adapters;
  add_model("m", adapters, {"sql", "of_m"});
  add_model("w", adapters, {"sql", "of_w"});
  std::map<std::string, std::vector<std::string>> parents;
  const Json listed = parsed(fixture_.get("/v1/models").body);
  for (const Json& card : listed.find("data")->as_array()) {
    if (!card.find("parent")->is_string()) continue;
    parents[*card.string("id")].push_back(*card.string("parent"));
  }
  EXPECT_EQ(parents, (std::map<std::string, std::vector<std::string>>{
                         {"sql", {"m"}}, {"of_m", {"m"}}, {"of_w", {"w"}}}));
  const auto unload_it = [&](const std::string& more) {
    return fixture_.post("/v1/unload_lora_adapter", R"({"lora_name":"sql")" + more + "}");
  };
  EXPECT_THAT(error_of(unload_it(""), 400),
              AllOf(HasSubstr("'m' and 'w'"), HasSubstr("\"base_model_name\"")));
  EXPECT_THAT(error_of(unload_it(R"(,"base_model_name":"x")"), 404), HasSubstr("'x'"));
  EXPECT_EQ(unload_it(R"(,"base_model_name":"m")").status, 200);
  EXPECT_EQ(unload_it(R"(,"base_model_name":"m")").status, 404);
  EXPECT_EQ(parsed(fixture_.get("/v1/models/sql").body).string("parent"), "w");
  EXPECT_EQ(unload_it("").status, 200);
  EXPECT_EQ(unload_it("").status, 404);
  // A name that another model's adapter has is taken.
  const std::string load_it = R"({"lora_name":"of_m","base_model_name":"w","load_inplace":true,)"
                              R"("lora_path":")" +
                              testing::TempDir() + R"("})";
  EXPECT_THAT(error_of(fixture_.post("/v1/load_lora_adapter", load_it), 400),
              HasSubstr("is an adapter of 'm'"));
}

TEST_F(AdaptersOfModels, PathsHaveNoZeroByte) {
  Adapters adapters;
  add_model("m", adapters, {});
  const net::HttpResponse refused =
      fixture_.post("/v1/load_lora_adapter",
                    R"({"lora_name":"n","lora_path":")" + testing::TempDir() + R"(\u0000x"})");
  EXPECT_THAT(error_of(refused, 400), HasSubstr("\"lora_path\""));
}

// The base's card says nothing of an adapter.
TEST_F(AdaptersOfModels, HaveCardsOfTheirOwnOrNone) {
  Adapters adapters;
  add_model("m", adapters, {"plain", "carded"});
  const Json card = parsed(fixture_.get("/v1/model_cards/carded").body);
  EXPECT_EQ(card.string("card"), "# Of carded");
  EXPECT_EQ(card.string("parent").value_or("m"), "m");
  EXPECT_THAT(error_of(fixture_.get("/v1/model_cards/plain"), 404),
              AllOf(HasSubstr("'plain'"), HasSubstr("README.md")));
  EXPECT_EQ(fixture_.get("/v1/model_cards/m").status, 200);
}

TEST_F(AdaptersOfModels, OllamasClientsFindThem) {
  Adapters adapters;
  add_model("m", adapters, {"away", "here"});  // one place
  const auto names = [&](const std::string& route) {
    std::vector<std::string> all;
    const Json listed = parsed(fixture_.get(route).body);
    for (const Json& one : listed.find("models")->as_array()) {
      const std::string parent = one.find("details")->string("parent_model").value_or("?");
      all.push_back(*one.string("name") + (parent.empty() ? "" : " of " + parent));
    }
    return all;
  };
  EXPECT_EQ(names("/api/tags"),
            (std::vector<std::string>{"tiny", "org/alias", "m", "away of m", "here of m"}));
  EXPECT_EQ(names("/api/ps"), (std::vector<std::string>{"tiny", "m", "here of m"}));
  const Json shown = parsed(fixture_.post("/api/show", R"({"model":"away:latest"})").body);
  EXPECT_EQ(shown.find("details")->string("parent_model"), "m");
  EXPECT_THAT(shown.find("capabilities")->dump(), HasSubstr("completion"));
  EXPECT_EQ(fixture_.post("/api/show", R"({"model":"nobody"})").status, 404);
  // While their model sleeps they are known, and what was counted is not forgotten.
  auto [done, outcome] = awaited();
  ASSERT_TRUE(loader_->sleep("m", std::nullopt, done).ok());
  ASSERT_TRUE(outcome.get().ok());
  EXPECT_THAT(names("/api/tags"), testing::Contains("away of m"));
  const std::string metrics = fixture_.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr(R"(pelton_lora_loads_total{model_name="m",engine="0"} 2)"));
  EXPECT_THAT(metrics,
              HasSubstr(R"(vllm:lora_requests_info{model_name="m",engine="0",max_lora="5")"));
}

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
