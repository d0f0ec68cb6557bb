// What Pelton asks of etcd (API v3 over gRPC): keys under a lease, and a watch over keys that begin
// alike. Calls wait for their answer; each may be made by any thread but watch(), which is one
// thread's. Where an endpoint does not answer, the next call goes to the next one.
//
//   lease = grant(10 s); create("names/one", "id", lease); put("workers/one", "{…}", lease)
//   seen = range("workers/"); watch("workers/", seen.revision + 1, …)
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cluster {

class EtcdClient {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // HOST:PORT
    std::string user;                    // empty: nobody is named
    std::string password;
    bool tls = false;
    std::string ca;           // PEM; with TLS: whom to believe; empty: whom the system does
    std::string certificate;  // PEM; and what to show; empty: nothing
    std::string key;
    std::chrono::milliseconds call_time_max{2'000};
  };
  explicit EtcdClient(const Options& options);
  ~EtcdClient();  // no call is under way
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // kUnavailable: no endpoint, or not in time; kCancelled after cancel(); kNotFound: the lease is
  // gone; kIo: etcd says no.

  struct Entry {
    std::string key;
    std::string value;
    int64_t mod_revision = 0;
  };
  struct Snapshot {
    uint64_t cluster_id = 0;
    int64_t revision = 0;
    std::vector<Entry> entries;
  };
  // All keys that begin so, at most 8192.
  Result<Snapshot> range(std::string_view prefix);

  Result<int64_t> grant(std::chrono::seconds ttl);
  // What is left of it from now on.
  Result<std::chrono::seconds> renew(int64_t lease);
  Result<void> revoke(int64_t lease);

  Result<void> put(std::string_view key, std::string_view value, int64_t lease);
  // If there is none of that key yet, or it has this value already, under whatever lease. False:
  // it has another one.
  Result<bool> create(std::string_view key, std::string_view value, int64_t lease);

  // If the other key still is as it was at that revision. False: it is not.
  Result<bool> put_while(std::string_view other_key, int64_t other_revision, std::string_view key,
                         std::string_view value);

  struct Change {
    bool deleted = false;
    Entry entry;  // value: empty where it was deleted
  };
  // What changes from this revision on, until `time` is over, which is no error. Errors as above,
  // and kNotFound: the revision has been compacted away.
  Result<void> watch(std::string_view prefix, int64_t revision, std::chrono::seconds time,
                     const std::function<void(const std::vector<Change>&)>& changed);

  // Any thread: calls that run end soon, and later ones at once.
  void cancel();

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace pelton::cluster
