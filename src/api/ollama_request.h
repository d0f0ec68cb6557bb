// Ollama's /api/chat, /api/generate and /api/embed: their bodies in the words of
// /v1/chat/completions, /v1/completions and /v1/embeddings, whose parsers then read them, so that
// what is valid there is valid here. A field or option that Ollama does not have is refused by its
// name. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

// "tiny:latest" is "tiny": Ollama's clients put a tag behind a name that has none.
std::string_view without_latest(std::string_view model);

struct OllamaRequest {
  std::string body;      // of the other endpoint
  bool is_chat = false;  // that is the chat's; else the completion's
  // Nothing is asked: the model is to be loaded, or, with keep_alive 0, to be given back.
  bool loads = false;
  bool unloads = false;
  bool shows_thinking = true;
};

// Errors: kInvalidArgument, kUnsupported, with the field's path.
Result<OllamaRequest> parse_ollama_chat(std::string_view body, const RequestLimits& limits);
// `has_chat`: the model has a chat format, which a prompt that is not "raw" goes through.
Result<OllamaRequest> parse_ollama_generate(std::string_view body, const RequestLimits& limits,
                                            bool has_chat);
struct OllamaEmbedRequest {
  std::string body;
  bool truncates = true;
};
Result<OllamaEmbedRequest> parse_ollama_embed(std::string_view body, const RequestLimits& limits);
// The model of /api/show, which may be called "name", as it once was.
Result<std::string> parse_ollama_show(std::string_view body, const RequestLimits& limits);

// What the other endpoint's parser says of a field, by the name that Ollama's caller gave it:
// "options.temperature".
Error in_ollama_words(Error error);

}  // namespace pelton::api
