// Responses that were given, for those who come back to them. What hangs on a response (the ones
// that name it as previous) keeps it: a history is whole or not there. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace pelton::store {

struct StoredResponse {
  std::string id;
  std::string owner;     // for everybody else it does not exist
  std::string previous;  // the response it goes on from; empty: none
  int64_t created_at = 0;
  std::string body;           // the response object, JSON
  std::string input;          // its own input, a JSON array of items
  std::string output;         // its output, a JSON array of items
  std::vector<TokenId> turn;  // the output as it was sampled; empty: not known
};

struct StoreBounds {
  int64_t entries_max = 10'000;
  int64_t bytes_max = int64_t{256} << 20;
  int64_t age_max_s = 30 * 24 * 3600;  // since it was last asked for
};

class ResponseStore {
 public:
  struct Key {
    std::string_view owner;
    std::string_view id;
  };
  struct Counts {
    int64_t entries = 0;
    int64_t bytes = 0;
  };

  // Of one history; beyond this a conversation has to begin anew.
  static constexpr size_t kHistoryMax = 10'000;
  static constexpr int64_t kHistoryBytesMax = int64_t{64} << 20;

  virtual ~ResponseStore() = default;

  // Errors: kNotFound if the previous one has gone meanwhile, kDoesNotFit if it is larger than a
  // quarter of the bound, kIo.
  virtual Result<void> put(const StoredResponse& response) = 0;

  // One that is still being made, as it shall be found if this process ends before put() or
  // remove() of the same id: nowhere until then. Does nothing where nothing outlives the process.
  // Errors: kIo.
  virtual Result<void> put_unfinished(const StoredResponse& /*as_it_would_end*/) { return {}; }

  // Errors: kNotFound, kIo.
  virtual Result<StoredResponse> find(const Key& key) = 0;
  // That one and all before it, the oldest first. Also kDoesNotFit.
  virtual Result<std::vector<StoredResponse>> history(const Key& key) = 0;
  // Errors: kNotFound; kIo: then it is there as before, or its words have not been overwritten yet.
  virtual Result<void> remove(const Key& key) = 0;

  // All of one owner's, also what is being made; where it is encrypted its key is destroyed first,
  // so that copies are unreadable from then on. What is being made and put() later is kept. How
  // many there were. Errors: kIo: the key is destroyed then, and what is left goes with the next
  // start.
  virtual Result<int64_t> erase(const std::string& owner) = 0;

  virtual Counts counts() const = 0;
  // What the operating system refused so far.
  struct Failures {
    int64_t reads = 0;
    int64_t writes = 0;
  };
  virtual Failures failures() const { return {}; }
};

// What an entry costs.
int64_t stored_bytes(const StoredResponse& response);

// The words of both implementations.
Error no_such_response(std::string_view id);
Error history_too_long(std::string_view id);
Error response_too_large(const StoredResponse& response, const StoreBounds& bounds);

}  // namespace pelton::store
