// What the server pays for each sampled token: well below a microsecond, next to the milliseconds
// of the model's step.
#include <benchmark/benchmark.h>

#include "chat/harmony_format.h"
#include "chat/harmony_renderer.h"
#include "chat/reply.h"
#include "chat/tiny_tokenizer.h"

namespace pelton::chat {
namespace {

struct Answer {
  Answer() {
    for (int i = 0; i < 20; ++i) {
      add("<|channel|>analysis<|message|>");
      for (int word = 0; word < 100; ++word) add(" Hello world");
      add("<|end|><|start|>assistant<|channel|>commentary to=functions.get json<|message|>");
      for (int word = 0; word < 20; ++word) add("{\"a\": 1}");
      add("<|call|><|start|>assistant");
    }
  }
  void add(std::string_view text) {
    for (const TokenId id : tokenizer.encode_with_special(text)) ids.push_back(id);
  }

  tokenizer::Tokenizer tokenizer = tiny_tokenizer();
  HarmonyTokens tokens = HarmonyTokens::find(tokenizer).value();
  std::vector<TokenId> ids;
};

void parser_per_token(benchmark::State& state) {
  const Answer answer;
  std::vector<HarmonyEvent> events;
  for (auto _ : state) {
    HarmonyParser parser(answer.tokenizer, answer.tokens, {});
    for (const TokenId id : answer.ids) {
      events.clear();
      parser.push(id, events);
      benchmark::DoNotOptimize(events.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(answer.ids.size()));
}
BENCHMARK(parser_per_token);

void reply_per_token(benchmark::State& state) {
  const Answer answer;
  ReplyDelta delta;
  for (auto _ : state) {
    ReplyBuilder builder(harmony_turn_parser(answer.tokenizer, answer.tokens,
                                             HarmonyParser::Start::kAssistantHeader),
                         {});
    for (const TokenId id : answer.ids) {
      builder.push(id, delta);
      benchmark::DoNotOptimize(delta.content.data());
    }
    benchmark::DoNotOptimize(builder.finish(StopCause::kStopToken, delta));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(answer.ids.size()));
}
BENCHMARK(reply_per_token);

// A thousand turns (HM-14): linear in the conversation.
void render_turns(benchmark::State& state) {
  const Answer answer;
  const HarmonyRenderer renderer(answer.tokenizer, answer.tokens);
  HarmonyConversation conversation;
  for (int64_t i = 0; i < state.range(0); ++i) {
    conversation.messages.push_back(text_message(Role::kUser, "Hello world"));
    conversation.messages.push_back(function_call("f", "{}"));
    conversation.messages.push_back(function_result("f", "1"));
    conversation.messages.push_back(channel_message(kFinal, "Hello"));
  }
  for (auto _ : state) benchmark::DoNotOptimize(renderer.render(conversation, {}));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(render_turns)->Arg(10)->Arg(1000);

}  // namespace
}  // namespace pelton::chat
