#include "server/chat_answer.h"

#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "server/chat_stream_text.h"
#include "server/random_turns.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": "x"}]})";

class RandomAnswers : public RandomTurns {
 public:
  using RandomTurns::RandomTurns;

  ChatAnswer::Options options() {
    ChatAnswer::Options options;
    options.head.reasoning_field = "reasoning_content";
    options.choice.logprobs = draw() % 2 == 0;
    options.choice.hides_reasoning = draw() % 3 == 0;
    options.choice.turn.stop = stops();
    options.choice.turn.one_call = draw() % 3 == 0;
    options.choice.turn.may_call = draw() % 3 != 0;
    return options;
  }
};

struct Fed {
  std::string whole;
  std::string streamed;
  // The text that the client got, by choice.
  std::vector<std::optional<std::vector<TokenId>>> kept;
  bool has_stops = false;
  bool hides_reasoning = false;
  std::vector<std::vector<TokenId>> sampled;  // by choice
};

// Up to three choices, whose tokens come in any order.
Fed feed(const ServedModel& model, RandomAnswers& random) {
  TurnCache turns({.seed = 1});
  ChatAnswer::Options options = random.options();
  options.choice.turn.place = {.turns = &turns, .history = turns.history("")};
  options.choice_count = 1 + static_cast<int>(random.draw() % 3);
  ChatAnswer whole(model, options);
  ChatAnswer::Options streaming = options;
  streaming.choice.stream = true;
  streaming.include_usage = true;
  ChatAnswer streamed(model, streaming);
  const auto choice_count = static_cast<size_t>(options.choice_count);
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < choice_count; ++i) tokens.push_back(random.tokens());
  std::vector<size_t> next(choice_count, 0);
  Fed fed{.whole = {},
          .streamed = {},
          .kept = {},
          .has_stops = !options.choice.turn.stop.strings.empty(),
          .hides_reasoning = options.choice.hides_reasoning,
          .sampled = {}};
  fed.sampled = tokens;
  size_t ended = 0;
  while (ended < choice_count) {
    const size_t choice = random.draw() % choice_count;
    if (next[choice] > tokens[choice].size()) continue;
    Answer::Wants wants = Answer::Wants::kNothing;
    if (next[choice] < tokens[choice].size()) {
      const engine::SampledToken sampled{
          .token = tokens[choice][next[choice]], .logprob = -0.5f, .top = {}};
      wants = whole.push(choice, sampled);
      EXPECT_EQ(streamed.push(choice, sampled), wants);
      ++next[choice];
    }
    if (wants == Answer::Wants::kNothing) {
      const engine::StreamEnd end{.reason = random.draw() % 2 == 0 ? engine::FinishReason::kStop
                                                                   : engine::FinishReason::kLength,
                                  .prompt_tokens = 7};
      whole.end(choice, end);
      streamed.end(choice, end);
      next[choice] = tokens[choice].size() + 1;
      ++ended;
    }
    if (random.draw() % 2 == 0) streamed.take_events(fed.streamed);
  }
  streamed.take_last_events(fed.streamed);
  fed.whole = whole.whole_body();
  for (size_t i = 0; i < choice_count; ++i) {
    const ChatText told = whole_text(fed.whole, i);
    TurnCache::Words words{.content = told.content, .reasoning = told.reasoning, .call = {}};
    if (!told.calls.empty()) words.call.emplace(told.calls[0].first, told.calls[0].second);
    fed.kept.push_back(told.calls.size() > 1 ? std::nullopt : turns.find(turns.history(""), words));
  }
  if (choice_count == 1) {
    EXPECT_EQ(fed.kept[0].has_value(), turns.counts().turns == 1) << fed.whole;
  }
  return fed;
}

// Whatever a model has written, the turn that goes into the next prompt says what the client was
// told and opens no message in another's name.
void expect_says(const ServedModel& model, const std::vector<TokenId>& turn, const ChatText& told) {
  const chat::HarmonyTokens harmony = chat::HarmonyTokens::find(model.tokenizer).value();
  chat::ReplyBuilder builder(model.chat->parser(chat::Calls::kRead), {});
  chat::ReplyDelta delta;
  for (size_t i = 0; i < turn.size(); ++i) {
    const bool last = i + 1 == turn.size();
    EXPECT_EQ(turn[i] == harmony.return_ || turn[i] == harmony.call,
              last && turn[i] != harmony.end);
    builder.push(turn[i], delta);
  }
  EXPECT_TRUE(harmony.ends_message(turn.back()));
  const chat::Reply reply = builder.finish(chat::StopCause::kStopToken, delta);
  EXPECT_TRUE(reply.warnings.empty());
  EXPECT_EQ(reply.content.value_or(""), told.content);
  // Of two choices that differ in their reasoning only, either may stand for a client that was sent
  // none.
  EXPECT_TRUE(told.reasoning.empty() || reply.reasoning == told.reasoning) << told.reasoning;
  ASSERT_EQ(reply.tool_calls.size(), told.calls.size());
  if (told.calls.empty()) return;
  EXPECT_EQ(reply.tool_calls[0].name, told.calls[0].first);
  EXPECT_EQ(reply.tool_calls[0].arguments, told.calls[0].second);
}

// None of the markup, and something to be seen wherever a token was sampled: words if there are
// any, or else that it is all there is.
void expect_answer(const ServedModel& model, const Fed& fed, size_t choice, const ChatText& text) {
  for (const char* markup : {"<|channel|>", "<|message|>", "<|return|>", "<|start|>", "<|call|>"}) {
    EXPECT_EQ(text.content.find(markup), std::string::npos);
    EXPECT_EQ(text.reasoning.find(markup), std::string::npos);
    for (const auto& [name, arguments] : text.calls) {
      EXPECT_EQ((name + arguments).find(markup), std::string::npos);
    }
  }
  if (fed.hides_reasoning && !(text.content.empty() && text.calls.empty())) {
    EXPECT_EQ(text.reasoning, "");
  }
  if (fed.has_stops || fed.sampled[choice].empty()) return;
  if (holds_text(model, fed.sampled[choice])) {
    EXPECT_FALSE(text.content.empty() && text.reasoning.empty() && text.calls.empty()) << fed.whole;
    return;
  }
  // An answer of markup alone has no words, and none are invented
  // (docs/formats/harmony_recovery.md): its content is empty, not null, and how it ended is
  // reported.
  const Json whole = parsed(fed.whole);
  const Json& told = whole.find("choices")->as_array().at(choice);
  EXPECT_FALSE(told.find("message")->find("content")->is_null() && text.calls.empty()) << fed.whole;
  EXPECT_FALSE(told.string("finish_reason").value_or("").empty());
}

TEST(ChatAnswer, HM15_StreamedEqualsWholeForRandomTokens) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
  ServerFixture fixture(kScript, {});
  RandomAnswers random(fixture.model(), seed);
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 30'000 : 3000;
  int kept = 0;
  for (int round = 0; round < rounds; ++round) {
    const Fed fed = feed(fixture.model(), random);
    for (size_t i = 0; i < fed.kept.size(); ++i) {
      const ChatText text = whole_text(fed.whole, i);
      ASSERT_EQ(streamed_text(fed.streamed, i), text) << fed.whole << "\n" << fed.streamed;
      expect_answer(fixture.model(), fed, i, text);
      if (!fed.kept[i]) continue;
      ++kept;
      expect_says(fixture.model(), *fed.kept[i], text);
    }
    ASSERT_TRUE(base::is_valid_utf8(fed.streamed));
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace pelton::server
