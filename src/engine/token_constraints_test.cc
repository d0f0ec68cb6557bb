// Tokens that a reader puts into a sequence's mouth, against a plain loop over the sequence's own
// tokens, while others come, go and are preempted.
#include <atomic>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/engine.h"
#include "engine/modelled_executor.h"

namespace pelton::engine {
namespace {

constexpr int kVocabulary = 40;
constexpr int kWindow = 8;

ModelledExecutor::Options executor_options(int slots, int blocks) {
  ModelledExecutor::Options options;
  options.capacity = {.block_tokens = 4,
                      .groups = {{{.name = "full"}, {blocks, 6}},
                                 {{.name = "window", .sliding_window = kWindow}, {blocks, 6}}},

                      .sequences_max = slots,
                      .batch_tokens_max = 16,
                      .context_tokens_max = 128};
  options.next_token = checksum_tokens(kVocabulary);
  return options;
}

// The same, but nothing is sampled before `may_go`.
ModelledExecutor::Options held_options(const std::atomic<bool>& may_go) {
  ModelledExecutor::Options options = executor_options(1, 60);
  options.next_token = [&may_go, sample = options.next_token](const ModelledExecutor::Seen& seen) {
    may_go.wait(false);
    return sample(seen);
  };
  return options;
}

request::GenerationRequest request_of(uint64_t seed, int prompt, int output) {
  request::GenerationRequest request;
  for (int i = 0; i < prompt; ++i) {
    request.prompt.push_back(
        static_cast<TokenId>(base::random_bits(seed, static_cast<uint64_t>(i)) % kVocabulary));
  }
  request.stop.max_new_tokens = output;
  request.sampling.seed = seed;
  return request;
}

std::vector<TokenId> read_all(TokenStream& stream) {
  std::vector<TokenId> tokens;
  for (;;) {
    const TokenStream::Batch batch = stream.wait();
    for (const SampledToken& token : batch.tokens) tokens.push_back(token.token);
    if (batch.end) return tokens;
  }
}

// What a sequence samples, `forced` standing from where it begins in the result.
std::vector<TokenId> reference(const request::GenerationRequest& request,
                               const std::vector<TokenId>& forced, int position) {
  const auto sample = checksum_tokens(kVocabulary);
  std::vector<TokenId> all = request.prompt;
  const int prompt = static_cast<int>(all.size());
  for (int i = 0; i < request.stop.max_new_tokens; ++i) {
    const int at = i - position;
    if (at >= 0 && at < static_cast<int>(forced.size())) {
      all.push_back(forced[static_cast<size_t>(at)]);
      continue;
    }
    const size_t from = all.size() > kWindow ? all.size() - kWindow : 0;
    all.push_back(sample({.tokens = all,
                          .by_group = {all, std::span(all).subspan(from)},
                          .prompt_count = prompt,
                          .sampling = request.sampling,
                          .banned = {}}));
  }
  return {all.begin() + prompt, all.end()};
}

TEST(TokenConstraints, BeginsWhereItIsAskedTo) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    ModelledExecutor executor(executor_options(3, seed % 2 == 0 ? 60 : 22));
    Engine engine({.steps_in_flight_max = seed % 3 == 0 ? 1 : 2,
                   .hash_seed = seed,
                   .checks_every_step = true},
                  executor, clock, log);
    struct Asked {
      request::GenerationRequest request;
      std::vector<TokenId> forced;
      int position;
      TokenStream stream;
    };
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < 5; ++i) {
      const uint64_t bits = base::random_bits(seed, 1000 + i);
      request::GenerationRequest request =
          request_of(seed * 10 + i, 1 + static_cast<int>(bits % 20), 30);
      TokenConstraints token_constraints{.tokens = {},
                                         .position = static_cast<int>(bits >> 8 & 15)};
      for (uint64_t k = 0; k <= (bits >> 12 & 3); ++k) {
        token_constraints.tokens.push_back(static_cast<TokenId>(k));
      }
      const std::vector<TokenId> forced = token_constraints.tokens;
      const int position = token_constraints.position;
      Result<TokenStream> stream = engine.submit(request);
      ASSERT_TRUE(stream.ok());
      stream->force(std::move(token_constraints));
      asked.push_back({std::move(request), forced, position, std::move(*stream)});
    }
    for (Asked& one : asked) {
      const std::vector<TokenId> tokens = read_all(one.stream);
      // The engine may be ahead of the request by some tokens, never late where it was not.
      bool found = false;
      for (int position = one.position; position <= 30 && !found; ++position) {
        found = tokens == reference(one.request, one.forced, position);
      }
      EXPECT_TRUE(found) << "PELTON_SEED=" << seed;
    }
  }
}

TEST(TokenConstraints, AWishInTimeIsMetToTheToken) {
  base::VirtualClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  std::atomic<bool> may_go{false};
  ModelledExecutor executor(held_options(may_go));
  Engine engine({.hash_seed = 1}, executor, clock, log);
  // The slot is taken until this one is cancelled, so that the request is there before the first
  // step.
  Result<TokenStream> first = engine.submit(request_of(1, 4, 100));
  const request::GenerationRequest request = request_of(2, 6, 40);
  Result<TokenStream> second = engine.submit(request);
  ASSERT_TRUE(first.ok() && second.ok());
  second->force({.tokens = {1, 2, 3}, .position = 17});
  first->cancel();
  may_go.store(true);
  may_go.notify_all();
  EXPECT_EQ(read_all(*second), reference(request, {1, 2, 3}, 17));
}

TEST(TokenConstraints, IsDroppedIfTheTokenHasComeMeanwhile) {
  base::VirtualClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const request::GenerationRequest request = request_of(3, 6, 40);
  const std::vector<TokenId> free = reference(request, {}, 0);
  for (const int since : {0, 12}) {
    std::atomic<bool> may_go{false};
    ModelledExecutor executor(held_options(may_go));
    Engine engine({.hash_seed = 1}, executor, clock, log);
    Result<TokenStream> first = engine.submit(request_of(1, 4, 100));
    Result<TokenStream> second = engine.submit(request);
    ASSERT_TRUE(first.ok() && second.ok());
    const TokenId seen = free[5];
    second->force({.tokens = {1, 2}, .position = 14, .unless = {seen}, .since = since});
    first->cancel();
    may_go.store(true);
    may_go.notify_all();
    const bool comes_later =
        std::find(free.begin() + since, free.begin() + 14, seen) != free.begin() + 14;
    EXPECT_EQ(read_all(*second), comes_later ? free : reference(request, {1, 2}, 14)) << since;
  }
}

// A slice begins behind 7 8 9 and goes on with 5 until it is made to end; later another begins.
TEST(Quota, IsKeptToTheToken) {
  base::VirtualClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  for (const int steps_in_flight : {1, 2}) {
    for (const int tokens_max : {1, 2, 6, 20}) {
      ModelledExecutor::Options options = executor_options(2, 60);
      options.next_token = [](const ModelledExecutor::Seen& seen) -> TokenId {
        const TokenId last = seen.tokens.back();
        if (last == 7 || last == 8) return last + 1;
        if (last == 9 || last == 5) return 5;
        return 7;  // behind the prompt, and behind what was forced
      };
      ModelledExecutor executor(std::move(options));
      Engine engine({.steps_in_flight_max = steps_in_flight, .hash_seed = 1}, executor, clock, log);
      request::GenerationRequest request;
      request.prompt = {30, 31};
      request.stop.max_new_tokens = 50;
      request.quota = {.tokens_max = tokens_max,
                       .begins = {7, 8, 9},
                       .ends = {1},
                       .then = {1, 2, 3},
                       .then_at_once = {1, 4}};
      Result<TokenStream> stream = engine.submit(std::move(request));
      ASSERT_TRUE(stream.ok());
      const std::vector<TokenId> tokens = read_all(*stream);
      ASSERT_EQ(tokens.size(), 50u);
      std::vector<TokenId> expected = {7, 8, 9};
      expected.insert(expected.end(), static_cast<size_t>(tokens_max), 5);
      expected.insert(expected.end(), {1, 2, 3, 7, 8, 9});
      EXPECT_EQ(std::vector<TokenId>(tokens.begin(),
                                     tokens.begin() + static_cast<ptrdiff_t>(expected.size())),
                expected)
          << tokens_max;
      // Nothing is left: not a token of what was begun.
      const size_t at = expected.size();
      EXPECT_EQ(tokens[at], 1);
      EXPECT_EQ(tokens[at + 1], 4);
    }
  }
}

// The prompt is within a slice: its first token counts, and of none left nothing is sampled.
TEST(Quota, CountsFromTheFirstTokenWhereThePromptHasBegun) {
  base::VirtualClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  for (const int steps_in_flight : {1, 2}) {
    for (const int tokens_max : {0, 1, 4}) {
      ModelledExecutor::Options options = executor_options(2, 60);
      options.next_token = [](const ModelledExecutor::Seen& seen) -> TokenId {
        const bool is_within = seen.tokens.back() == 5 || seen.tokens.back() == 31;
        return is_within ? 5 : 6;
      };
      ModelledExecutor executor(std::move(options));
      Engine engine({.steps_in_flight_max = steps_in_flight, .hash_seed = 1}, executor, clock, log);
      request::GenerationRequest request;
      request.prompt = {30, 31};
      request.stop.max_new_tokens = 10;
      request.quota = {.tokens_max = tokens_max,
                       .begins = {7, 8, 9},
                       .ends = {1},
                       .then = {1, 2},
                       .then_at_once = {1, 4},
                       .begun = true};
      Result<TokenStream> stream = engine.submit(std::move(request));
      ASSERT_TRUE(stream.ok());
      std::vector<TokenId> expected(static_cast<size_t>(tokens_max), 5);
      expected.insert(expected.end(), {1, tokens_max > 0 ? 2 : 4});
      expected.resize(10, 6);
      EXPECT_EQ(read_all(*stream), expected) << tokens_max;
    }
  }
}

TEST(Repetition, EndsWhatGoesInCircles) {
  base::VirtualClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  for (const int period : {1, 2, 5}) {
    ModelledExecutor::Options options = executor_options(1, 60);
    // Seven tokens of its own, then the same again and again.
    options.next_token = [period](const ModelledExecutor::Seen& seen) {
      const int at = static_cast<int>(seen.tokens.size()) - seen.prompt_count;
      return static_cast<TokenId>(at < 7 ? 20 + at : at % period);
    };
    ModelledExecutor executor(std::move(options));
    Engine engine({}, executor, clock, log);
    request::GenerationRequest request = request_of(1, 4, 100);
    request.stop.repetition = {.pattern_min = 1, .pattern_max = 5, .count = 4};
    Result<TokenStream> stream = engine.submit(request);
    ASSERT_TRUE(stream.ok());
    std::vector<TokenId> tokens;
    std::optional<StreamEnd> end;
    while (!end) {
      TokenStream::Batch batch = stream->wait();
      for (const SampledToken& token : batch.tokens) tokens.push_back(token.token);
      end = batch.end;
    }
    EXPECT_EQ(end->reason, FinishReason::kRepetition);
    EXPECT_EQ(tokens.size(), 7u + static_cast<size_t>(4 * period));
  }
}

}  // namespace
}  // namespace pelton::engine
