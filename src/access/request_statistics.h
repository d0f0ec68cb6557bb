// What became of the requests that came through the public listener: each is begun once and ended
// once, so received = ok + client errors + server errors + cancelled + open, always. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/clock.h"
#include "telemetry/histogram.h"

namespace pelton::access {

class RequestStatistics {
 public:
  static constexpr int kClientLeft = 499;  // the status of what nobody was left to hear

  struct Counts {
    int64_t received = 0;
    int64_t ok = 0;
    int64_t client_errors = 0;
    int64_t server_errors = 0;
    int64_t cancelled = 0;
    int64_t open() const { return received - ok - client_errors - server_errors - cancelled; }
  };

  // Views of constants: a route's pattern and method, never what a client sent.
  struct Route {
    std::string_view handler;
    std::string_view method;
    bool operator<(const Route& other) const {
      return std::tie(handler, method) < std::tie(other.handler, other.method);
    }
  };
  struct Key {
    std::string_view handler;
    std::string_view method;
    int status = 0;
    bool operator<(const Key& other) const {
      return std::tie(handler, method, status) <
             std::tie(other.handler, other.method, other.status);
    }
  };

  // Of bodies, or of messages over a WebSocket.
  struct Bytes {
    int64_t asked = 0;
    int64_t answered = 0;
  };
  // What all requests of one route come to.
  struct Sums {
    telemetry::Histogram::Reading seconds;  // by second_bounds()
    int64_t sized = 0;                      // requests whose bytes are known
    Bytes bytes;                            // of those
  };
  static const std::vector<double>& second_bounds();

  explicit RequestStatistics(const base::Clock& clock) : clock_(clock) {}

  int64_t begin();  // when that is
  struct End {
    Route route;
    int status = 0;
    int64_t begun_ns = 0;
    std::optional<Bytes> bytes;
  };
  void end(const End& end);

  Counts counts() const;
  std::map<Key, int64_t> by_key() const;
  std::map<Route, Sums> by_route() const;

 private:
  struct Measured {
    telemetry::Histogram seconds{second_bounds()};
    int64_t sized = 0;
    Bytes bytes;
  };

  const base::Clock& clock_;
  mutable std::mutex mutex_;
  Counts counts_;
  std::map<Key, int64_t> by_key_;  // bounded: constants, and statuses of ours
  std::map<Route, Measured> by_route_;
};

class RequestReporter;
struct RequestRecord;

// One request's entry: ended by its answer, or as cancelled when it goes without one.
class TrackedRequest {
 public:
  using Route = RequestStatistics::Route;

  TrackedRequest(RequestStatistics& book, const Route& route);
  ~TrackedRequest();
  TrackedRequest(const TrackedRequest&) = delete;
  TrackedRequest& operator=(const TrackedRequest&) = delete;

  // At its end `reporter`, which outlives it, gets the record; null: it gets none.
  void report_to(RequestReporter& reporter, std::unique_ptr<RequestRecord> record);
  RequestRecord* record() { return record_.get(); }  // may be null

  // Where they are known: bytes of what was asked, and of what has been answered since.
  void note_request_bytes(size_t bytes);
  void note_response_bytes(size_t bytes);

  // The first time counts.
  void answered(int status);

 private:
  RequestStatistics& book_;
  const Route route_;
  const int64_t begun_ns_;
  std::optional<RequestStatistics::Bytes> bytes_;
  RequestReporter* reporter_ = nullptr;
  std::unique_ptr<RequestRecord> record_;
  bool ended_ = false;
};

}  // namespace pelton::access
