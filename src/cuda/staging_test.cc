// Weights on their way to a device: many pieces of any size arrive where they belong though their
// buffers are used again and again, nothing has arrived before it was waited for, and what cannot
// be sent says so.
#include <algorithm>

#include "cuda/test_device.h"

namespace pelton::cuda {
namespace {

// A session whose keys and values are 96 MiB that anything may be written to.
class StagingTest : public ::testing::Test {
 protected:
  StagingTest() {
    const ModelShape shape{.layers = 1,
                           .hidden = 64,
                           .inner = 64,
                           .heads = 1,
                           .kv_heads = 1,
                           .head_size = 64,
                           .experts = 1,
                           .choices = 1,
                           .vocab = 16};
    const Limits limits{.rows_max = 1,
                        .sequences_max = 1,
                        .logit_rows_max = 1,
                        .positions_max = 16,
                        .kv_blocks = {static_cast<int32_t>(kBytes / (2 * 64 * 16 * 2))},
                        .partial_bytes_max = 0};
    const ArenaLayout arena = arena_layout(shape, limits);
    room_ = arena.layers[0].kv;
    beyond_ = arena.bytes();
    session_ = device().open(0, &shape, &limits);
    CHECK(session_ != nullptr && room_.bytes == kBytes);
  }
  ~StagingTest() override { device().close(session_); }

  std::string failure() const {
    const char* const what = device().failure();
    return what != nullptr ? what : "";
  }

  static constexpr int64_t kBytes = int64_t{96} << 20;

  Random random_;
  Place room_;
  int64_t beyond_ = 0;
  Session* session_ = nullptr;
};

TEST_F(StagingTest, PiecesOfAnySizeArriveWhereTheyBelong) {
  std::vector<uint8_t> wanted(static_cast<size_t>(kBytes), 0);
  for (int round = 0; round < 2; ++round) {  // the second after everything was given back
    for (int64_t sent = 0; sent < 4 * kStagedBytes;) {
      const int64_t bytes = random_.below(5) == 0
                                ? 1 + random_.below(5000)
                                : 1 + random_.below(static_cast<int>(kStagedBytes));
      const int64_t at = random_.below(static_cast<int>(kBytes - bytes));
      auto* const staged = static_cast<uint8_t*>(device().stage(session_, bytes));
      ASSERT_NE(staged, nullptr) << failure();
      const auto first = static_cast<uint8_t>(random_.below(256));
      for (int64_t i = 0; i < bytes; ++i) staged[i] = static_cast<uint8_t>(first + i / 61);
      // In two parts, as a piece with scales is.
      const int64_t front = random_.below(static_cast<int>(bytes) + 1);
      device().send(session_, staged, room_.offset + at, front);
      device().send(session_, staged + front, room_.offset + at + front, bytes - front);
      std::copy_n(staged, bytes, wanted.data() + at);
      sent += bytes;
    }
    device().finish_sending(session_);
    std::vector<uint8_t> got(wanted.size());
    device().read(session_, room_.offset, got.data(), kBytes);
    EXPECT_EQ(failure(), "");
    EXPECT_TRUE(same_bits(got, wanted)) << "round " << round;
  }
}

// Without this the emulation would not see a wait that is missing.
TEST_F(StagingTest, InTheEmulationNothingArrivesBeforeItIsWaitedFor) {
  if (std::string_view(device().kind()) != "emulated") GTEST_SKIP();
  auto* const staged = static_cast<uint8_t*>(device().stage(session_, 3));
  std::fill_n(staged, 3, uint8_t{7});
  device().send(session_, staged, room_.offset, 3);
  std::vector<uint8_t> got(3);
  device().read(session_, room_.offset, got.data(), 3);
  EXPECT_EQ(got, std::vector<uint8_t>({0, 0, 0}));
  device().finish_sending(session_);
  device().read(session_, room_.offset, got.data(), 3);
  EXPECT_EQ(got, std::vector<uint8_t>({7, 7, 7}));
}

TEST_F(StagingTest, WhatCannotBeSentSaysSo) {
  EXPECT_EQ(device().stage(session_, kStagedBytes + 1), nullptr);
  EXPECT_NE(failure(), "");
  void* const staged = device().stage(session_, 100);
  EXPECT_NE(staged, nullptr);
  device().send(session_, staged, beyond_ - 99, 100);
  EXPECT_NE(failure().find("outside"), std::string::npos);
  const int32_t token = 1;
  const int32_t block = 0;
  const int32_t row = 0;
  const StepSequence sequence{0, 1, {&block}};
  const Step step{&token, 1, &sequence, 1, &row, 1};
  EXPECT_EQ(device().step(session_, &step), nullptr);
  EXPECT_NE(failure().find("on their way"), std::string::npos);
  device().send(session_, staged, room_.offset, 100);  // closed while it is under way
}

}  // namespace
}  // namespace pelton::cuda
