// Answers in the forms of text-embeddings-inference and of vLLM's /classify. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/embedding_response.h"

namespace pelton::api {

// [[0.1, ...], ...]
std::string tei_vectors_body(std::span<const std::vector<float>> vectors);
// The same of each text's tokens, `size` numbers each: [[[0.1, ...], ...], ...]
std::string tei_states_body(std::span<const std::vector<float>> states, size_t size);
// Of each text its tokens' weights by their ids, which ascend:
// [[{"index": 6, "value": 0.5}, ...], ...]
using SparseVector = std::vector<std::pair<int64_t, float>>;
std::string tei_sparse_body(std::span<const SparseVector> vectors);
// [0.5, ...]
std::string tei_similarity_body(std::span<const double> scores);
// [{"index": 0, "score": 0.5, "text": "..."}]
std::string tei_ranking_body(std::span<const RankedDocument> documents);

struct LabelScore {
  std::string_view label;
  double score = 0.0;
};
// [{"label": "a", "score": 0.9}, ...], best first; of several texts a list of such.
struct Predictions {
  std::span<const std::vector<LabelScore>> texts;
  bool is_single = false;
};
std::string tei_predictions_body(const Predictions& predictions);
// {"data": [{"index": 0, "label": "a", "probs": [...], "num_classes": 2}], ...}, the scores in the
// labels' own order.
std::string classify_body(const EmbeddingAnswer& answer,
                          std::span<const std::vector<LabelScore>> texts);

// GET /info.
struct TeiInfo {
  std::string model_id;
  std::string dtype;
  std::string pooling;              // of embeddings; empty: it classifies
  std::vector<std::string> labels;  // of a classifier
  int64_t max_input_length = 0;
  int64_t max_batch_tokens = 0;
  int64_t max_client_batch_size = 0;
  std::string version;
  bool is_reranker = false;
};
std::string tei_info_body(const TeiInfo& info);

}  // namespace pelton::api
