// Requests that ask for documents in order (Cohere's and Jina's rerank, as vLLM's "vllm-rerank"
// measures it): what one prompt becomes, and whether an answer is one. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::bench {

// A query and `documents` documents out of `prompt`: documents + 1 pieces of about as many bytes
// each, cut at blanks where there are any and never inside a character; the first is the query. No
// piece is empty unless the prompt has fewer characters than pieces: then all of it is said again
// for those that are.
//
// example: "a b c d e f" for 2 documents: "a b", "c d", "e f".
struct RankedTexts {
  std::string query;
  std::vector<std::string> documents;
};
RankedTexts ranked_texts(std::string_view prompt, int documents);

// `answer` orders `results` of documents that are numbered below `documents`: each once, each with
// a score. Errors: kInvalidArgument, in words for the report.
Result<void> check_ranking(std::string_view answer, int64_t documents, int64_t results);

}  // namespace pelton::bench
