// POST /v1/embeddings, /v2/embed, /v1/rerank and /v1/score: the bodies as plain values, everything
// in them checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_message.h"
#include "api/completion_request.h"
#include "api/fields.h"
#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

inline constexpr size_t kEmbeddingInputsMax = 2048;  // OpenAI's

// How a text's tokens become one vector; absent: as the server was configured.
enum class EmbeddingPooling { kLast, kMean, kFirst };

// What all three say of who asks and how.
struct EmbeddingFields {
  std::string model;  // empty: the only one there is
  std::optional<EmbeddingPooling> pooling;
  // Which of the model's prompts goes ahead of each text, by its name, or by what the text is for
  // ("query", "document"); empty: the model's default.
  std::string prompt_name;
  std::string input_type;
  int priority = 0;
  std::string user;
  std::string cache_salt;
  std::optional<double> timeout_s;
  std::optional<int64_t> keep_alive_ns;  // as GenerationFields'
  std::vector<std::string> warnings;     // what was ignored, for a response header
};

struct EmbeddingRequest {
  EmbeddingFields fields;
  std::vector<Prompt> inputs;
  std::vector<ChatMessage> messages;  // in place of inputs: one chat's prompt
  bool begins_answer = false;         // that ends with the opening of the model's turn
  bool adds_special = true;           // texts stand between the model's own tokens, if it has such
  std::optional<int> dimensions;      // the first so many, normalised anew
  bool normalises = true;             // to length one
  bool base64 = false;
};

// Cohere's /v2/embed.
struct EmbedRequest {
  enum class Truncate { kNone, kStart, kEnd };
  EmbeddingFields fields;
  std::vector<std::string> texts;
  Truncate truncate = Truncate::kEnd;  // of what is longer than the context, or than max_tokens
  std::optional<int64_t> max_tokens;   // of each text
  std::optional<int> dimensions;
  bool floats = true;
  bool base64 = false;
};

// A document that is longer than the context loses its end.
struct RerankRequest {
  EmbeddingFields fields;
  std::string query;
  std::vector<std::string> documents;
  std::optional<int64_t> tokens_per_document_max;
  std::optional<int> top_n;
  bool return_documents = true;
  bool raw_scores = false;  // of a model that scores: its logits, not probabilities
  std::string instruction;  // of Qwen3-Reranker; empty: its default
};

// Each of `first` with each of `second` where there is one of `first`, otherwise one by one.
struct ScoreRequest {
  EmbeddingFields fields;
  bool raw_scores = false;  // as RerankRequest's, also the next
  std::string instruction;
  std::string_view first_field = "text_1";  // where they stand in the body
  std::vector<std::string> first;
  std::string_view second_field = "text_2";
  std::vector<std::string> second;
};

// Errors: kInvalidArgument with the field's path.
Result<EmbeddingRequest> parse_embedding_request(std::string_view body,
                                                 const RequestLimits& limits);
// Of a body that has been read and checked (api/json_object.h).
Result<EmbeddingRequest> read_embedding_request(const Json& json, const RequestLimits& limits);
Result<EmbedRequest> parse_embed_request(std::string_view body, const RequestLimits& limits);
Result<RerankRequest> parse_rerank_request(std::string_view body, const RequestLimits& limits);
Result<ScoreRequest> parse_score_request(std::string_view body, const RequestLimits& limits);

// For bodies of other protocols that ask the same. Whether a head's scores are wanted as logits:
// "raw_scores", or vLLM's "activation" (in older clients "use_activation", "softmax") if false.
bool read_raw_scores(const Fields& body);
// Refuses texts without the tokens that the model puts around them.
void refuse_bare_tokens(const Fields& body);

}  // namespace pelton::api
