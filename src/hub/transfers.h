// HTTP requests side by side on the caller's thread: the only user of libcurl. Never follows a
// redirect and never sends a token anywhere by itself; both are the caller's to decide. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::hub {

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;  // behind the last
};

struct TransferRequest {
  enum class Method { kGet, kHead };
  Method method = Method::kGet;
  std::string url;
  std::string token;                      // sent as a bearer token; empty: none
  std::vector<std::string> headers = {};  // more of them, as "name: value"
  std::optional<ByteRange> range = {};
};

struct ResponseHead {
  int status = 0;                                           // 0: none came
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case

  std::string_view get(std::string_view name) const {  // lower-case name; empty if absent
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
  }
};

// Takes one answer as it comes. Returning false ends the transfer.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  virtual bool on_head(const ResponseHead& head) = 0;
  virtual bool on_body(std::string_view bytes) = 0;
};

struct TransferEnd {
  enum class How {
    kComplete,
    kStopped,  // the sink wanted no more
    kFailed,   // no connection, a lost one, or one that stood still
  };
  int id = 0;
  How how = How::kComplete;
  std::string message;  // of kFailed
};

class Transfers {
 public:
  struct Options {
    int connections = 8;
    std::chrono::seconds connect_time_max{15};
    std::chrono::seconds stall_time_max{30};
    // A transfer that brings less for so long is ended; 1: one that brings nothing.
    int least_bytes_per_s = 1;
  };

  explicit Transfers(const Options& options);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Begins; the sink must outlive the transfer.
  int start(const TransferRequest& request, TransferSink& sink);
  void cancel(int id);  // no end is reported for it
  int running() const;

  // Moves bytes for at most this long; returns as soon as something has ended.
  std::vector<TransferEnd> wait(std::chrono::milliseconds limit);

 private:
  struct Transfer;
  struct Multi;
  const Options options_;
  std::unique_ptr<Multi> multi_;
  int next_id_ = 1;
};

}  // namespace pelton::hub
