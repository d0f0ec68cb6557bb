#include "server/model_sleep.h"

#include <atomic>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "server/ledger_report.h"
#include "server/loader_fixture.h"
#include "server/metrics_page.h"

namespace pelton::server {
namespace {

using State = ModelCatalogue::State;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kHourNs = 3600'000'000'000;
constexpr int64_t kMomentNs = 1'000'000;

ServerFixture::Options with_sleep_mode() {
  ServerFixture::Options options;
  options.server.sleep_mode = true;
  return options;
}

class ModelSleepTest : public ModelLoaderTest {
 protected:
  ModelSleepTest() : ModelLoaderTest(with_sleep_mode()) {}

  // From now on models sleep so long after their last request.
  void sleep_after(int64_t ns) {
    loader_.emplace(ModelLoader::Options{.on_change = {}, .sleep_after_ns = ns},
                    fixture_.server().services());
  }
  Outcome sleep(const std::string& id) {
    auto [done, outcome] = awaited();
    const Result<void> begun = loader_->sleep(id, std::nullopt, done);
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return outcome;
  }
  // What the second and later loads do is `next`'s.
  ModelLoader::Order order_then(const std::string& id,
                                std::function<Result<std::shared_ptr<ServedModel>>(int)> next) {
    return {
        .names = {.id = id},
        .load = [this, id, next = std::move(next), loads = std::make_shared<int>(0)](
                    const ModelLoader::Stop&) { return ++*loads == 1 ? make(id) : next(*loads); }};
  }
  static void wait_until(const std::function<bool()>& holds) {
    for (int i = 0; i < 20'000 && !holds(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(holds());
  }
  // Whose memory has been given back.
  void wait_until_asleep(const std::string& id, int gone) {
    wait_until([&] { return state_of(id) == State::kAsleep && gone_ >= gone; });
  }
  std::future<int> ask_beside(const std::string& model, const std::string& words = "hi") {
    return std::async(std::launch::async, [this, model, words] {
      return status_of(fixture_.post("/v1/chat/completions", body(model, words)));
    });
  }
  static int status_of(const net::HttpResponse& response) { return response.status; }
  ModelSleep& waiting_room() { return fixture_.server().services().model_sleep; }
  std::string metrics() { return metrics_page(fixture_.server().services()); }
};

// What its makers say does not go away with its weights; nothing said is null.
TEST_F(ModelSleepTest, ItsCardIsToldWhileItSleeps) {
  const auto described = [this](const char* id) -> ModelLoader::Order {
    return {.names = {.id = id}, .load = [this, id](const ModelLoader::Stop&) {
              Result<std::shared_ptr<ServedModel>> made = make(id);
              (*made)->description = std::make_shared<const api::ModelDescription>(
                  api::ModelDescription{.license = "apache-2.0", .text = "# A model\n"});
              return made;
            }};
  };
  ASSERT_TRUE(load(described("org/a")).get().ok());
  const net::HttpResponse awake = fixture_.get("/v1/model_cards/org/a");
  ASSERT_EQ(awake.status, 200) << awake.body;
  const Json card = parsed(awake.body);
  EXPECT_EQ(card.string("object"), "model.card");
  EXPECT_EQ(card.string("root"), "org/a");
  EXPECT_EQ(card.find("license")->string("id"), "apache-2.0");
  EXPECT_TRUE(card.find("license")->find("name")->is_null());
  EXPECT_EQ(card.string("card"), "# A model\n");
  EXPECT_TRUE(sleep("org/a").get().ok());
  EXPECT_EQ(fixture_.get("/v1/model_cards/org/a").body, awake.body);
  EXPECT_EQ(fixture_.get("/v1/model_cards/none").status, 404);
  EXPECT_TRUE(unload("org/a").get().ok());
}

TEST_F(ModelSleepTest, TheNextRequestWakesIt) {
  ASSERT_TRUE(load(order("a")).get().ok());
  const std::string awake = fixture_.get("/v1/models/a").body;
  EXPECT_TRUE(sleep("a").get().ok());
  EXPECT_EQ(gone_, 1) << "all that it was made of";
  EXPECT_EQ(state_of("a"), State::kAsleep);
  const Json card = parsed(fixture_.get("/v1/models/a").body);
  EXPECT_EQ(card.find("asleep")->dump(), "true");
  EXPECT_EQ(card.integer("max_model_len"), parsed(awake).integer("max_model_len"));
  EXPECT_THAT(metrics(), HasSubstr(R"(vllm:engine_sleep_state{model_name="a",engine="0",)"
                                   R"(sleep_state="discard_all"} 1)"));
  EXPECT_EQ(fixture_.get("/ready").status, 200);

  EXPECT_EQ(ask("a"), 200) << answer_;
  EXPECT_EQ(state_of("a"), State::kServing);
  const Json woken = parsed(fixture_.get("/v1/models/a").body);
  EXPECT_EQ(woken.find("asleep"), nullptr);
  EXPECT_NE(woken.find("cold_start_seconds"), nullptr);
  EXPECT_EQ(woken.integer("created"), parsed(awake).integer("created"));
  EXPECT_THAT(metrics(), HasSubstr(R"(pelton_model_wakes_total{model_name="a",engine="0"} 1)"));
  EXPECT_TRUE(unload("a").get().ok());
}

TEST_F(ModelSleepTest, WhatIsAnsweredEndsFirstAndWhoComesLaterIsAnsweredByTheNext) {
  ASSERT_TRUE(load(order("a")).get().ok());
  auto stream = std::async(std::launch::async, [this] {
    return fixture_.post("/v1/chat/completions", body("a", "endless", true)).body;
  });
  wait_until([&] { return catalogue().find("a")->engine.stats().running > 0; });
  const Outcome asleep = sleep("a");
  EXPECT_EQ(gone_, 0);
  std::future<int> later = ask_beside("a");
  EXPECT_EQ(ask("tiny"), 200) << "another model is not disturbed";
  EXPECT_THAT(stream.get(), HasSubstr(R"("finish_reason":"length")"));
  EXPECT_TRUE(asleep.get().ok());
  EXPECT_EQ(later.get(), 200);
  EXPECT_EQ(gone_, 1);
  EXPECT_EQ(waiting_room().waiting(), 0);
}

TEST_F(ModelSleepTest, ManyWaitForOneLoad) {
  std::atomic<int> loads = 0;
  ASSERT_TRUE(load(order_then("a",
                              [&](int) {
                                ++loads;
                                wait_until([&] { return waiting_room().waiting() == 8; });
                                return make("a");
                              }))
                  .get()
                  .ok());
  ASSERT_TRUE(sleep("a").get().ok());
  std::vector<std::future<int>> asked;
  for (int i = 0; i < 8; ++i) asked.push_back(ask_beside("a"));
  for (std::future<int>& one : asked) EXPECT_EQ(one.get(), 200);
  EXPECT_EQ(loads, 1);
}

TEST_F(ModelSleepTest, OneThatCannotBeWokenSaysWhyAndIsTriedAgain) {
  ASSERT_TRUE(load(order_then("a",
                              [&](int load) -> Result<std::shared_ptr<ServedModel>> {
                                if (load == 2)
                                  return Error{ErrorCode::kDoesNotFit, "no memory is left", ""};
                                return make("a");
                              }))
                  .get()
                  .ok());
  ASSERT_TRUE(sleep("a").get().ok());
  const net::HttpResponse refused = fixture_.post("/v1/chat/completions", body("a", "hi"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("no memory is left"));
  EXPECT_EQ(state_of("a"), State::kAsleep);
  EXPECT_EQ(ask("a"), 200) << answer_;
}

TEST_F(ModelSleepTest, TheEndOfAnEarlierLoadIsNotTheirs) {
  std::future<int> asked;
  const auto order = order_then("a", [&](int) -> Result<std::shared_ptr<ServedModel>> {
    return Error{ErrorCode::kDoesNotFit, "no memory is left", ""};
  });
  std::promise<void> over;
  // Before its load is over for whoever waits it sleeps again, and somebody wants it.
  ASSERT_TRUE(loader_
                  ->load(order, ModelCatalogue::When::kAtRunTime,
                         [&](const Result<void>&) {
                           EXPECT_TRUE(sleep("a").get().ok());
                           asked = ask_beside("a");
                           wait_until([&] { return waiting_room().waiting() == 1; });
                           over.set_value();
                         })
                  .ok());
  over.get_future().wait();
  EXPECT_EQ(asked.get(), 503) << "that of its own load";
}

TEST_F(ModelSleepTest, WhoLeavesIsForgotten) {
  std::promise<void> go;
  ASSERT_TRUE(load(order_then("a",
                              [&](int) {
                                go.get_future().wait();
                                return make("a");
                              }))
                  .get()
                  .ok());
  ASSERT_TRUE(sleep("a").get().ok());
  net::HttpCall call = fixture_.call("POST", "/v1/chat/completions", body("a", "hi"));
  call.quiet_time_max = call.head_time_max = call.whole_time_max = std::chrono::milliseconds(100);
  EXPECT_FALSE(net::http_fetch(fixture_.client(), std::move(call)).ok());
  wait_until([&] { return waiting_room().waiting() == 0; });
  go.set_value();
  EXPECT_EQ(ask("a"), 200);
}

TEST_F(ModelSleepTest, OneThatNobodyAsksForGoesByItself) {
  sleep_after(kMomentNs);
  ASSERT_TRUE(load(order("a")).get().ok());
  wait_until_asleep("a", 1);
  EXPECT_EQ(ask("a"), 200);
  wait_until_asleep("a", 2);
}

TEST_F(ModelSleepTest, KeepAliveSaysHowLongItStays) {
  sleep_after(kHourNs);
  ASSERT_TRUE(load(order("a")).get().ok());
  const auto ask_with = [&](const std::string& keep_alive) {
    return fixture_
        .post("/v1/chat/completions", body_with("a", "hi", R"(,"keep_alive":)" + keep_alive))
        .status;
  };
  EXPECT_EQ(ask_with("0"), 200);
  wait_until_asleep("a", 1);
  EXPECT_EQ(ask_with(R"("1ms")"), 200);
  wait_until_asleep("a", 2);
  EXPECT_EQ(ask_with("0.001"), 200);
  wait_until_asleep("a", 3);
  for (const char* wrong : {R"("5 minutes")", R"("soon")", "true", "1e300", R"("")"}) {
    EXPECT_EQ(ask_with(wrong), 400) << wrong;
  }
  // Whoever is refused has woken it, and does not say for how long.
  EXPECT_EQ(state_of("a"), State::kServing);
  EXPECT_EQ(gone_, 3);
  const net::HttpResponse ollamas =
      fixture_.post("/api/generate", R"({"model":"a","keep_alive":0})");
  EXPECT_NE(ollamas.body.find(R"("done_reason":"unload")"), std::string::npos) << ollamas.body;
  wait_until_asleep("a", 4);
}

TEST_F(ModelSleepTest, ANegativeKeepAliveIsForEver) {
  sleep_after(kMomentNs);
  ASSERT_TRUE(load(order("a")).get().ok());
  wait_until_asleep("a", 1);
  EXPECT_EQ(
      fixture_.post("/v1/chat/completions", body_with("a", "hi", R"(,"keep_alive":"-1m")")).status,
      200);
  ASSERT_TRUE(load(order("b")).get().ok());
  wait_until_asleep("b", 2);
  EXPECT_EQ(state_of("a"), State::kServing);
}

// Without --sleep-after a client of Ollama's makes none go.
TEST_F(ModelSleepTest, WithoutSleepAfterKeepAliveChangesNothing) {
  ASSERT_TRUE(load(order("a")).get().ok());
  EXPECT_EQ(
      fixture_.post("/v1/chat/completions", body_with("a", "hi", R"(,"keep_alive":0)")).status,
      200);
  ASSERT_TRUE(load(order("b")).get().ok());
  ASSERT_TRUE(sleep("b").get().ok());  // the same thread has looked at both
  EXPECT_EQ(state_of("a"), State::kServing);
  EXPECT_EQ(gone_, 1);
}

TEST_F(ModelSleepTest, OneThatSleepsIsUnloaded) {
  ASSERT_TRUE(load(order("a")).get().ok());
  ASSERT_TRUE(sleep("a").get().ok());
  EXPECT_TRUE(unload("a").get().ok());
  EXPECT_EQ(state_of("a"), std::nullopt);
  EXPECT_EQ(fixture_.post("/v1/chat/completions", body("a", "hi")).status, 404);
  EXPECT_TRUE(load(order("a")).get().ok()) << "its name is free";
}

TEST_F(ModelSleepTest, WhoWaitsForOneThatIsUnloadedIsTold) {
  ASSERT_TRUE(load(order("a")).get().ok());
  auto stream = std::async(std::launch::async, [this] {
    return fixture_.post("/v1/chat/completions", body("a", "endless", true)).body;
  });
  wait_until([&] { return catalogue().find("a")->engine.stats().running > 0; });
  const Outcome asleep = sleep("a");
  std::future<int> later = ask_beside("a");
  wait_until([&] { return waiting_room().waiting() == 1; });
  const Outcome unloaded = unload("a");
  EXPECT_EQ(later.get(), 503);
  EXPECT_THAT(stream.get(), HasSubstr(R"("finish_reason":"length")"));
  EXPECT_TRUE(unloaded.get().ok());
  EXPECT_EQ(state_of("a"), std::nullopt);
}

TEST_F(ModelSleepTest, WhoWaitsWhenTheServerLeavesIsTold) {
  std::promise<void> go;
  ASSERT_TRUE(load(order_then("a",
                              [&](int) {
                                go.get_future().wait();
                                return make("a");
                              }))
                  .get()
                  .ok());
  ASSERT_TRUE(sleep("a").get().ok());
  std::future<int> asked = ask_beside("a");
  wait_until([&] { return waiting_room().waiting() == 1; });
  loader_->stop_loading();
  EXPECT_EQ(asked.get(), 503);
  go.set_value();
}

TEST_F(ModelSleepTest, TheRoutesAreVllms) {
  ASSERT_TRUE(load(order("a")).get().ok());
  const auto is_sleeping = [&] { return fixture_.get("/is_sleeping?model=a").body; };
  EXPECT_EQ(is_sleeping(), R"({"is_sleeping":false})");
  EXPECT_EQ(fixture_.post("/sleep?model=a&level=1&mode=wait", "").status, 200);
  EXPECT_EQ(gone_, 1) << "it is answered when it sleeps";
  EXPECT_EQ(is_sleeping(), R"({"is_sleeping":true})");
  EXPECT_EQ(fixture_.get("/is_sleeping").body, R"({"is_sleeping":false})") << "another is awake";
  EXPECT_EQ(fixture_.post("/sleep?model=a", "").status, 200) << "it does already";
  EXPECT_EQ(fixture_.post("/wake_up?model=a&tags=weights&tags=kv_cache", "").status, 200);
  EXPECT_EQ(state_of("a"), State::kServing);
  EXPECT_EQ(fixture_.post("/wake_up", "").status, 200);
  EXPECT_EQ(fixture_.post("/sleep?model=none", "").status, 404);
  for (const char* wrong : {"/sleep?level=3", "/sleep?mode=keep", "/sleep?levle=1",
                            "/wake_up?tags=all", "/wake_up?level=1", "/is_sleeping?level=1",
                            "/sleep?model=a&model=tiny", "/sleep?mode=abort&mode=wait"}) {
    const bool reads = std::string(wrong).starts_with("/is");
    EXPECT_EQ((reads ? fixture_.get(wrong) : fixture_.post(wrong, "")).status, 400) << wrong;
  }
  EXPECT_EQ(fixture_.post("/sleep?model=tiny", "").status, 400) << "the loader did not load it";
}

TEST(SleepMode, IsAskedForAtTheStart) {
  ServerFixture fixture(kLoaderScript, {});
  for (const char* path : {"/sleep", "/wake_up"}) {
    const net::HttpResponse refused = fixture.post(path, "");
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("--enable-sleep-mode"));
  }
  EXPECT_EQ(fixture.get("/is_sleeping").body, R"({"is_sleeping":false})");
}

// Whatever the order in which it is asked, put to sleep and woken: each request is answered.
TEST_F(ModelSleepTest, NoRequestIsLost) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(fmt::format("seed {}", seed));
  ASSERT_TRUE(load(order("a")).get().ok());
  std::vector<std::future<int>> wrong;
  for (uint64_t worker = 0; worker < 4; ++worker) {
    wrong.push_back(std::async(std::launch::async, [this, seed, worker] {
      int count = 0;
      for (uint64_t i = 0; i < 12; ++i) {
        const uint64_t drawn = base::random_bits(seed, worker * 100 + i) % 8;
        const net::HttpResponse got = drawn == 0 ? fixture_.post("/sleep?model=a", "")
                                      : drawn == 1
                                          ? fixture_.post("/wake_up?model=a", "")
                                          : fixture_.post("/v1/chat/completions", body("a", "hi"));
        // To be put to sleep while it is being woken is refused.
        if (got.status != 200 && !(drawn == 0 && got.status == 503)) ++count;
      }
      return count;
    }));
  }
  for (std::future<int>& one : wrong) EXPECT_EQ(one.get(), 0);
  EXPECT_EQ(ask("a"), 200);
  EXPECT_EQ(waiting_room().waiting(), 0);
  EXPECT_EQ(catalogue().find("a")->engine.stats().running, 0);
  EXPECT_THAT(ledger_report(fixture_.server().services(), 0), Not(HasSubstr("\"running\":1")));
}

}  // namespace
}  // namespace pelton::server
