// Answers that follow a grammar, where sequences make room for each other: what comes out is what
// comes out undisturbed, and all of it follows.
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"
#include "grammar/ebnf.h"

namespace pelton::engine {
namespace {

constexpr TokenId kEnd = 300;
constexpr int kVocabulary = 301;

// The 256 bytes and some pairs; the end is no text.
std::shared_ptr<const grammar::TokenTrie> make_trie() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* more : {"ab", "ba", "aa", "c1", "1c", "abab"}) texts.emplace_back(more);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return std::make_shared<const grammar::TokenTrie>(views);
}

const std::shared_ptr<const grammar::TokenTrie>& small_trie() {
  static const std::shared_ptr<const grammar::TokenTrie> kTrie = make_trie();
  return kTrie;
}

const std::shared_ptr<const grammar::TokenGrammar>& words() {
  static const auto kGrammar =
      grammar::TokenGrammar::make(
          grammar::compile_ebnf("root ::= (\"ab\" | \"c\" [0-9] | \"(\" root \")\" | "
                                "\"zababc1ababc1ababc1ababab\"){6,12}")
              .value(),
          small_trie())
          .value();
  return kGrammar;
}

grammar::GrammarState guide() {
  using Segment = grammar::GrammarFsm::Segment;
  grammar::GrammarFsm::Parts parts{.trie = small_trie(), .vocab_size = kVocabulary};
  parts.segments.push_back({Segment::Text::kGrammar, words(), {{kEnd, {}}}});
  parts.starts = {0};
  return grammar::GrammarState(std::make_shared<const grammar::GrammarFsm>(std::move(parts)));
}

request::GenerationRequest guided(uint64_t seed, float repetition_penalty) {
  request::GenerationRequest request;
  for (int i = 0; i < 12; ++i) {
    request.prompt.push_back(
        static_cast<TokenId>(base::random_bits(seed, static_cast<uint64_t>(i)) % 256));
  }
  request.stop = {.max_new_tokens = 60, .stop_tokens = {kEnd}};
  request.sampling.seed = seed;
  request.sampling.repetition_penalty = repetition_penalty;
  request.guide = guide();
  return request;
}

struct Outcome {
  std::map<SequenceId, std::vector<TokenId>> outputs;
  std::map<SequenceId, FinishReason> reasons;
  SchedulerCounters counters;
  int rows = 0;  // that the executor carried out
  int64_t deferrals = 0;
};

struct How {
  float repetition_penalty = 1.0f;
  int jump_tokens_max = 0;
  int steps_in_flight = 2;
  int logprobs = -1;
  int fail_every = 0;   // a step in so many fails
  int defer_every = 0;  // a row in so many, on average, is deferred
  bool prefix_cache = true;
  uint64_t seed = 1;  // of what is forced, cancelled and deferred
};

// Draws which rows are deferred, and for how long.
class Deferrals {
 public:
  Deferrals(uint64_t seed, int every) : seed_(seed), every_(every) {}

  std::shared_ptr<const Deferral> draw() {
    if (every_ == 0 || base::random_bits(seed_, drawn_++) % static_cast<uint64_t>(every_) != 0) {
      return nullptr;
    }
    ++count_;
    open_.push_back(std::make_shared<Deferral>());
    return open_.back();
  }
  // Some are over.
  void pass() {
    std::erase_if(open_, [&](const std::shared_ptr<Deferral>& one) {
      if (base::random_bits(seed_, drawn_++) % 4 != 0) return false;
      one->is_over = true;
      return true;
    });
  }
  int64_t count() const { return count_; }

 private:
  const uint64_t seed_;
  const int every_;
  uint64_t drawn_ = 0;
  int64_t count_ = 0;
  std::vector<std::shared_ptr<Deferral>> open_;
};

Outcome run(const ExecutorCapacity& capacity, const How& how) {
  Scheduler scheduler(capacity, {.prefix_cache = how.prefix_cache, .hash_seed = 1});
  ModelledExecutor::Options options{.capacity = capacity,
                                    .next_token = checksum_tokens(kVocabulary),
                                    .jump_tokens_max = how.jump_tokens_max};
  Deferrals deferrals(how.seed, how.defer_every);
  options.defer = [&](const ScheduledRow&) { return deferrals.draw(); };
  if (how.fail_every > 0) {
    options.fail_step = [&how](const StepPlan& plan) -> std::optional<Error> {
      if (plan.step % how.fail_every != how.fail_every - 1) return std::nullopt;
      return Error{ErrorCode::kInternal, "drawn"};
    };
  }
  ModelledExecutor executor(std::move(options));
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    request::GenerationRequest request = guided(seed, how.repetition_penalty);
    request.sampling.logprobs = how.logprobs;
    EXPECT_TRUE(scheduler.submit_answers(std::move(request), 2).ok());
  }
  Outcome outcome;
  std::vector<Scheduler::Event> happened;
  int in_flight = 0;
  while (true) {
    StepPlan plan = scheduler.plan(0);
    const bool planned = !plan.empty();
    outcome.rows += static_cast<int>(plan.sequences.size());
    if (planned) executor.submit(std::move(plan));
    if (planned) ++in_flight;
    deferrals.pass();
    if (in_flight == 0 && !scheduler.any_deferred()) break;
    if (in_flight == 0 || (planned && in_flight < how.steps_in_flight)) continue;
    scheduler.commit(executor.collect());
    --in_flight;
    scheduler.check_integrity();
    scheduler.take_events(happened);
    for (const Scheduler::Event& event : happened) {
      if (event.token) outcome.outputs[event.id].push_back(event.token->token);
      if (event.end) outcome.reasons[event.id] = event.end->reason;
    }
  }
  outcome.counters = scheduler.counters();
  outcome.deferrals = deferrals.count();
  EXPECT_EQ(scheduler.ledger().draining, 0);
  EXPECT_EQ(scheduler.ledger().running, 0);
  return outcome;
}

ExecutorCapacity capacity(int blocks, int host_blocks) {
  return {.block_tokens = 4,
          .groups = {{{.name = "full"}, {blocks, host_blocks}},
                     {{.name = "window", .sliding_window = 10}, {blocks, host_blocks}}},

          .sequences_max = 6,
          .batch_tokens_max = 32,
          .context_tokens_max = 96};
}

TEST(Guided, making_room_changes_nothing) {
  for (const How& how : {How{}, How{.repetition_penalty = 1.1f}, How{.jump_tokens_max = 16},
                         How{.repetition_penalty = 1.1f, .jump_tokens_max = 3}}) {
    How one_by_one = how;
    one_by_one.steps_in_flight = 1;
    const Outcome roomy = run(capacity(400, 0), how);
    const Outcome computed_again = run(capacity(26, 0), how);
    const Outcome swapped = run(capacity(26, 100), how);
    EXPECT_EQ(run(capacity(400, 0), one_by_one).outputs, roomy.outputs);
    EXPECT_EQ(run(capacity(26, 100), one_by_one).outputs, roomy.outputs);
    EXPECT_GT(computed_again.counters.preemptions_recompute, 0);
    EXPECT_GT(swapped.counters.preemptions_swap, 0);
    EXPECT_EQ(computed_again.outputs, roomy.outputs);
    EXPECT_EQ(swapped.outputs, roomy.outputs);
    ASSERT_EQ(roomy.outputs.size(), 16u);
    int ended = 0;
    for (const auto& [id, tokens] : roomy.outputs) {
      grammar::GrammarState follower = guide();
      for (const TokenId token : tokens) ASSERT_TRUE(follower.accept(token));
      const bool stopped = roomy.reasons.at(id) == FinishReason::kStop;
      EXPECT_EQ(follower.over(), stopped);
      if (stopped) ++ended;
    }
    EXPECT_GT(ended, 0);
  }
}

// What need not be chosen is not computed token by token; unless somebody asks how likely it was.
TEST(Guided, jumps_save_rows) {
  const auto tokens = [](const Outcome& outcome) {
    size_t all = 0;
    for (const auto& [id, output] : outcome.outputs) all += output.size();
    return static_cast<double>(all);
  };
  for (const int steps_in_flight : {1, 2}) {
    const Outcome without = run(capacity(400, 0), {.steps_in_flight = steps_in_flight});
    const Outcome with =
        run(capacity(400, 0), {.jump_tokens_max = 16, .steps_in_flight = steps_in_flight});
    const Outcome asked =
        run(capacity(400, 0),
            {.jump_tokens_max = 16, .steps_in_flight = steps_in_flight, .logprobs = 2});
    EXPECT_LT(with.rows / tokens(with), 0.9 * without.rows / tokens(without));
    EXPECT_EQ(asked.outputs, without.outputs);
  }
}

TEST(Guided, jumps_never_pass_the_limit) {
  const Outcome outcome = run(capacity(400, 0), {.jump_tokens_max = 16});
  for (const auto& [id, output] : outcome.outputs) {
    EXPECT_LE(output.size(), 60u);
    if (outcome.reasons.at(id) == FinishReason::kLength) {
      EXPECT_EQ(output.size(), 60u);
    } else {
      EXPECT_EQ(output.back(), kEnd);
    }
  }
}

// D1: a row whose mask takes long sits out steps, and gets the tokens that it would have got; also
// where sequences make room for each other meanwhile, jump, or are forced to say something.
TEST(Guided, D1_deferred_rows_get_the_same_tokens) {
  const char* const given = std::getenv("PELTON_SEED");
  const uint64_t first =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}() % 100'000;
  for (uint64_t seed = first; seed < first + 6; ++seed) {
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
    for (const How& how : {How{}, How{.repetition_penalty = 1.1f}, How{.jump_tokens_max = 16},
                           How{.prefix_cache = false},
                           How{.jump_tokens_max = 3, .logprobs = 2, .prefix_cache = false}}) {
      const Outcome plain = run(capacity(400, 0), how);
      for (const int steps_in_flight : {1, 2}) {
        for (const int every : {2, 7}) {
          How deferred = how;
          deferred.steps_in_flight = steps_in_flight;
          deferred.defer_every = every;
          deferred.seed = seed;
          const Outcome roomy = run(capacity(400, 0), deferred);
          EXPECT_GT(roomy.deferrals, 0);
          EXPECT_EQ(roomy.outputs, plain.outputs);
          EXPECT_EQ(roomy.reasons, plain.reasons);
          EXPECT_EQ(run(capacity(26, 0), deferred).outputs, plain.outputs);
          EXPECT_EQ(run(capacity(26, 100), deferred).outputs, plain.outputs);
        }
      }
    }
  }
}

// Words that are put into a sequence come whole and once, though its rows are deferred.
TEST(Guided, D1_deferred_rows_are_forced_all_the_same) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<std::vector<TokenId>> outputs;
    for (const int every : {0, 2}) {
      Deferrals deferrals(seed, every);
      Scheduler scheduler(capacity(400, 0), {.hash_seed = 1});
      ModelledExecutor executor({.capacity = capacity(400, 0),
                                 .next_token = checksum_tokens(kVocabulary),
                                 .defer = [&](const ScheduledRow&) { return deferrals.draw(); }});
      const SequenceId id = scheduler.submit(guided(seed, 1.0f)).value();
      scheduler.force(id, {.tokens = {'(', 'c', '7'}, .position = 0});
      std::vector<TokenId> output;
      std::vector<Scheduler::Event> happened;
      int in_flight = 0;
      for (;;) {
        StepPlan plan = scheduler.plan(0);
        const bool planned = !plan.empty();
        if (planned) executor.submit(std::move(plan));
        if (planned) ++in_flight;
        deferrals.pass();
        if (in_flight == 0 && !scheduler.any_deferred()) break;
        if (in_flight == 0 || (planned && in_flight < 2)) continue;
        scheduler.commit(executor.collect());
        --in_flight;
        scheduler.take_events(happened);
        for (const Scheduler::Event& event : happened) {
          if (event.token) output.push_back(event.token->token);
        }
      }
      ASSERT_GE(output.size(), 3u);
      EXPECT_EQ((std::vector<TokenId>(output.begin(), output.begin() + 3)),
                (std::vector<TokenId>{'(', 'c', '7'}));
      outputs.push_back(std::move(output));
    }
    EXPECT_EQ(outputs[0], outputs[1]);
  }
}

// Whoever is in a failed step ends; the others go on as if nothing had been.
TEST(Guided, jumps_outlive_failed_steps) {
  for (const int fail_every : {5, 7, 11}) {
    for (const int blocks : {26, 400}) {
      for (const int defer_every : {0, 3}) {
        const Outcome outcome =
            run(capacity(blocks, 40),
                {.jump_tokens_max = 16, .fail_every = fail_every, .defer_every = defer_every});
        EXPECT_EQ(outcome.reasons.size(), 16u);
        for (const auto& [id, tokens] : outcome.outputs) {
          grammar::GrammarState follower = guide();
          for (const TokenId token : tokens) ASSERT_TRUE(follower.accept(token));
        }
      }
    }
  }
}

// An end that must come comes before min_new_tokens, and nothing behind it.
TEST(Guided, a_format_ends_where_it_ends) {
  for (const int jump_tokens_max : {0, 16}) {
    Scheduler scheduler(capacity(400, 0), {.hash_seed = 1});
    ModelledExecutor executor({.capacity = capacity(400, 0),
                               .next_token = checksum_tokens(kVocabulary),
                               .jump_tokens_max = jump_tokens_max});
    request::GenerationRequest request = guided(3, 1.0f);
    request.stop.max_new_tokens = 80;
    request.stop.min_new_tokens = 80;
    ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    std::vector<TokenId> output;
    std::vector<Scheduler::Event> happened;
    for (StepPlan plan = scheduler.plan(0); !plan.empty(); plan = scheduler.plan(0)) {
      executor.submit(std::move(plan));
      scheduler.commit(executor.collect());
      scheduler.take_events(happened);
      for (const Scheduler::Event& event : happened) {
        if (event.token) output.push_back(event.token->token);
      }
    }
    grammar::GrammarState follower = guide();
    for (const TokenId token : output) ASSERT_TRUE(follower.accept(token));
    if (follower.over()) {
      EXPECT_EQ(output.back(), kEnd);
    }
    EXPECT_EQ(std::count(output.begin(), output.end(), kEnd), follower.over() ? 1 : 0);
  }
}

}  // namespace
}  // namespace pelton::engine
