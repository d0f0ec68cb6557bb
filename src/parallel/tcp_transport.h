// Ranks that hand each other parts over TCP: a connection for each pair (docs/decisions/0132 counts
// bytes), no delay. Every rank listens; a rank connects to those before it and accepts those behind
// it. A part is one frame (tcp_frames.h). A rank reads from everybody while it still sends, so full
// sockets hold nobody up, and leaves a round only when its own part is on its way to all.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "parallel/transport.h"

namespace pelton::parallel {

class TcpTransport final : public Transport {
 public:
  struct Options {
    int ranks = 0;
    int rank = 0;
    size_t part_bytes = size_t{4} << 20;
    std::string token = {};
    std::vector<int> ports = {};           // where each rank listens
    std::vector<std::string> hosts = {};   // and at which address; none: the loopback one
    int64_t spin_ns = 200'000;             // before a reader sleeps
    int64_t patience_ns = 60'000'000'000;  // for a rank that lives and does not publish
    int64_t start_ns = 20'000'000'000;     // until all are connected
    size_t bytes_at_once = SIZE_MAX;       // of one send: tests cut frames into pieces
  };

  // A socket that listens at a port of the system's choice, on that address alone: the caller's to
  // close. Errors: kIo, kBadConfig.
  static Result<std::pair<int, int>> listen(const std::string& host = "127.0.0.1");

  explicit TcpTransport(const Options& options);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  // Returns when this rank is connected with all others; before the first round. Errors:
  // kUnavailable naming the ranks that are missing, and why what came instead was refused.
  Result<void> connect(int listener);

  int rank() const override { return options_.rank; }
  int ranks() const override { return options_.ranks; }
  size_t part_bytes_max() const override { return options_.part_bytes; }
  std::byte* own_part() override;
  void publish(size_t bytes) override;
  const std::byte* part_of(int rank, size_t bytes) override;
  void abort() override;
  std::string loss() const override;

 private:
  struct Peer {
    int socket = -1;
    size_t sent = 0;  // of the frame of this round, its head included
    size_t got = 0;   // likewise
    size_t part_bytes = 0;
    char head[8] = {};
    std::vector<std::byte> part = {};
  };

  Result<void> connect_to(int rank, int64_t end_ns);
  Result<int> accept_one(int socket, int64_t end_ns);
  std::string missing() const;
  bool progress();
  bool send_some(int rank, Peer& peer);
  bool receive_some(int rank, Peer& peer);
  bool has_arrived(const Peer& peer) const;
  bool is_sent() const;
  void sleep();
  void lose(std::string why);

  const Options options_;
  std::vector<Peer> peers_;       // this rank's own is unused
  std::vector<std::byte> frame_;  // the head and this rank's part
  size_t frame_bytes_ = 0;
  uint32_t round_ = 0;  // published last
  std::atomic<bool> connected_{false};
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string loss_;  // guarded by mutex_
};

}  // namespace pelton::parallel
