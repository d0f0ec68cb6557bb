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

// The likeliest and, as OpenAI has it, the token itself where it is none of them.
void write_named_logprobs(base::JsonWriter& writer, const TokenLogprobs& token) {
  if (!token.foretold) {
    writer.null();
    return;
  }
  // Tokens of broken bytes can look the same once they are text; a JSON key must not repeat.
  std::vector<std::string> names;
  const auto write = [&](const ScoredToken& one) {
    std::string name = base::replace_invalid_utf8(name_of(one));
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    writer.key(name);
    write_logprob(writer, one.logprob);
    names.push_back(std::move(name));
  };
  writer.begin_object();
  for (const ScoredToken& one : token.top) write(one);
  write(token.token);
  writer.end_object();
}

void write_ranked(base::JsonWriter& writer, const ScoredToken& token, int rank) {
  writer.key(std::to_string(token.id)).begin_object().key("logprob");
  write_logprob(writer, token.logprob);
  writer.key("rank").integer(rank).key("decoded_token").string(token.bytes);
  writer.end_object();
}

}  // namespace

// Token 17 of rank 3 beside the two likeliest, 4 and 9: {"17": rank 3, "4": rank 1, "9": rank 2}.
// Is it 4 itself, of rank 1, it stands once: {"4": rank 1, "9": rank 2}.
void write_prompt_logprobs(base::JsonWriter& writer, std::span<const PromptTokenLogprobs> tokens) {
  writer.begin_array().null();
  for (const PromptTokenLogprobs& token : tokens) {
    writer.begin_object();
    write_ranked(writer, token.token, token.rank);
    for (size_t i = 0; i < token.top.size(); ++i) {
      const int rank = static_cast<int>(i) + 1;
      if (rank != token.rank) write_ranked(writer, token.top[i], rank);
    }
    writer.end_object();
  }
  writer.end_array();
}

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

void write_completion_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens) {
  writer.begin_object().key("tokens").begin_array();
  for (const TokenLogprobs& token : tokens) writer.string(name_of(token.token));
  writer.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) {
    if (token.foretold) {
      write_logprob(writer, token.token.logprob);
    } else {
      writer.null();
    }
  }
  writer.end_array().key("top_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) write_named_logprobs(writer, token);
  writer.end_array().key("text_offset").begin_array();
  for (const TokenLogprobs& token : tokens) {
    writer.integer(static_cast<int64_t>(token.text_offset));
  }
  writer.end_array().end_object();
}

}  // namespace pelton::api
