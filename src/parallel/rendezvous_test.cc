// Who gets to the leader of a group on several hosts, and what those hear who do not.
#include "parallel/rendezvous.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pelton::parallel {
namespace {

using testing::HasSubstr;

const std::string kSecret(32, 's');

int free_port() {
  const auto listener = listen_at({});
  EXPECT_TRUE(listener.ok());
  ::close(listener->first);
  return listener->second;
}

Meeting meeting_at(int port, int ranks, int64_t wait_ns = 20'000'000'000) {
  return {.ranks = ranks,
          .leader = {.host = "127.0.0.2", .port = port},
          .secret = kSecret,
          .wait_ns = wait_ns};
}

void close_all(const MemberDescriptors& ends) {
  for (const int end : {ends.control, ends.steps, ends.data}) ::close(end);
}

TEST(Rendezvous, RanksComeInAnyOrderAndEvenBeforeTheirLeader) {
  const Meeting meeting = meeting_at(free_port(), 4);
  std::vector<std::thread> ranks;
  for (const int rank : {3, 1, 2}) {
    ranks.emplace_back([&meeting, rank] {
      const auto ends = meet_leader(meeting, rank);
      ASSERT_TRUE(ends.ok()) << ends.error().message;
      char byte = 0;
      EXPECT_EQ(::recv(ends->steps, &byte, 1, 0), 1);
      EXPECT_EQ(byte, 'a' + rank);
      EXPECT_EQ(::send(ends->control, &byte, 1, 0), 1);
      close_all(*ends);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto guests = meet_followers(meeting);
  ASSERT_TRUE(guests.ok()) << guests.error().message;
  ASSERT_EQ(guests->size(), 3u);
  for (size_t i = 0; i < guests->size(); ++i) {
    const char sent = static_cast<char>('a' + i + 1);
    EXPECT_EQ(::send((*guests)[i].steps.descriptor(), &sent, 1, 0), 1);
    char byte = 0;
    EXPECT_EQ(::recv((*guests)[i].control.descriptor(), &byte, 1, 0), 1);
    EXPECT_EQ(byte, sent);
    EXPECT_GT((*guests)[i].data.port, 0);
  }
  for (std::thread& rank : ranks) rank.join();
}

// It may not be there yet, as the leader itself.
TEST(Rendezvous, ANameThatNobodyKnowsIsWaitedFor) {
  Meeting meeting = meeting_at(free_port(), 2, 300'000'000);
  meeting.leader.host = "nobody.invalid";
  const auto ends = meet_leader(meeting, 1);
  ASSERT_FALSE(ends.ok());
  EXPECT_EQ(ends.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(ends.error().message, HasSubstr("nobody.invalid"));
}

TEST(Rendezvous, WhoDoesNotFitHearsWhyAndTheOthersBegin) {
  const Meeting meeting = meeting_at(free_port(), 2);
  std::thread leader([&] { EXPECT_TRUE(meet_followers(meeting).ok()); });
  Meeting other = meeting;
  other.secret = std::string(32, 't');
  EXPECT_THAT(meet_leader(other, 1).error().message, HasSubstr("does not know the same secret"));
  other = meeting;
  other.ranks = 3;
  EXPECT_THAT(meet_leader(other, 1).error().message,
              HasSubstr("a group of 3 ranks, 2 at the leader"));
  EXPECT_THAT(meet_leader(meeting, 0).error().message, HasSubstr("rank 0 is none of 1 to 1"));
  const auto stranger =
      connect_once(*resolve(meeting.leader), monotonic_ns() + 1'000'000'000, [] { return false; });
  ASSERT_TRUE(stranger.ok());
  EXPECT_TRUE(send_whole(*stranger, "GET / HTTP/1.1\r\n\r\n"));
  const auto ends = meet_leader(meeting, 1);
  EXPECT_TRUE(ends.ok());
  leader.join();
  ::close(*stranger);
  if (ends.ok()) close_all(*ends);
}

TEST(Rendezvous, ThereIsOneOfEachRankAndOneThatEndedLeavesItsPlace) {
  const Meeting meeting = meeting_at(free_port(), 3);
  std::thread leader([&] { EXPECT_TRUE(meet_followers(meeting).ok()); });
  auto first = meet_leader(meeting, 1);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(meet_leader(meeting, 1).error().message,
              HasSubstr("rank 1 is there already, from 127.0.0.1"));
  close_all(*first);
  first = meet_leader(meeting, 1);
  EXPECT_TRUE(first.ok());
  const auto second = meet_leader(meeting, 2);
  EXPECT_TRUE(second.ok());
  leader.join();
  if (first.ok()) close_all(*first);
  if (second.ok()) close_all(*second);
}

TEST(Rendezvous, WhoIsMissingIsNamedToAll) {
  const Meeting meeting = meeting_at(free_port(), 4, 600'000'000);
  std::thread rank([&] {
    Meeting longer = meeting;
    longer.wait_ns = 20'000'000'000;
    const auto ends = meet_leader(longer, 2);
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    Channel steps(ends->steps);
    const auto got = steps.receive(5000);
    ASSERT_TRUE(got.ok() && got->has_value());
    EXPECT_THAT(**got, HasSubstr("rank 1, rank 3 not at 127.0.0.2"));
    ::close(ends->control);
    ::close(ends->data);
  });
  const auto guests = meet_followers(meeting);
  rank.join();
  EXPECT_EQ(guests.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(guests.error().message, HasSubstr("rank 1, rank 3 not at 127.0.0.2"));
}

TEST(Rendezvous, AStopEndsBothWaits) {
  Meeting meeting = meeting_at(free_port(), 2);
  meeting.stopped = [] { return true; };
  EXPECT_EQ(meet_leader(meeting, 1).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(meet_followers(meeting).error().code, ErrorCode::kCancelled);
}

TEST(Rendezvous, APlaceThatCannotBeHadIsNamed) {
  const auto taken = listen_at({.host = "127.0.0.2"});
  ASSERT_TRUE(taken.ok());
  EXPECT_THAT(meet_followers(meeting_at(taken->second, 2)).error().message,
              HasSubstr("listen at 127.0.0.2"));
  ::close(taken->first);
  Meeting meeting = meeting_at(1, 2, 1'000'000'000);
  meeting.leader.host = "nowhere.invalid";
  EXPECT_THAT(meet_leader(meeting, 1).error().message, HasSubstr("nowhere.invalid"));
}

TEST(Rendezvous, EachStartHasATokenOfItsOwn) {
  EXPECT_NE(data_token(kSecret, "a"), data_token(kSecret, "b"));
  EXPECT_NE(data_token(kSecret, "a"), data_token(kSecret + "x", "a"));
}

}  // namespace
}  // namespace pelton::parallel
