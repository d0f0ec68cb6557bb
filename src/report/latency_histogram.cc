#include "report/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace pelton::report {
namespace {

constexpr double kLeastMs = 0.01;
constexpr double kBucketsPerOctave = 16;

}  // namespace

double LatencyHistogram::lower_ms(int bucket) {
  return kLeastMs * std::exp2(bucket / kBucketsPerOctave);
}

void LatencyHistogram::add_ms(double ms) {
  const double octaves = ms > kLeastMs ? std::log2(ms / kLeastMs) : 0;
  const double bucket = std::min(octaves * kBucketsPerOctave, double{kBuckets - 1});
  ++counts_[static_cast<size_t>(bucket)];
  ++count_;
}

double LatencyHistogram::percentile_ms(double percent) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<int64_t>(percent / 100 * static_cast<double>(count_ - 1));
  int64_t below = 0;
  for (int i = 0; i < kBuckets; ++i) {
    below += counts_[static_cast<size_t>(i)];
    if (below > rank) return std::sqrt(lower_ms(i) * lower_ms(i + 1));
  }
  return lower_ms(kBuckets);
}

int LatencyHistogram::first_used() const {
  const auto used = std::find_if(counts_.begin(), counts_.end(), [](int64_t n) { return n > 0; });
  return static_cast<int>(used - counts_.begin());
}

int LatencyHistogram::last_used() const {
  const auto used = std::find_if(counts_.rbegin(), counts_.rend(), [](int64_t n) { return n > 0; });
  return static_cast<int>(counts_.rend() - used) - 1;
}

double LatencyHistogram::least_ms() const {
  return count_ == 0 ? 0 : lower_ms(first_used());
}

double LatencyHistogram::most_ms() const {
  return count_ == 0 ? 0 : lower_ms(last_used() + 1);
}

std::string LatencyHistogram::sparkline(int columns) const {
  if (count_ == 0 || columns < 1) return "";
  const int first = first_used();
  const int width = (last_used() - first) / columns + 1;
  std::vector<int64_t> sums;
  for (int at = first; at <= last_used(); at += width) {
    int64_t sum = 0;
    for (int i = at; i < std::min(at + width, kBuckets); ++i)
      sum += counts_[static_cast<size_t>(i)];
    sums.push_back(sum);
  }
  const int64_t most = *std::max_element(sums.begin(), sums.end());
  static constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄",
                                                         "▅", "▆", "▇", "█"};
  std::string line;
  for (const int64_t sum : sums) {
    const int64_t height = sum == 0 ? 0 : 1 + sum * 7 / most;
    line += kBlocks[static_cast<size_t>(height)];
  }
  return line;
}

}  // namespace pelton::report
