// What became of the requests that came through the public door: each is begun once and ended once,
// so received = ok + client errors + server errors + cancelled + open, always. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>

namespace pelton::server {

class RequestBook {
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
  struct Key {
    std::string_view handler;
    std::string_view method;
    int status = 0;
    bool operator<(const Key& other) const {
      return std::tie(handler, method, status) <
             std::tie(other.handler, other.method, other.status);
    }
  };

  void begin();
  void end(const Key& key);

  Counts counts() const;
  std::map<Key, int64_t> by_key() const;

 private:
  mutable std::mutex mutex_;
  Counts counts_;
  std::map<Key, int64_t> by_key_;  // bounded: constants, and statuses of ours
};

class RequestReporter;
struct RequestRecord;

// One request's entry: ended by its answer, or as cancelled when it goes without one.
class RequestEntry {
 public:
  struct Route {
    std::string_view handler;
    std::string_view method;
  };

  RequestEntry(RequestBook& book, const Route& route);
  ~RequestEntry();
  RequestEntry(const RequestEntry&) = delete;
  RequestEntry& operator=(const RequestEntry&) = delete;

  // At its end `reporter`, which outlives it, gets the record; null: it gets none.
  void report_to(RequestReporter& reporter, std::unique_ptr<RequestRecord> record);
  RequestRecord* record() { return record_.get(); }  // may be null

  // The first time counts.
  void answered(int status);

 private:
  RequestBook& book_;
  const Route route_;
  RequestReporter* reporter_ = nullptr;
  std::unique_ptr<RequestRecord> record_;
  bool ended_ = false;
};

}  // namespace pelton::server
