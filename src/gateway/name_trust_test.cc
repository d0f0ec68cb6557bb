#include "gateway/name_trust.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

TEST(NameTrust, AFifthOfFiftyMayBeWrong) {
  NameTrust trust;
  for (int i = 0; i < 500; ++i) trust.note(i % 5 == 0);
  EXPECT_TRUE(trust.believed());
  EXPECT_EQ(trust.wrong(), 10u);
  trust.note(true);  // in the place of one that was wrong, as the last fifty go on
  EXPECT_TRUE(trust.believed());
  trust.note(true);
  EXPECT_FALSE(trust.believed());
}

TEST(NameTrust, IsNotLostByTheFirstAnswers) {
  NameTrust trust;
  for (int i = 0; i < 49; ++i) trust.note(true);
  EXPECT_TRUE(trust.believed()) << "fifty are asked for";
  trust.note(true);
  EXPECT_FALSE(trust.believed());
  for (int i = 0; i < 200; ++i) trust.note(false);
  EXPECT_FALSE(trust.believed()) << "nothing was expected of it meanwhile";
  trust.begin_anew();
  EXPECT_TRUE(trust.believed());
  for (int i = 0; i < 10; ++i) trust.note(true);
  for (int i = 0; i < 40; ++i) trust.note(false);
  EXPECT_TRUE(trust.believed());
}

}  // namespace
}  // namespace pelton::gateway
