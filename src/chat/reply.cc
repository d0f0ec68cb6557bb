#include "chat/reply.h"

#include <utility>

#include "base/prefetch.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kFunctions = "functions.";

ReplyDelta::Kind delta_kind(bool reasoning, bool content) {
  if (reasoning) return ReplyDelta::Kind::kReasoning;
  return content ? ReplyDelta::Kind::kContent : ReplyDelta::Kind::kToolArguments;
}

}  // namespace

bool goes_to_tool(const MessageHeader& header) {
  const std::optional<std::string>& recipient = header.recipient;
  return recipient && !recipient->empty() && *recipient != "assistant" && *recipient != "all" &&
         *recipient != "user";
}

ToolCall begun_call(std::string recipient) {
  ToolCall call;
  call.is_function = recipient.starts_with(kFunctions) && recipient.size() > kFunctions.size();
  call.is_builtin = recipient == "python" || recipient.starts_with("browser.");
  call.name = call.is_function ? recipient.substr(kFunctions.size()) : recipient;
  call.recipient = std::move(recipient);
  return call;
}

void append_reply(Conversation& conversation, const Reply& reply) {
  std::vector<Message>& messages = conversation.messages;
  if (reply.reasoning) messages.push_back(channel_message(kAnalysis, *reply.reasoning));
  if (reply.content && !(reply.content->empty() && !reply.tool_calls.empty())) {
    const bool is_preamble = !reply.tool_calls.empty();
    messages.push_back(channel_message(is_preamble ? kCommentary : kFinal, *reply.content));
  }
  for (const ToolCall& call : reply.tool_calls) {
    if (call.is_function) {
      messages.push_back(function_call(call.name, call.arguments));
      continue;
    }
    Message message = channel_message(kAnalysis, call.arguments);
    message.recipient = call.recipient;
    message.content_type = "code";
    messages.push_back(std::move(message));
  }
}

void ReplyDelta::clear() {
  kind = Kind::kNone;
  reasoning.clear();
  content.clear();
  tool_calls.clear();
}

ReplyBuilder::ReplyBuilder(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens,
                           const Options& options)
    : options_(options), parser_(tokenizer, tokens, {.start = options.start}) {}

void ReplyBuilder::push(TokenId token, ReplyDelta& delta) {
  delta.clear();
  std::string text;
  if (parser_.push_plain(token, text)) {
    if (!text.empty()) add_text(text, delta);
  } else {
    parser_.push(token, events_);
    apply_events(delta);
  }
  if (!parser_.token_was_text() || field_ == Field::kHeldBack) return;
  delta.kind = delta_kind(field_ == Field::kReasoning, field_ == Field::kContent);
  if (field_ == Field::kReasoning) ++reply_.reasoning_tokens;
}

Reply ReplyBuilder::finish(StopCause cause, ReplyDelta& delta) {
  delta.clear();
  parser_.finish(events_);
  apply_events(delta);

  const bool no_content = !reply_.content || reply_.content->empty();
  const bool nothing_seen = no_content && !reply_.reasoning && reply_.tool_calls.empty();
  if (nothing_seen) {
    delta.content += held_back_;
    reply_.content = std::move(held_back_);
  } else if (!held_back_.empty()) {
    reply_.warnings.emplace_back("left out what the model wrote in another's name");
  }
  if (parser_.repair_count() > 0) {
    reply_.warnings.push_back("repaired the model's message format in " +
                              std::to_string(parser_.repair_count()) + " places");
  }
  if (calls_as_text_ > 0) {
    reply_.warnings.push_back("showed " + std::to_string(calls_as_text_) +
                              " calls as text: no function was offered");
  }
  if (unclosed_calls_ > 0) {
    reply_.warnings.push_back(std::to_string(unclosed_calls_) + " tool calls were not closed");
  }
  if (cause == StopCause::kLength) {
    reply_.finish = ReplyFinish::kLength;
  } else if (!reply_.tool_calls.empty()) {
    reply_.finish = ReplyFinish::kToolCalls;
  }
  return std::move(reply_);
}

void ReplyBuilder::foresee() const {
  const std::optional<std::string>& grows = reply_.content ? reply_.content : reply_.reasoning;
  if (grows) base::prefetch(grows->data() + grows->size(), 1);
}

void ReplyBuilder::apply_events(ReplyDelta& delta) {
  for (const HarmonyEvent& event : events_) {
    if (const auto* message = std::get_if<MessageBegin>(&event)) {
      begin(message->header, delta);
    } else if (const auto* text = std::get_if<TextDelta>(&event)) {
      add_text(text->text, delta);
    } else {
      end(std::get<MessageEnd>(event).by);
    }
  }
  events_.clear();
}

void ReplyBuilder::begin(const MessageHeader& header, ReplyDelta& delta) {
  separate_ = false;
  if (header.role != Role::kAssistant) {
    field_ = Field::kHeldBack;
    return;
  }
  const bool is_call = goes_to_tool(header);
  if (is_call && options_.callable) {
    field_ = Field::kToolArguments;
    begin_call(header, delta);
    return;
  }
  if (is_call) ++calls_as_text_;
  const bool is_preamble = is_call || header.channel == kCommentary;
  const bool is_thought = header.channel == kAnalysis && !is_call;
  if (is_thought || (is_preamble && options_.preamble == Options::Preamble::kReasoning)) {
    field_ = Field::kReasoning;
    separate_ = reply_.reasoning && !reply_.reasoning->empty();
  } else {
    field_ = Field::kContent;
    if (!reply_.content) reply_.content.emplace();
    separate_ = !reply_.content->empty();
  }
}

void ReplyBuilder::begin_call(const MessageHeader& header, ReplyDelta& delta) {
  ToolCall call = begun_call(*header.recipient);
  delta.tool_calls.push_back({.index = static_cast<int>(reply_.tool_calls.size()),
                              .begins = true,
                              .name = call.name,
                              .recipient = call.recipient,
                              .is_function = call.is_function,
                              .is_builtin = call.is_builtin,
                              .arguments = {}});
  reply_.tool_calls.push_back(std::move(call));
}

void ReplyBuilder::add_text(std::string_view text, ReplyDelta& delta) {
  switch (field_) {
    case Field::kReasoning: {
      if (!reply_.reasoning) reply_.reasoning.emplace();
      const std::string_view separator = separate_ ? "\n" : "";
      delta.reasoning.append(separator).append(text);
      reply_.reasoning->append(separator).append(text);
      break;
    }
    case Field::kContent: {
      const std::string_view separator = separate_ ? "\n\n" : "";
      delta.content.append(separator).append(text);
      reply_.content->append(separator).append(text);
      break;
    }
    case Field::kToolArguments:
      call_delta(delta).arguments += text;
      reply_.tool_calls.back().arguments += text;
      break;
    case Field::kHeldBack:
      if (held_back_.size() + text.size() <= kHeldBackBytesMax) held_back_ += text;
      break;
  }
  separate_ = false;
}

void ReplyBuilder::end(MessageEnd::By by) {
  if (field_ != Field::kToolArguments) return;
  const bool by_model = by != MessageEnd::By::kEndOfStream && by != MessageEnd::By::kNextMessage;
  reply_.tool_calls.back().complete = by_model;
  if (!by_model) ++unclosed_calls_;
}

// The delta of the open call: text follows its beginning within one push, or comes alone.
ToolCallDelta& ReplyBuilder::call_delta(ReplyDelta& delta) {
  const int index = static_cast<int>(reply_.tool_calls.size()) - 1;
  if (delta.tool_calls.empty() || delta.tool_calls.back().index != index) {
    delta.tool_calls.push_back({.index = index});
  }
  return delta.tool_calls.back();
}

}  // namespace pelton::chat
