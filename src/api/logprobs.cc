#include "api/logprobs.h"

#include <algorithm>

#include "base/utf8.h"

namespace pelton::api {
namespace {

void write_logprob(base::JsonWriter& writer, float logprob) {
  writer.number(logprob > kLogprobMin ? logprob : kLogprobMin);
}

std::string name_of(const ScoredToken& scored) {
  return scored.id < 0 ? scored.bytes : "token_id:" + std::to_string(scored.id);
}

void write_scored(base::JsonWriter& writer, const ScoredToken& scored) {
  writer.key("token").string(name_of(scored)).key("logprob");
  write_logprob(writer, scored.logprob);
  writer.key("bytes").begin_array();
  for (const char byte : scored.bytes) writer.integer(static_cast<unsigned char>(byte));
  writer.end_array();
}

}  // namespace

void write_token_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens) {
  writer.begin_array();
  for (const TokenLogprobs& token : tokens) {
    writer.begin_object();
    write_scored(writer, token.token);
    writer.key("top_logprobs").begin_array();
    for (const ScoredToken& other : token.top) {
      writer.begin_object();
      write_scored(writer, other);
      writer.end_object();
    }
    writer.end_array().end_object();
  }
  writer.end_array();
}

void write_chat_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens) {
  writer.begin_object().key("content");
  write_token_logprobs(writer, tokens);
  writer.key("refusal").null().end_object();
}

void write_completion_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens,
                               size_t first_offset) {
  writer.begin_object().key("tokens").begin_array();
  for (const TokenLogprobs& token : tokens) writer.string(name_of(token.token));
  writer.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) write_logprob(writer, token.token.logprob);
  writer.end_array().key("top_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) {
    writer.begin_object();
    for (size_t i = 0; i < token.top.size(); ++i) {
      // Tokens of broken bytes can look the same once they are text; a JSON key must not repeat.
      const std::string text = base::replace_invalid_utf8(name_of(token.top[i]));
      const bool repeated =
          std::any_of(token.top.begin(), token.top.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const ScoredToken& other) {
                        return base::replace_invalid_utf8(name_of(other)) == text;
                      });
      if (repeated) continue;
      writer.key(text);
      write_logprob(writer, token.top[i].logprob);
    }
    writer.end_object();
  }
  writer.end_array().key("text_offset").begin_array();
  size_t offset = first_offset;
  for (const TokenLogprobs& token : tokens) {
    writer.integer(static_cast<int64_t>(offset));
    offset += token.token.bytes.size();
  }
  writer.end_array().end_object();
}

}  // namespace pelton::api
