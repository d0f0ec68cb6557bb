// Outboxes: what comes by one is what comes directly.
#include "engine/outbox.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/modelled_executor.h"
#include "engine/token_stream_state.h"

namespace pelton::engine {
namespace {

ModelledExecutor::Options small() {
  ModelledExecutor::Options options;
  options.capacity = {
      .block_tokens = 4,
      .groups = {{{.name = "full"}, {1024}}, {{.name = "window", .sliding_window = 8}, {1024}}},

      .sequences_max = 24,
      .batch_tokens_max = 64,
      .context_tokens_max = 256};
  options.next_token = checksum_tokens(50);
  return options;
}

request::GenerationRequest request_of(int prompt, int output) {
  request::GenerationRequest request;
  for (int i = 0; i < prompt; ++i) request.prompt.push_back((i * 7 + prompt) % 50);
  request.stop.max_new_tokens = output;
  return request;
}

// A thread with an outbox, as a net thread is.
class Readers {
 public:
  struct Read {
    std::vector<TokenId> tokens;
    std::optional<StreamEnd> end;
  };

  Readers() : thread_([this] { run(); }) {}
  ~Readers() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    woken_.notify_one();
    thread_.join();
  }

  std::shared_ptr<Outbox> outbox() const { return outbox_; }

  // On its thread, soon.
  void post(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    woken_.notify_one();
  }
  void read(int name, TokenStream stream) {
    const auto shared = std::make_shared<TokenStream>(std::move(stream));
    post([this, name, shared] {
      TokenStream& kept = streams_.emplace(name, std::move(*shared)).first->second;
      kept.on_ready([this, name] { ready_.push_back(name); });
    });
  }
  void leave(int name) {
    post([this, name] { streams_.erase(name); });
  }
  // When these have ended; others may have, before they could leave.
  std::map<int, Read> wait_for_ends(const std::vector<int>& names) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] {
      return std::all_of(names.begin(), names.end(),
                         [&](int name) { return read_[name].end.has_value(); });
    });
    return read_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      woken_.wait(lock, [&] { return over_ || called_ || !work_.empty(); });
      if (over_) return;
      called_ = false;
      const std::vector<std::function<void()>> work = std::exchange(work_, {});
      lock.unlock();
      for (const auto& one : work) one();
      outbox_->deliver();
      std::map<int, Read> news;
      for (const int name : std::exchange(ready_, {})) take(name, news);
      lock.lock();
      for (auto& [name, all_read] : news) {
        Read& all = read_[name];
        all.tokens.insert(all.tokens.end(), all_read.tokens.begin(), all_read.tokens.end());
        if (!all_read.end) continue;
        EXPECT_FALSE(all.end.has_value());
        all.end = std::move(all_read.end);
      }
      ended_.notify_all();
    }
  }
  void take(int name, std::map<int, Read>& news) {
    const auto found = streams_.find(name);
    if (found == streams_.end()) return;
    TokenStream::Batch batch = found->second.take();
    for (const SampledToken& token : batch.tokens) news[name].tokens.push_back(token.token);
    if (batch.end) news[name].end = std::move(batch.end);
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  std::condition_variable ended_;
  bool over_ = false;
  bool called_ = false;
  std::vector<std::function<void()>> work_;
  std::map<int, Read> read_;

  // Its thread's.
  std::map<int, TokenStream> streams_;
  std::vector<int> ready_;

  const std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>([this] {
    {
      std::lock_guard lock(mutex_);
      called_ = true;
    }
    woken_.notify_one();
  });
  std::thread thread_;  // last: it uses all of these
};

Readers::Read directly(Engine& engine, const request::GenerationRequest& request) {
  TokenStream stream = engine.submit(request).value();
  Readers::Read all_read;
  while (!all_read.end) {
    TokenStream::Batch batch = stream.wait();
    for (const SampledToken& token : batch.tokens) all_read.tokens.push_back(token.token);
    all_read.end = std::move(batch.end);
  }
  return all_read;
}

// Two engines, two threads, answers of many lengths, some with siblings, some whose readers leave.
TEST(Outbox, BringsWhatComesDirectly) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const base::SystemClock clock;
    base::Log log(clock, {.level = base::LogLevel::kNone});
    Readers readers[2];
    ModelledExecutor executors[2] = {ModelledExecutor(small()), ModelledExecutor(small())};
    Engine first({}, executors[0], clock, log);
    Engine second({}, executors[1], clock, log);
    Engine* const engines[2] = {&first, &second};

    std::vector<request::GenerationRequest> requests;
    std::vector<int> staying[2];
    for (int name = 0; name < 120; ++name) {
      requests.push_back(
          request_of(1 + static_cast<int>(random() % 40), 1 + static_cast<int>(random() % 60)));
      Readers& its = readers[name % 2];
      Result<std::vector<TokenStream>> streams =
          engines[name / 2 % 2]->submit_answers(requests.back(), 1, its.outbox());
      ASSERT_TRUE(streams.ok());
      its.read(name, std::move(streams->front()));
      if (random() % 5 == 0) {
        its.leave(name);
      } else {
        staying[name % 2].push_back(name);
      }
    }
    std::map<int, Readers::Read> all_read = readers[0].wait_for_ends(staying[0]);
    all_read.merge(readers[1].wait_for_ends(staying[1]));
    for (const auto& [name, ended] : all_read) {
      if (!ended.end.has_value() || ended.end->reason == FinishReason::kCancelled) continue;
      const Readers::Read expected = directly(first, requests[static_cast<size_t>(name)]);
      EXPECT_EQ(ended.tokens, expected.tokens) << name;
      EXPECT_EQ(ended.end->output_tokens, expected.end->output_tokens);
      EXPECT_EQ(ended.end->reason, expected.end->reason);
    }
    // Whoever left has left nothing.
    first.drain(10'000);
    second.drain(10'000);
    for (Engine* engine : engines) {
      for (int i = 0; i < 2000 && !engine->ledger().clean(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(engine->ledger().clean());
    }
  }
}

// The engine goes while its readers are still to hear of it: they hear.
TEST(Outbox, OutlivesTheEngine) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  Readers readers;
  {
    ModelledExecutor executor(small());
    Engine engine({}, executor, clock, log);
    for (int name = 0; name < 30; ++name) {
      Result<std::vector<TokenStream>> streams =
          engine.submit_answers(request_of(8, 200), 1, readers.outbox());
      ASSERT_TRUE(streams.ok());
      readers.read(name, std::move(streams->front()));
    }
  }
  std::vector<int> names(30);
  std::iota(names.begin(), names.end(), 0);
  for (const auto& [name, all_read] : readers.wait_for_ends(names)) {
    ASSERT_TRUE(all_read.end.has_value());
    EXPECT_TRUE(all_read.end->reason == FinishReason::kError || all_read.tokens.size() == 200)
        << name;
  }
}

// One call for a step, whatever the number of its streams.
TEST(Outbox, IsCalledOnceAStep) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  ModelledExecutor executor(small());
  std::atomic<int> calls{0};
  const auto outbox = std::make_shared<Outbox>([&calls] { ++calls; });
  std::vector<TokenStream> streams;
  {
    Engine engine({}, executor, clock, log);
    request::GenerationRequest request = request_of(8, 20);
    streams = engine.submit_answers(std::move(request), 16, outbox).value();
    engine.drain(10'000);
    const int64_t steps = engine.stats().steps.count;
    EXPECT_GE(calls, 20);
    EXPECT_LE(calls, steps);
  }
  for (TokenStream& stream : streams) EXPECT_TRUE(stream.take().tokens.empty());
  outbox->deliver();
  for (TokenStream& stream : streams) {
    const TokenStream::Batch batch = stream.take();
    EXPECT_EQ(batch.tokens.size(), 20u);
    EXPECT_TRUE(batch.end.has_value());
  }
}

// The readers' thread is there when the updates are: it is not woken for them.
TEST(Outbox, WhatIsAnnouncedIsWaitedFor) {
  int without_waking = 0;
  for (int round = 0; round < 1000 && without_waking == 0; ++round) {
    std::atomic<int> calls{0};
    Outbox outbox([&calls] { ++calls; });
    TokenStream::State state({}, std::make_shared<CancelCount>(0));
    outbox.announce();
    EXPECT_EQ(calls, 1);
    std::thread reader([&] {
      // Its patience has an end, and updates may be late on a busy machine.
      while (state.batch.tokens.empty()) outbox.deliver();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(round % 100));
    std::vector<Outbox::TokenUpdate> updates;
    updates.push_back({.to = &state, .token = SampledToken{.token = 7}});
    outbox.send(updates);
    reader.join();
    EXPECT_TRUE(updates.empty());
    EXPECT_EQ(state.batch.tokens.front().token, 7);
    if (calls == 1) ++without_waking;
  }
  EXPECT_GT(without_waking, 0);
}

TEST(Outbox, WhatIsAnnouncedAndDoesNotComeHoldsNobodyUp) {
  std::atomic<int> calls{0};
  Outbox outbox([&calls] { ++calls; });
  outbox.announce();
  outbox.deliver();
  outbox.deliver();
  TokenStream::State state({}, std::make_shared<CancelCount>(0));
  std::vector<Outbox::TokenUpdate> updates;
  updates.push_back({.to = &state, .token = SampledToken{.token = 7}});
  outbox.send(updates);
  EXPECT_EQ(calls, 2) << "nobody waits any more, so somebody has to be woken";
  outbox.deliver();
  EXPECT_EQ(state.batch.tokens.size(), 1u);
}

// Many at a time, in steps that count as long: each is announced.
TEST(Outbox, AnnouncedStepsBringWhatOthersBring) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  Readers readers;
  ModelledExecutor::Options options = small();
  options.capacity.sequences_max = 64;
  options.capacity.batch_tokens_max = 512;
  ModelledExecutor executor(std::move(options));
  Engine engine({.overlapped_step_ns_max = 0}, executor, clock, log);
  std::vector<int> names(64);
  std::iota(names.begin(), names.end(), 0);
  for (const int name : names) {
    Result<std::vector<TokenStream>> streams =
        engine.submit_answers(request_of(2, 100 + name), 1, readers.outbox());
    ASSERT_TRUE(streams.ok());
    readers.read(name, std::move(streams->front()));
  }
  const std::map<int, Readers::Read> all_read = readers.wait_for_ends(names);
  for (const int name : names) {
    EXPECT_EQ(all_read.at(name).tokens, directly(engine, request_of(2, 100 + name)).tokens) << name;
  }
}

// Whoever reads it pays for what was computed.
TEST(Outbox, AnAbandonedEndCountsWhatWasEmitted) {
  const auto state = std::make_shared<TokenStream::State>(
      TokenStream::State::Asked{.prompt_tokens = 8, .queued_ns = 5},
      std::make_shared<CancelCount>(0));
  TokenStream stream(state);
  for (const int64_t now_ns : {10, 20, 30}) {
    state->put(SampledToken{.token = 1, .top = {}}, std::nullopt, now_ns);
    if (now_ns == 20) {
      EXPECT_EQ(stream.take().tokens.size(), 2u);
    }
  }
  EXPECT_TRUE(state->abandon({ErrorCode::kUnavailable, "stuck", ""}, 40));
  const TokenStream::Batch last = stream.take();
  EXPECT_EQ(last.tokens.size(), 1u);
  ASSERT_TRUE(last.end.has_value());
  EXPECT_EQ(last.end->prompt_tokens, 8);
  EXPECT_EQ(last.end->output_tokens, 3);
  EXPECT_EQ(last.end->times.queued_ns, 5);
  EXPECT_EQ(last.end->times.first_token_ns, 10);
  EXPECT_EQ(last.end->times.last_token_ns, 30);
}

// Ended by others than the engine while updates for it are under way.
TEST(Outbox, WhatComesAfterAnAbandonedEndIsDropped) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  ModelledExecutor executor(small());
  const auto outbox = std::make_shared<Outbox>([] {});
  Engine engine({}, executor, clock, log);
  TokenStream stream =
      std::move(engine.submit_answers(request_of(8, 20), 1, outbox).value().front());
  engine.drain(10'000);
  EXPECT_EQ(engine.abandon({ErrorCode::kUnavailable, "stuck", ""}), 1);
  outbox->deliver();
  const TokenStream::Batch batch = stream.take();
  EXPECT_TRUE(batch.tokens.empty());
  ASSERT_TRUE(batch.end.has_value());
  EXPECT_EQ(batch.end->reason, FinishReason::kError);
  EXPECT_EQ(batch.end->prompt_tokens, 8);
  EXPECT_EQ(batch.end->output_tokens, 0) << "none has come this far";
  EXPECT_EQ(batch.end->times.first_token_ns, 0);
}

}  // namespace
}  // namespace pelton::engine
