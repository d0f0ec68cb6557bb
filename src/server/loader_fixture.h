// For tests: a server and a loader, and models that are loaded beside the fixture's own: of the
// same script, each with an engine of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "server/model_loader.h"
#include "server/server_fixture.h"

namespace pelton::server {

inline constexpr std::string_view kLoaderScript = R"({"step_ms": 1, "rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
  {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 2000}]}
]})";

class ModelLoaderTest : public testing::Test {
 protected:
  explicit ModelLoaderTest(ServerFixture::Options options = {})
      : fixture_(kLoaderScript, std::move(options)) {}
  ~ModelLoaderTest() override {
    fixture_.http().stop(std::chrono::milliseconds(0));  // who is answered goes before the models
    loader_.reset();
  }

  struct Parts {
    explicit Parts(std::atomic<int>& gone) : gone(gone) {}
    ~Parts() { ++gone; }
    std::atomic<int>& gone;
    const base::SystemClock clock;
    base::Log log{clock, {.level = base::LogLevel::kNone}};
    const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
    engine::ModelledExecutor executor{*scripted_executor(kLoaderScript, "s", tokenizer, clock)};
    engine::Engine engine{{}, executor, clock, log};
    std::optional<ServedModel> served;
  };

  Result<std::shared_ptr<ServedModel>> make(const std::string& id) {
    const auto parts = std::make_shared<Parts>(gone_);
    parts->served.emplace(ServedModel{.id = id,
                                      .aliases = {},
                                      .context_max = 4096,
                                      .vocab_size = parts->tokenizer.vocab_size(),
                                      .tokenizer = parts->tokenizer,
                                      .chat = chat::format_of(parts->tokenizer).value(),
                                      .engine = parts->engine,
                                      .sampling = {},
                                      .state = std::make_unique<ModelState>(parts->clock)});
    return std::shared_ptr<ServedModel>(parts, &*parts->served);
  }
  ModelLoader::Order order(const std::string& id) {
    return {.names = {.id = id}, .load = [this, id](const ModelLoader::Stop&) { return make(id); }};
  }
  // One whose load does not end before `go`.
  ModelLoader::Order waiting(const std::string& id, std::shared_future<void> go) {
    return {.names = {.id = id}, .load = [this, id, go](const ModelLoader::Stop& stop) {
              while (go.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
                if (!stop()) continue;
                return Result<std::shared_ptr<ServedModel>>(
                    Error{ErrorCode::kCancelled, "stopped", ""});
              }
              return make(id);
            }};
  }

  // The outcome, once it is there.
  using Outcome = std::shared_future<Result<void>>;
  static std::pair<ModelLoader::Done, Outcome> awaited() {
    const auto promise = std::make_shared<std::promise<Result<void>>>();
    return {[promise](const Result<void>& outcome) { promise->set_value(outcome); },
            promise->get_future().share()};
  }
  Outcome load(ModelLoader::Order order) {
    auto [done, outcome] = awaited();
    const Result<void> begun =
        loader_->load(std::move(order), ModelCatalogue::When::kAtRunTime, done);
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return outcome;
  }
  Outcome unload(const std::string& id, int64_t drain_ms = 60'000) {
    auto [done, outcome] = awaited();
    const Result<void> begun = loader_->unload(id, drain_ms, done);
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return outcome;
  }

  std::optional<ModelCatalogue::State> state_of(const std::string& id) {
    const auto table = catalogue().table();
    const ModelCatalogue::Entry* const entry = table->find(id);
    return entry == nullptr ? std::nullopt : std::optional(entry->state);
  }
  ModelCatalogue& catalogue() { return fixture_.server().services().catalogue; }
  static std::string body(const std::string& model, const std::string& words, bool stream = false) {
    return body_with(model, words, stream ? R"(,"stream":true,"max_tokens":1500)" : "");
  }
  static std::string body_with(const std::string& model, const std::string& words,
                               const std::string& more) {
    return R"({"model":")" + model + R"(","messages":[{"role":"user","content":")" + words +
           R"("}])" + more + "}";
  }
  int ask(const std::string& model, const std::string& words = "hi") {
    answer_ = fixture_.post("/v1/chat/completions", body(model, words)).body;
    const Json json = parsed(answer_);
    return json.find("error") == nullptr ? 200 : 0;
  }

  ServerFixture fixture_;
  std::atomic<int> gone_ = 0;
  std::atomic<int> changes_ = 0;
  std::string answer_;
  std::optional<ModelLoader> loader_{std::in_place,
                                     ModelLoader::Options{.on_change = [this] { ++changes_; }},
                                     fixture_.server().services()};
};

}  // namespace pelton::server
