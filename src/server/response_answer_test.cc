// A streamed response is the whole one, for any tokens the model may sample.
#include "server/response_answer.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "server/random_turns.h"
#include "server/response_conversation.h"
#include "server/response_stream_text.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": "x"}]})";

struct Fed {
  std::string whole;
  std::string streamed;
  std::vector<TokenId> turn;
  std::vector<api::OutputItem> items;
  bool may_call = false;
};

// One JSON text a line, as server-sent events.
std::string events_of_lines(std::string_view lines) {
  std::string events;
  while (!lines.empty()) {
    const size_t size = lines.find('\n');
    EXPECT_NE(size, std::string_view::npos) << "a message that does not end";
    if (size == std::string_view::npos) break;
    const std::string json(lines.substr(0, size));
    events += "event: " + parsed(json).string("type").value_or("") + "\ndata: " + json + "\n\n";
    lines.remove_prefix(size + 1);
  }
  return events;
}

// Events are taken after one token or after many, as a speculating engine gives them.
Fed feed(const ServedModel& model, const std::vector<TokenId>& tokens, const StopStrings& stops,
         RandomTurns& random) {
  const base::SystemClock clock;
  TurnCache turns({.seed = 1});
  Fed fed;
  ResponseAnswer::Options options{
      .head = {.id = "resp_x", .created_at = 1, .model = "tiny", .echo = "\"user\":null"},
      .output = {.stop = stops,
                 .logprobs = random.draw() % 2 == 0,
                 .may_call = random.draw() % 3 != 0,
                 .one_call = random.draw() % 3 == 0,
                 .response_id = "resp_" + std::to_string(random.draw())},
      .opening = {},
      .place = {.turns = &turns, .history = turns.history("")},
      .on_ended = [&](ResponseAnswer::Ended ended) {
        fed.turn = std::move(ended.turn);
        fed.items = ended.items;
      }};
  fed.may_call = options.output.may_call;
  ResponseAnswer whole(model, options, clock);
  const bool as_messages = random.draw() % 2 == 0;  // of a WebSocket
  options.output.framing = as_messages ? api::ResponseEvents::Framing::kLines
                                       : api::ResponseEvents::Framing::kServerSent;
  ResponseAnswer streamed(model, options, clock);
  bool cut = false;
  for (const TokenId token : tokens) {
    const engine::SampledToken sampled{.token = token, .logprob = -0.5f, .top = {}};
    const Answer::Wants wants = whole.push(0, sampled);
    EXPECT_EQ(streamed.push(0, sampled), wants);
    if (random.draw() % 3 == 0) streamed.take_events(fed.streamed);
    cut = wants == Answer::Wants::kNothing;
    if (cut) break;
  }
  constexpr engine::FinishReason kReasons[] = {
      engine::FinishReason::kStop, engine::FinishReason::kLength, engine::FinishReason::kCancelled};
  const engine::StreamEnd end{
      .reason = cut ? engine::FinishReason::kCancelled : kReasons[random.draw() % 3],
      .prompt_tokens = 7};
  whole.end(0, end);
  streamed.end(0, end);
  streamed.take_last_events(fed.streamed);
  if (as_messages) fed.streamed = events_of_lines(fed.streamed);
  fed.whole = whole.whole_body();
  return fed;
}

void check(const ServedModel& model, const std::vector<TokenId>& tokens, const StopStrings& stops,
           RandomTurns& random) {
  const Fed fed = feed(model, tokens, stops, random);
  const ResponseText text = text_of_response(parsed(fed.whole));
  EXPECT_EQ(text_of_stream(fed.streamed), text);
  EXPECT_TRUE(base::is_valid_utf8(fed.whole) && base::is_valid_utf8(fed.streamed));
  EXPECT_FALSE(text.items.empty());
  if (!stops.strings.empty()) return;
  // The one parser, seen by its other reader.
  chat::ReplyBuilder builder(model.chat->parser(chat::Calls::kRead),
                             {.reader = {.callable = fed.may_call}});
  chat::ReplyDelta delta;
  for (const TokenId token : tokens) builder.push(token, delta);
  const chat::Reply reply = builder.finish(chat::StopCause::kLength, delta);
  const TurnWords words = words_of(fed.items);
  EXPECT_EQ(words.content, reply.content.value_or(""));
  EXPECT_EQ(words.reasoning, reply.reasoning.value_or(""));
  if (holds_text(model, tokens)) {
    EXPECT_FALSE(words.content.empty() && words.reasoning.empty() && !words.call) << fed.whole;
  }
  EXPECT_TRUE(fed.turn.empty() || reply.warnings.empty());
}

TEST(ResponseAnswer, HM15_StreamedIsWholeAsEventsAndAsMessages) {
  ServerFixture fixture(kScript, {});
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 30'000 : 3'000;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
    RandomTurns random(fixture.model(), seed);
    const std::vector<TokenId> tokens = random.tokens();
    check(fixture.model(), tokens, random.stops(), random);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace pelton::server
