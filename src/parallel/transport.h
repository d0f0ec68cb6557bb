// How ranks hand each other bytes: in rounds. In each every rank publishes one part, of at most
// part_bytes_max(), and sees everybody's. Two rounds are on their way at a time, so a part may be
// read until the reader publishes its own of the round after. One thread of each rank, and `abort`
// from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pelton::parallel {

enum class TransportKind { kShm, kTcp, kMpi };

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual size_t part_bytes_max() const = 0;

  // Where this rank's part of the next round is to be written; then it is handed over.
  virtual std::byte* own_part() = 0;
  virtual void publish(size_t bytes) = 0;

  // Waits for `rank`'s part of the round that was published last, of so many bytes; null: the group
  // is lost, or that rank took longer than the transport waits.
  virtual const std::byte* part_of(int rank, size_t bytes) = 0;

  // Everybody leaves their waits, now and from here on. Any thread.
  virtual void abort() = 0;

  // Called twice a second while the group lives: what this rank has handed over and left goes on
  // its way. Any thread.
  virtual void look_after() {}

  // What this rank has seen of a loss itself: who it was, and how; empty: nothing. Any thread.
  virtual std::string loss() const { return {}; }
};

}  // namespace pelton::parallel
