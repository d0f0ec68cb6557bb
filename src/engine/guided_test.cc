// Answers that follow a grammar, where sequences make room for each other: what comes out is what
// comes out undisturbed, and all of it follows.
#include <map>
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
          grammar::compile_ebnf("root ::= (\"ab\" | \"c\" [0-9] | \"(\" root \")\"){6,12}").value(),
          small_trie())
          .value();
  return kGrammar;
}

grammar::TokenGuide guide() {
  using Stretch = grammar::TokenNetwork::Stretch;
  grammar::TokenNetwork::Parts parts{.trie = small_trie(), .vocab_size = kVocabulary};
  parts.stretches.push_back({Stretch::Text::kGrammar, words(), {{kEnd, {}}}});
  parts.starts = {0};
  return grammar::TokenGuide(std::make_shared<const grammar::TokenNetwork>(std::move(parts)));
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
};

// With two steps under way, as the engine has them.
Outcome run(const ExecutorCapacity& capacity, float repetition_penalty) {
  Scheduler scheduler(capacity, {.hash_seed = 1});
  ModelledExecutor executor({.capacity = capacity, .next_token = checksum_tokens(kVocabulary)});
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    EXPECT_TRUE(scheduler.submit_answers(guided(seed, repetition_penalty), 2).ok());
  }
  Outcome outcome;
  std::vector<Scheduler::Event> happened;
  int in_flight = 0;
  while (true) {
    StepPlan plan = scheduler.plan(0);
    const bool planned = !plan.empty();
    if (planned) executor.submit(std::move(plan));
    if (planned) ++in_flight;
    if (in_flight == 0) break;
    if (planned && in_flight < 2) continue;
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
  return outcome;
}

ExecutorCapacity capacity(int blocks, int host_blocks) {
  return {.block_tokens = 4,
          .full_block_count = blocks,
          .window_block_count = blocks,
          .host_full_block_count = host_blocks,
          .host_window_block_count = host_blocks,
          .window_tokens = 10,
          .sequences_max = 6,
          .batch_tokens_max = 32,
          .context_tokens_max = 96};
}

TEST(Guided, making_room_changes_nothing) {
  for (const float penalty : {1.0f, 1.1f}) {
    const Outcome roomy = run(capacity(400, 0), penalty);
    const Outcome computed_again = run(capacity(26, 0), penalty);
    const Outcome swapped = run(capacity(26, 100), penalty);
    EXPECT_GT(computed_again.counters.preemptions_recompute, 0);
    EXPECT_GT(swapped.counters.preemptions_swap, 0);
    EXPECT_EQ(computed_again.outputs, roomy.outputs);
    EXPECT_EQ(swapped.outputs, roomy.outputs);
    ASSERT_EQ(roomy.outputs.size(), 16u);
    int ended = 0;
    for (const auto& [id, tokens] : roomy.outputs) {
      grammar::TokenGuide follower = guide();
      for (const TokenId token : tokens) ASSERT_TRUE(follower.accept(token));
      const bool stopped = roomy.reasons.at(id) == FinishReason::kStop;
      EXPECT_EQ(follower.over(), stopped);
      if (stopped) ++ended;
    }
    EXPECT_GT(ended, 0);
  }
}

}  // namespace
}  // namespace pelton::engine
