#include "gateway/prediction_bias.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr int64_t kS = 1'000'000'000;

TEST(PredictionBiasExample, FadesToWhatIsTypicalOfThePool) {
  PredictionBias bias;
  for (int i = 0; i < 500; ++i) bias.note(1.2, 0.3, 0);
  EXPECT_NEAR(bias.at(0.3, 0), 1.2, 1e-6);
  EXPECT_NEAR(bias.at(0.3, 10 * kS), 0.6, 1e-6);
  EXPECT_NEAR(bias.at(0.3, 20 * kS), 0.42, 5e-3);
}

TEST(PredictionBiasTest, ANewWorkerIsATypicalOne) {
  EXPECT_EQ(PredictionBias().at(0.3, 5 * kS), 0.3);
}

// A pool whose predictions are all three times too long: the unused one ends at the others' price.
TEST(PredictionBiasTest, WhoIsNotUsedIsNotPricedOutForEver) {
  double typical = 1;
  PredictionBias used;
  PredictionBias slow_once;
  slow_once.note(2, typical, 0);
  for (int second = 1; second <= 300; ++second) {
    for (int i = 0; i < 10; ++i) {
      used.note(1.0 / 3, typical, second * kS);
      typical = PredictionBias::mixed(typical, 1.0 / 3);
    }
  }
  EXPECT_NEAR(slow_once.at(typical, 300 * kS) / used.at(typical, 300 * kS), 1, 0.01);
}

}  // namespace
}  // namespace pelton::gateway
