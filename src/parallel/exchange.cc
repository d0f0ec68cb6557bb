#include "parallel/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace pelton::parallel {
namespace {

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void add(std::atomic<int64_t>& to, int64_t value) {
  to.store(to.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

// So many rows of `row_bytes` of each rank are carried in one round; 1 at least.
int64_t rows_at_once(const Transport& transport, int64_t row_bytes, int64_t rows) {
  const auto room = static_cast<int64_t>(transport.part_bytes_max());
  CHECK(row_bytes <= room, "a row is larger than the transport's parts");
  return row_bytes == 0 ? rows : room / row_bytes;
}

// Of rows [first, first + count) each rank's columns, array by array.
struct ColumnsPart {
  const Share& share;
  std::span<const Columns> arrays;
  int own;
  int64_t first;
  int64_t count;

  size_t bytes_of(int rank) const {
    int64_t bytes = 0;
    for (const Columns& array : arrays) bytes += share.count(rank) * array.column_bytes * count;
    return static_cast<size_t>(bytes);
  }

  // Its own columns go to where they belong in the whole rows, too.
  size_t write(std::byte* to) const {
    for (const Columns& array : arrays) {
      const auto width = static_cast<size_t>(share.count(own) * array.column_bytes);
      for (int64_t row = first; row < first + count && width > 0; ++row) {
        const std::byte* const from =
            static_cast<const std::byte*>(array.part) + row * array.part_stride;
        std::memcpy(to, from, width);
        to += width;
        std::byte* const place = place_of(array, row, own);
        if (place != nullptr && place != from) std::memcpy(place, from, width);
      }
    }
    return bytes_of(own);
  }

  // How many bytes were wanted.
  int64_t read(int rank, const std::byte* from) const {
    int64_t wanted = 0;
    for (const Columns& array : arrays) {
      const auto width = static_cast<size_t>(share.count(rank) * array.column_bytes);
      if (array.whole != nullptr) wanted += static_cast<int64_t>(width) * count;
      for (int64_t row = first; row < first + count && width > 0; ++row) {
        std::byte* const place = place_of(array, row, rank);
        if (place != nullptr) std::memcpy(place, from, width);
        from += width;
      }
    }
    return wanted;
  }

  std::byte* place_of(const Columns& array, int64_t row, int rank) const {
    if (array.whole == nullptr) return nullptr;
    return static_cast<std::byte*>(array.whole) + row * array.whole_stride +
           share.begin(rank) * array.column_bytes;
  }
};

// Of rows [first, first + count) each rank's, in their order.
struct RowsPart {
  const Rows& rows;
  base::FunctionRef<int(int64_t row)> rank_of;
  int own;
  int64_t first;
  int64_t count;

  template <typename Body>
  void each_of(int rank, const Body& body) const {
    for (int64_t row = first; row < first + count; ++row) {
      if (rank_of(row) != rank) continue;
      body(static_cast<std::byte*>(rows.data) + row * rows.row_bytes);
    }
  }

  int64_t count_of(int rank) const {
    int64_t found = 0;
    each_of(rank, [&](std::byte*) { ++found; });
    return found;
  }

  size_t bytes_of(int rank) const { return static_cast<size_t>(count_of(rank) * rows.row_bytes); }

  size_t write(std::byte* to) const {
    const auto width = static_cast<size_t>(rows.row_bytes);
    size_t written = 0;
    each_of(own, [&](const std::byte* row) {
      std::memcpy(to + written, row, width);
      written += width;
    });
    return written;
  }

  int64_t read(int rank, const std::byte* from) const {
    const auto width = static_cast<size_t>(rows.row_bytes);
    int64_t read = 0;
    each_of(rank, [&](std::byte* row) {
      std::memcpy(row, from + read, width);
      read += rows.row_bytes;
    });
    return read;
  }
};

}  // namespace

void Exchange::all_gather(const Share& share, std::span<const Columns> arrays, int64_t rows) {
  if (rows == 0 || failed()) return;
  int64_t column_bytes = 0;
  for (const Columns& array : arrays) column_bytes += array.column_bytes;
  const int64_t at_once = rows_at_once(transport_, share.widest() * column_bytes, rows);
  add(exchanges_, 1);
  for (int64_t first = 0; first < rows && !failed(); first += at_once) {
    carry_out(ColumnsPart{share, arrays, rank(), first, std::min(at_once, rows - first)});
  }
}

void Exchange::gather_rows(const Rows& rows, base::FunctionRef<int(int64_t row)> rank_of) {
  if (rows.count == 0 || failed()) return;
  // As if all of a round's were one rank's.
  const int64_t at_once = rows_at_once(transport_, rows.row_bytes, rows.count);
  add(exchanges_, 1);
  for (int64_t first = 0; first < rows.count && !failed(); first += at_once) {
    const RowsPart part{rows, rank_of, rank(), first, std::min(at_once, rows.count - first)};
    carry_out(part);
    add(rows_, part.count_of(rank()));
  }
}

template <typename Part>
void Exchange::carry_out(const Part& part) {
  const int64_t begin_ns = now_ns();
  int64_t waited_ns = 0;
  transport_.publish(part.write(transport_.own_part()));
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    const size_t bytes = part.bytes_of(other);
    const int64_t wait_begin_ns = now_ns();
    const std::byte* const from = transport_.part_of(other, bytes);
    waited_ns += now_ns() - wait_begin_ns;
    if (from == nullptr) {
      failed_.store(true, std::memory_order_relaxed);
      return;
    }
    add(bytes_, part.read(other, from));
  }
  add(wait_ns_, waited_ns);
  add(copy_ns_, now_ns() - begin_ns - waited_ns);
}

Exchange::Counts Exchange::counts() const {
  return {.exchanges = exchanges_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .wait_ns = wait_ns_.load(std::memory_order_relaxed),
          .copy_ns = copy_ns_.load(std::memory_order_relaxed),
          .rows = rows_.load(std::memory_order_relaxed)};
}

}  // namespace pelton::parallel
