// Ranks on one host: one mapping of a sealed memory file that has no name, so nothing of it is left
// anywhere once the last process that has it is gone. Each rank writes its part where all read it
// and raises its sequence number; readers spin for a while, then wait on a futex. Two buffers for
// each rank: a rank writes round n + 2 only when it has seen everybody publish round n + 1, which
// they do only when they have read round n.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "parallel/transport.h"

namespace pelton::parallel {

class ShmTransport final : public Transport {
 public:
  struct Options {
    int ranks = 0;
    int rank = 0;
    size_t part_bytes = size_t{4} << 20;
    int64_t spin_ns = 200'000;             // before a reader sleeps
    int64_t patience_ns = 60'000'000'000;  // for a rank that lives and does not publish
  };

  // A memory file for a group of so many ranks: a descriptor, the caller's to close. Error: kIo.
  static Result<int> make_file(int ranks, size_t part_bytes);
  // Maps it; the descriptor may be closed afterwards. Error: kIo, kInvalidArgument where its size
  // is another one.
  static Result<std::unique_ptr<ShmTransport>> map(int file, const Options& options);
  ~ShmTransport() override;
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;

  int rank() const override { return options_.rank; }
  int ranks() const override { return options_.ranks; }
  size_t part_bytes_max() const override { return options_.part_bytes; }
  std::byte* own_part() override;
  void publish(size_t bytes) override;
  const std::byte* part_of(int rank, size_t bytes) override;
  void abort() override;

 private:
  struct Head;
  ShmTransport(const Options& options, void* memory, size_t bytes);
  Head& head(int rank) const;
  std::byte* part(int rank, uint32_t round) const;
  bool is_aborted() const;
  bool wait_for(int rank);

  const Options options_;
  void* const memory_;
  const size_t bytes_;
  uint32_t round_ = 0;  // published last
};

}  // namespace pelton::parallel
