#include "cuda/row_sampling.h"

#include <algorithm>

namespace pelton::cuda {

SamplingNeeds sampling_needs(const Sampling& sampling, int row_count) {
  SamplingNeeds needs;
  for (int i = 0; i < row_count; ++i) {
    const RowSampling& row = sampling.rows[i];
    if (row.on_host != 0) continue;
    needs.any = true;
    needs.reports = needs.reports || row.reported >= 0;
    needs.reports_best = needs.reports_best || row.reported > 0;
    needs.edits = needs.edits || row.penalty_count + row.bias_count + row.banned_count > 0;
    if (row.sharpness == 0) continue;
    needs.draws = true;
    needs.cuts = std::max(needs.cuts, (row.top_k > 0 ? 1 : 0) + (row.top_p_share > 0 ? 1 : 0));
  }
  return needs;
}

const char* wrong_sampling(const Sampling& sampling, int row_count, int vocab,
                           std::span<const uint8_t> drawn) {
  if (sampling.vocab <= 0 || sampling.vocab > vocab)
    return "sampling from tokens that there are not";
  if (sampling.edit_count < 0 || sampling.edit_count > kEditsMax) return "too many edits of logits";
  const int64_t words = (int64_t{sampling.vocab} + 63) / 64;
  if (sampling.mask_words < 0 || sampling.mask_words > row_count * words) {
    return "masks longer than the rows";
  }
  const auto is_inside = [](int32_t first, int32_t count, int64_t room) {
    return first >= 0 && count >= 0 && int64_t{first} + count <= room;
  };
  for (int i = 0; i < row_count; ++i) {
    const RowSampling& row = sampling.rows[i];
    if (row.on_host != 0) continue;
    if (!is_inside(row.penalties, row.penalty_count, sampling.edit_count) ||
        !is_inside(row.biases, row.bias_count, sampling.edit_count) ||
        !is_inside(row.banned, row.banned_count, sampling.edit_count)) {
      return "edits of logits that there are not";
    }
    if (row.penalty_count > 0) {
      const int32_t last = sampling.edits[row.penalties + row.penalty_count - 1].token;
      const auto of_row = static_cast<size_t>(~last);
      if (last < 0 && (of_row >= drawn.size() || drawn[of_row] == 0)) {
        return "a penalty of a token that was not drawn on the device";
      }
    }
    if (row.mask >= 0 && row.mask + words > sampling.mask_words) return "a mask that there is not";
    if (row.reported > kReportedMax) return "more of a row's best tokens than are reported";
  }
  return nullptr;
}

}  // namespace pelton::cuda
