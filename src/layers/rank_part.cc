#include "layers/rank_part.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/tiles.h"
#include "layers/rank_weights.h"

namespace pelton::layers {
namespace {

constexpr int kBlock = kRankBlock;
constexpr int kMatricesMax = 4;  // of one exchange

}  // namespace

Result<RankPart> RankPart::make(const checkpoint::Checkpoint& checkpoint,
                                parallel::Exchange& exchange, const std::vector<int>& weights,
                                const ExpertTable& experts) {
  CHECK(static_cast<int>(weights.size()) == exchange.ranks());
  TRY_ASSIGN(RankShares shares, RankShares::make(checkpoint.config(), weights, experts));
  RankPart part;
  part.exchange_ = &exchange;
  part.kv_heads_ = std::move(shares.kv_heads);
  part.hidden_ = std::move(shares.hidden);
  part.vocab_ = std::move(shares.vocab);
  part.expert_blocks_ = std::move(shares.expert_blocks);
  part.mlp_blocks_ = std::move(shares.mlp_blocks);
  for (const auto& owners : experts) part.dealt_.emplace_back(owners, exchange.rank());
  return part;
}

void RankPart::reserve(const families::ModelConfig& config, int tokens, int logit_rows) {
  const int64_t group = config.q_size() / config.kv_head_count;
  const int64_t widest = std::max<int64_t>(kv_heads_.count(rank()) * group, hidden_.count(rank()));
  room_.resize(static_cast<size_t>(
      std::max<int64_t>(tokens * widest, int64_t{logit_rows} * vocab_.count(rank()))));
  if (dealt_.empty()) return;
  choice_share_.reserve(tokens, config.experts_per_token, config.expert_count, exchange_->ranks());
}

ExpertLoads RankPart::chosen_experts() const {
  ExpertLoads loads;
  for (const DealtExperts& layer : dealt_) loads.push_back(layer.chosen());
  return loads;
}

void RankPart::take_columns(const float* x, int tokens) const {
  const int own = hidden_.count(rank());
  const int first = hidden_.begin(rank());
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(x + t * hidden_.rows() + first, own, room_.data() + t * own);
  }
}

void RankPart::give_columns(float* x, int tokens) const {
  constexpr int64_t kFloat = sizeof(float);
  exchange_->all_gather(hidden_,
                        {.part = room_.data(),
                         .part_stride = hidden_.count(rank()) * kFloat,
                         .whole = x,
                         .whole_stride = hidden_.rows() * kFloat,
                         .column_bytes = kFloat},
                        tokens);
}

void ExpertExchange::gather(const Array* arrays, int array_count, int64_t rows) {
  CHECK(array_count <= kMatricesMax);
  const parallel::Share& share = part_.expert_blocks();
  std::array<parallel::Columns, kMatricesMax> columns;
  for (int i = 0; i < array_count; ++i) {
    const Array& array = arrays[i];
    const int64_t stride = share.rows() * array.unit_bytes;
    columns[static_cast<size_t>(i)] = {
        .part = static_cast<const std::byte*>(array.data) + first() * array.unit_bytes,
        .part_stride = stride,
        .whole = array.data,
        .whole_stride = stride,
        .column_bytes = array.unit_bytes};
  }
  part_.exchange().all_gather(share, std::span(columns).first(static_cast<size_t>(array_count)),
                              rows);
}

Result<kernels::Matrix> rows_of(const kernels::Matrix& matrix, int first, int count,
                                const std::string& name) {
  using kernels::Format;
  if (matrix.format == Format::kF8Blocks) return cannot_be_shared_out(name + ", which is FP8,");
  if (matrix.format == Format::kBf16Columns)
    return cannot_be_shared_out(name + ", which is transposed,");
  if (matrix.input_order != nullptr)
    return cannot_be_shared_out(name + ", whose columns are sorted,");
  kernels::Matrix part = matrix;
  part.rows = count;
  const auto* bytes = static_cast<const std::byte*>(matrix.data);
  if (kernels::is_tiled(matrix.format)) {
    if (first % kernels::kTileRows != 0) return cannot_be_shared_out(name);
    part.data =
        bytes + first / kernels::kTileRows * kernels::tile_bytes(matrix.format, matrix.cols);
  } else {
    part.data = bytes + first * kernels::row_bytes(matrix.format, matrix.cols);
  }
  return part;
}

Result<kernels::Linear> rows_of(const kernels::Linear& linear, int first, int count,
                                const std::string& name) {
  kernels::Linear part;
  TRY_ASSIGN(part.weight, rows_of(linear.weight, first, count, name));
  if (linear.bias != nullptr) part.bias = linear.bias + first;
  return part;
}

namespace {

// Rows [first, first + count) of each expert's matrix.
Result<kernels::Experts> rows_of(const kernels::Experts& whole, int first, int count,
                                 const std::string& name, FloatVectors& keep) {
  kernels::Experts part = whole;
  part.rows = count;
  const auto one = [&](const void* data) {
    return layers::rows_of(
        kernels::Matrix{
            .data = data, .rows = whole.rows, .cols = whole.cols, .format = whole.format},
        first, count, name);
  };
  if (whole.format == kernels::Format::kMxfp4Pairs) {
    part.data = static_cast<const std::byte*>(whole.data) + int64_t{first} * whole.cols / 2;
    part.scales = whole.scales + int64_t{first} * whole.cols / kBlock;
  } else if (whole.apart != nullptr) {
    kernels::ExpertMatrix* const apart = keep.add_matrices(whole.experts);
    for (int e = 0; e < whole.experts; ++e) {
      TRY_ASSIGN(const kernels::Matrix matrix, one(whole.apart[e].data));
      apart[e].data = matrix.data;
    }
    part.apart = apart;
  } else {
    TRY_ASSIGN(const kernels::Matrix matrix, one(whole.data));
    part.data = matrix.data;
  }
  if (whole.bias == nullptr) return part;
  float* const bias = keep.add(int64_t{whole.experts} * count);
  for (int64_t e = 0; e < whole.experts; ++e) {
    std::copy_n(whole.bias + e * whole.rows + first, count, bias + e * count);
  }
  part.bias = bias;
  return part;
}

}  // namespace

Result<kernels::ExpertWeights> part_of(const kernels::ExpertWeights& whole, const RankPart& part,
                                       const std::string& name, FloatVectors& keep) {
  const parallel::Share& blocks = part.expert_blocks();
  const int each = whole.interleaved() ? 2 * kBlock : kBlock;  // rows of gate, of a block
  const int first = blocks.begin(part.rank()) * each;
  const int count = blocks.count(part.rank()) * each;
  kernels::ExpertWeights weights;
  TRY_ASSIGN(weights.gate, rows_of(whole.gate, first, count, name, keep));
  if (!whole.interleaved()) {
    TRY_ASSIGN(weights.up, rows_of(whole.up, first, count, name, keep));
  }
  const parallel::Share& hidden = part.hidden();
  TRY_ASSIGN(weights.down,
             rows_of(whole.down, hidden.begin(part.rank()), hidden.count(part.rank()), name, keep));
  return weights;
}

}  // namespace pelton::layers
