#include "server/model_loader.h"

#include <chrono>
#include <future>
#include <map>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ledger_report.h"
#include "server/loader_fixture.h"
#include "server/metrics_page.h"

namespace pelton::server {
namespace {

using State = ModelCatalogue::State;
using When = ModelCatalogue::When;
using testing::HasSubstr;
using testing::Not;

TEST_F(ModelLoaderTest, AModelComesAndGoes) {
  EXPECT_TRUE(load(order("a")).get().ok());
  EXPECT_EQ(state_of("a"), State::kServing);
  EXPECT_EQ(ask("a"), 200);
  EXPECT_GE(changes_, 2) << "it was begun, and it is served";
  EXPECT_TRUE(unload("a").get().ok());
  EXPECT_EQ(gone_, 1);
  EXPECT_EQ(state_of("a"), std::nullopt);
  EXPECT_EQ(fixture_.post("/v1/chat/completions", body("a", "hi")).status, 404);
  EXPECT_EQ(ask("tiny"), 200);
  EXPECT_TRUE(load(order("a")).get().ok()) << "its name is free";
  EXPECT_EQ(ask("a"), 200);
}

TEST_F(ModelLoaderTest, LoadsRunOneAfterTheOtherInTheOrderOfAsking) {
  std::promise<void> go;
  const Outcome first = load(waiting("a", go.get_future().share()));
  std::atomic<int> running = 0;
  std::vector<std::string> began;
  const auto counted = [&](const std::string& id) {
    return ModelLoader::Order{.names = {.id = id}, .load = [&, id](const ModelLoader::Stop&) {
                                EXPECT_EQ(++running, 1);
                                began.push_back(id);
                                auto made = make(id);
                                --running;
                                return made;
                              }};
  };
  std::vector<Outcome> others;
  for (const char* const id : {"b", "c", "d"}) others.push_back(load(counted(id)));
  EXPECT_EQ(state_of("d"), State::kLoading);
  EXPECT_EQ(fixture_.post("/v1/chat/completions", body("d", "hi")).status, 503);
  go.set_value();
  EXPECT_TRUE(first.get().ok());
  for (const Outcome& other : others) EXPECT_TRUE(other.get().ok());
  EXPECT_THAT(began, testing::ElementsAre("b", "c", "d"));
}

TEST_F(ModelLoaderTest, OneThatFailsSaysWhyAndDisturbsNoOther) {
  ModelLoader::Order fails{.names = {.id = "a", .aliases = {"x"}},
                           .load = [](const ModelLoader::Stop&) {
                             return Result<std::shared_ptr<ServedModel>>(
                                 Error{ErrorCode::kBadCheckpoint, "no weights at all", ""});
                           }};
  const Result<void> outcome = load(fails).get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message, "no weights at all");
  EXPECT_EQ(state_of("a"), State::kFailed);
  for (const char* const name : {"a", "x"}) {
    const net::HttpResponse answer = fixture_.post("/v1/chat/completions", body(name, "hi"));
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body, HasSubstr("no weights at all"));
  }
  EXPECT_EQ(fixture_.get("/ready").status, 200);
  EXPECT_EQ(ask("tiny"), 200);
  EXPECT_TRUE(load(order("a")).get().ok()) << "its name is free for another try";
  EXPECT_EQ(ask("a"), 200);
  EXPECT_FALSE(load(ModelLoader::Order{.names = {.id = "b"}, .load = fails.load}).get().ok());
  EXPECT_TRUE(unload("b").get().ok()) << "it is forgotten";
  EXPECT_EQ(state_of("b"), std::nullopt);
}

TEST_F(ModelLoaderTest, FT_49_ARefusedThreadEndsItsLoadOnly) {
  const Result<void> outcome =
      load({.names = {.id = "a"},
            .load = [](const ModelLoader::Stop&) -> Result<std::shared_ptr<ServedModel>> {
              throw std::system_error(
                  std::make_error_code(std::errc::resource_unavailable_try_again));
            }})
          .get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("refuses a thread"));
  EXPECT_EQ(state_of("a"), State::kFailed);
  EXPECT_EQ(ask("tiny"), 200);
}

TEST_F(ModelLoaderTest, NamesAreTakenFromTheAskingOn) {
  std::promise<void> go;
  const Outcome first = load(waiting("a", go.get_future().share()));
  const auto refused = [&](const std::string& id) {
    const Result<void> begun = loader_->load(order(id), When::kAtRunTime, {});
    return begun.ok() ? "" : begun.error().field;
  };
  EXPECT_EQ(refused("a"), "name") << "while it is being loaded";
  EXPECT_EQ(refused("tiny"), "name");
  EXPECT_EQ(refused("org/alias"), "name");
  go.set_value();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(refused("a"), "name");
}

TEST_F(ModelLoaderTest, OneThatIsBeingLoadedIsCancelled) {
  std::promise<void> go;
  const Outcome loading = load(waiting("a", go.get_future().share()));
  const Outcome queued = load(order("b"));
  EXPECT_TRUE(unload("b").get().ok()) << "which has not begun: at once";
  EXPECT_EQ(queued.get().error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(unload("a").get().ok());
  EXPECT_EQ(loading.get().error().code, ErrorCode::kCancelled);
  EXPECT_THAT(loading.get().error().message, HasSubstr("'a' was unloaded while"));
  EXPECT_EQ(state_of("a"), std::nullopt);
  EXPECT_EQ(state_of("b"), std::nullopt);
  EXPECT_EQ(gone_, 0) << "neither was ever made";
}

// As one does that does not look whether it should stop.
TEST_F(ModelLoaderTest, OneThatEndsItsLoadAllTheSameGoesAtOnce) {
  std::promise<void> go;
  const std::shared_future<void> going = go.get_future().share();
  std::promise<void> began;
  const Outcome loading = load({.names = {.id = "a"}, .load = [&](const ModelLoader::Stop&) {
                                  began.set_value();
                                  going.wait();
                                  return make("a");
                                }});
  began.get_future().wait();
  const Outcome gone = unload("a");
  go.set_value();
  EXPECT_TRUE(gone.get().ok());
  EXPECT_EQ(gone_, 1);
  EXPECT_FALSE(loading.get().ok());
  EXPECT_EQ(state_of("a"), std::nullopt);
}

TEST_F(ModelLoaderTest, WhatIsNotThereOrCalledOtherwiseIsNotUnloaded) {
  EXPECT_EQ(loader_->unload("nobody", 0, {}).error().code, ErrorCode::kNotFound);
  ModelLoader::Order named = order("a");
  ASSERT_TRUE(load(named).get().ok());
  const Result<void> alias = loader_->unload("org/alias", 0, {});
  ASSERT_FALSE(alias.ok());
  EXPECT_EQ(alias.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(alias.error().message, HasSubstr("alias of 'tiny'"));
}

// A reader of an endless answer.
class Reader {
 public:
  Reader(ServerFixture& fixture, const std::string& body,
         const std::string& path = "/v1/chat/completions")
      : id_(client_.start(fixture.call("POST", path, body),
                          {.on_body = [this](std::string_view bytes) { take(bytes); },
                           .on_done =
                               [this](Result<void> ended) {
                                 ok_ = ended.ok();
                                 over_ = true;
                               }})) {}
  void await(std::string_view words) const {
    for (int i = 0; i < 5000 && text().find(words) == std::string::npos; ++i) nap();
    EXPECT_THAT(text(), HasSubstr(std::string(words)));
  }
  std::string all() const {
    for (int i = 0; i < 10'000 && !over_; ++i) nap();
    EXPECT_TRUE(over_ && ok_);
    return text();
  }
  void leave() { client_.cancel(id_); }

 private:
  static void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
  void take(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    text_ += bytes;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

  mutable std::mutex mutex_;
  std::string text_;
  std::atomic<bool> ok_ = false;
  std::atomic<bool> over_ = false;
  net::HttpClient client_{{}};
  const net::HttpClient::CallId id_;
};

TEST_F(ModelLoaderTest, WhatItAnswersGoesOnWhileItIsUnloaded) {
  ASSERT_TRUE(load(order("a")).get().ok());
  Reader reader(fixture_, body("a", "endless", true));
  reader.await(R"("content":"n")");  // a token is an event
  const Outcome gone = unload("a");
  EXPECT_EQ(state_of("a"), State::kUnloading);
  const net::HttpResponse late = fixture_.post("/v1/chat/completions", body("a", "hi"));
  EXPECT_EQ(late.status, 404);
  EXPECT_THAT(late.body, HasSubstr("is being unloaded"));
  const std::string ledger = ledger_report(fixture_.server().services(), 0);
  EXPECT_THAT(ledger, HasSubstr("\"a\":{\"blocks\"")) << "whose blocks are held by an answer";
  EXPECT_THAT(ledger, HasSubstr("\"clean\":false"));
  EXPECT_THAT(metrics_page(fixture_.server().services()),
              HasSubstr("vllm:num_requests_running{model_name=\"a\""));
  const Outcome again = unload("a");
  const std::string answer = reader.all();
  EXPECT_THAT(answer, HasSubstr("data: [DONE]"));
  EXPECT_THAT(answer, Not(HasSubstr("error")));
  EXPECT_TRUE(gone.get().ok());
  EXPECT_TRUE(again.get().ok()) << "both who asked hear of it";
  EXPECT_EQ(gone_, 1);
  EXPECT_THAT(metrics_page(fixture_.server().services()), Not(HasSubstr("model_name=\"a\"")));
}

TEST_F(ModelLoaderTest, AnswersThatTakeTooLongAreEndedAndTold) {
  ASSERT_TRUE(load(order("a")).get().ok());
  Reader reader(fixture_, body("a", "endless", true));
  reader.await(R"("content":"n")");  // a token is an event
  EXPECT_TRUE(unload("a", 0).get().ok());
  EXPECT_THAT(reader.all(), HasSubstr("'a' is being unloaded"));
  EXPECT_EQ(gone_, 1);
  EXPECT_EQ(ask("tiny"), 200);
}

// What had been sampled until then is counted, and paid for.
TEST_F(ModelLoaderTest, AnAnswerThatIsEndedSaysWhatItUsed) {
  ASSERT_TRUE(load(order("a")).get().ok());
  Reader reader(fixture_, R"({"model":"a","input":"endless","stream":true,"store":false})",
                "/v1/responses");
  reader.await(R"("delta":"n")");
  EXPECT_TRUE(unload("a", 0).get().ok());
  const std::string answer = reader.all();
  const size_t failed = answer.find("event: response.failed");
  ASSERT_NE(failed, std::string::npos) << answer;
  const size_t data = answer.find("data: ", failed) + 6;
  const Json event = parsed(answer.substr(data, answer.find('\n', data) - data));
  const Json* const usage = event.find("response")->find("usage");
  ASSERT_NE(usage, nullptr);
  EXPECT_GT(*usage->integer("input_tokens"), 0);
  EXPECT_GT(*usage->integer("output_tokens"), 0);
  EXPECT_EQ(*usage->integer("total_tokens"),
            *usage->integer("input_tokens") + *usage->integer("output_tokens"));
}

TEST_F(ModelLoaderTest, AClientThatLeavesHoldsNothing) {
  ASSERT_TRUE(load(order("a")).get().ok());
  Reader reader(fixture_, body("a", "endless", true));
  reader.await(R"("content":"n")");  // a token is an event
  const Outcome gone = unload("a");
  reader.leave();
  EXPECT_TRUE(gone.get().ok());
  EXPECT_EQ(gone_, 1);
}

TEST_F(ModelLoaderTest, NothingIsLoadedByAServerThatLeaves) {
  std::promise<void> go;
  const Outcome loading = load(waiting("a", go.get_future().share()));
  const Outcome queued = load(order("b"));
  loader_->stop_loading();
  EXPECT_EQ(loading.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(queued.get().error().code, ErrorCode::kCancelled);
  const Result<void> late = loader_->load(order("c"), When::kAtRunTime, {});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(late.error().field, "");
}

TEST_F(ModelLoaderTest, AtItsEndAllModelsGo) {
  ASSERT_TRUE(load(order("a")).get().ok());
  ASSERT_TRUE(load(order("b")).get().ok());
  loader_.reset();
  EXPECT_EQ(gone_, 2);
  EXPECT_EQ(state_of("a"), std::nullopt);
  EXPECT_EQ(ask("tiny"), 200) << "which it did not load";
}

// For tsan and asan above all.
TEST_F(ModelLoaderTest, ModelsComeAndGoUnderLoad) {
  std::atomic<bool> stop = false;
  std::atomic<int> served = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      net::HttpClient client{{}};
      while (!stop) {
        const auto answer =
            net::http_fetch(client, fixture_.call("POST", "/v1/chat/completions", body("a", "hi")));
        ASSERT_TRUE(answer.ok());
        const bool expected =
            answer->status == 200 || answer->status == 404 || answer->status == 503;
        EXPECT_TRUE(expected) << answer->status << answer->body;
        if (answer->status == 200) ++served;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(load(order("a")).get().ok());
    const int before = served;
    for (int wait = 0; wait < 2000 && served == before; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(unload("a").get().ok());
    EXPECT_EQ(gone_, i + 1);
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GT(served, 0);
}

}  // namespace
}  // namespace pelton::server
