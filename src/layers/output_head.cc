#include "layers/output_head.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <utility>

#include "layers/weights.h"

namespace pelton::layers {
namespace {

// In 4 bits some logits that matter look lower than they are: so more of them are computed.
constexpr size_t kComputed = 2 * OutputHead::kLikeliest;
constexpr float kMargin = 0.5f;

template <typename T>
int64_t capacity_bytes(const std::vector<T>& vector) {
  return static_cast<int64_t>(vector.capacity() * sizeof(T));
}

}  // namespace

Result<OutputHead> OutputHead::load(const checkpoint::Checkpoint& checkpoint) {
  const int vocab = checkpoint.config().vocab_size;
  const int hidden = checkpoint.config().hidden_size;
  OutputHead head;
  TRY_ASSIGN(head.exact_.weight, load_matrix(checkpoint, "lm_head.weight", vocab, hidden));
  if (!checkpoint.has(checkpoint::kCoarseHead)) return head;
  TRY_ASSIGN(head.coarse_.weight,
             load_matrix(checkpoint, std::string(checkpoint::kCoarseHead), vocab, hidden));
  TRY_ASSIGN(head.scan_, kernels::make_logit_rows(kernels::KernelChoice::kAuto));
  const size_t blocks = kernels::logit_blocks(static_cast<size_t>(vocab));
  head.block_highest_.resize(blocks);
  head.sorted_.reserve(std::max<size_t>(blocks, blocks < kComputed ? vocab : 0));
  head.masses_.resize(blocks);
  head.values_.resize(blocks * kernels::kLogitBlock);
  head.candidates_.resize(blocks * kernels::kLogitBlock);
  return head;
}

void OutputHead::forward(kernels::Kernels& kernels, float* logits, const float* x, int rows) {
  using Output = kernels::Kernels::Output;
  if (coarse_.weight.data == nullptr) {
    kernels.linear(logits, x, exact_, rows, Output::kOverwrite);
    return;
  }
  kernels.linear(logits, x, coarse_, rows, Output::kOverwrite);
  for (int64_t row = 0; row < rows; ++row) {
    correct(kernels, logits + row * exact_.weight.rows, x + row * exact_.weight.cols);
  }
}

void OutputHead::correct(kernels::Kernels& kernels, float* logits, const float* x) {
  const auto vocab = static_cast<size_t>(exact_.weight.rows);
  const float floor = floor_of({logits, vocab});
  if (!std::isfinite(floor)) return;  // a broken row: the sampler tells
  const size_t count = scan_->collect({logits, vocab}, block_highest_.data(),
                                      {floor, std::numeric_limits<float>::infinity()},
                                      values_.data(), candidates_.data());
  ++rows_corrected_;
  logits_corrected_ += static_cast<int64_t>(count);
  kernels.linear_rows(values_.data(), x, exact_.weight, candidates_.data(),
                      static_cast<int>(count));
  for (size_t i = 0; i < count; ++i) logits[candidates_[i]] = values_[i];
}

float OutputHead::floor_of(std::span<const float> coarse) {
  const kernels::LogitRows::Scan seen =
      scan_->scan({const_cast<float*>(coarse.data()), coarse.size()}, {}, block_highest_.data());
  if (seen.broken) return std::numeric_limits<float>::quiet_NaN();
  // As many blocks as tokens are to be computed have a logit of at least this.
  const bool small = block_highest_.size() < kComputed;
  const std::span<const float> among = small ? coarse : std::span<const float>(block_highest_);
  sorted_.assign(among.begin(), among.end());
  const size_t nth = std::min(kComputed, sorted_.size()) - 1;
  std::nth_element(sorted_.begin(), sorted_.begin() + static_cast<ptrdiff_t>(nth), sorted_.end(),
                   std::greater<>());
  const kernels::Mass mass = scan_->weigh(coarse, {seen.highest, std::numbers::log2e_v<float>},
                                          -std::numeric_limits<float>::infinity(), masses_.data());
  const double share = static_cast<double>(mass) / static_cast<double>(kernels::kWholeMass);
  const float by_probability = seen.highest + static_cast<float>(std::log(kProbability * share));
  return std::min(sorted_[nth], by_probability - kMargin);
}

int64_t OutputHead::bytes_per_row() const {
  if (coarse_.weight.data == nullptr) return matrix_bytes(exact_.weight);
  const int64_t exact_rows = rows_corrected_ > 0 ? logits_corrected_ / rows_corrected_ : kComputed;
  return matrix_bytes(coarse_.weight) +
         exact_rows * kernels::row_bytes(exact_.weight.format, exact_.weight.cols);
}

int64_t OutputHead::scratch_bytes() const {
  return capacity_bytes(block_highest_) + capacity_bytes(sorted_) + capacity_bytes(masses_) +
         capacity_bytes(values_) + capacity_bytes(candidates_);
}

}  // namespace pelton::layers
