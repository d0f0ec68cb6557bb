#include "parallel/channel.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace pelton::parallel {
namespace {

TEST(Channel, MessagesOfAnyLengthInTheirOrder) {
  auto ends = std::move(Channel::make_pair()).value();
  std::thread sender([&] {
    for (const size_t size : {0u, 1u, 5'000'000u, 3u}) {
      EXPECT_TRUE(ends.first.send(std::string(size, static_cast<char>('a' + size % 7))).ok());
    }
  });
  for (const size_t size : {0u, 1u, 5'000'000u, 3u}) {
    const auto got = ends.second.receive(-1);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(**got, std::string(size, static_cast<char>('a' + size % 7)));
  }
  sender.join();
}

TEST(Channel, WhoHasGoneIsNoticed) {
  auto ends = std::move(Channel::make_pair()).value();
  { const Channel gone = std::move(ends.first); }
  const auto got = ends.second.receive(-1);
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(got->has_value());
  EXPECT_EQ(ends.second.send("x").error().code, ErrorCode::kUnavailable);
}

TEST(Channel, AMessageThatBreaksOffIsNone) {
  auto ends = std::move(Channel::make_pair()).value();
  const char begun[] = {9, 0, 0, 0, 'a', 'b'};
  ASSERT_EQ(::send(ends.first.descriptor(), begun, sizeof begun, 0), 6);
  ends.first.shut();
  EXPECT_EQ(ends.second.receive(-1).error().code, ErrorCode::kUnavailable);
}

TEST(Channel, ALengthBeyondAllMessagesIsRefused) {
  auto ends = std::move(Channel::make_pair()).value();
  const char huge[] = {'\xff', '\xff', '\xff', '\xff'};
  ASSERT_EQ(::send(ends.first.descriptor(), huge, sizeof huge, 0), 4);
  EXPECT_EQ(ends.second.receive(-1).error().code, ErrorCode::kInvalidArgument);
}

TEST(Channel, WaitsNoLongerThanSaid) {
  auto ends = std::move(Channel::make_pair()).value();
  EXPECT_EQ(ends.second.receive(10).error().code, ErrorCode::kDeadline);
}

}  // namespace
}  // namespace pelton::parallel
