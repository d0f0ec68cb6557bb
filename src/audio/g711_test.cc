// The values of G.711's tables 1 and 2, in 16 bits.
#include "audio/g711.h"

#include <gtest/gtest.h>

namespace pelton::audio {
namespace {

TEST(G711, MuLaw) {
  const auto value = [](int byte) { return sample_of_mu_law(static_cast<uint8_t>(byte)) * 32768; };
  EXPECT_EQ(value(0xFF), 0);
  EXPECT_EQ(value(0x7F), 0);
  EXPECT_EQ(value(0xFE), 8);
  EXPECT_EQ(value(0x80), 32124);
  EXPECT_EQ(value(0x00), -32124);
  EXPECT_EQ(value(0xEF), 132);
  for (int byte = 0x81; byte <= 0xFF; ++byte) EXPECT_LT(value(byte), value(byte - 1)) << byte;
  for (int byte = 0; byte < 0x80; ++byte) EXPECT_EQ(value(byte), -value(byte | 0x80)) << byte;
}

TEST(G711, ALaw) {
  const auto value = [](int byte) { return sample_of_a_law(static_cast<uint8_t>(byte)) * 32768; };
  EXPECT_EQ(value(0xD5), 8);
  EXPECT_EQ(value(0x55), -8);
  EXPECT_EQ(value(0xAA), 32256);
  EXPECT_EQ(value(0x2A), -32256);
  EXPECT_EQ(value(0xC5), 264);  // the second step begins
  for (int code = 0x81; code <= 0xFF; ++code) {
    EXPECT_GT(value(code ^ 0x55), value((code - 1) ^ 0x55)) << code;
  }
}

}  // namespace
}  // namespace pelton::audio
