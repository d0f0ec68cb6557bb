// POST /rerank of Jina's and Cohere's clients ("documents"), as a request for whoever chooses
// between that and another protocol on one route.
#pragma once

#include <memory>
#include <string_view>

#include "server/request_pipeline.h"

namespace pelton::server {

// `api_version`: "1", or "2" on the routes that begin so.
std::unique_ptr<ModelRequest> documents_reranking(std::string_view api_version);

}  // namespace pelton::server
