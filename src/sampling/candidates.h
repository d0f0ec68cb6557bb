// Those tokens of a row that could be drawn, in order of id, with their logits and weights; and
// what top_k, top_p and min_p leave of them. Rank: the higher logit first, of equals the lower id.
// Scratch memory of one Sampler; its thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "kernels/logit_rows.h"

namespace pelton::sampling {

// A row, and the highest logit of each of its blocks.
struct Row {
  std::span<const float> logits;
  std::span<const float> block_highest;
};

// The best tokens of a row by rank: all above `logit`, and the first `equals` of those equal to it.
// By default, all.
struct Front {
  float logit = -std::numeric_limits<float>::infinity();
  size_t equals = std::numeric_limits<size_t>::max();
  kernels::Mass mass = 0;  // of all of them together; 0: not known
};

class Candidates {
 public:
  // Room for all of a row's tokens.
  static constexpr int kBytesPerLogit = 16;  // and rounded up to whole blocks of logits
  void reserve(int vocab);
  int64_t bytes() const;

  // Becomes the tokens of `row` whose logits are at least `floor`.
  void collect(const kernels::LogitRows& rows, const Row& row, float floor);

  // A floor that `count` of the row's logits reach, if there are as many finite ones.
  float floor_of_best(std::span<const float> block_highest, size_t count);

  // The sum of the weights.
  kernels::Mass softmax_weights(const kernels::LogitRows& rows, kernels::LogitScale scale);

  // Drops all but the best `count`. Their weights are not known any more.
  void keep_best(size_t count);

  // From here on only the shortest front, by rank, of at least this mass (not 0) is kept.
  void cut_to_mass(kernels::Mass mass);
  // Nor are those that weigh less than this, which is at most kernels::kWholeMass.
  void cut_lighter(kernels::Mass least);

  kernels::Mass kept_mass() const;
  // The first kept token, by id, with which the sum of masses exceeds `target` (< kept_mass()).
  TokenId token_at(kernels::Mass target) const;

  // Whether very many of a row's logits seem to reach `floor`, from a sample.
  static bool many_reach(const Row& row, float floor);
  // The shortest front, by rank, of at least `mass`, where that is so: found in vectors. `total`:
  // all of the row. What reaches `floor` holds such a front. The candidates are spent.
  Front spend_on_front(const kernels::LogitRows& rows, const Row& row, float floor,
                       kernels::LogitScale scale, kernels::Mass total, kernels::Mass mass);
  // The tokens of `row` whose logits equal `logit`, by id. The candidates are spent.
  std::span<const TokenId> spend_on_equals(const kernels::LogitRows& rows, const Row& row,
                                           float logit);

  size_t size() const { return size_; }
  float logit(size_t i) const { return logits_[i]; }
  TokenId token(size_t i) const { return tokens_[i]; }
  kernels::Mass weight(size_t i) const { return masses_[i]; }  // after softmax_weights()
  // Writes positions of the best `count`, best first; at most kSortedMax.
  std::span<const uint32_t> best(size_t count);

  static constexpr size_t kSortedMax = 1024;

 private:
  // By rank, what is kept ends with this one.
  struct Last {
    float logit = -std::numeric_limits<float>::infinity();
    TokenId token = std::numeric_limits<TokenId>::max();
  };
  struct Bucket {
    uint64_t sum;
    uint64_t count;
  };
  struct Keys {  // a range of rank_key
    uint32_t low;
    uint32_t high;
  };
  static constexpr int kBucketBits = 10;
  static constexpr size_t kSample = 256;
  static constexpr size_t kMany = 16 * kSortedMax;

  // All ones for a kept one, or else 0: without a branch, which would be a coin's toss.
  uint64_t kept_mask(size_t i, Last last) const {
    const uint64_t above = logits_[i] > last.logit;
    const uint64_t level = logits_[i] == last.logit;
    const uint64_t first = tokens_[i] <= last.token;
    return uint64_t{0} - (above | (level & first));
  }

  // Two of `logits` between which a front of `mass` of their `total` probably ends.
  struct Pivots {
    float low;
    float high;
  };
  static Pivots pivots(std::span<const float> logits, float floor, const kernels::LogitRows& rows,
                       kernels::LogitScale scale, kernels::Mass total, kernels::Mass mass);
  Front front_by_sorting(const kernels::LogitRows& rows, kernels::LogitScale scale,
                         kernels::Mass mass);

  // The last of the shortest front whose measures (each candidate's by its position) reach `need`.
  template <typename Measure>
  Last last_of_front(Measure measure, uint64_t need);
  template <typename Measure>
  Last last_by_sorting(Keys keys, Measure measure, uint64_t need);
  template <typename Measure>
  Last last_among_equals(uint32_t key, Measure measure, uint64_t need) const;
  size_t sort(Keys keys);  // fills sorted_

  size_t size_ = 0;
  std::vector<float> logits_;
  std::vector<TokenId> tokens_;
  std::vector<kernels::Mass> masses_;
  Last last_;
  std::array<Bucket, size_t{1} << kBucketBits> buckets_;
  std::array<uint64_t, kSortedMax + 1> sorted_;  // by rank: inverted key, position
  std::array<uint32_t, kSortedMax> best_;
};

}  // namespace pelton::sampling
