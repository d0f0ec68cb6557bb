#include "chat/conversation.h"

#include <algorithm>
#include <array>

namespace pelton::chat {
namespace {

constexpr std::array<std::string_view, 3> kEffortNames = {"low", "medium", "high"};

}  // namespace

std::string_view effort_name(ReasoningEffort effort) {
  return kEffortNames[static_cast<size_t>(effort)];
}

std::optional<ReasoningEffort> effort_from_name(std::string_view name) {
  const auto* found = std::find(kEffortNames.begin(), kEffortNames.end(), name);
  if (found == kEffortNames.end()) return std::nullopt;
  return static_cast<ReasoningEffort>(found - kEffortNames.begin());
}

Result<void> check_continued(const Conversation& conversation) {
  const std::vector<Message>& messages = conversation.messages;
  if (!messages.empty() && messages.back().kind == Message::Kind::kAnswer &&
      !messages.back().text.empty()) {
    return {};
  }
  return Error{.code = ErrorCode::kInvalidArgument,
               .message =
                   "'messages': the last message must be text of the assistant's, for the "
                   "model to go on with it (continue_final_message)",
               .field = "messages"};
}

size_t end_of_last(const std::vector<Message>& messages, Message::Kind kind) {
  const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                 [kind](const Message& m) { return m.kind == kind; });
  return static_cast<size_t>(messages.rend() - last);
}

}  // namespace pelton::chat
