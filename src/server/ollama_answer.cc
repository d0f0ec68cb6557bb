#include "server/ollama_answer.h"

#include <cstdint>
#include <utility>

#include "server/chat_choice.h"
#include "server/generation_facts.h"
#include "server/held_logprobs.h"

namespace pelton::server {
namespace {

int64_t total_ns(const OllamaAnswerHead& head) {
  return head.clock->now_ns() - head.arrived_ns;
}

std::string quiet_line(const OllamaAnswerHead& head) {
  std::string line;
  api::append_ollama_object(head.head, head.clock->unix_ms(), {}, nullptr, line);
  return line += '\n';
}

class OllamaTextWriter final : public TextWriter {
 public:
  explicit OllamaTextWriter(OllamaAnswerHead head)
      : head_(std::move(head)), quiet_(quiet_line(head_)) {}

  void piece(const TextPiece& piece, std::string& out) override {
    append(piece, {.released = text_bytes_ + piece.text.size()}, out);
    out += '\n';
  }
  void last(const TextPiece& piece, const TextEnd& end, const std::string&,
            std::string& out) override {
    out += whole(piece, end);
    out += '\n';
  }
  std::string whole(const TextPiece& all, const TextEnd& end) override {
    const api::OllamaEnd ended{.reason = end.reason == TextEnd::Reason::kLength ? "length" : "stop",
                               .total_ns = total_ns(head_),
                               .timings = end.timings};
    // Half a code point's tokens may stand at the very end, with no text of their own.
    const bool is_cut = end.reason == TextEnd::Reason::kStopString;
    std::string body;
    append(all, {.end = &ended, .released = is_cut ? text_bytes_ + all.text.size() : SIZE_MAX},
           body);
    return body;
  }
  void error(const api::ApiError& error, std::string& out) override {
    append_ollama_error(error, out);
  }
  std::string_view content_type() const override { return kNdjson; }
  std::string_view quiet_event() const override { return quiet_; }

 private:
  struct Appended {
    const api::OllamaEnd* end = nullptr;  // null: there is more to come
    size_t released = 0;                  // where the text ends that tokens are reported of
  };
  void append(const TextPiece& piece, const Appended& with, std::string& out) {
    std::vector<api::TokenLogprobs> logprobs;
    if (head_.shows_logprobs) {
      for (const TextToken& token : piece.tokens) hold(token);
      held_.release(with.released, logprobs);
    }
    text_bytes_ += piece.text.size();
    api::append_ollama_object(
        head_.head, head_.clock->unix_ms(),
        {.content = piece.text, .thinking = {}, .calls = {}, .logprobs = logprobs}, with.end, out);
  }
  void hold(const TextToken& token) {
    if (token.is_special) return;
    api::TokenLogprobs logprobs;  // named: GCC 12 takes a temporary for one that is half made
    logprobs.token.bytes = token.text;
    logprobs.token.logprob = token.logprob;
    logprobs.top = token.top;
    held_.hold(sampled_bytes_, std::move(logprobs));
    sampled_bytes_ += token.text.size();
  }

  const OllamaAnswerHead head_;
  const std::string quiet_;
  HeldLogprobs held_;
  size_t sampled_bytes_ = 0;  // of the text, by its tokens
  size_t text_bytes_ = 0;     // and what of it has been written
};

}  // namespace

void append_ollama_error(const api::ApiError& error, std::string& out) {
  out += api::plain_error_body(error);
  out += '\n';
}

std::unique_ptr<TextWriter> ollama_text_writer(OllamaAnswerHead head) {
  return std::make_unique<OllamaTextWriter>(std::move(head));
}

OllamaAnswer::OllamaAnswer(const ServedModel& model, Options options)
    : model_(model),
      options_(std::move(options)),
      turn_(model, options_.turn),
      quiet_(quiet_line(options_.head)) {
  add(turn_.begin());
}

Answer::Wants OllamaAnswer::push(size_t, const engine::SampledToken& token) {
  const size_t content_before = turn_.content_sampled();
  const chat::ReplyDelta& delta = turn_.push(token.token);
  if (options_.head.shows_logprobs && delta.kind == chat::ReplyDelta::Kind::kContent) {
    held_logprobs_.hold(content_before, token_logprobs(model_.tokenizer, token));
  }
  add(delta);
  return turn_.stopped() ? Wants::kNothing : Wants::kMore;
}

void OllamaAnswer::add(const chat::ReplyDelta& delta) {
  held_logprobs_.release(turn_.content_out(), logprobs_);
  if (options_.shows_thinking) thinking_ += delta.reasoning;
  content_ += delta.content;
  for (const chat::ToolCallDelta& call : delta.tool_calls) {
    if (call.begins) {
      close_call();
      open_call_ = api::OllamaCall{.name = call.name, .arguments = {}};
    }
    if (open_call_) open_call_->arguments += call.arguments;
  }
}

void OllamaAnswer::close_call() {
  if (open_call_) calls_.push_back(*std::exchange(open_call_, std::nullopt));
}

void OllamaAnswer::end(size_t, const engine::StreamEnd& end) {
  add(turn_.end(end));
  // Half a code point's tokens may stand at the very end, with no text of their own.
  if (!turn_.stopped()) held_logprobs_.release(turn_.content_out() + 1, logprobs_);
  close_call();
  const bool by_length = !turn_.stopped() && turn_.reply().finish == chat::ReplyFinish::kLength;
  access::GenerationFacts facts;
  add_answer(facts, end);
  end_ = {.reason = by_length ? "length" : "stop",
          .total_ns = total_ns(options_.head),
          .timings = timings_of(facts)};
}

void OllamaAnswer::append(const api::OllamaEnd* end, std::string& out) {
  const std::string content = std::exchange(content_, {});
  const std::string thinking = std::exchange(thinking_, {});
  const std::vector<api::OllamaCall> calls = std::exchange(calls_, {});
  const std::vector<api::TokenLogprobs> logprobs = std::exchange(logprobs_, {});
  api::append_ollama_object(
      options_.head.head, options_.head.clock->unix_ms(),
      {.content = content, .thinking = thinking, .calls = calls, .logprobs = logprobs}, end, out);
}

void OllamaAnswer::take_events(std::string& out) {
  if (content_.empty() && thinking_.empty() && calls_.empty() && logprobs_.empty()) return;
  append(nullptr, out);
  out += '\n';
}

// What is left goes before the end, which clients look at for its numbers only.
void OllamaAnswer::take_last_events(std::string& out) {
  take_events(out);
  append(&end_, out);
  out += '\n';
}

std::string OllamaAnswer::whole_body() {
  std::string body;
  append(&end_, body);
  return body;
}

void OllamaAnswer::append_error(const api::ApiError& error, std::string& out) {
  append_ollama_error(error, out);
}

}  // namespace pelton::server
