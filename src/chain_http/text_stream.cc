#include "chain_http/text_stream.h"

#include <utility>

#include <fmt/format.h>

namespace pelton::chain_http {

using Fault = chain::CallAnswer::Fault;

void TextStream::break_off(std::string why, Fault fault) {
  broken_ = true;
  failure_.fault = fault;
  failure_.detail = std::move(why);
}

std::string with_stream(std::string body) {
  const bool empty = body == "{}";
  body.pop_back();  // its brace
  return body + (empty ? "" : ",") + R"("stream":true,"stream_options":{"include_usage":true}})";
}

bool TextStream::feed(std::string_view bytes, base::FunctionRef<void(std::string text)> on_text) {
  if (broken_) return false;
  const Result<void> fed = events_.feed(bytes, [&](const net::SseEvent& event) {
    if (!broken_ && !done_) take(event.data, on_text);
  });
  if (!fed.ok()) break_off(fed.error().message, Fault::kTooLarge);
  return !broken_;
}

void TextStream::take(std::string_view data, base::FunctionRef<void(std::string text)> on_text) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Result<Json> chunk = Json::parse(data);
  if (!chunk.ok()) return break_off("an event of its stream is no JSON", Fault::kUnreachable);
  // An error amid a stream is an answer with that error.
  if (const Json* const error = chunk->find("error"); error != nullptr && !error->is_null()) {
    broken_ = true;
    failure_.status = static_cast<int>(error->integer("code").value_or(500));
    if (failure_.status < 400 || failure_.status > 599) failure_.status = 500;
    failure_.body = std::string(data);
    return;
  }
  if (const Json* const usage = chunk->find("usage"); usage != nullptr && usage->is_object()) {
    usage_ = *usage;
  }
  const Json* const choices = chunk->find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return;
  const Json& choice = choices->as_array().front();
  if (const auto reason = choice.string("finish_reason")) finish_reason_ = *reason;
  const bool is_chat = endpoint_ == chain::Endpoint::kChat;
  const Json* const holder = is_chat ? choice.find("delta") : &choice;
  if (holder == nullptr) return;
  const auto text = holder->string(is_chat ? "content" : "text");
  if (!text || text->empty()) return;
  if (std::ssize(text_) + std::ssize(*text) > bytes_max_) {
    return break_off(fmt::format("at most {} bytes", bytes_max_), Fault::kTooLarge);
  }
  text_ += *text;
  on_text(*text);
}

chain::CallAnswer TextStream::answer() const {
  if (broken_) return failure_;
  if (!done_ && finish_reason_.empty()) {
    return {.fault = Fault::kUnreachable,
            .status = 0,
            .body = {},
            .detail = "its stream ended amid the answer"};
  }
  return {.fault = Fault::kNone,
          .status = 200,
          .body = chain::streamed_body(endpoint_, text_, finish_reason_, usage_),
          .detail = {}};
}

}  // namespace pelton::chain_http
