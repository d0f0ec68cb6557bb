// The exchanges that ranks make in a step: rows of which each rank has computed its own columns, or
// of which each is some rank's, become whole on all of them. Nothing is ever added up, so who has
// how much, and how it travels, changes no bit. Named by what they deliver; a transport
// (transport.h) says how. Owned by whoever owns the rank's model; the executor's thread, the counts
// from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "parallel/share.h"
#include "parallel/transport.h"

namespace pelton::parallel {

// Rows of columns that a Share cuts. All strides are bytes from row to row.
struct Columns {
  const void* part = nullptr;  // this rank's columns alone; may lie within `whole`, in its place
  int64_t part_stride = 0;
  void* whole = nullptr;  // everybody's; null: this rank does not need them
  int64_t whole_stride = 0;
  int64_t column_bytes = 0;
};

// Rows one behind the other, each of which one rank has written whole.
struct Rows {
  void* data = nullptr;
  int64_t row_bytes = 0;
  int64_t count = 0;
};

class Exchange {
 public:
  struct Counts {
    int64_t exchanges = 0;
    int64_t bytes = 0;    // received
    int64_t wait_ns = 0;  // spent waiting for other ranks
    int64_t copy_ns = 0;  // and on the bytes
    int64_t rows = 0;     // that this rank has written whole (gather_rows)
  };

  // `transport` outlives it.
  explicit Exchange(Transport& transport) : transport_(transport) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank() const { return transport_.rank(); }
  int ranks() const { return transport_.ranks(); }

  // Several arrays of as many rows, cut alike, in one go. Every rank makes the same calls with the
  // same shares, widths and rows. After a failure it does nothing and leaves `whole` as it is.
  void all_gather(const Share& share, std::span<const Columns> arrays, int64_t rows);
  void all_gather(const Share& share, const Columns& array, int64_t rows) {
    all_gather(share, std::span(&array, 1), rows);
  }

  // Every rank makes the same call, with the same answers of `rank_of` to the number of a row.
  // After a failure likewise.
  void gather_rows(const Rows& rows, base::FunctionRef<int(int64_t row)> rank_of);

  // The group is lost: nothing that was computed since is worth anything.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // What this rank has seen of it; empty: another one may know more.
  std::string loss() const { return transport_.loss(); }
  Counts counts() const;

 private:
  // One round; what of it each rank has is Part's (exchange.cc).
  template <typename Part>
  void carry_out(const Part& part);

  Transport& transport_;
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> exchanges_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> wait_ns_{0};
  std::atomic<int64_t> copy_ns_{0};
  std::atomic<int64_t> rows_{0};
};

}  // namespace pelton::parallel
