#include "chat/reply.h"

#include <utility>

namespace pelton::chat {
namespace {

std::vector<std::string> warnings_of(const ReplyFacts& facts) {
  std::vector<std::string> warnings;
  if (facts.text_left_out) {
    warnings.emplace_back("left out what the model wrote in another's name");
  }
  if (facts.repairs > 0) {
    warnings.push_back("repaired the model's message format in " + std::to_string(facts.repairs) +
                       " places");
  }
  if (facts.calls_as_text > 0) {
    warnings.push_back("showed " + std::to_string(facts.calls_as_text) +
                       " calls as text: no function was offered");
  }
  if (facts.unclosed_calls > 0) {
    warnings.push_back(std::to_string(facts.unclosed_calls) + " tool calls were not closed");
  }
  if (facts.calls_left_out > 0) {
    warnings.emplace_back("left out calls: parallel_tool_calls is false");
  }
  return warnings;
}

}  // namespace

void append_reply(Conversation& conversation, const Reply& reply) {
  using Kind = Message::Kind;
  std::vector<Message>& messages = conversation.messages;
  if (reply.reasoning) messages.push_back({.kind = Kind::kReasoning, .text = *reply.reasoning});
  if (reply.content && !(reply.content->empty() && !reply.tool_calls.empty())) {
    const bool is_preamble = !reply.tool_calls.empty();
    messages.push_back(
        {.kind = is_preamble ? Kind::kPreamble : Kind::kAnswer, .text = *reply.content});
  }
  for (const ToolCall& call : reply.tool_calls) {
    messages.push_back({.kind = Kind::kCall,
                        .text = call.arguments,
                        .name = call.is_function ? call.name : call.recipient,
                        .builtin = !call.is_function});
  }
}

void ReplyDelta::clear() {
  kind = Kind::kNone;
  reasoning.clear();
  content.clear();
  tool_calls.clear();
}

ReplyBuilder::ReplyBuilder(std::unique_ptr<TurnParser> parser, const Options& options)
    : options_(options), reader_(std::move(parser), options.reader) {}

void ReplyBuilder::push(TokenId token, ReplyDelta& delta) {
  delta.clear();
  std::string text;
  if (reader_.push_plain(token, text)) {
    if (!text.empty()) add_text(text, delta);
  } else {
    reader_.push(token, events_);
    apply_events(delta);
  }
  const std::optional<PartKind> part = reader_.token_part();
  if (part) delta.kind = delta_kind(field_of(*part));
}

void ReplyBuilder::settle(ReplyDelta& delta) {
  delta.clear();
  reader_.settle(events_);
  apply_events(delta);
}

Reply ReplyBuilder::finish(StopCause cause, ReplyDelta& delta) {
  delta.clear();
  reader_.finish(events_);
  apply_events(delta);
  if (!reply_.content && !reply_.reasoning && reply_.tool_calls.empty()) reply_.content.emplace();
  reply_.reasoning_tokens = reader_.reasoning_tokens();
  reply_.warnings = warnings_of(reader_.facts());
  if (cause == StopCause::kLength) {
    reply_.finish = ReplyFinish::kLength;
  } else if (!reply_.tool_calls.empty()) {
    reply_.finish = ReplyFinish::kToolCalls;
  }
  return std::move(reply_);
}

ReplyBuilder::Field ReplyBuilder::field_of(PartKind kind) const {
  if (kind == PartKind::kCall) return Field::kToolArguments;
  const bool hidden =
      kind == PartKind::kPreamble && options_.preamble == Options::Preamble::kReasoning;
  return kind == PartKind::kReasoning || hidden ? Field::kReasoning : Field::kContent;
}

ReplyDelta::Kind ReplyBuilder::delta_kind(Field field) {
  switch (field) {
    case Field::kReasoning:
      return ReplyDelta::Kind::kReasoning;
    case Field::kContent:
      return ReplyDelta::Kind::kContent;
    case Field::kToolArguments:
      return ReplyDelta::Kind::kToolArguments;
  }
  return ReplyDelta::Kind::kNone;
}

void ReplyBuilder::apply_events(ReplyDelta& delta) {
  for (const ReplyEvent& event : events_) {
    if (const auto* part = std::get_if<PartBegin>(&event)) {
      begin(*part, delta);
    } else if (const auto* text = std::get_if<PartText>(&event)) {
      add_text(text->text, delta);
    } else {
      end(std::get<PartEnd>(event));
    }
  }
  events_.clear();
}

void ReplyBuilder::begin(const PartBegin& part, ReplyDelta& delta) {
  separate_ = false;
  field_ = field_of(part.kind);
  switch (field_) {
    case Field::kReasoning:
      separate_ = reply_.reasoning && !reply_.reasoning->empty();
      break;
    case Field::kContent:
      if (!reply_.content) reply_.content.emplace();
      separate_ = !reply_.content->empty() && !part.continues;
      break;
    case Field::kToolArguments: {
      const CallTarget& call = part.call;
      delta.tool_calls.push_back({.index = static_cast<int>(reply_.tool_calls.size()),
                                  .begins = true,
                                  .name = call.name,
                                  .recipient = call.recipient,
                                  .is_function = call.is_function,
                                  .is_builtin = call.is_builtin,
                                  .arguments = {}});
      reply_.tool_calls.push_back({.name = call.name,
                                   .recipient = call.recipient,
                                   .arguments = {},
                                   .is_function = call.is_function,
                                   .is_builtin = call.is_builtin});
    }
  }
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
  }
  separate_ = false;
}

void ReplyBuilder::end(const PartEnd& end) {
  if (field_ != Field::kToolArguments) return;
  reply_.tool_calls.back().complete = end.by == PartEnd::By::kModel;
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
