#include "apps/chat_session.h"

#include <algorithm>

#include <fmt/format.h>

#include "apps/answer_printer.h"
#include "apps/stream_reader.h"
#include "base/random.h"
#include "chat/harmony_renderer.h"
#include "chat/reply.h"

namespace pelton::apps {

Result<ChatSession> ChatSession::make(node::LoadedModel& model, const Options& options,
                                      const cli::Interrupt& interrupt) {
  TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, model.tokenizer());
  TRY_ASSIGN(const chat::HarmonyTokens tokens, model.harmony());
  return ChatSession(model, *tokenizer, tokens, options, interrupt);
}

ChatSession::ChatSession(node::LoadedModel& model, const tokenizer::Tokenizer& tokenizer,
                         const chat::HarmonyTokens& tokens, const Options& options,
                         const cli::Interrupt& interrupt)
    : model_(model),
      tokenizer_(tokenizer),
      tokens_(tokens),
      options_(options),
      interrupt_(interrupt) {
  clear();
}

void ChatSession::clear() {
  conversation_.messages.assign(1, {});
  write_system_message();
  if (options_.instructions.empty()) return;
  chat::DeveloperContent developer;
  developer.instructions = options_.instructions;
  chat::Message message{.role = chat::Role::kDeveloper};
  message.content.emplace_back(std::move(developer));
  conversation_.messages.push_back(std::move(message));
}

void ChatSession::set_effort(chat::ReasoningEffort effort) {
  options_.effort = effort;
  write_system_message();
}

void ChatSession::write_system_message() {
  chat::SystemContent system;
  system.current_date = options_.current_date;
  system.reasoning_effort = options_.effort;
  chat::Message message{.role = chat::Role::kSystem};
  message.content.emplace_back(std::move(system));
  conversation_.messages.front() = std::move(message);
}

Result<ChatSession::Answer> ChatSession::ask(const std::string& text,
                                             const cli::Terminal& terminal) {
  chat::Conversation conversation = conversation_;
  conversation.messages.push_back(chat::text_message(chat::Role::kUser, text));
  TRY_ASSIGN(request::GenerationRequest request, request_for(conversation));
  TRY_ASSIGN(const Answer answer, stream(std::move(request), terminal, conversation));
  chat::drop_past_analysis(conversation);
  conversation_ = std::move(conversation);
  return answer;
}

Result<request::GenerationRequest> ChatSession::request_for(
    const chat::Conversation& conversation) {
  const chat::HarmonyRenderer renderer(tokenizer_, tokens_);
  request::GenerationRequest request;
  request.id = fmt::format("chat-{}", turn_);
  request.prompt = renderer.render(conversation, {});
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
  chat::ReplyBuilder builder(tokenizer_, tokens_, {});
  AnswerPrinter printer(terminal);
  chat::ReplyDelta delta;
  Answer answer;
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
