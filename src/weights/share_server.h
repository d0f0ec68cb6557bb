// Gives chunks of models to whoever may have them: an origin, and a node that is itself still
// fetching. Files are read on threads of its own. Owned by the verb; add() on any thread.
//
//   GET /NAME/pelton-manifest.json
//   GET /NAME/have                    what is there (weights/have.h); lists others that fetch it
//   GET /NAME/chunks/DIGEST           with ranges; 404 while it is not there
//   GET /  /metrics  /health
// NAME: the model's, or the digest of its manifest; left out where there is one model.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "net/http_server.h"
#include "net/work_loop.h"
#include "weights/chunk_folder.h"

namespace pelton::weights {

class ShareServer {
 public:
  static constexpr int kConnectionsMax = 512;
  static constexpr int kAnswersMax = 128;  // chunks on their way at one time
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;
    net::AllowedHosts hosts;
    std::shared_ptr<const net::TlsIdentity> tls;
    // Whether this bearer token may have the model of that manifest; "": of what is no one model's.
    // Empty: everybody may. On a net thread.
    std::function<bool(std::string_view token, const std::string& manifest_digest)> allows;
    int64_t bytes_per_second_max = 0;  // 0: no bound
    std::string id;                    // of this process, for peers
  };

  ShareServer(const Options& options, const base::Clock& clock, base::Log& log);
  ~ShareServer();

  // Errors: as net::HttpServer::start().
  Result<void> start();
  void stop();
  int port() const { return http_.port(); }

  // From now on, or again. The name is one segment of a path.
  void add(const std::string& name, std::shared_ptr<const ChunkFolder> folder);

  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  class ChunkAnswer;
  struct Shared {
    std::string name;
    std::shared_ptr<const ChunkFolder> folder;
    std::map<std::string, int64_t> peers;  // addresses, and when each was heard of last
  };
  struct Asked {         // a path's parts
    std::string digest;  // of the manifest
    std::shared_ptr<const ChunkFolder> folder;
    std::string rest;  // "have"
  };

  void handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);
  bool find(const std::string& path, Asked& asked);
  bool allows(const net::HttpRequest& request, const std::string& digest) const;
  std::vector<std::string> note_peer(const net::HttpRequest& request, const std::string& digest);
  void answer_chunk(const net::HttpRequest& request, const Asked& asked,
                    const std::shared_ptr<net::Exchange>& exchange);
  std::string list() const;
  std::string metrics() const;
  std::chrono::milliseconds reserve(int64_t bytes);

  const Options options_;
  const base::Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<Shared> models_;  // guarded by mutex_, as below
  int64_t rate_free_ns_ = 0;    // when what was reserved has been sent
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<int64_t> chunks_sent_{0};
  std::atomic<int64_t> busy_refusals_{0};
  std::atomic<int> answers_{0};
  std::atomic<size_t> next_reader_{0};
  std::vector<std::unique_ptr<net::WorkLoop>> readers_;
  net::HttpServer http_;  // last: its threads use all of the above
};

}  // namespace pelton::weights
