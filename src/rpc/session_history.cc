#include "rpc/session_history.h"

#include <utility>

namespace pelton::rpc {
namespace {

Error not_continued(const char* message, const char* field = "continues") {
  return {ErrorCode::kInvalidArgument, message, field};
}

// `chat` becomes what has been said so far and then its own messages.
void go_on_from(const v1::Chat& last, v1::Chat& chat) {
  v1::Chat asked = std::move(chat);
  chat.Clear();
  *chat.mutable_messages() = last.messages();
  for (v1::Message& message : *asked.mutable_messages()) *chat.add_messages() = std::move(message);
  *chat.mutable_tools() = asked.tools_size() > 0 ? asked.tools() : last.tools();
  chat.set_tool_choice(asked.tool_choice());
  chat.set_reasoning_effort(asked.reasoning_effort().empty() ? last.reasoning_effort()
                                                             : asked.reasoning_effort());
}

// What is said again replaces, lists as a whole.
void take_unsaid(const v1::Sampling& last, v1::Sampling& sampling) {
  const v1::Sampling said = sampling;
  sampling = last;
  if (said.stop_size() > 0) sampling.clear_stop();
  if (said.stop_token_ids_size() > 0) sampling.clear_stop_token_ids();
  if (said.logit_bias_size() > 0) sampling.clear_logit_bias();
  sampling.MergeFrom(said);
}

void take_unsaid(const v1::GenerateRequest& last, v1::GenerateRequest& request) {
  if (request.model().empty()) request.set_model(last.model());
  if (request.user().empty()) request.set_user(last.user());
  if (request.cache_salt().empty()) request.set_cache_salt(last.cache_salt());
  if (!request.has_priority() && last.has_priority()) request.set_priority(last.priority());
  if (last.has_sampling()) take_unsaid(last.sampling(), *request.mutable_sampling());
}

}  // namespace

Result<v1::GenerateRequest> SessionHistory::begin(v1::SessionRequest asked) {
  v1::GenerateRequest request = std::move(*asked.mutable_generate());
  drop();
  answer_.set_role("assistant");
  if (asked.continues()) {
    if (!request.has_chat()) return not_continued("'continues' is for a 'chat'");
    if (was_too_large_) {
      return not_continued(
          "'continues': the conversation became too large to be kept here; send all of it");
    }
    if (!last_) return not_continued("'continues': no chat of this session has come to its end");
    if (request.chat().messages_size() == 0) {
      return not_continued("'messages' must have at least one message", "messages");
    }
    go_on_from(last_->chat(), *request.mutable_chat());
    take_unsaid(*last_, request);
  }
  if (request.has_chat()) running_ = request;
  return request;
}

void SessionHistory::add(const v1::GenerateChunk& chunk) {
  if (!running_) return;
  *answer_.mutable_content() += chunk.text();
  *answer_.mutable_reasoning() += chunk.reasoning();
  for (const v1::ToolCallDelta& delta : chunk.tool_calls()) {
    const auto index = static_cast<int>(delta.index());
    while (answer_.tool_calls_size() <= index) answer_.add_tool_calls();
    v1::ToolCall& call = *answer_.mutable_tool_calls(index);
    if (!delta.id().empty()) call.set_id(delta.id());
    if (!delta.name().empty()) call.set_name(delta.name());
    *call.mutable_arguments() += delta.arguments();
  }
}

void SessionHistory::finish() {
  if (!running_) return;
  *running_->mutable_chat()->add_messages() = std::move(answer_);
  last_ = std::exchange(running_, std::nullopt);
  bytes_ = last_->ByteSizeLong();
  was_too_large_ = false;
  if (bytes_ > bytes_max_) forget();
}

void SessionHistory::drop() {
  running_.reset();
  answer_.Clear();
}

void SessionHistory::forget() {
  last_.reset();
  bytes_ = 0;
  was_too_large_ = true;
}

}  // namespace pelton::rpc
