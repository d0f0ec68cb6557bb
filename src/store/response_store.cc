#include "store/response_store.h"

#include <fmt/format.h>

namespace pelton::store {

int64_t stored_bytes(const StoredResponse& response) {
  constexpr int64_t kOverhead = 512;
  const size_t text = response.id.size() + response.owner.size() + response.previous.size() +
                      response.body.size() + response.input.size() + response.output.size();
  return static_cast<int64_t>(text + response.turn.size() * sizeof(TokenId)) + kOverhead;
}

Error no_such_response(std::string_view id) {
  return {ErrorCode::kNotFound, fmt::format("Response with id '{}' not found.", id.substr(0, 256)),
          ""};
}

Error history_too_long(std::string_view id) {
  return {ErrorCode::kDoesNotFit,
          fmt::format("the history of '{}' is longer than {} responses or {} bytes", id,
                      ResponseStore::kHistoryMax, ResponseStore::kHistoryBytesMax),
          "previous_response_id"};
}

Error response_too_large(const StoredResponse& response, const StoreBounds& bounds) {
  return {ErrorCode::kDoesNotFit,
          fmt::format("{} is {} bytes, more than a quarter of the store's {}", response.id,
                      stored_bytes(response), bounds.bytes_max),
          ""};
}

}  // namespace pelton::store
