#include "layers/rotary.h"

#include <cmath>

#include <gtest/gtest.h>

namespace pelton::layers {
namespace {

families::ModelConfig published() {
  families::ModelConfig config;
  config.head_size = 64;
  config.rope = {.theta = 150000,
                 .scaling = families::RopeScaling::kYarn,
                 .factor = 32,
                 .original_context = 4096,
                 .truncate = false,
                 .attention_factor = 0.1 * std::log(32.0) + 1};
  return config;
}

TEST(Rotary, LongropeDividesEachFrequencyByItsOwn) {
  families::RopeConfig rope{.theta = 10000,
                            .scaling = families::RopeScaling::kLongrope,
                            .original_context = 4096,
                            .attention_factor = 1.25,
                            .divisors = {1.5, 4.1}};
  const Rotary rotary(rope, 4);
  EXPECT_EQ(rotary.size(), 4);
  EXPECT_DOUBLE_EQ(rotary.inverse_frequency()[0], 1.0 / 1.5);
  EXPECT_DOUBLE_EQ(rotary.inverse_frequency()[1], 0.01 / 4.1);  // of no float32
  float row[4];
  rotary.table_row(3, row);
  EXPECT_FLOAT_EQ(row[0], static_cast<float>(1.25 * std::cos(2.0)));
  EXPECT_FLOAT_EQ(row[2], static_cast<float>(1.25 * std::sin(2.0)));
}

// The table of the model description, section 5.3 (double precision): the ramp's bounds are
// fractional.
TEST(Rotary, YarnFrequenciesAreThePublishedOnes) {
  const Rotary rotary(published());
  EXPECT_DOUBLE_EQ(rotary.attention_factor(), 1.3465735902799727);
  const std::pair<int, double> rows[] = {{0, 1.0},
                                         {1, 6.890443059e-01},
                                         {8, 5.081327482e-02},
                                         {9, 3.170569618e-02},
                                         {10, 1.933500113e-02},
                                         {12, 6.794959490e-03},
                                         {14, 2.093792379e-03},
                                         {16, 4.564839192e-04},
                                         {17, 1.293187012e-04},
                                         {18, 3.830881237e-05},
                                         {31, 3.023511428e-07}};
  for (const auto& [i, expected] : rows) {
    EXPECT_NEAR(rotary.inverse_frequency()[i] / expected, 1.0, 1e-9) << i;
  }
}

// An original context of 64 tokens turns no pair 32 times: the ramp begins at pair 0, whether its
// bounds are rounded or not. Pair 0 then has a share of 0, and not of what lies before it.
TEST(Rotary, YarnsRampBeginsWithinThePairs) {
  for (const bool truncate : {false, true}) {
    const families::RopeConfig rope{.theta = 10000,
                                    .scaling = families::RopeScaling::kYarn,
                                    .factor = 4,
                                    .original_context = 64,
                                    .truncate = truncate};
    const Rotary rotary(rope, 32);
    EXPECT_DOUBLE_EQ(rotary.inverse_frequency()[0], 1.0) << truncate;
    // The pair that turns once: 16 ln(64 / 2 pi) / ln 10000 = 4.03; pair 2 is at 2 / 4.03, or at
    // 2 / 5 if that is rounded.
    const double share =
        2.0 / (truncate ? 5.0 : 16 * std::log(64 / 6.283185307179586) / std::log(1e4));
    const double frequency = std::pow(1e4, -2.0 / 16);
    EXPECT_NEAR(rotary.inverse_frequency()[2], frequency * (1 - share * 3 / 4), 1e-12) << truncate;
  }
}

TEST(Rotary, TableRowsAreThePublishedOnes) {
  const Rotary rotary(published());
  std::vector<float> row(64);
  rotary.table_row(0, row.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_FLOAT_EQ(row[i], 1.3465736f);
    EXPECT_EQ(row[32 + i], 0.0f);
  }
  struct Point {
    int position;
    int i;
    double cosine;
    double sine;
  };
  for (const Point& point :
       {Point{1, 0, 0.7275568, 1.1331026}, Point{1, 9, 1.3458968, 0.0426869},
        Point{128, 0, -0.9330352, 0.9709303}, Point{128, 12, 0.8685587, 1.0290122},
        Point{4096, 0, 1.0826325, -0.8007292}, Point{4096, 17, 1.1620446, 0.6803769},
        Point{131071, 31, 1.3455163, 0.0533500}}) {
    rotary.table_row(point.position, row.data());
    EXPECT_NEAR(row[point.i], point.cosine, 1e-6) << point.position << " " << point.i;
    EXPECT_NEAR(row[32 + point.i], point.sine, 1e-6) << point.position << " " << point.i;
  }
}

}  // namespace
}  // namespace pelton::layers
