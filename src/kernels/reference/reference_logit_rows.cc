// One logit at a time: what the vector forms are held against, and what runs where there are none.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/logit_rows.h"
#include "kernels/logit_weight.h"

namespace pelton::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kFiniteMax = std::numeric_limits<float>::max();

// With highest 5 and sharpness 1, 3.5 has y = -1.5 = -2 + 0.5: `shifted` holds -2 in its lowest
// bits, the polynomial gives 2^0.5 = 1.41421, the bits of -2 added to its exponent make 0.353553 of
// it, and of 2048.353553 the lowest bits are 0.353553 * 2^41 units. 5 has kWholeMass, 4 half of it,
// -70 none.
Mass weight(float logit, LogitScale scale) {
  const float scaled = (logit - scale.highest) * scale.sharpness;
  const float y = scaled > kExponentMin ? scaled : kExponentMin;
  const float shifted = y + kRoundingShift;
  const float f = y - (shifted - kRoundingShift);
  float power = kExp2Terms[4];
  for (int term = 3; term >= 0; --term) power = std::fma(power, f, kExp2Terms[term]);
  power = std::fma(power, f, 1.0f);
  const uint32_t bits = std::bit_cast<uint32_t>(power) + (std::bit_cast<uint32_t>(shifted) << 23);
  const double units = double{std::bit_cast<float>(bits)} + kUnitShift;
  return std::bit_cast<uint64_t>(units) - kUnitShiftBits;
}

class ReferenceLogitRows : public LogitRows {
 public:
  std::string_view name() const override { return "reference"; }

  Scan scan(std::span<float> logits, std::span<const uint64_t> allowed,
            float* block_highest) const override {
    Scan result{.highest = kNever, .broken = false};
    std::fill_n(block_highest, logit_blocks(logits.size()), kNever);
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] <= kFiniteMax)) result.broken = true;
      if (!allowed.empty() && (allowed[i / 64] >> (i % 64) & 1) == 0) logits[i] = kNever;
      float& highest = block_highest[i / kLogitBlock];
      highest = std::max(highest, logits[i]);
      result.highest = std::max(result.highest, logits[i]);
    }
    return result;
  }

  Mass softmax_weights(std::span<const float> logits, LogitScale scale, float floor,
                       Mass* block_mass) const override {
    std::fill_n(block_mass, logit_blocks(logits.size()), Mass{0});
    Mass total = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const Mass mass = logits[i] >= floor ? weight(logits[i], scale) : 0;
      block_mass[i / kLogitBlock] += mass;
      total += mass;
    }
    return total;
  }

  void weigh_each(std::span<const float> logits, LogitScale scale, Mass* masses) const override {
    for (size_t i = 0; i < logits.size(); ++i) masses[i] = weight(logits[i], scale);
  }

  size_t collect(std::span<const float> logits, const float* block_highest, Range range,
                 float* values, TokenId* ids) const override {
    size_t found = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (block_highest != nullptr && block_highest[i / kLogitBlock] < range.floor) continue;
      if (!(logits[i] >= range.floor && logits[i] < range.ceiling)) continue;
      values[found] = logits[i];
      ids[found++] = static_cast<TokenId>(i);
    }
    return found;
  }

  size_t mark(std::span<const float> logits, const float* /*block_highest*/, float floor,
              uint64_t* marks) const override {
    std::fill_n(marks, mark_words(static_cast<int64_t>(logits.size())), uint64_t{0});
    size_t found = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] >= floor)) continue;
      marks[i / 64] |= uint64_t{1} << (i % 64);
      ++found;
    }
    return found;
  }
};

}  // namespace

std::unique_ptr<LogitRows> make_reference_logit_rows() {
  return std::make_unique<ReferenceLogitRows>();
}

}  // namespace pelton::kernels
