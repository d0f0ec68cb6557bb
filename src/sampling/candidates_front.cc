// Candidates::spend_on_front: a front's end among very many candidates, by narrowing the range of
// logits in which it lies, pass after pass over those still in doubt.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "sampling/candidates.h"

namespace pelton::sampling {
namespace {

using kernels::LogitRows;
using kernels::LogitScale;
using kernels::Mass;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNever = -kInfinity;

float next_above(float logit) {
  return std::nextafter(logit, kInfinity);
}

}  // namespace

bool Candidates::many_reach(const Row& row, float floor) {
  if (row.logits.size() <= kMany) return false;
  size_t reached = 0;
  for (size_t i = 0; i < kSample; ++i) {
    reached += static_cast<size_t>(row.logits[i * row.logits.size() / kSample] >= floor);
  }
  return reached * row.logits.size() > kMany * kSample;
}

Front Candidates::spend_on_front(const LogitRows& rows, const Row& row, float floor,
                                 LogitScale scale, Mass total, Mass mass) {
  LogitRows::Range range{floor, kInfinity};  // holds the front's end; what is above belongs to it
  Mass passed = 0;                           // above the range
  const auto mass_from = [&](std::span<const float> logits, float from) {
    return rows.softmax_weights(logits, scale, from, masses_.data());
  };
  const auto collect_from = [&](std::span<const float> logits, const float* block_highest,
                                LogitRows::Range to) {
    range = to;
    size_ = rows.collect(logits, block_highest, to, logits_.data(), tokens_.data());
    total = mass_from({logits_.data(), size_}, kNever);
  };
  // From `logits`, which are the row's or the candidates', to those between two pivots.
  const auto narrow = [&](std::span<const float> logits, const float* block_highest) {
    const Pivots pivot = pivots(logits, floor, rows, scale, total, mass);
    const Mass above = mass_from(logits, pivot.high);
    if (above >= mass) {
      return collect_from(logits, block_highest, {pivot.high, range.ceiling});
    }
    passed += above;
    mass -= above;
    const float bottom = range.floor;
    collect_from(logits, block_highest, {pivot.low, pivot.high});
    if (total >= mass) return;
    passed += total;
    mass -= total;
    collect_from(row.logits, row.block_highest.data(), {bottom, pivot.low});
  };
  narrow(row.logits, row.block_highest.data());
  while (size_ > kSample) {
    if (next_above(range.floor) >= range.ceiling) {  // all are equal
      const Mass each = total / size_;
      const Mass equals = (mass + each - 1) / each;
      return {.logit = range.floor, .equals = equals, .mass = passed + equals * each};
    }
    narrow({logits_.data(), size_}, nullptr);
  }
  Front front = front_by_sorting(rows, scale, mass);
  if (front.mass > 0) front.mass += passed;
  return front;
}

// From a sample, evenly strewn. Off by twenty places of 256 is 2.5 standard errors at worst; if the
// end lies elsewhere after all, that costs a pass. Of what reaches `floor`, at least one logit lies
// between the two, or none below the higher.
Candidates::Pivots Candidates::pivots(std::span<const float> logits, float floor,
                                      const LogitRows& rows, LogitScale scale, Mass total,
                                      Mass mass) {
  constexpr size_t kOff = 20;
  float sample[kSample];
  for (size_t i = 0; i < kSample; ++i) sample[i] = logits[i * logits.size() / kSample];
  std::sort(sample, sample + kSample, std::greater<>());
  Mass masses[kSample];
  rows.weigh_each(sample, scale, masses);
  Mass sample_total = 0;
  for (const Mass each : masses) sample_total += each;
  const double share = static_cast<double>(mass) / static_cast<double>(total);
  const double wanted = share * static_cast<double>(sample_total);
  size_t at = 0;
  for (Mass sum = masses[0]; at + 1 < kSample && static_cast<double>(sum) < wanted;) {
    sum += masses[++at];
  }
  const float low = std::max(sample[std::min(at + kOff, kSample - 1)], floor);
  const float high = sample[at > kOff ? at - kOff : 0];
  return {.low = low, .high = high > low ? high : next_above(low)};
}

Front Candidates::front_by_sorting(const LogitRows& rows, LogitScale scale, Mass mass) {
  std::sort(logits_.begin(), logits_.begin() + static_cast<std::ptrdiff_t>(size_),
            std::greater<>());
  rows.weigh_each({logits_.data(), size_}, scale, masses_.data());
  size_t equals = 0;
  Mass sum = 0;
  for (size_t i = 0; i < size_; ++i) {
    equals = i > 0 && logits_[i] == logits_[i - 1] ? equals + 1 : 1;
    sum += masses_[i];
    if (sum >= mass) return {.logit = logits_[i], .equals = equals, .mass = sum};
  }
  return {};
}

std::span<const TokenId> Candidates::spend_on_equals(const LogitRows& rows, const Row& row,
                                                     float logit) {
  size_ = rows.collect(row.logits, row.block_highest.data(), {logit, next_above(logit)},
                       logits_.data(), tokens_.data());
  return {tokens_.data(), size_};
}

}  // namespace pelton::sampling
