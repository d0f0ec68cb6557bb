// POST /tokenize and /detokenize, as vLLM has them: bodies in and out. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_request.h"

namespace pelton::api {

inline constexpr size_t kTokenizeBytesMax = size_t{4} << 20;
inline constexpr size_t kDetokenizeTokensMax = 500'000;

// Either a text ("prompt", or llama.cpp's "content"), or all that /v1/chat/completions takes, to be
// rendered as its prompt.
struct TokenizeRequest {
  std::string model;  // empty: the only one there is
  std::string prompt;
  std::optional<ChatRequest> chat;
  bool token_texts = false;
  bool is_llama = false;              // "content": llama.cpp's clients ask, and read the answer
  bool adds_special = true;           // the prompt begins with the model's bos token, if it has one
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
  std::vector<std::string> warnings;
};

// Errors: kInvalidArgument with the field's path.
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits);
// Of a body that has been read and checked (api/json_object.h).
Result<TokenizeRequest> read_tokenize_request(const Json& json, const RequestLimits& limits);
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                   const RequestLimits& limits);

struct Tokenized {
  std::span<const TokenId> tokens;
  int64_t context_max = 0;
  std::optional<std::vector<std::string>> texts;  // of each token
};
std::string tokenize_body(const Tokenized& tokenized);
// {"tokens":[…]}: ids, or where there are texts {"id","piece"} each, as llama.cpp has it.
std::string llama_tokenize_body(const Tokenized& tokenized);
std::string detokenize_body(std::string_view text);
// {"object":"response.input_tokens","input_tokens":N}
std::string input_tokens_body(int64_t count);

}  // namespace pelton::api
