// For tests: turns that a model might write, well formed or not, and stop strings that cut them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chat/harmony_parser.h"
#include "chat/tiny_tokenizer.h"
#include "server/served_model.h"
#include "server/stop_filter.h"

namespace pelton::server {

// Whether there are words among the markup, for somebody to see.
inline bool holds_text(const ServedModel& model, const std::vector<TokenId>& tokens) {
  const chat::HarmonyTokens harmony = chat::HarmonyTokens::find(model.tokenizer).value();
  chat::HarmonyParser parser(model.tokenizer, harmony, {});
  std::vector<chat::HarmonyEvent> events;
  for (const TokenId token : tokens) parser.push(token, events);
  parser.finish(events);
  return std::any_of(events.begin(), events.end(), [](const chat::HarmonyEvent& event) {
    const auto* text = std::get_if<chat::TextDelta>(&event);
    return text != nullptr && !text->text.empty();
  });
}

class RandomTurns {
 public:
  RandomTurns(const ServedModel& model, uint64_t seed)
      : model_(model), harmony_(chat::HarmonyTokens::find(model.tokenizer).value()), random_(seed) {
    const chat::HarmonyTokens& h = harmony_;
    controls_ = {h.start, h.message, h.channel, h.constrain, h.end, h.call, h.return_};
  }

  // Half of them mostly well formed, half of them any tokens.
  std::vector<TokenId> tokens() {
    std::vector<TokenId> made;
    if (random_() % 2 == 0) {
      static constexpr std::string_view kHeaders[] = {
          "<|channel|>analysis<|message|>", "<|channel|>final<|message|>",
          "<|channel|>commentary<|message|>",
          "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
          " to=functions.g<|channel|>commentary json<|message|>"};
      for (uint64_t i = 1 + random_() % 4; i > 0; --i) {
        append(made, kHeaders[random_() % std::size(kHeaders)]);
        for (uint64_t n = random_() % 12; n > 0; --n) made.push_back(ordinary());
        append(made, random_() % 3 == 0 ? "<|call|>" : "<|end|>");
        if (i > 1) append(made, "<|start|>assistant");
      }
      if (random_() % 2 == 0) made.back() = harmony_.return_;
    } else {
      for (uint64_t i = random_() % 60; i > 0; --i) {
        made.push_back(random_() % 3 == 0 ? controls_[random_() % controls_.size()] : ordinary());
      }
    }
    return made;
  }

  // Up to two, of letters that are met.
  StopStrings stops() {
    StopStrings made;
    for (uint64_t i = random_() % 3; i > 0; --i) {
      std::string& stop = made.strings.emplace_back(1 + random_() % 2, ' ');
      for (char& c : stop) c = static_cast<char>('a' + random_() % 3);
    }
    if (random_() % 3 == 0) made.min_tokens = static_cast<int64_t>(random_() % 20);
    return made;
  }

  uint64_t draw() { return random_(); }

 private:
  // Often one of few letters, so that stop strings are met.
  TokenId ordinary() {
    if (random_() % 2 == 0) return static_cast<TokenId>('a' + random_() % 3);
    return static_cast<TokenId>(random_() % static_cast<uint64_t>(chat::kTinyOrdinaryTokens));
  }
  void append(std::vector<TokenId>& to, std::string_view text) {
    const std::vector<TokenId> more = model_.tokenizer.encode_with_special(text);
    to.insert(to.end(), more.begin(), more.end());
  }

  const ServedModel& model_;
  const chat::HarmonyTokens harmony_;
  std::mt19937_64 random_;
  std::vector<TokenId> controls_;
};

}  // namespace pelton::server
