// How a served model's states become vectors and scores, as its files and the command line say.
// Filled by whoever loads the model; a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/token_id.h"

namespace pelton::server {

// What makes a score of a query and a document.
enum class ScoreBy : uint8_t {
  kCosine,  // of their two vectors
  kLabel,   // the one label of a classification head that reads both (a cross-encoder)
  kTokens,  // "yes" against "no" behind a prompt that holds both (Qwen3-Reranker)
};

struct VectorUse {
  // Texts that go ahead of a query's or a document's: {"query", "query: "}; and the name of the one
  // that goes ahead where a request names none; empty: nothing does.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;
  int tokens_max = INT32_MAX;  // of a text (max_seq_length)
  std::string pooling_name = "last";

  std::vector<std::string> labels;  // of the classification head; empty: there is none
  ScoreBy score_by = ScoreBy::kCosine;
  // Of kTokens: what no and yes are.
  TokenId no_token = 0;
  TokenId yes_token = 0;
};

}  // namespace pelton::server
