// Answers of /v1/completions over random tokens: a stream put together again is the whole answer.
#include "server/completion_answer.h"

#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "server/random_turns.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": "x"}]})";

// One choice, as its client has it in the end.
struct Text {
  std::string text;
  std::string finish;
  std::string stop_reason;
  std::string ids;
  std::string lists[4];  // of the log-probabilities
  friend bool operator==(const Text&, const Text&) = default;
};

void add(const Json& choice, std::vector<Text>& texts) {
  Text& text = texts.at(static_cast<size_t>(choice.integer("index").value()));
  EXPECT_EQ(text.finish, "") << "more after the end";
  text.text += choice.string("text").value_or("");
  text.finish = choice.string("finish_reason").value_or("");
  if (!text.finish.empty()) text.stop_reason = choice.find("stop_reason")->dump();
  const auto add_list = [](const Json* list, std::string& to) {
    if (list == nullptr) return;
    for (const Json& one : list->as_array()) to += one.dump() + " ";
  };
  add_list(choice.find("token_ids"), text.ids);
  const Json* logprobs = choice.find("logprobs");
  if (logprobs == nullptr || logprobs->is_null()) return;
  static constexpr const char* kLists[] = {"tokens", "token_logprobs", "top_logprobs",
                                           "text_offset"};
  for (size_t i = 0; i < 4; ++i) add_list(logprobs->find(kLists[i]), text.lists[i]);
}

CompletionAnswer::Options random_options(const ServedModel& model, RandomTurns& random) {
  CompletionAnswer::Options options;
  options.choices_shown = options.choices_per_prompt = 1 + random.draw() % 2;
  const size_t prompts = 1 + random.draw() % 2;
  options.choice_count = prompts * options.choices_per_prompt;
  options.stop = random.stops();
  if (random.draw() % 2 == 0) options.logprobs = static_cast<int>(random.draw() % 3);
  options.token_ids = random.draw() % 2 == 0;
  const bool echoes = random.draw() % 2 == 0;
  for (size_t i = 0; i < prompts; ++i) {
    std::vector<TokenId>& prompt = options.prompts.emplace_back();
    for (uint64_t n = 1 + random.draw() % 4; n > 0; --n) {
      prompt.push_back(static_cast<TokenId>('a' + random.draw() % 26));
    }
    if (echoes) options.echoes.push_back(model.tokenizer.decode(prompt));
  }
  return options;
}

void check(const ServedModel& model, RandomTurns& random) {
  const CompletionAnswer::Options options = random_options(model, random);
  CompletionAnswer whole(model, options);
  CompletionAnswer::Options streaming = options;
  streaming.stream = streaming.include_usage = true;
  CompletionAnswer streamed(model, streaming);
  const size_t count = options.choice_count;
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(random.tokens());
  std::vector<size_t> next(count, 0);
  std::string events;
  for (size_t ended = 0; ended < count;) {
    const size_t choice = random.draw() % count;
    if (next[choice] > tokens[choice].size()) continue;
    if (next[choice] == 0 && choice % options.choices_per_prompt == 0) {
      const std::vector<TokenId>& prompt = options.prompts[choice / options.choices_per_prompt];
      std::vector<engine::PromptToken> scored;
      for (size_t i = 1; i < prompt.size(); ++i) {
        scored.push_back({{.token = prompt[i], .logprob = -0.25f, .top = {{65, -0.1f}}}, 7});
      }
      if (!scored.empty()) {
        whole.prompt(choice, scored);
        streamed.prompt(choice, scored);
      }
    }
    Answer::Wants wants = Answer::Wants::kNothing;
    // Several at a time, as a speculating engine gives them.
    for (uint64_t n = 1 + random.draw() % 8; n > 0 && next[choice] < tokens[choice].size(); --n) {
      const engine::SampledToken sampled{
          .token = tokens[choice][next[choice]++], .logprob = -0.5f, .top = {{66, -0.125f}}};
      wants = whole.push(choice, sampled);
      ASSERT_EQ(streamed.push(choice, sampled), wants);
      if (wants == Answer::Wants::kNothing) break;
    }
    if (random.draw() % 2 == 0) streamed.take_events(events);
    if (wants == Answer::Wants::kMore && next[choice] < tokens[choice].size()) continue;
    const engine::StreamEnd end{.reason = random.draw() % 2 == 0 ? engine::FinishReason::kStop
                                                                 : engine::FinishReason::kLength,
                                .prompt_tokens = 7};
    whole.end(choice, end);
    streamed.end(choice, end);
    next[choice] = tokens[choice].size() + 1;
    ++ended;
  }
  streamed.take_last_events(events);
  std::vector<Text> of_whole(count), of_stream(count);
  const std::string body = whole.whole_body();
  const Json answer = parsed(body);
  for (const Json& choice : answer.find("choices")->as_array()) add(choice, of_whole);
  for (const std::string& event : events_of(events)) {
    if (event == "[DONE]") continue;
    const Json chunk = parsed(event);
    for (const Json& choice : chunk.find("choices")->as_array()) add(choice, of_stream);
  }
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(of_stream[i], of_whole[i]) << body << "\n" << events;
    EXPECT_NE(of_whole[i].finish, "");
    // A control token is no part of a text; what random letters spell is another matter.
    EXPECT_EQ(of_whole[i].text.find("<|channel|>"), std::string::npos);
    EXPECT_EQ(of_whole[i].text.find("<|return|>"), std::string::npos);
  }
  EXPECT_TRUE(base::is_valid_utf8(events) && base::is_valid_utf8(body));
}

TEST(CompletionAnswer, HM15_StreamedEqualsWholeForRandomTokens) {
  ServerFixture fixture(kScript, {});
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t first =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 30'000 : 3000;
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
    RandomTurns random(fixture.model(), seed);
    check(fixture.model(), random);
  }
}

}  // namespace
}  // namespace pelton::server
