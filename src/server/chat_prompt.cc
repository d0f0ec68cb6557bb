#include "server/chat_prompt.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "chat/harmony_renderer.h"

namespace pelton::server {
namespace {

// Whether what follows each `marker` begins with `word`; and whether any does.
struct Following {
  bool all = true;
  bool any = false;
};
Following following(const std::vector<TokenId>& tokens, TokenId marker,
                    const std::vector<TokenId>& word) {
  Following found;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != marker) continue;
    const auto at = tokens.begin() + static_cast<ptrdiff_t>(i) + 1;
    const bool fits = static_cast<size_t>(tokens.end() - at) >= word.size() &&
                      std::equal(word.begin(), word.end(), at);
    found.all = found.all && fits;
    found.any = found.any || fits;
  }
  return found;
}

bool has_analysis(const ServedModel& model, const std::vector<TokenId>& turn) {
  return following(turn, model.harmony.channel, model.tokenizer.encode(chat::kAnalysis)).any;
}

SampledTurns::Words words_of(const api::ChatMessage& message) {
  SampledTurns::Words words{.content = message.content, .reasoning = message.reasoning, .call = {}};
  if (!message.tool_calls.empty()) {
    words.call.emplace(message.tool_calls[0].name, message.tool_calls[0].arguments);
  }
  return words;
}

// One past the last final message: what the model said since is its open turn.
size_t open_turn(const std::vector<chat::Message>& messages) {
  const auto last = std::find_if(messages.rbegin(), messages.rend(), [](const chat::Message& m) {
    return m.role == chat::Role::kAssistant && m.channel == chat::kFinal;
  });
  return static_cast<size_t>(messages.rend() - last);
}

}  // namespace

ChatPrompt chat_prompt(const chat::Conversation& conversation,
                       const std::vector<api::ChatMessage>& messages, const ServedModel& model,
                       SampledTurns& turns, std::string_view salt) {
  return prompt_of(conversation, model, turns.history(salt),
                   [&](int turn, const SequenceName& history) {
                     return turns.find(history, words_of(messages[static_cast<size_t>(turn)]));
                   });
}

ChatPrompt prompt_of(const chat::Conversation& conversation, const ServedModel& model,
                     SequenceName history, FindTurn find_turn) {
  const chat::HarmonyRenderer renderer(model.tokenizer, model.harmony);
  const std::vector<chat::Message>& all = conversation.messages;
  const size_t open = open_turn(all);
  ChatPrompt prompt{.tokens = {}, .history = history};
  size_t named = 0;  // tokens that the history's name knows
  size_t next = 0;
  while (next < all.size()) {
    const int turn = all[next].turn;
    size_t end = next + 1;
    while (end < all.size() && all[end].turn == turn) ++end;
    std::optional<std::vector<TokenId>> sampled;
    if (turn >= 0) {
      prompt.history.add_tokens(std::span(prompt.tokens).subspan(named));
      named = prompt.tokens.size();
      sampled = find_turn(turn, prompt.history);
      if (sampled && next < open && has_analysis(model, *sampled)) sampled.reset();
    }
    if (sampled) {
      renderer.append_turn_start(prompt.tokens);
      prompt.tokens.insert(prompt.tokens.end(), sampled->begin(), sampled->end());
    } else {
      renderer.append(conversation, {.first = next, .end = end}, prompt.tokens);
    }
    next = end;
  }
  prompt.history.add_tokens(std::span(prompt.tokens).subspan(named));
  renderer.append_turn_start(prompt.tokens);
  return prompt;
}

void drop_turn_start(const ServedModel& model, std::vector<TokenId>& prompt) {
  std::vector<TokenId> start;
  chat::HarmonyRenderer(model.tokenizer, model.harmony).append_turn_start(start);
  CHECK(prompt.size() >= start.size() &&
            std::equal(start.begin(), start.end(), prompt.end() - std::ssize(start)),
        "every prompt ends so");
  prompt.resize(prompt.size() - start.size());
}

std::vector<TokenId> turn_to_keep(const ServedModel& model, std::vector<TokenId> turn) {
  const chat::HarmonyTokens& harmony = model.harmony;
  if (turn.empty()) return {};
  const bool returned = turn.back() == harmony.return_;
  if (!returned && turn.back() != harmony.call) return {};
  // With ignore_eos it may go on after its end.
  const std::vector<TokenId> stops = harmony.stop_tokens();
  const bool went_on = std::find_first_of(turn.begin(), turn.end() - 1, stops.begin(),
                                          stops.end()) != turn.end() - 1;
  if (went_on) return {};
  const std::vector<TokenId> assistant =
      model.tokenizer.encode(chat::role_name(chat::Role::kAssistant));
  if (!following(turn, harmony.start, assistant).all) return {};
  if (returned && has_analysis(model, turn)) return {};
  if (returned) turn.back() = harmony.end;
  return turn;
}

}  // namespace pelton::server
