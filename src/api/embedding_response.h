// Answers of /v1/embeddings, /v1/rerank and /v1/score. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::api {

enum class EmbeddingFormat { kFloat, kBase64 };

struct EmbeddingAnswer {
  std::string id;
  std::string model;
  int64_t created = 0;
  int64_t prompt_tokens = 0;
  bool is_pooling = false;  // vLLM's /pooling: the same by other names
};

std::string embedding_body(const EmbeddingAnswer& answer,
                           std::span<const std::vector<float>> embeddings, EmbeddingFormat format);

// As Cohere's /v2/embed answers.
struct EmbedAnswer {
  const std::vector<std::string>& texts;
  bool floats = true;
  bool base64 = false;
};
std::string embed_body(const EmbeddingAnswer& answer, const EmbedAnswer& shown,
                       std::span<const std::vector<float>> embeddings);

struct RankedDocument {
  size_t index = 0;
  double score = 0.0;
  const std::string* text = nullptr;  // null: not shown
};
struct Ranking {
  std::span<const RankedDocument> documents;
  size_t documents_compared = 0;
  std::string_view api_version;  // of the route that was asked: "1", "2"
};
// With Cohere's "meta": a search unit is a query with up to 100 documents.
std::string rerank_body(const EmbeddingAnswer& answer, const Ranking& ranking);

std::string score_body(const EmbeddingAnswer& answer, std::span<const double> scores);

}  // namespace pelton::api
