#include "models/whisper_alignment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace pelton::models {
namespace {

constexpr int kMedian = 7;  // of neighbouring states
constexpr int kFramesPerState = 2;
constexpr double kSecondsPerState = 0.02;

// Over the tokens, each state's looks get mean 0 and deviation 1, so that those that every token
// looks at say nothing. look: (tokens, positions).
void standardise(std::span<float> look, int tokens, int positions) {
  for (int p = 0; p < positions; ++p) {
    double sum = 0.0;
    double squares = 0.0;
    for (int t = 0; t < tokens; ++t) {
      const double value = look[static_cast<size_t>(t * positions + p)];
      sum += value;
      squares += value * value;
    }
    const double mean = sum / tokens;
    const double deviation = std::sqrt(std::max(squares / tokens - mean * mean, 1e-20));
    for (int t = 0; t < tokens; ++t) {
      float& value = look[static_cast<size_t>(t * positions + p)];
      value = static_cast<float>((value - mean) / deviation);
    }
  }
}

// Adds each value's median among its neighbours, mirrored at either end.
void add_medians(std::span<const float> row, std::span<double> sums) {
  const int count = static_cast<int>(row.size());
  for (int p = 0; p < count; ++p) {
    std::array<float, kMedian> near;
    for (int i = 0; i < kMedian; ++i) {
      int at = p + i - kMedian / 2;
      if (at < 0) at = -at;
      if (at >= count) at = 2 * (count - 1) - at;
      near[static_cast<size_t>(i)] = row[static_cast<size_t>(std::clamp(at, 0, count - 1))];
    }
    std::ranges::nth_element(near, near.begin() + kMedian / 2);
    sums[static_cast<size_t>(p)] += near[kMedian / 2];
  }
}

// softmax(logits)[id], of the text tokens alone.
double probability(std::span<const float> logits, TokenId id) {
  double highest = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) highest = std::max(highest, double{logit});
  double all = 0.0;
  for (const float logit : logits) all += std::exp(logit - highest);
  return std::exp(logits[static_cast<size_t>(id)] - highest) / all;
}

}  // namespace

std::vector<int> cheapest_entries(std::span<const double> cost, int rows, int columns) {
  CHECK(rows > 0 && columns > 0 &&
        cost.size() == static_cast<size_t>(rows) * static_cast<size_t>(columns));
  enum : uint8_t { kBoth, kRow, kColumn };
  const auto width = static_cast<size_t>(columns) + 1;
  std::vector<double> best((static_cast<size_t>(rows) + 1) * width,
                           std::numeric_limits<double>::infinity());
  std::vector<uint8_t> from(best.size(), kBoth);
  best[0] = 0.0;
  for (size_t i = 1; i <= static_cast<size_t>(rows); ++i) {
    for (size_t j = 1; j <= static_cast<size_t>(columns); ++j) {
      const double both = best[(i - 1) * width + j - 1];
      const double row = best[(i - 1) * width + j];
      const double column = best[i * width + j - 1];
      uint8_t how = kColumn;
      double least = column;
      if (both < row && both < column) {
        how = kBoth;
        least = both;
      } else if (row < both && row < column) {
        how = kRow;
        least = row;
      }
      best[i * width + j] = cost[(i - 1) * static_cast<size_t>(columns) + j - 1] + least;
      from[i * width + j] = how;
    }
  }
  std::vector<int> entries(static_cast<size_t>(rows), 0);
  auto i = static_cast<size_t>(rows);
  auto j = static_cast<size_t>(columns);
  while (i > 0 && j > 0) {
    entries[i - 1] = static_cast<int>(j) - 1;
    const uint8_t how = from[i * width + j];
    if (how != kColumn) --i;
    if (how != kRow) --j;
  }
  return entries;
}

std::vector<AlignedToken> align(Whisper& model, WhisperWindow& window,
                                std::span<const TokenId> prompt, std::span<const TokenId> text,
                                int64_t frames) {
  const WhisperConfig& config = model.config();
  const int positions =
      static_cast<int>(std::min<int64_t>(frames / kFramesPerState, config.source_positions));
  if (config.alignment_heads.empty() || text.empty() || positions < 1) return {};
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  tokens.push_back(config.no_timestamps);
  tokens.insert(tokens.end(), text.begin(), text.end());
  tokens.push_back(config.end_of_text);
  if (static_cast<int>(tokens.size()) > config.target_positions) return {};
  window.rewind(0);
  Whisper::Looks looks = model.step_looking(window, tokens, config.alignment_heads, positions);
  const int count = static_cast<int>(tokens.size());
  const size_t one = tokens.size() * static_cast<size_t>(positions);
  // The row of a token says what comes behind it: those of text begin at the last of the prompt.
  const size_t first = prompt.size();
  const int rows = static_cast<int>(text.size()) + 1;
  std::vector<double> cost(static_cast<size_t>(rows) * static_cast<size_t>(positions));
  for (size_t head = 0; head < config.alignment_heads.size(); ++head) {
    const std::span<float> look(looks.weights.data() + head * one, one);
    standardise(look, count, positions);
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      const auto width = static_cast<size_t>(positions);
      add_medians(look.subspan((first + row) * width, width),
                  std::span(cost).subspan(row * width, width));
    }
  }
  const auto heads = static_cast<double>(config.alignment_heads.size());
  for (double& value : cost) value /= -heads;
  const std::vector<int> entries = cheapest_entries(cost, rows, positions);
  std::vector<AlignedToken> aligned;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto row =
        looks.logits.subspan((first + i) * vocab, static_cast<size_t>(config.end_of_text));
    aligned.push_back({.begin_s = entries[i] * kSecondsPerState,
                       .end_s = entries[i + 1] * kSecondsPerState,
                       .probability = probability(row, text[i])});
  }
  return aligned;
}

}  // namespace pelton::models
