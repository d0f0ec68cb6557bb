// Both ways to cut to a mass against a sort of everything, to the unit.
#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace pelton::sampling {
namespace {

using kernels::Mass;

// Where a front ends, by definition.
struct Cut {
  Mass mass = 0;  // of the front
  float logit = 0;
  size_t equals = 0;
};

struct Case {
  std::vector<float> row;
  kernels::LogitScale scale;
  std::vector<TokenId> order;  // by rank
  std::vector<Mass> masses;    // by rank

  Cut cut(Mass need) const {
    Cut cut;
    for (size_t i = 0; i < order.size() && cut.mass < need; ++i) {
      const float logit = row[static_cast<size_t>(order[i])];
      cut.equals = logit == cut.logit && i > 0 ? cut.equals + 1 : 1;
      cut.logit = logit;
      cut.mass += masses[i];
    }
    return cut;
  }
};

Case random_case(const kernels::LogitRows& rows, std::mt19937_64& random) {
  const size_t vocab = 1 + random() % (random() % 4 == 0 ? 100 : 30'000);
  Case a_case;
  a_case.row.resize(vocab);
  std::normal_distribution<float> bell(0.0f, std::exp2(static_cast<float>(random() % 5) - 2.0f));
  const float coarse = random() % 2 == 0 ? 0.0f : std::exp2(static_cast<float>(random() % 7) - 3);
  for (float& logit : a_case.row) {
    logit = bell(random);
    if (coarse > 0) logit = std::round(logit / coarse) * coarse;
  }
  // What a look at every so manieth logit sees is no picture of the row.
  if (random() % 4 == 0) {
    for (size_t i = 0; i < 256; ++i) a_case.row[i * vocab / 256] = random() % 2 == 0 ? 3.0f : 2.0f;
  }
  a_case.scale = {.highest = *std::max_element(a_case.row.begin(), a_case.row.end()),
                  .sharpness = 1.442695f / std::exp2(static_cast<float>(random() % 5) - 2)};
  std::vector<Mass> masses(kernels::logit_blocks(vocab) * kernels::kLogitBlock);
  rows.weigh_each(a_case.row, a_case.scale, masses.data());
  for (size_t i = 0; i < vocab; ++i) a_case.order.push_back(static_cast<TokenId>(i));
  std::stable_sort(a_case.order.begin(), a_case.order.end(), [&](TokenId a, TokenId b) {
    return a_case.row[static_cast<size_t>(a)] > a_case.row[static_cast<size_t>(b)];
  });
  for (const TokenId id : a_case.order) a_case.masses.push_back(masses[static_cast<size_t>(id)]);
  return a_case;
}

TEST(Candidates, CutWhereTheDefinitionDoes) {
  const auto rows = kernels::make_logit_rows(kernels::KernelChoice::kAuto).value();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Candidates candidates;
  for (int round = 0; round < 300; ++round) {
    Case a_case = random_case(*rows, random);
    std::vector<float> block_highest(kernels::logit_blocks(a_case.row.size()));
    rows->scan(a_case.row, {}, block_highest.data());
    const Row row{a_case.row, block_highest};
    candidates.reserve(static_cast<int>(a_case.row.size()));

    // At a place where one token ends, or a unit beyond.
    Mass need = random() % 2;
    for (size_t i = random() % a_case.order.size() + 1; i > 0; --i) need += a_case.masses[i - 1];
    const Cut expected = a_case.cut(std::max<Mass>(need, 1));

    constexpr float kLowest = std::numeric_limits<float>::lowest();
    candidates.collect(*rows, row, kLowest);
    const Mass total = candidates.softmax_weights(*rows, a_case.scale);
    candidates.cut_to_mass(need);
    EXPECT_EQ(candidates.kept_mass(), expected.mass) << "round " << round;
    if (need == 0 || need > total) continue;

    // From any floor that the front reaches.
    const float floor = round % 2 == 0 ? kLowest : expected.logit;
    const Front front = candidates.spend_on_front(*rows, row, floor, a_case.scale, total, need);
    ASSERT_EQ(front.logit, expected.logit) << "round " << round;
    ASSERT_EQ(front.equals, expected.equals) << "round " << round;
    ASSERT_EQ(front.mass, expected.mass) << "round " << round;
  }
}

TEST(Candidates, KeepTheBest) {
  const auto rows = kernels::make_logit_rows(kernels::KernelChoice::kAuto).value();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Candidates candidates;
  for (int round = 0; round < 100; ++round) {
    Case a_case = random_case(*rows, random);
    std::vector<float> block_highest(kernels::logit_blocks(a_case.row.size()));
    rows->scan(a_case.row, {}, block_highest.data());
    candidates.reserve(static_cast<int>(a_case.row.size()));
    const size_t count = 1 + random() % a_case.row.size();
    candidates.collect(*rows, {a_case.row, block_highest},
                       candidates.floor_of_best(block_highest, count));
    candidates.keep_best(count);
    ASSERT_EQ(candidates.size(), count);
    a_case.order.resize(count);
    std::sort(a_case.order.begin(), a_case.order.end());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(candidates.token(i), a_case.order[i]);
  }
}

}  // namespace
}  // namespace pelton::sampling
