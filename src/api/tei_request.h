// The bodies of Hugging Face's text-embeddings-inference (TEI): POST /embed, /embed_all,
// /embed_sparse, /similarity, /rerank with "texts", /predict; and vLLM's /classify. As plain
// values, everything in them checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

// What becomes of a text that is longer than the model takes.
enum class TeiTruncate { kRefused, kEnd, kStart };

struct TeiEmbedRequest {
  EmbeddingFields fields;
  std::vector<Prompt> inputs;
  TeiTruncate truncate = TeiTruncate::kRefused;
  bool normalises = true;
  std::optional<int> dimensions;
};

// How alike each of `sentences` is to `source`.
struct TeiSimilarityRequest {
  EmbeddingFields fields;
  std::string source;
  std::vector<std::string> sentences;
  TeiTruncate truncate = TeiTruncate::kRefused;
};

struct TeiRerankRequest {
  EmbeddingFields fields;
  std::string query;
  std::vector<std::string> texts;
  bool raw_scores = false;
  bool return_text = false;
  TeiTruncate truncate = TeiTruncate::kRefused;
};

// A text, or a text beside another one.
struct ClassifiedText {
  std::string first;
  std::optional<std::string> second;
};

struct ClassifyRequest {
  EmbeddingFields fields;
  std::vector<ClassifiedText> inputs;
  bool is_single = false;   // one input that was no list: its answer is none either
  bool raw_scores = false;  // logits, not probabilities
  TeiTruncate truncate = TeiTruncate::kRefused;
};

// Errors: kInvalidArgument with the field's path, and kUnsupported.
Result<TeiEmbedRequest> parse_tei_embed_request(std::string_view body, const RequestLimits& limits);
// The same of /embed_all and /embed_sparse, whose numbers are each token's own: neither cut to some
// dimensions nor brought to a length.
Result<TeiEmbedRequest> parse_tei_tokens_request(std::string_view body,
                                                 const RequestLimits& limits);
Result<TeiSimilarityRequest> parse_tei_similarity_request(std::string_view body,
                                                          const RequestLimits& limits);
Result<TeiRerankRequest> parse_tei_rerank_request(std::string_view body,
                                                  const RequestLimits& limits);
// TEI's "inputs": "text", ["text", "its pair"], or a list of such: [["a"], ["b", "c"]].
Result<ClassifyRequest> parse_predict_request(std::string_view body, const RequestLimits& limits);
// vLLM's "input": a text or several.
Result<ClassifyRequest> parse_classify_request(std::string_view body, const RequestLimits& limits);

// Whether a body for /rerank is TEI's: it has "texts" where others have "documents".
bool is_tei_rerank(std::string_view body);

}  // namespace pelton::api
