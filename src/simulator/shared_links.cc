#include "simulator/shared_links.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pelton::simulator {
namespace {

constexpr double kNothing = 0.5;  // of a byte: what rounding to nanoseconds leaves over

}  // namespace

SharedLinks::SharedLinks(size_t replicas, double bytes_per_s)
    : bytes_per_s_(bytes_per_s), leaving_(replicas, 0), arriving_(replicas, 0) {
  CHECK(bytes_per_s > 0);
}

double SharedLinks::rate_of(const Transfer& transfer) const {
  return bytes_per_s_ / std::max(leaving_[transfer.from], arriving_[transfer.to]);
}

void SharedLinks::flow(int64_t now_ns) {
  const double passed_s = static_cast<double>(now_ns - flowed_ns_) * 1e-9;
  for (auto& [id, transfer] : transfers_) transfer.bytes_left -= passed_s * rate_of(transfer);
  flowed_ns_ = now_ns;
}

int64_t SharedLinks::begin(int64_t now_ns, size_t from, size_t to, double bytes) {
  flow(now_ns);
  ++leaving_[from];
  ++arriving_[to];
  transfers_.emplace(next_, Transfer{.from = from, .to = to, .bytes_left = bytes});
  return next_++;
}

void SharedLinks::remove(std::map<int64_t, Transfer>::iterator transfer) {
  --leaving_[transfer->second.from];
  --arriving_[transfer->second.to];
  transfers_.erase(transfer);
}

void SharedLinks::cancel(int64_t now_ns, int64_t transfer) {
  flow(now_ns);
  const auto found = transfers_.find(transfer);
  if (found != transfers_.end()) remove(found);
}

std::optional<int64_t> SharedLinks::next_ns() const {
  std::optional<int64_t> next;
  for (const auto& [id, transfer] : transfers_) {
    const double left_s = std::max(transfer.bytes_left, 0.0) / rate_of(transfer);
    const int64_t ends_ns = flowed_ns_ + static_cast<int64_t>(std::ceil(left_s * 1e9));
    next = std::min(next.value_or(ends_ns), ends_ns);
  }
  return next;
}

std::vector<int64_t> SharedLinks::advance(int64_t now_ns) {
  flow(now_ns);
  std::vector<int64_t> ended;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer.bytes_left <= kNothing + rate_of(transfer) * 1e-9) ended.push_back(id);
  }
  for (const int64_t id : ended) remove(transfers_.find(id));
  return ended;
}

}  // namespace pelton::simulator
