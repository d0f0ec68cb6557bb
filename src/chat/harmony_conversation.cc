#include "chat/harmony_conversation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pelton::chat {
namespace {

using Kind = Message::Kind;

HarmonyMessage developer_message(DeveloperContent content) {
  HarmonyMessage message{.role = Role::kDeveloper};
  message.content.emplace_back(std::move(content));
  return message;
}

HarmonyMessage call_of(Message& call) {
  if (!call.builtin) return function_call(call.name, std::move(call.text));
  HarmonyMessage message = channel_message(kAnalysis, std::move(call.text));
  message.recipient = std::move(call.name);
  message.content_type = "code";
  return message;
}

HarmonyMessage result_of(Message& result) {
  if (!result.builtin) return function_result(result.name, std::move(result.text));
  HarmonyMessage message = text_message(Role::kTool, std::move(result.text));
  message.name = std::move(result.name);
  message.recipient = std::string(role_name(Role::kAssistant));
  message.channel = std::string(kAnalysis);
  return message;
}

HarmonyMessage harmony_message(Message& message) {
  switch (message.kind) {
    case Kind::kDeveloper:
      return developer_message(std::move(message.developer));
    case Kind::kUser: {
      HarmonyMessage user = text_message(Role::kUser, std::move(message.text));
      user.name = std::move(message.name);
      return user;
    }
    case Kind::kReasoning:
      return channel_message(kAnalysis, std::move(message.text));
    case Kind::kPreamble:
      return channel_message(kCommentary, std::move(message.text));
    case Kind::kAnswer:
      return channel_message(kFinal, std::move(message.text));
    case Kind::kCall:
      return call_of(message);
    case Kind::kResult:
      return result_of(message);
  }
  return {};
}

HarmonyMessage system_message(Conversation& conversation) {
  SystemContent system;
  system.current_date = std::move(conversation.current_date);
  if (conversation.effort) system.reasoning_effort = conversation.effort;
  for (const BuiltinTool tool : conversation.builtin_tools) {
    system.tools.push_back(tool == BuiltinTool::kBrowser ? browser_namespace()
                                                         : python_namespace());
  }
  HarmonyMessage message{.role = Role::kSystem};
  message.content.emplace_back(std::move(system));
  return message;
}

class Arranging {
 public:
  explicit Arranging(std::vector<Message>& messages) : messages_(messages) {}

  void run(std::vector<HarmonyMessage>& out) {
    for (size_t i = 0; i < messages_.size();) {
      if (messages_[i].is_models()) {
        i = add_turn(i, out);
      } else {
        add(i++, out);
      }
    }
  }

 private:
  // A turn and the results that directly follow it. The model stops after a call, so a result
  // stands behind its own call, but where the turn stands as it was sampled, with several.
  size_t add_turn(size_t first, std::vector<HarmonyMessage>& out) {
    const auto begin = messages_.begin();
    const int turn = messages_[first].turn;
    const auto end =
        std::find_if(begin + std::ptrdiff_t(first), messages_.end(),
                     [turn](const Message& m) { return !m.is_models() || m.turn != turn; });
    const auto past = std::find_if(end, messages_.end(),
                                   [](const Message& m) { return m.kind != Kind::kResult; });
    const auto turn_end = static_cast<size_t>(end - begin);
    const auto results_end = static_cast<size_t>(past - begin);
    const auto calls = std::count_if(begin + std::ptrdiff_t(first), end,
                                     [](const Message& m) { return m.kind == Kind::kCall; });
    const bool together = calls > 1 && messages_[first].as_sampled;
    std::vector<bool> used(results_end - turn_end, false);
    for (size_t i = first; i < turn_end; ++i) {
      const bool is_call = messages_[i].kind == Kind::kCall;
      add(i, out);
      for (size_t j = 0; is_call && !together && j < used.size(); ++j) {
        if (used[j] || messages_[turn_end + j].call_id != messages_[i].call_id) continue;
        used[j] = true;
        add(turn_end + j, out);
      }
    }
    for (size_t j = 0; j < used.size(); ++j) {
      if (!used[j]) add(turn_end + j, out);
    }
    return results_end;
  }

  // The functions that a result makes known are declared behind it, so that all that stands before
  // stays as it was.
  void add(size_t index, std::vector<HarmonyMessage>& out) {
    Message& message = messages_[index];
    const bool may_stand = message.is_models() && message.as_sampled;
    out.push_back(harmony_message(message));
    if (may_stand) out.back().turn = message.turn;
    if (message.kind == Kind::kResult && !message.developer.empty()) {
      out.push_back(developer_message(std::move(message.developer)));
    }
  }

  std::vector<Message>& messages_;
};

}  // namespace

HarmonyConversation harmony_conversation(Conversation conversation) {
  HarmonyConversation out;
  out.messages.reserve(conversation.messages.size() + 1);
  out.messages.push_back(system_message(conversation));
  Arranging(conversation.messages).run(out.messages);
  drop_past_analysis(out);
  return out;
}

void drop_past_analysis(HarmonyConversation& conversation) {
  std::vector<HarmonyMessage>& messages = conversation.messages;
  const auto is_on = [](const HarmonyMessage& message, std::string_view channel) {
    return message.role == Role::kAssistant && message.channel == channel;
  };
  const auto last_final = std::find_if(messages.rbegin(), messages.rend(),
                                       [&](const HarmonyMessage& m) { return is_on(m, kFinal); });
  if (last_final == messages.rend()) return;
  const auto past_end = last_final.base() - 1;
  const auto kept_end = std::remove_if(messages.begin(), past_end, [&](const HarmonyMessage& m) {
    return is_on(m, kAnalysis) && (!m.recipient || *m.recipient == "all");
  });
  messages.erase(kept_end, past_end);
}

}  // namespace pelton::chat
