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

}  // namespace

void Exchange::all_gather(const Share& share, std::span<const Columns> arrays, int64_t rows) {
  if (rows == 0 || failed()) return;
  int64_t column_bytes = 0;
  for (const Columns& array : arrays) column_bytes += array.column_bytes;
  const int64_t row_bytes = share.widest() * column_bytes;
  const auto room = static_cast<int64_t>(transport_.part_bytes_max());
  CHECK(row_bytes <= room, "a row is larger than the transport's parts");
  const int64_t at_once = row_bytes == 0 ? rows : room / row_bytes;
  add(exchanges_, 1);
  for (int64_t first = 0; first < rows && !failed(); first += at_once) {
    gather_rows(share, arrays, first, std::min(at_once, rows - first));
  }
}

void Exchange::gather_rows(const Share& share, std::span<const Columns> arrays, int64_t first,
                           int64_t count) {
  const int64_t begin_ns = now_ns();
  int64_t waited_ns = 0;
  std::byte* to = transport_.own_part();
  const std::byte* const begin = to;
  const int own = share.count(rank());
  for (const Columns& array : arrays) {
    const auto bytes = static_cast<size_t>(own * array.column_bytes);
    const auto* part = static_cast<const std::byte*>(array.part);
    auto* const whole = static_cast<std::byte*>(array.whole);
    for (int64_t row = first; row < first + count && bytes > 0; ++row) {
      const std::byte* const from = part + row * array.part_stride;
      std::memcpy(to, from, bytes);
      to += bytes;
      if (whole == nullptr) continue;
      std::byte* const place =
          whole + row * array.whole_stride + share.begin(rank()) * array.column_bytes;
      if (place != from) std::memcpy(place, from, bytes);
    }
  }
  transport_.publish(static_cast<size_t>(to - begin));
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    int64_t bytes = 0;
    for (const Columns& array : arrays) bytes += share.count(other) * array.column_bytes * count;
    const int64_t wait_begin_ns = now_ns();
    const std::byte* from = transport_.part_of(other, static_cast<size_t>(bytes));
    waited_ns += now_ns() - wait_begin_ns;
    if (from == nullptr) {
      failed_.store(true, std::memory_order_relaxed);
      return;
    }
    for (const Columns& array : arrays) {
      const auto width = static_cast<size_t>(share.count(other) * array.column_bytes);
      auto* const whole = static_cast<std::byte*>(array.whole);
      if (whole != nullptr) add(bytes_, static_cast<int64_t>(width) * count);
      for (int64_t row = first; row < first + count && width > 0; ++row) {
        if (whole != nullptr) {
          std::memcpy(whole + row * array.whole_stride + share.begin(other) * array.column_bytes,
                      from, width);
        }
        from += width;
      }
    }
  }
  add(wait_ns_, waited_ns);
  add(copy_ns_, now_ns() - begin_ns - waited_ns);
}

Exchange::Counts Exchange::counts() const {
  return {.exchanges = exchanges_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .wait_ns = wait_ns_.load(std::memory_order_relaxed),
          .copy_ns = copy_ns_.load(std::memory_order_relaxed)};
}

}  // namespace pelton::parallel
