#include "sampling/candidates.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace pelton::sampling {
namespace {

using kernels::LogitRows;
using kernels::LogitScale;
using kernels::Mass;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rises with the logit; equal where the logits are (the sum turns -0 into 0).
uint32_t rank_key(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const auto sign = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  return bits ^ (sign | 0x80000000);
}

}  // namespace

void Candidates::reserve(int vocab) {
  static_assert(kBytesPerLogit == sizeof(float) + sizeof(TokenId) + sizeof(Mass));
  const size_t room = kernels::logit_blocks(static_cast<size_t>(vocab)) * kernels::kLogitBlock;
  if (room <= logits_.size()) return;
  logits_.resize(room);
  tokens_.resize(room);
  masses_.resize(room);
}

int64_t Candidates::bytes() const {
  return static_cast<int64_t>(logits_.capacity() * sizeof(float) +
                              tokens_.capacity() * sizeof(TokenId) +
                              masses_.capacity() * sizeof(Mass));
}

void Candidates::collect(const LogitRows& rows, const Row& row, float floor) {
  last_ = {};
  size_ = rows.collect(row.logits, row.block_highest.data(), {std::max(floor, kLowest), kInfinity},
                       logits_.data(), tokens_.data());
}

// Each block of logits whose highest reaches the floor has at least one logit that does.
float Candidates::floor_of_best(std::span<const float> block_highest, size_t count) {
  if (count > block_highest.size()) return kLowest;
  const auto begin = logits_.begin();  // not in use yet
  const auto end = std::copy(block_highest.begin(), block_highest.end(), begin);
  const auto wanted = begin + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(begin, wanted, end, std::greater<>());
  return *wanted;
}

Mass Candidates::softmax_weights(const LogitRows& rows, LogitScale scale) {
  rows.weigh_each({logits_.data(), size_}, scale, masses_.data());
  Mass total = 0;
  for (size_t i = 0; i < size_; ++i) total += masses_[i];
  return total;
}

void Candidates::keep_best(size_t count) {
  if (count >= size_) return;
  const auto one = [](size_t) { return uint64_t{1}; };
  const Last last = last_of_front(one, count);
  size_t kept = 0;
  for (size_t i = 0; i < size_; ++i) {
    const uint64_t mask = kept_mask(i, last);
    logits_[kept] = logits_[i];
    tokens_[kept] = tokens_[i];
    kept += mask & 1;
  }
  size_ = kept;
}

void Candidates::cut_to_mass(Mass mass) {
  last_ = last_of_front([this](size_t i) { return masses_[i]; }, mass);
}

// Those without weight are never drawn: no need to remember who they are.
void Candidates::cut_lighter(Mass least) {
  for (size_t i = 0; i < size_; ++i) {
    masses_[i] &= uint64_t{0} - static_cast<uint64_t>(masses_[i] >= least);
  }
}

Mass Candidates::kept_mass() const {
  const Last last = last_;
  Mass sum = 0;
  for (size_t i = 0; i < size_; ++i) sum += masses_[i] & kept_mask(i, last);
  return sum;
}

TokenId Candidates::token_at(Mass target) const {
  const Last last = last_;
  Mass sum = 0;
  for (size_t i = 0; i < size_; ++i) {
    sum += masses_[i] & kept_mask(i, last);
    if (sum > target) return tokens_[i];
  }
  CHECK(false, "no such mass among the candidates");
  return 0;
}

std::span<const uint32_t> Candidates::best(size_t count) {
  CHECK(size_ <= kSortedMax);
  const size_t sorted = std::min(count, sort({.low = 0, .high = UINT32_MAX}));
  for (size_t i = 0; i < sorted; ++i) best_[i] = static_cast<uint32_t>(sorted_[i]);
  return {best_.data(), sorted};
}

// By counting into buckets of ever narrower ranges of keys, until few enough are left to be sorted
// or all that are left are equal. Beyond `keys` what lies above is known to belong to the front.
template <typename Measure>
Candidates::Last Candidates::last_of_front(Measure measure, uint64_t need) {
  Keys keys{.low = 0, .high = UINT32_MAX};
  size_t count = size_;
  if (count > kSortedMax) {
    keys = {.low = UINT32_MAX, .high = 0};
    for (size_t i = 0; i < size_; ++i) {
      const uint32_t key = rank_key(logits_[i]);
      keys.low = std::min(keys.low, key);
      keys.high = std::max(keys.high, key);
    }
  }
  while (count > kSortedMax) {
    if (keys.low == keys.high) return last_among_equals(keys.low, measure, need);
    const uint32_t width = keys.high - keys.low;
    const int shift = std::max(0, static_cast<int>(std::bit_width(width)) - kBucketBits);
    buckets_.fill({});
    for (size_t i = 0; i < size_; ++i) {
      const uint32_t below = keys.high - rank_key(logits_[i]);  // wraps if above
      if (below > width) continue;
      Bucket& bucket = buckets_[below >> shift];
      bucket.sum += measure(i);
      ++bucket.count;
    }
    size_t at = 0;
    while (at < buckets_.size() && buckets_[at].sum < need) need -= buckets_[at++].sum;
    if (at == buckets_.size()) return {};  // all together are less: the front is everything
    count = buckets_[at].count;
    const uint32_t first_below = static_cast<uint32_t>(at) << shift;
    const uint32_t last_below = std::min(width, first_below + (uint32_t{1} << shift) - 1);
    keys = {.low = keys.high - last_below, .high = keys.high - first_below};
  }
  return last_by_sorting(keys, measure, need);
}

template <typename Measure>
Candidates::Last Candidates::last_by_sorting(Keys keys, Measure measure, uint64_t need) {
  const size_t sorted = sort(keys);
  uint64_t sum = 0;
  for (size_t i = 0; i < sorted; ++i) {
    const auto place = static_cast<uint32_t>(sorted_[i]);
    sum += measure(place);
    if (sum >= need) return {.logit = logits_[place], .token = tokens_[place]};
  }
  return {};
}

template <typename Measure>
Candidates::Last Candidates::last_among_equals(uint32_t key, Measure measure, uint64_t need) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < size_; ++i) {
    if (rank_key(logits_[i]) != key) continue;
    sum += measure(i);
    if (sum >= need) return {.logit = logits_[i], .token = tokens_[i]};
  }
  return {};
}

size_t Candidates::sort(Keys keys) {
  size_t count = 0;
  for (size_t i = 0; i < size_; ++i) {
    const uint32_t key = rank_key(logits_[i]);
    sorted_[count] = uint64_t{~key} << 32 | i;
    count += static_cast<size_t>(key - keys.low <= keys.high - keys.low);
  }
  std::sort(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace pelton::sampling
