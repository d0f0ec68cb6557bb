// Ranks that hand each other parts by MPI, which mpirun has started: whatever network MPI knows.
// A receive for each other rank is posted a round ahead, and a part is sent to each by itself: of
// others' parts the sizes are known only to who reads them (so no MPI_Allgatherv), and a rank that
// does not come has a name. No wait happens inside MPI: requests are looked at, as often as can be
// for a while, then with sleeps between, so `abort` lets everybody go, and between steps ranks wait
// for their leader's message, not here. What MPI may have kept of a round that a rank has left goes
// on when `look_after` is called. MPI serves one group of a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/mpi_abi.h"
#include "parallel/transport.h"

namespace pelton::parallel {

class MpiTransport final : public Transport {
 public:
  struct Options {
    int ranks = 0;
    int rank = 0;
    size_t part_bytes = size_t{4} << 20;
    int64_t spin_ns = 200'000;             // before a reader sleeps between looks
    int64_t patience_ns = 60'000'000'000;  // for a rank that lives and does not publish
    int64_t start_ns = 300'000'000'000;    // until MPI has begun on all
    int64_t end_ns = 5'000'000'000;        // and ended
  };

  // `mpi` outlives it (mpi_library.h).
  MpiTransport(const MpiTable& mpi, const Options& options);
  // Unless a rank is lost, waits for the others to end, too, for `end_ns` at most.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // Returns when MPI has begun on all; before the first round. Errors: kUnavailable; kBadConfig
  // where MPI knows this rank by another number.
  Result<void> connect();

  int rank() const override { return options_.rank; }
  int ranks() const override { return options_.ranks; }
  size_t part_bytes_max() const override { return options_.part_bytes; }
  std::byte* own_part() override { return part(options_.rank, 0); }
  void publish(size_t bytes) override;
  const std::byte* part_of(int rank, size_t bytes) override;
  void abort() override;
  void look_after() override;
  std::string loss() const override;

 private:
  struct Peer {
    bool is_sent = true;       // this rank's part of this round
    bool has_arrived = false;  // and its own
    MpiArrival arrival = {};
  };

  // Requests: of each rank one for what is sent to it and two for what comes from it.
  static int32_t sending(int rank) { return 3 * rank; }
  static int32_t receiving(int rank, uint32_t round) {
    return 3 * rank + 1 + static_cast<int32_t>(round % 2);
  }
  // Of an even round, of an odd one; this rank's own are the same.
  std::byte* part(int rank, uint32_t round) {
    return memory_.data() + (2 * static_cast<size_t>(rank) + round % 2) * options_.part_bytes;
  }
  void post(uint32_t round);
  bool is_sent() const;
  bool progress();
  bool look_at(int rank, Peer& peer);
  void lose(std::string why);

  const MpiTable& mpi_;
  std::mutex calls_;  // of mpi_
  const Options options_;
  std::vector<Peer> peers_;  // this rank's own is unused
  std::vector<std::byte> memory_;
  void* world_ = nullptr;
  uint32_t round_ = 0;  // published last
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string loss_;  // guarded by mutex_
};

}  // namespace pelton::parallel
