// What sampling does to a whole row of logits: a reference and three vector forms, which give the
// same bits. A logit's weight is 2^y, y = (logit - highest) * sharpness, as a whole number of
// 2^-41sts: so a sum of weights is the same in any order. Each step from a logit to its weight is
// one IEEE operation, rounded alike by all processors (cmake/toolchain.cmake forbids contraction).
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/token_id.h"
#include "kernels/kernels.h"

namespace pelton::kernels {

// Weights, and sums of them: rows have at most 2^22 logits.
using Mass = uint64_t;
inline constexpr Mass kWholeMass = Mass{1} << 41;  // of the highest logit

inline constexpr int kLogitBlock = 128;
constexpr size_t logit_blocks(size_t logits) {
  return (logits + kLogitBlock - 1) / kLogitBlock;
}

// highest: at least as high as every logit. sharpness: log2(e) / temperature, at most 1e30.
struct LogitScale {
  float highest = 0;
  float sharpness = 0;
};

class LogitRows {
 public:
  virtual ~LogitRows() = default;

  virtual std::string_view name() const = 0;

  struct Scan {
    float highest;  // -infinity if there is nothing to choose
    bool broken;    // the row holds a NaN or +infinity; `highest` means nothing then
  };
  // Where `allowed` lacks a bit (number i % 64 of word i / 64) the logit becomes -infinity; if it
  // is empty, all stay. block_highest: float (logit_blocks).
  virtual Scan scan(std::span<float> logits, std::span<const uint64_t> allowed,
                    float* block_highest) const = 0;

  // The weight of all logits of at least `floor`, and of those in each block.
  // block_mass: (logit_blocks).
  virtual Mass softmax_weights(std::span<const float> logits, LogitScale scale, float floor,
                               Mass* block_mass) const = 0;

  // The weight of each. masses: (logits), room for whole blocks.
  virtual void weigh_each(std::span<const float> logits, LogitScale scale, Mass* masses) const = 0;

  // All logits in [range.floor, range.ceiling), which are no -infinity, in order of id.
  // block_highest: as scan wrote it, or null. values, ids: room for whole blocks; values may be
  // the logits themselves. Returns how many.
  struct Range {
    float floor;
    float ceiling;
  };
  virtual size_t collect(std::span<const float> logits, const float* block_highest, Range range,
                         float* values, TokenId* ids) const = 0;

  // Bit i % 64 of marks[i / 64] says whether logit i is at least `floor`, which is finite.
  // block_highest: as scan wrote it. Returns how many are.
  virtual size_t mark(std::span<const float> logits, const float* block_highest, float floor,
                      uint64_t* marks) const = 0;
};

// kUnsupported if this processor lacks what `choice` needs.
Result<std::unique_ptr<LogitRows>> make_logit_rows(KernelChoice choice);

std::unique_ptr<LogitRows> make_reference_logit_rows();
std::unique_ptr<LogitRows> make_avx512_logit_rows();
std::unique_ptr<LogitRows> make_avx2_logit_rows();
std::unique_ptr<LogitRows> make_neon_logit_rows();

}  // namespace pelton::kernels
