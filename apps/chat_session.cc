#include "apps/chat_session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "apps/answer_printer.h"
#include "apps/stream_reader.h"
#include "base/random.h"
#include "chat/reply.h"

namespace pelton::apps {

Result<ChatSession> ChatSession::make(node::LoadedModel& model, const Options& options,
                                      const cli::Interrupt& interrupt) {
  TRY_ASSIGN(std::shared_ptr<const chat::ChatFormat> format, model.chat_format());
  return ChatSession(model, std::move(format), options, interrupt);
}

ChatSession::ChatSession(node::LoadedModel& model, std::shared_ptr<const chat::ChatFormat> format,
                         const Options& options, const cli::Interrupt& interrupt)
    : model_(model), format_(std::move(format)), options_(options), interrupt_(interrupt) {
  clear();
}

void ChatSession::clear() {
  conversation_ = {
      .current_date = options_.current_date, .effort = options_.effort, .messages = {}};
  if (options_.instructions.empty()) return;
  chat::Message message{.kind = chat::Message::Kind::kDeveloper};
  message.developer.instructions = options_.instructions;
  conversation_.messages.push_back(std::move(message));
}

void ChatSession::set_effort(chat::ReasoningEffort effort) {
  options_.effort = effort;
  conversation_.effort = effort;
}

Result<ChatSession::Answer> ChatSession::ask(const std::string& text,
                                             const cli::Terminal& terminal) {
  chat::Conversation conversation = conversation_;
  conversation.messages.push_back({.kind = chat::Message::Kind::kUser, .text = text});
  TRY_ASSIGN(request::GenerationRequest request, request_for(conversation));
  TRY_ASSIGN(const Answer answer, stream(std::move(request), terminal, conversation));
  conversation_ = std::move(conversation);
  return answer;
}

Result<request::GenerationRequest> ChatSession::request_for(
    const chat::Conversation& conversation) {
  request::GenerationRequest request;
  request.id = fmt::format("chat-{}", turn_);
  TRY_ASSIGN(chat::RenderedPrompt prompt, format_->render(conversation));
  request.prompt = std::move(prompt.tokens);
  opening_ = std::move(prompt.opening);
  const int context = model_.engine().capacity().context_tokens_max;
  const int room = context - static_cast<int>(request.prompt.size());
  if (room < 1) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("the conversation has {} tokens and the context only {}; /clear "
                             "begins a new one",
                             request.prompt.size(), context)};
  }
  request.sampling = options_.sampling;
  request.sampling.seed = base::random_bits(options_.sampling.seed, static_cast<uint64_t>(turn_++));
  request.stop.max_new_tokens = std::min(room, options_.tokens_max);
  request.stop.stop_tokens = model_.stop_tokens();
  return request;
}

Result<ChatSession::Answer> ChatSession::stream(request::GenerationRequest request,
                                                const cli::Terminal& terminal,
                                                chat::Conversation& conversation) {
  const base::SystemClock clock;
  const int64_t start_ns = clock.now_ns();
  TRY_ASSIGN(engine::TokenStream tokens, model_.engine().submit(std::move(request)));
  StreamReader reader(std::move(tokens), interrupt_);
  chat::ReplyBuilder builder(format_->parser(chat::Calls::kRead), {});
  AnswerPrinter printer(terminal);
  chat::ReplyDelta delta;
  Answer answer;
  for (const TokenId token : opening_) {
    builder.push(token, delta);
    printer.print(delta);
  }
  while (true) {
    const auto batch = reader.next();
    if (!batch) {
      answer.interrupted = true;
      break;
    }
    for (const engine::SampledToken& token : batch->tokens) {
      ++answer.tokens;
      builder.push(token.token, delta);
      printer.print(delta);
    }
    if (!batch->end) continue;
    if (batch->end->error) {
      printer.finish();
      return *batch->end->error;
    }
    answer.cut = batch->end->reason == engine::FinishReason::kLength;
    break;
  }
  const bool complete = !answer.interrupted && !answer.cut;
  const chat::Reply reply =
      builder.finish(complete ? chat::StopCause::kStopToken : chat::StopCause::kLength, delta);
  printer.print(delta);
  printer.finish();
  chat::append_reply(conversation, reply);
  answer.seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
  return answer;
}

}  // namespace pelton::apps
