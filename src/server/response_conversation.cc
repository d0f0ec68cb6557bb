#include "server/response_conversation.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "prompt/chat_conversation.h"
#include "prompt/response_opening.h"

namespace pelton::server {
namespace {

using api::ResponseItem;
using Kind = ResponseItem::Kind;
using Part = chat::Message::Kind;

// Of one thing said in several pieces.
void join(std::string& whole, std::string_view piece, std::string_view separator) {
  if (piece.empty()) return;
  if (!whole.empty()) whole += separator;
  whole += piece;
}

void add_reasoning(TurnWords& words, std::string_view text) {
  join(words.reasoning, text, "\n");
}

void add_content(TurnWords& words, std::string_view text) {
  join(words.content, text, "\n\n");
}

// All items in a row; what different responses said never runs together.
struct PlacedItem {
  const ResponseItem* item;
  int segment;
  const std::vector<TokenId>* turn = nullptr;  // of its segment, if that is known
};

class Conversing {
 public:
  Conversing(chat::Conversation& conversation, prompt::Functions functions)
      : out_(conversation.messages), functions_(functions) {}

  void place(const std::vector<ResponseItem>& items, const std::vector<TokenId>* turn) {
    for (const ResponseItem& item : items) items_.push_back({&item, segments_, turn});
    ++segments_;
  }

  Result<void> run() {
    for (size_t i = 0; i < items_.size();) {
      if (items_[i].item->is_models()) {
        i = add_turn(i);
        continue;
      }
      if (items_[i].item->kind == Kind::kResult) {
        TRY(add_result(i));
      } else {
        add_message(*items_[i].item);
      }
      ++i;
    }
    return {};
  }

  const TurnWords& words(int turn) const { return turns_[static_cast<size_t>(turn)].words; }
  const std::vector<TokenId>* tokens(int turn) const {
    return turns_[static_cast<size_t>(turn)].tokens;
  }

 private:
  struct Turn {
    TurnWords words;
    const std::vector<TokenId>* tokens;
  };

  // System and developer messages stand in front of everything already.
  void add_message(const ResponseItem& item) {
    if (item.role == api::ChatRole::kUser) {
      out_.push_back({.kind = Part::kUser, .text = item.text});
    }
  }

  Result<void> add_result(size_t index) {
    const ResponseItem& item = *items_[index].item;
    const auto call = calls_.find(item.call_id);
    if (call == calls_.end()) {
      const std::string field = item.path + ".call_id";
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' names no function call before it", field), field};
    }
    api::ChatMessage result{.role = api::ChatRole::kTool};
    result.name = call->second;
    result.content = item.text;
    result.tool_call_id = item.call_id;
    out_.push_back(prompt::result_message(result, functions_));
    return {};
  }

  // What the model did between two items of others. It stops after a call, so what a client says
  // of several is no turn as it was sampled, but where its tokens are known.
  size_t add_turn(size_t first) {
    size_t end = first;
    size_t calls = 0;
    const int segment = items_[first].segment;
    while (end < items_.size() && items_[end].item->is_models() && items_[end].segment == segment) {
      if (items_[end].item->kind == Kind::kCall) ++calls;
      ++end;
    }
    const bool as_sampled = calls < 2 || stands_as_sampled(first, end);
    turns_.push_back({{}, items_[first].turn});
    size_t calls_to_come = calls;
    for (size_t i = first; i < end; ++i) {
      const ResponseItem& item = *items_[i].item;
      if (item.kind == Kind::kCall) {
        --calls_to_come;
        calls_[item.call_id] = item.name;
      }
      add_own(item, calls_to_come > 0, as_sampled);
    }
    return end;
  }

  // Reasoning is not shown again once there is an answer: then a turn that has any is written anew.
  bool stands_as_sampled(size_t first, size_t end) const {
    if (items_[first].turn == nullptr) return false;
    const auto reasons = [](const PlacedItem& placed) {
      return placed.item->kind == Kind::kReasoning;
    };
    const auto answers = [](const PlacedItem& placed) {
      return placed.item->is_models() && placed.item->kind == Kind::kMessage &&
             placed.item->phase != ResponseItem::Phase::kPreamble;
    };
    const auto all = std::span(items_);
    return std::ranges::none_of(all.subspan(first, end - first), reasons) ||
           std::ranges::none_of(all.subspan(end), answers);
  }

  void add_own(const ResponseItem& item, bool call_follows, bool as_sampled) {
    chat::Message message;
    switch (item.kind) {
      case Kind::kReasoning:
        if (item.text.empty()) return;
        message = {.kind = Part::kReasoning, .text = item.text};
        break;
      case Kind::kCall:
        message = prompt::call_message(
            {.id = item.call_id, .name = item.name, .arguments = item.text}, functions_);
        break;
      default: {
        const bool preamble = item.phase == ResponseItem::Phase::kPreamble ||
                              (item.phase == ResponseItem::Phase::kUnknown && call_follows);
        if (preamble && item.text.empty()) return;
        message = {.kind = preamble ? Part::kPreamble : Part::kAnswer, .text = item.text};
      }
    }
    message.turn = static_cast<int>(turns_.size()) - 1;
    message.as_sampled = as_sampled;
    out_.push_back(std::move(message));
    note_words(item, turns_.back().words);
  }

  static void note_words(const ResponseItem& item, TurnWords& words) {
    if (item.kind == Kind::kReasoning) add_reasoning(words, item.text);
    if (item.kind == Kind::kMessage) add_content(words, item.text);
    if (item.kind == Kind::kCall) words.call.emplace(item.name, item.text);
  }

  std::vector<chat::Message>& out_;
  const prompt::Functions functions_;
  std::vector<PlacedItem> items_;
  int segments_ = 0;
  std::unordered_map<std::string, std::string> calls_;  // id -> function
  std::vector<Turn> turns_;
};

}  // namespace

TurnCache::Words TurnWords::view() const {
  TurnCache::Words view{.content = content, .reasoning = reasoning, .call = {}};
  if (call) view.call.emplace(call->first, call->second);
  return view;
}

TurnWords words_of(std::span<const api::OutputItem> items) {
  TurnWords words;
  for (const api::OutputItem& item : items) {
    switch (item.kind) {
      case api::OutputItem::Kind::kReasoning:
        add_reasoning(words, item.text);
        break;
      case api::OutputItem::Kind::kMessage:
        add_content(words, item.text);
        break;
      case api::OutputItem::Kind::kCall:
      case api::OutputItem::Kind::kWebSearch:
      case api::OutputItem::Kind::kCode:
        words.call.emplace(item.name, item.text);
        break;
    }
  }
  return words;
}

Result<ChatPrompt> response_prompt(const api::ResponseRequest& request,
                                   const ResponseSource& source, const ServedModel& model,
                                   TurnCache& turns) {
  std::vector<const std::vector<ResponseItem>*> before;
  for (const PastResponse& past : source.history) before.push_back(&past.input);
  chat::Conversation conversation = prompt::response_opening(request, before, source.current_date);
  Conversing conversing(conversation, request.declared_functions);
  for (const PastResponse& past : source.history) {
    conversing.place(past.input, nullptr);
    conversing.place(past.output, past.turn.empty() ? nullptr : &past.turn);
  }
  conversing.place(request.items, nullptr);
  TRY(conversing.run());
  return prompt_of(std::move(conversation), model, turns.history(source.salt),
                   [&](int turn, const RollingHash& history) {
                     const std::vector<TokenId>* known = conversing.tokens(turn);
                     return known != nullptr ? std::optional(*known)
                                             : turns.find(history, conversing.words(turn).view());
                   });
}

}  // namespace pelton::server
