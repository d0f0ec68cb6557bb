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

Result<OutputHead> OutputHead::load(const checkpoint::Checkpoint& checkpoint,
                                    const RankPart* part) {
  const int vocab = checkpoint.config().vocab_size;
  const int hidden = checkpoint.config().hidden_size;
  OutputHead head;
  head.scale_ = static_cast<float>(checkpoint.config().logit_scale);
  head.softcap_ = static_cast<float>(checkpoint.config().logit_softcap);
  const bool tied = checkpoint.config().tied_head;
  TRY_ASSIGN(head.exact_.weight,
             load_matrix(checkpoint, tied ? "model.embed_tokens.weight" : "lm_head.weight", vocab,
                         hidden));
  if (checkpoint.has(families::kCoarseHead)) {
    TRY_ASSIGN(head.coarse_.weight,
               load_matrix(checkpoint, std::string(families::kCoarseHead), vocab, hidden));
    TRY_ASSIGN(head.scan_, kernels::make_logit_rows(kernels::KernelChoice::kAuto));
    const size_t blocks = kernels::logit_blocks(static_cast<size_t>(vocab));
    head.block_highest_.resize(blocks);
    head.sorted_.reserve(std::max<size_t>(blocks, blocks < kComputed ? vocab : 0));
    head.masses_.resize(blocks);
    head.marks_.resize(static_cast<size_t>(kTogether * kernels::mark_words(vocab)));
  }
  if (part == nullptr) return head;
  const bool coarse = head.coarse_.weight.data != nullptr;
  TRY_ASSIGN(head.part_,
             rows_of(coarse ? head.coarse_ : head.exact_, part->vocab().begin(part->rank()),
                     part->vocab().count(part->rank()), "lm_head"));
  head.ranks_ = part;
  return head;
}

void OutputHead::forward(kernels::Kernels& kernels, float* logits, const float* x, int rows) {
  find_logits(kernels, logits, x, rows);
  finish(logits, rows);
}

void OutputHead::forward_shared(kernels::Kernels& kernels, float* logits, const float* x,
                                int rows) {
  if (ranks_ == nullptr) return forward(kernels, logits, x, rows);
  constexpr int64_t kFloat = sizeof(float);
  const parallel::Share& vocab = ranks_->vocab();
  kernels.linear(ranks_->room(), x, part_, rows, kernels::Kernels::Output::kOverwrite);
  ranks_->exchange().all_gather(vocab,
                                {.part = ranks_->room(),
                                 .part_stride = vocab.count(ranks_->rank()) * kFloat,
                                 .whole = ranks_->is_leader() ? logits : nullptr,
                                 .whole_stride = vocab.rows() * kFloat,
                                 .column_bytes = kFloat},
                                rows);
  if (!ranks_->is_leader()) return;
  if (coarse_.weight.data != nullptr) correct(kernels, logits, x, rows);
  finish(logits, rows);
}

float OutputHead::finished(float logit) const {
  const float scaled = scale_ * logit;
  return softcap_ > 0 ? softcap_ * std::tanh(scaled / softcap_) : scaled;
}

void OutputHead::finish(float* logits, int rows) const {
  if (softcap_ <= 0 && scale_ == 1.0f) return;
  const int64_t count = int64_t{rows} * exact_.weight.rows;
  for (int64_t i = 0; i < count; ++i) logits[i] = finished(logits[i]);
}

void OutputHead::forward_some(kernels::Kernels& kernels, float* logits, const float* x,
                              std::span<const TokenId> tokens) {
  const kernels::Format format = exact_.weight.format;
  const bool in_tiles =
      format == kernels::Format::kInt8Tiles || format == kernels::Format::kInt4Tiles;
  if (in_tiles || exact_.weight.cols % 32 != 0) return forward(kernels, logits, x, 1);
  std::vector<uint64_t> marks(static_cast<size_t>(kernels::mark_words(exact_.weight.rows)));
  for (const TokenId token : tokens) {
    marks[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  }
  kernels.linear_marked(logits, x, exact_.weight, marks.data(), 1);
  if (softcap_ <= 0 && scale_ == 1.0f) return;
  for (const TokenId token : tokens) logits[token] = finished(logits[token]);
}

void OutputHead::find_logits(kernels::Kernels& kernels, float* logits, const float* x, int rows) {
  using Output = kernels::Kernels::Output;
  if (coarse_.weight.data == nullptr) {
    kernels.linear(logits, x, exact_, rows, Output::kOverwrite);
    return;
  }
  kernels.linear(logits, x, coarse_, rows, Output::kOverwrite);
  correct(kernels, logits, x, rows);
}

void OutputHead::correct(kernels::Kernels& kernels, float* logits, const float* x, int rows) {
  const int64_t vocab = exact_.weight.rows;
  const int64_t words = kernels::mark_words(vocab);
  for (int64_t first = 0; first < rows; first += kTogether) {
    const int64_t count = std::min<int64_t>(kTogether, rows - first);
    for (int64_t i = 0; i < count; ++i) {
      mark({logits + (first + i) * vocab, static_cast<size_t>(vocab)}, marks_.data() + i * words);
    }
    kernels.linear_marked(logits + first * vocab, x + first * exact_.weight.cols, exact_.weight,
                          marks_.data(), static_cast<int>(count));
  }
}

void OutputHead::mark(std::span<float> logits, uint64_t* marks) {
  const float floor = floor_of(logits);
  if (!std::isfinite(floor)) {  // a broken row: the sampler reports it
    std::fill_n(marks, kernels::mark_words(exact_.weight.rows), uint64_t{0});
    return;
  }
  ++rows_corrected_;
  logits_corrected_ +=
      static_cast<int64_t>(scan_->mark(logits, block_highest_.data(), floor, marks));
}

float OutputHead::floor_of(std::span<float> coarse) {
  const kernels::LogitRows::Scan seen = scan_->scan(coarse, {}, block_highest_.data());
  if (seen.broken) return std::numeric_limits<float>::quiet_NaN();
  // As many blocks as tokens are to be computed have a logit of at least this.
  const bool small = block_highest_.size() < kComputed;
  const std::span<const float> among =
      small ? std::span<const float>(coarse) : std::span<const float>(block_highest_);
  sorted_.assign(among.begin(), among.end());
  const size_t nth = std::min(kComputed, sorted_.size()) - 1;
  std::nth_element(sorted_.begin(), sorted_.begin() + static_cast<ptrdiff_t>(nth), sorted_.end(),
                   std::greater<>());
  const kernels::Mass mass =
      scan_->softmax_weights(coarse, {seen.highest, scale_ * std::numbers::log2e_v<float>},
                             -std::numeric_limits<float>::infinity(), masses_.data());
  const double share = static_cast<double>(mass) / static_cast<double>(kernels::kWholeMass);
  const float by_probability =
      seen.highest + static_cast<float>(std::log(kProbability * share)) / scale_;
  return std::min(sorted_[nth], by_probability - kMargin / scale_);
}

int64_t OutputHead::weight_bytes(int rows) const {
  if (coarse_.weight.data == nullptr) return matrix_bytes(exact_.weight);
  const int64_t exact_rows = rows_corrected_ > 0 ? logits_corrected_ / rows_corrected_ : kComputed;
  return matrix_bytes(coarse_.weight) +
         std::min<int64_t>(rows * exact_rows, exact_.weight.rows) *
             kernels::row_bytes(exact_.weight.format, exact_.weight.cols);
}

int64_t OutputHead::scratch_bytes() const {
  return capacity_bytes(block_highest_) + capacity_bytes(sorted_) + capacity_bytes(masses_) +
         capacity_bytes(marks_);
}

}  // namespace pelton::layers
