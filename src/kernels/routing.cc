#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace pelton::kernels {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

void find_scores(double* scores, const float* logits, const RouterShape& shape) {
  if (shape.kind == RouterShape::Kind::kSigmoid) {
    for (int e = 0; e < shape.experts; ++e) scores[e] = 1.0 / (1.0 + std::exp(-double{logits[e]}));
    return;
  }
  const double highest = *std::max_element(logits, logits + shape.experts);
  double total = 0;
  for (int e = 0; e < shape.experts; ++e) {
    scores[e] = std::exp(logits[e] - highest);
    total += scores[e];
  }
  for (int e = 0; e < shape.experts; ++e) scores[e] /= total;
}

double goodness(const double* ranks, int size, bool by_two) {
  double best = kNever;
  double second = kNever;
  for (int e = 0; e < size; ++e) {
    if (ranks[e] > best) {
      second = best;
      best = ranks[e];
    } else if (ranks[e] > second) {
      second = ranks[e];
    }
  }
  return by_two && size > 1 ? best + second : best;
}

// Experts outside the best groups are never chosen. Of the header's example: by the sums of their
// two best the second group is kept; by their best alone, 0.95, 0.88 and 0.73, it is the first.
void keep_best_groups(double* ranks, const RouterShape& shape) {
  const int size = shape.experts / shape.groups;
  double good[kRoutedExpertsMax];
  for (int g = 0; g < shape.groups; ++g) {
    good[g] = goodness(ranks + g * size, size, shape.group_by_two);
  }
  for (int g = 0; g < shape.groups; ++g) {
    int better = 0;
    for (int other = 0; other < shape.groups; ++other) {
      better += good[other] > good[g] || (good[other] == good[g] && other < g) ? 1 : 0;
    }
    if (better >= shape.groups_kept) std::fill_n(ranks + g * size, size, kNever);
  }
}

}  // namespace

void route_token(ExpertChoice* choices, const float* logits, const RouterShape& shape) {
  CHECK(shape.experts <= kRoutedExpertsMax && shape.kind != RouterShape::Kind::kSoftmaxOfTopK);
  double scores[kRoutedExpertsMax];
  double ranks[kRoutedExpertsMax];
  find_scores(scores, logits, shape);
  for (int e = 0; e < shape.experts; ++e) {
    ranks[e] = scores[e] + (shape.correction != nullptr ? double{shape.correction[e]} : 0.0);
  }
  if (shape.groups_kept < shape.groups) keep_best_groups(ranks, shape);
  double total = 0;
  for (int j = 0; j < shape.k; ++j) {
    const double* const best = std::max_element(ranks, ranks + shape.experts);
    const auto expert = static_cast<int32_t>(best - ranks);
    ranks[expert] = kNever;
    choices[j] = {expert, 0.0f};
    total += scores[expert];
  }
  // DeepSeek's own code adds 1e-20: no sum of scores is 0.
  const double gain = shape.scale / (shape.normalises ? total + 1e-20 : 1.0);
  for (int j = 0; j < shape.k; ++j) {
    choices[j].weight = static_cast<float>(scores[choices[j].expert] * gain);
  }
}

}  // namespace pelton::kernels
