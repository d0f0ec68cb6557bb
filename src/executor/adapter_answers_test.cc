// Requests of the model itself and of six LoRA adapters in one batch: each is answered with the
// tokens that it has alone, whatever runs beside it, in whatever chunks, preempted, swapped out,
// found in the cache, guessed at. On testdata/golden/tiny, with random adapters of three layouts.
// PELTON_SEED=N repeats a run; PELTON_FULL=1 asks 200 prompts.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/engine.h"
#include "executor/loaded_adapter.h"
#include "executor/local_executor.h"
#include "lora/adapter_file.h"
#include "lora/random_adapter.h"
#include "tensor/kv_block.h"

namespace pelton::executor {
namespace {

using Tokens = std::vector<TokenId>;

uint64_t run_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("PELTON_SEED");
    const uint64_t drawn =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(drawn));
    return drawn;
  }();
  return seed;
}

class AdapterAnswers : public testing::Test {
 protected:
  static constexpr int kAdapters = 6;
  static constexpr int kLongAnswers = 12;

  static void SetUpTestSuite() {
    checkpoint_ = new checkpoint::Checkpoint(
        checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
            .value());
    folder_ =
        std::filesystem::temp_directory_path() / ("pelton_adapters_" + std::to_string(getpid()));
    for (int i = 0; i < kAdapters; ++i) adapters_.push_back(make_adapter(i));
    make_requests(std::getenv("PELTON_FULL") != nullptr ? 200 : 40);
  }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(folder_);
    requests_.clear();
    adapters_.clear();
    delete checkpoint_;
  }
  void TearDown() override { stop(); }

  static request::AdapterRef load(const std::string& path) {
    auto loaded = lora::Adapter::load(path, checkpoint_->config(), {});
    CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
    const int64_t identity = loaded->identity();
    return {.identity = identity,
            .weights = std::make_shared<LoadedAdapter>(std::move(loaded).value())};
  }

  static std::string write(const std::string& name, const lora::RandomAdapter& random,
                           lora::WrittenLayout layout) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(folder_);
    const Result<void> written =
        lora::write_random_adapter(random, checkpoint_->config(), layout, path);
    CHECK(written.ok(), written.ok() ? "" : written.error().message);
    return path;
  }

  // Attention alone, experts alone and both; ranks 1 to 8.
  static request::AdapterRef make_adapter(int i) {
    lora::RandomAdapter random{.seed = run_seed() + static_cast<uint64_t>(i)};
    random.parts = i % 3 == 0   ? std::vector<std::string>{"q", "k", "v", "o"}
                   : i % 3 == 1 ? std::vector<std::string>{"gate_up", "down"}
                                : std::vector<std::string>{"q", "v", "gate_up", "down"};
    random.rank = 1 << (i % 4);
    random.alpha = 16 * random.rank;
    constexpr lora::WrittenLayout kLayouts[] = {
        lora::WrittenLayout::kPeft, lora::WrittenLayout::kPerExpert, lora::WrittenLayout::kStacked};
    return load(write("a" + std::to_string(i), random, kLayouts[i % 3]));
  }

  // Many prompts begin as an earlier one does, also one of another adapter. The first ones' answers
  // are longer than their prompts: where blocks are short, one of them has to give way.
  static void make_requests(int count) {
    std::mt19937_64 random(run_seed());
    const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
    for (int i = 0; i < count; ++i) {
      request::GenerationRequest one;
      const bool is_long_answer = i < kLongAnswers;
      if (i > 0 && below(4) > 0 && !is_long_answer)
        one.prompt = requests_[static_cast<size_t>(below(i))].prompt;
      const bool is_long_prompt = below(10) == 0 && !is_long_answer;
      const int more = is_long_prompt ? 100 + below(200) : 1 + below(40);
      for (int k = 0; k < more; ++k) one.prompt.push_back(below(checkpoint_->config().vocab_size));
      if (one.prompt.size() > 400) one.prompt.resize(400);
      one.stop.max_new_tokens = (is_long_answer ? 64 : 4) + below(24);
      one.sampling.temperature = i % 3 == 2 ? 1.0f : 0.0f;
      one.sampling.seed = random();
      const int adapter = below(kAdapters + 1);
      if (adapter < kAdapters) one.adapter = adapters_[static_cast<size_t>(adapter)];
      // Some act from somewhere in the prompt on, or on the answer alone.
      if (adapter < kAdapters && below(3) == 0) {
        one.adapter.acts_from = 1 + below(static_cast<int>(one.prompt.size()));
      }
      requests_.push_back(std::move(one));
    }
    // Whatever was drawn, the last one begins as an early one of the same adapter does.
    const request::GenerationRequest& early = *std::max_element(
        requests_.begin(), requests_.begin() + count / 2,
        [](const request::GenerationRequest& a, const request::GenerationRequest& b) {
          return a.prompt.size() < b.prompt.size();
        });
    requests_.back().prompt = early.prompt;
    requests_.back().adapter = early.adapter;
  }

  static LocalExecutor::Options usual(int sequences_max) {
    LocalExecutor::Options options;
    options.threads = 1;
    options.sequences_max = sequences_max;
    options.prefix_cache = false;
    options.context_tokens = 448;
    options.kv_bytes = int64_t{1} << 28;
    options.adapters_max = kAdapters;
    options.adapters_kept_max = kAdapters;
    options.adapter_limits.rank_max = 8;
    return options;
  }

  static LocalExecutor::Options short_of_blocks(LocalExecutor::Options options, int blocks) {
    LocalExecutor::Options uncached = options;
    uncached.prefix_cache = false;
    uncached.swap_bytes = 0;
    const auto ample = cost_model::footprint(
        *checkpoint_, *LocalExecutor::memory_request(uncached, checkpoint_->config()));
    CHECK(ample.ok(), ample.ok() ? "" : ample.error().message);
    options.kv_bytes = ample->kv.groups[0].spec.block_bytes * blocks + ample->kv.groups[1].bytes();
    return options;
  }

  static void start(const LocalExecutor::Options& options, engine::Engine::Options engine) {
    engine.inbox_max = 1 << 12;
    auto made = LocalExecutor::create(*checkpoint_, options);
    CHECK(made.ok(), made.ok() ? "" : made.error().message);
    executor_ = std::move(made).value();
    engine_ = std::make_unique<engine::Engine>(engine, *executor_, clock_, log_);
  }
  static void stop() {
    engine_.reset();
    executor_.reset();
  }

  static Tokens answer(engine::TokenStream& stream) {
    Tokens tokens;
    while (true) {
      const engine::TokenStream::Batch batch = stream.wait();
      for (const engine::SampledToken& token : batch.tokens) tokens.push_back(token.token);
      if (!batch.end) continue;
      EXPECT_FALSE(batch.end->error.has_value()) << batch.end->error->message;
      return tokens;
    }
  }
  static Tokens ask(const request::GenerationRequest& request) {
    engine::TokenStream stream = engine_->submit(request).value();
    return answer(stream);
  }

  // With keys and values of this type.
  using KvType = std::optional<tensor::DType>;
  static const std::vector<Tokens>& alone(KvType kv) {
    static std::map<KvType, std::vector<Tokens>> all;
    std::vector<Tokens>& made = all[kv];
    if (!made.empty()) return made;
    LocalExecutor::Options options = usual(1);
    options.kv_dtype = kv;
    start(options, {.prefix_cache = false});
    for (const auto& request : requests_) made.push_back(ask(request));
    stop();
    return made;
  }

  static void expect_the_same(const std::string& where, const std::vector<Tokens>& own) {
    std::vector<engine::TokenStream> streams;
    for (const auto& request : requests_) streams.push_back(engine_->submit(request).value());
    for (size_t i = 0; i < streams.size(); ++i) {
      EXPECT_EQ(answer(streams[i]), own[i]) << where << ", request " << i;
    }
    engine_->drain(60'000);
    for (int i = 0; i < 2000 && !engine_->ledger().clean(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(engine_->ledger().clean()) << where;
  }

  static void in_company(const std::string& where, const LocalExecutor::Options& options,
                         engine::Engine::Options engine) {
    const std::vector<Tokens>& own = alone(options.kv_dtype);
    engine.prefix_cache = options.prefix_cache;
    start(options, engine);
    expect_the_same(where, own);
  }

  static inline checkpoint::Checkpoint* checkpoint_ = nullptr;
  static inline std::filesystem::path folder_;
  static inline std::vector<request::AdapterRef> adapters_;
  static inline std::vector<request::GenerationRequest> requests_;
  static inline base::SystemClock clock_;
  static inline base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  static inline std::unique_ptr<LocalExecutor> executor_;
  static inline std::unique_ptr<engine::Engine> engine_;
};

TEST_F(AdapterAnswers, differ_by_adapter) {
  start(usual(1), {.prefix_cache = false});
  request::GenerationRequest one = requests_.front();
  one.sampling.temperature = 0;
  one.stop.max_new_tokens = 24;
  std::set<Tokens> answers;
  one.adapter = {};
  answers.insert(ask(one));
  for (const auto& adapter : adapters_) {
    one.adapter = adapter;
    answers.insert(ask(one));
  }
  EXPECT_GE(answers.size(), 4u) << "the adapters do nothing";
}

TEST_F(AdapterAnswers, in_chunks_and_in_one_batch) {
  for (const int chunk : {1, 7, 64, 512}) {
    LocalExecutor::Options options = usual(16);
    options.batch_tokens_max = chunk;
    in_company("chunks of " + std::to_string(chunk), options, {.steps_in_flight_max = 2});
    stop();
  }
}

TEST_F(AdapterAnswers, when_preempted_or_swapped_out) {
  for (const int64_t swap_bytes : {int64_t{0}, int64_t{1} << 26}) {
    LocalExecutor::Options options = short_of_blocks(usual(12), 30);
    options.swap_bytes = swap_bytes;
    in_company(swap_bytes > 0 ? "swap" : "preemption", options, {});
    const engine::SchedulerCounters counters = engine_->stats().scheduler;
    EXPECT_GT(swap_bytes > 0 ? counters.preemptions_swap : counters.preemptions_recompute, 0);
    stop();
  }
}

TEST_F(AdapterAnswers, with_a_prefix_cache) {
  LocalExecutor::Options options = usual(16);
  options.prefix_cache = true;
  in_company("cache", options, {});
  EXPECT_GT(engine_->stats().prefix_tokens_found, 0);
}

// Also when those who guess remember other adapters' answers. (Heads and draft models need a model
// that they were made for: tests/lora_box_test.py.)
TEST_F(AdapterAnswers, with_guesses) {
  for (const char* config :
       {R"({"method":"suffix","adaptive":false})", R"({"method":"suffix_shared","adaptive":false})",
        R"({"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":1})",
        R"({"method":"lookahead","num_speculative_tokens":4,"adaptive":false})"}) {
    LocalExecutor::Options options = usual(16);
    options.speculation = speculative::parse_config(config).value();
    options.prefix_cache = true;
    in_company(config, options, {});
    EXPECT_GT(engine_->stats().scheduler.draft_tokens, 0) << config;
    stop();
  }
}

// Each type of keys and values has answers of its own, and they are the same in any company too.
TEST_F(AdapterAnswers, with_keys_and_values_of_eight_bits) {
  for (const auto type : {tensor::DType::kF8E4m3, tensor::DType::kI8}) {
    const std::string where(tensor::kv_type_name(type));
    LocalExecutor::Options options = usual(16);
    options.kv_dtype = type;
    options.prefix_cache = true;
    options.batch_tokens_max = 64;
    options.speculation =
        speculative::parse_config(
            R"({"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":1})")
            .value();
    in_company(where, options, {.steps_in_flight_max = 2});
    EXPECT_GT(engine_->stats().prefix_tokens_found, 0) << where;
    EXPECT_GT(engine_->stats().scheduler.draft_tokens, 0) << where;
    stop();
    LocalExecutor::Options short_of = short_of_blocks(options, 60);
    short_of.swap_bytes = int64_t{1} << 26;
    in_company(where + ", swap", short_of, {});
    stop();
    if (type == tensor::DType::kI8) {
      EXPECT_NE(alone(type), alone({})) << "nothing was rounded";
    }
  }
}

TEST_F(AdapterAnswers, when_two_may_run_at_once) {
  LocalExecutor::Options options = usual(8);
  options.adapters_max = 2;
  in_company("two at once", options, {.steps_in_flight_max = 2});
}

// The model's blocks are not an adapter's, nor one adapter's another's; those of two names of one
// adapter are.
TEST_F(AdapterAnswers, LR_08_share_blocks_with_the_same_adapter_alone) {
  LocalExecutor::Options options = usual(4);
  options.prefix_cache = true;
  start(options, {});
  request::GenerationRequest one;
  for (int i = 0; i < 128; ++i) one.prompt.push_back(1 + i % 90);
  one.stop.max_new_tokens = 2;
  const auto found_by = [&](const request::AdapterRef& adapter) {
    one.adapter = adapter;
    const int64_t before = engine_->stats().prefix_tokens_found;
    (void)ask(one);
    return engine_->stats().prefix_tokens_found - before;
  };
  EXPECT_EQ(found_by({}), 0);
  EXPECT_EQ(found_by(adapters_[0]), 0);
  EXPECT_EQ(found_by(adapters_[1]), 0);
  EXPECT_GT(found_by({}), 0);
  EXPECT_GT(found_by(load(folder_ / "a0")), 0);  // read anew: the same numbers
  // Other numbers under the same name.
  lora::RandomAdapter other{.seed = run_seed() + 99, .rank = 4};
  std::filesystem::remove_all(folder_ / "a1");
  const request::AdapterRef replaced = load(write("a1", other, lora::WrittenLayout::kPeft));
  EXPECT_NE(replaced.identity, adapters_[1].identity);
  EXPECT_EQ(found_by(replaced), 0);
}

TEST(Invocation, IsTheLastOfThePrompt) {
  const Tokens invocation = {7, 8};
  const Tokens prompt = {1, 7, 8, 2, 7, 8, 3};
  EXPECT_EQ(request::acts_from(invocation, prompt), 4);
  EXPECT_EQ(request::acts_from(invocation, Tokens{7, 1, 8}), std::nullopt);
  EXPECT_EQ(request::acts_from(invocation, Tokens{}), std::nullopt);
  EXPECT_EQ(request::acts_from({}, prompt), 0);
}

// Before its invocation an activated adapter's blocks are the model's own.
TEST_F(AdapterAnswers, from_an_invocation_on_find_the_models_blocks) {
  request::GenerationRequest one;
  for (int i = 0; i < 128; ++i) one.prompt.push_back(1 + i * i % 90);
  one.stop.max_new_tokens = 24;
  const auto from = [](int adapter, int32_t position) {
    request::AdapterRef ref = adapters_[static_cast<size_t>(adapter)];
    ref.acts_from = position;
    return ref;
  };
  const auto answered = [&](const request::AdapterRef& adapter) {
    one.adapter = adapter;
    return ask(one);
  };
  start(usual(1), {.prefix_cache = false});
  const Tokens base = answered({});
  const Tokens plain = answered(from(2, 0));
  const Tokens activated = answered(from(2, 70));
  EXPECT_NE(activated, base);
  EXPECT_NE(activated, plain);
  EXPECT_EQ(answered(from(2, 1000)), base);
  stop();

  LocalExecutor::Options options = usual(4);
  options.prefix_cache = true;
  start(options, {});
  const auto found_by = [&](const request::AdapterRef& adapter, const Tokens& wanted) {
    const int64_t before = engine_->stats().prefix_tokens_found;
    const Tokens got = answered(adapter);
    if (!wanted.empty()) {
      EXPECT_EQ(got, wanted);
    }
    return engine_->stats().prefix_tokens_found - before;
  };
  const int block = executor_->capacity().block_tokens;
  const int64_t shared = 70 / block * block;
  EXPECT_EQ(found_by({}, base), 0);
  EXPECT_EQ(found_by(from(2, 70), activated), shared);
  EXPECT_GT(found_by(from(2, 70), activated), shared);
  EXPECT_EQ(found_by(from(1, 70), {}), shared);
  EXPECT_EQ(found_by(from(2, 71), {}), shared) << "from elsewhere in the same block";
  EXPECT_EQ(found_by(from(2, 0), plain), 0);
  EXPECT_GT(found_by({}, base), shared);
}

TEST_F(AdapterAnswers, of_zeros_are_the_models_to_the_bit) {
  lora::RandomAdapter zeros{.seed = run_seed(), .parts = {"q", "k", "v", "o", "gate_up", "down"}};
  zeros.zero = true;
  const request::AdapterRef zero = load(write("zero", zeros, lora::WrittenLayout::kPeft));
  start(usual(4), {.prefix_cache = false});
  for (size_t i = 0; i < 10; ++i) {
    request::GenerationRequest one = requests_[i];
    one.sampling.logprobs = 3;
    one.adapter = {};
    engine::TokenStream plain = engine_->submit(one).value();
    one.adapter = zero;
    engine::TokenStream adapted = engine_->submit(one).value();
    std::vector<std::pair<TokenId, float>> of_both[2];
    for (auto* stream : {&plain, &adapted}) {
      while (true) {
        const engine::TokenStream::Batch batch = stream->wait();
        for (const engine::SampledToken& token : batch.tokens) {
          of_both[stream == &adapted].emplace_back(token.token, token.logprob);
        }
        if (batch.end) break;
      }
    }
    EXPECT_EQ(of_both[0], of_both[1]) << "request " << i;
  }
}

TEST_F(AdapterAnswers, are_refused_where_none_are_computed) {
  LocalExecutor::Options options = usual(2);
  options.adapters_max = 0;
  start(options, {});
  request::GenerationRequest one = requests_.front();
  one.adapter = adapters_.front();
  const auto refused = engine_->submit(one);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().field, "model");
}

// What steps keep for adapters is planned to the byte (HostModel CHECKs it), and what is kept of
// adapters is part of the plan.
TEST_F(AdapterAnswers, are_part_of_the_plan) {
  for (const auto targets : {lora::Targets::kAttention, lora::Targets::kAll}) {
    for (const char* kernels : {"auto", "reference"}) {
      LocalExecutor::Options options = usual(2);
      options.kernels = kernels;
      options.adapter_limits.targets = targets;
      start(options, {});
      const int64_t place = adapter_place_bytes(checkpoint_->config(), options.adapter_limits);
      EXPECT_EQ(executor_->footprint().adapter_bytes,
                (kAdapters + 1) * place + lora::kFileTileBytes);
      EXPECT_GT(executor_->footprint().workspace.adapters, 0);
      stop();
    }
  }
}

}  // namespace
}  // namespace pelton::executor
