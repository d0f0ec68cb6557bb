// A request's answer is its own: the same tokens, whatever runs beside it, in whatever chunks its
// prompt is computed, whether it was preempted, swapped out or found in the cache, on however many
// threads. Compared with each request alone, to the token, greedy and drawn with a seed; and
// whoever leaves early leaves nothing behind.
//
// PELTON_ANSWERS_MODEL names the model's folder; without, models/pelton-box if it is there, and
// otherwise testdata/golden/tiny. PELTON_FULL=1 asks ten times as many.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "executor/local_executor.h"
#include "executor/test_guide.h"

namespace pelton::executor {
namespace {

std::string model_folder() {
  if (const char* named = std::getenv("PELTON_ANSWERS_MODEL")) return named;
  const std::string box = std::string(PELTON_SOURCE_DIR) + "/models/pelton-box";
  if (std::filesystem::exists(box + "/config.json")) return box;
  return std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
}

// Sanitizers make a step many times as long; what they look for, a hundred prompts show too.
bool full() {
  return std::getenv("PELTON_FULL") != nullptr && !engine::Engine::kChecksEveryStep;
}

using Tokens = std::vector<TokenId>;

// Each prompt is asked greedily and with a draw. Many begin as an earlier one does.
std::vector<request::GenerationRequest> make_requests(int prompt_count, int vocabulary) {
  std::mt19937 random(20261121);
  const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
  std::vector<Tokens> prompts;
  for (int i = 0; i < prompt_count; ++i) {
    Tokens prompt;
    if (i > 0 && below(3) > 0) prompt = prompts[static_cast<size_t>(below(i))];
    prompt.resize(static_cast<size_t>(below(static_cast<int>(prompt.size()) + 1)));
    const int more = below(12) == 0 ? 200 + below(400) : 1 + below(60);
    for (int k = 0; k < more; ++k) prompt.push_back(below(vocabulary));
    if (prompt.size() > 600) prompt.resize(600);
    prompts.push_back(std::move(prompt));
  }
  const grammar::GrammarState guide = make_guide(vocabulary);
  std::vector<request::GenerationRequest> requests;
  for (size_t i = 0; i < 2 * prompts.size(); ++i) {
    request::GenerationRequest one;
    one.prompt = prompts[i / 2];
    one.stop.max_new_tokens = 1 + below(40);
    one.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    one.sampling.seed = random();
    if (i % 2 == 1) {
      one.sampling.top_p = i % 8 == 1 ? 0.9f : 1.0f;
      one.sampling.top_k = i % 8 == 3 ? 40 : 0;
      one.sampling.repetition_penalty = i % 8 == 5 ? 1.2f : 1.0f;
    }
    if (i % 3 == 2) one.guide = guide;
    requests.push_back(std::move(one));
  }
  return requests;
}

class SameAnswers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    checkpoint_ = new checkpoint::Checkpoint(checkpoint::Checkpoint::open(model_folder()).value());
    requests_ = new std::vector<request::GenerationRequest>(
        make_requests(full() ? 1000 : 100, std::min(checkpoint_->config().vocab_size, 4000)));
  }
  static void TearDownTestSuite() {
    delete alone_;
    delete requests_;
    delete checkpoint_;
  }
  void TearDown() override { stop(); }

  static void ask_each_alone() {
    start(usual(1), {.prefix_cache = false});
    alone_ = new std::vector<Tokens>();
    for (const request::GenerationRequest& request : *requests_) {
      engine::TokenStream stream = submit(request);
      alone_->push_back(tokens_of(stream));
    }
    stop();
  }

  static LocalExecutor::Options usual(int sequences_max) {
    LocalExecutor::Options options;
    options.threads = 1;
    options.sequences_max = sequences_max;
    options.prefix_cache = false;
    options.context_tokens = 640;
    options.kv_bytes = int64_t{1} << 30;
    return options;
  }

  // The bytes of so many full blocks, and of window blocks for what may run.
  static LocalExecutor::Options short_of_blocks(LocalExecutor::Options options,
                                                int context_blocks) {
    LocalExecutor::Options uncached = options;
    uncached.prefix_cache = false;
    uncached.swap_bytes = 0;
    const auto ample =
        cost_model::footprint(*checkpoint_, *LocalExecutor::memory_request(uncached));
    CHECK(ample.ok(), ample.ok() ? "" : ample.error().message);
    options.kv_bytes =
        ample->kv.groups[0].spec.block_bytes * context_blocks + ample->kv.groups[1].bytes();
    return options;
  }

  static void start(const LocalExecutor::Options& options, engine::Engine::Options engine) {
    engine.inbox_max = 1 << 16;
    auto made = LocalExecutor::create(*checkpoint_, options);
    CHECK(made.ok(), made.ok() ? "" : made.error().message);
    executor_ = std::move(made).value().release();
    engine_ = new engine::Engine(engine, *executor_, *clock_, *log_);
  }
  static void stop() {
    delete std::exchange(engine_, nullptr);
    delete std::exchange(executor_, nullptr);
  }

  static engine::TokenStream submit(const request::GenerationRequest& request) {
    auto stream = engine_->submit(request);
    CHECK(stream.ok(), stream.ok() ? "" : stream.error().message);
    return std::move(stream).value();
  }

  static Tokens tokens_of(engine::TokenStream& stream) {
    Tokens tokens;
    while (true) {
      const engine::TokenStream::Batch batch = stream.wait();
      for (const engine::SampledToken& token : batch.tokens) tokens.push_back(token.token);
      if (!batch.end) continue;
      EXPECT_FALSE(batch.end->error.has_value()) << batch.end->error->message;
      return tokens;
    }
  }

  // All at once, as many as there are slots beside each other.
  static void expect_the_same(const std::string& where) {
    std::vector<engine::TokenStream> streams;
    for (const request::GenerationRequest& request : *requests_) streams.push_back(submit(request));
    int different = 0;
    for (size_t i = 0; i < streams.size(); ++i) {
      const Tokens tokens = tokens_of(streams[i]);
      if (tokens == (*alone_)[i]) continue;
      ++different;
      EXPECT_EQ(tokens, (*alone_)[i]) << where << ", request " << i;
      if (different == 3) break;
    }
    expect_clean(where);
  }

  static void expect_clean(const std::string& where) {
    engine_->drain(60'000);
    engine::Ledger ledger = engine_->ledger();
    for (int i = 0; i < 1000 && !ledger.clean(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ledger = engine_->ledger();
    }
    EXPECT_TRUE(ledger.clean()) << where;
  }

  static void in_a_batch_of_32();
  static void with_two_threads_and_two_steps_in_flight();
  static void in_chunks_of_any_size();
  static void when_preempted_and_computed_again();
  static void when_swapped_out_and_back();
  static void when_found_in_the_cache_and_after_eviction();
  static void when_formats_are_followed_beside_the_steps();

  static inline checkpoint::Checkpoint* checkpoint_ = nullptr;
  static inline std::vector<request::GenerationRequest>* requests_ = nullptr;
  static inline std::vector<Tokens>* alone_ = nullptr;
  static inline base::SystemClock* clock_ = new base::SystemClock;
  static inline base::Log* log_ = new base::Log(*clock_, {.level = base::LogLevel::kNone});
  static inline LocalExecutor* executor_ = nullptr;
  static inline engine::Engine* engine_ = nullptr;
};

void SameAnswers::in_a_batch_of_32() {
  start(usual(32), {.prefix_cache = false});
  expect_the_same("batch of 32");
  stop();
}

void SameAnswers::with_two_threads_and_two_steps_in_flight() {
  LocalExecutor::Options options = usual(32);
  options.threads = 2;
  start(options, {.steps_in_flight_max = 2, .prefix_cache = false});
  expect_the_same("two threads, two steps in flight");
  stop();
}

void SameAnswers::in_chunks_of_any_size() {
  for (const int chunk : {1, 7, 16, 64}) {  // 512 is what every other test here has
    LocalExecutor::Options options = usual(8);
    options.batch_tokens_max = chunk;
    start(options, {.prefix_cache = false});
    expect_the_same("chunks of " + std::to_string(chunk));
    stop();
  }
}

void SameAnswers::when_preempted_and_computed_again() {
  for (const int depth : {1, 2}) {
    start(short_of_blocks(usual(12), 44), {.steps_in_flight_max = depth, .prefix_cache = false});
    expect_the_same("preemption, steps in flight " + std::to_string(depth));
    EXPECT_GT(engine_->stats().scheduler.preemptions_recompute, 10);
    EXPECT_EQ(engine_->stats().scheduler.preemptions_swap, 0);
    stop();
  }
}

void SameAnswers::when_swapped_out_and_back() {
  for (const int depth : {1, 2}) {
    LocalExecutor::Options options = short_of_blocks(usual(12), 44);
    options.swap_bytes = int64_t{1} << 26;
    options.threads = depth;
    start(options, {.steps_in_flight_max = depth, .prefix_cache = false});
    expect_the_same("swap, steps in flight " + std::to_string(depth));
    const engine::SchedulerCounters counters = engine_->stats().scheduler;
    EXPECT_GT(counters.preemptions_swap, 10);
    EXPECT_EQ(counters.preemptions_recompute, 0);
    EXPECT_EQ(counters.tokens_lost, 0);
    EXPECT_EQ(counters.blocks_swapped_in, counters.blocks_swapped_out);
    stop();
  }
}

void SameAnswers::when_found_in_the_cache_and_after_eviction() {
  LocalExecutor::Options options = usual(16);
  options.prefix_cache = true;
  start(options, {});
  expect_the_same("cache");
  EXPECT_GT(engine_->stats().prefix_tokens_found, engine_->stats().prefix_tokens_asked / 4);
  stop();

  for (const int64_t swap_bytes : {int64_t{0}, int64_t{1} << 26}) {
    options = short_of_blocks(options, 60);
    options.swap_bytes = swap_bytes;
    start(options, {.steps_in_flight_max = 2});
    expect_the_same("cache that is too small");
    EXPECT_GT(engine_->stats().prefix_tokens_found, 100);
    int64_t removed = 0;
    for (const kv::Event& event : engine_->kv_events().read({.events_max = 1 << 20}).events) {
      removed += event.kind == kv::Event::Kind::kRemoved ? 1 : 0;
    }
    EXPECT_GT(removed, 100);
    EXPECT_EQ(engine_->stats().scheduler.blocks_swapped_out > 0, swap_bytes > 0);
    stop();
  }
}

void SameAnswers::when_formats_are_followed_beside_the_steps() {
  for (const bool room : {true, false}) {
    for (const int depth : {1, 2}) {
      LocalExecutor::Options options = room ? usual(32) : short_of_blocks(usual(12), 44);
      options.swap_bytes = depth == 1 ? 0 : int64_t{1} << 26;
      options.guide_work_max = 0;
      start(options, {.steps_in_flight_max = depth, .prefix_cache = false});
      expect_the_same("every format's row deferred, steps in flight " + std::to_string(depth));
      stop();
    }
  }
}

TEST_F(SameAnswers, D1_when_formats_are_followed_beside_the_steps) {
  ask_each_alone();
  when_formats_are_followed_beside_the_steps();
}

TEST_F(SameAnswers, beside_others_and_in_chunks) {
  ask_each_alone();
  in_a_batch_of_32();
  with_two_threads_and_two_steps_in_flight();
  in_chunks_of_any_size();
}

TEST_F(SameAnswers, short_of_room) {
  ask_each_alone();
  when_preempted_and_computed_again();
  when_swapped_out_and_back();
}

TEST_F(SameAnswers, with_a_prefix_cache) {
  ask_each_alone();
  when_found_in_the_cache_and_after_eviction();
}

TEST_F(SameAnswers, when_several_are_asked_for_at_once) {
  ask_each_alone();
  for (const bool cache : {false, true}) {
    LocalExecutor::Options options = usual(16);
    options.prefix_cache = cache;
    start(options, {.prefix_cache = cache});
    for (size_t i = 0; i < 60; ++i) {
      const request::GenerationRequest& request = (*requests_)[i];
      std::vector<engine::TokenStream> streams = engine_->submit_answers(request, 3).value();
      EXPECT_EQ(tokens_of(streams[0]), (*alone_)[i]) << "request " << i;
      const Tokens second = tokens_of(streams[1]);
      const Tokens third = tokens_of(streams[2]);
      if (request.sampling.temperature == 0) {
        EXPECT_EQ(second, (*alone_)[i]);
        EXPECT_EQ(third, (*alone_)[i]);
      } else if (i < 20) {
        request::GenerationRequest next = request;
        next.sampling.seed += 2;
        engine::TokenStream stream = submit(next);
        EXPECT_EQ(third, tokens_of(stream)) << "request " << i;
      }
    }
    EXPECT_GT(engine_->stats().scheduler.prompt_tokens_shared, 0);
    EXPECT_GT(engine_->stats().scheduler.blocks_forked, 0);
    expect_clean("several answers");
    stop();
  }
}

TEST_F(SameAnswers, whoever_leaves_leaves_nothing_behind) {
  LocalExecutor::Options options = short_of_blocks(usual(12), 60);
  options.prefix_cache = true;
  options.swap_bytes = int64_t{1} << 24;
  start(options, {.steps_in_flight_max = 2});
  std::mt19937 random(5);
  std::vector<engine::TokenStream> streams;
  const int cancels = full() ? 1000 : 100;
  for (int i = 0; i < cancels; ++i) {
    streams.push_back(submit((*requests_)[random() % requests_->size()]));
    if (streams.size() < 20) continue;
    const size_t leaving = random() % streams.size();
    if (random() % 3 == 0) streams[leaving].wait();
    std::swap(streams[leaving], streams.back());
    streams.pop_back();
  }
  streams.clear();
  expect_clean("cancels");
  const engine::Ledger ledger = engine_->ledger();
  int held = 0;
  for (const auto& tier : ledger.blocks) {
    for (const engine::Ledger::Blocks& blocks : tier) held += blocks.held;
  }
  EXPECT_EQ(held, 0);
  EXPECT_EQ(ledger.slots_free, 12);
}

}  // namespace
}  // namespace pelton::executor
