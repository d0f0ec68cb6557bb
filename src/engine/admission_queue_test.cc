#include "engine/admission_queue.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::engine {
namespace {

class AdmissionQueueTest : public testing::Test {
 protected:
  bool enters(int priority, const std::string& tenant = "", int tokens = 1) {
    request::GenerationRequest request;
    request.tenant = tenant;
    request.priority = priority;
    request.prompt.resize(static_cast<size_t>(tokens));
    if (!queue_.enter(request, 1, 0).ok()) return false;
    last_ = AdmissionQueue::ticket(request);
    return true;
  }

  AdmissionQueue queue_{{.requests_max = 4, .tokens_max = 100}};
  AdmissionQueue::Ticket last_;
};

TEST_F(AdmissionQueueTest, what_waits_in_the_background_takes_no_place_of_others) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(enters(1000));
  EXPECT_FALSE(enters(1000));
  EXPECT_FALSE(enters(1));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(enters(0));
  EXPECT_FALSE(enters(0));
  EXPECT_FALSE(enters(-5));
  EXPECT_FALSE(queue_.room_for({}, 0).ok());
  EXPECT_EQ(queue_.requests(), 8);
}

// What is fetched ahead of its time takes no place, and finds none taken.
TEST_F(AdmissionQueueTest, what_is_only_fetched_is_in_no_line) {
  request::GenerationRequest request;
  request.prompt.resize(1000);
  request.peer = request::PrefixPeer{.ahead = true};
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(queue_.enter(request, 1, 0).ok());
  EXPECT_EQ(queue_.requests(), 0);
  EXPECT_EQ(queue_.tokens(), 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(enters(0));
  EXPECT_TRUE(queue_.enter(request, 1, 0).ok());
  queue_.note_never_scheduled(AdmissionQueue::ticket(request));
  EXPECT_EQ(queue_.requests(), 4);
}

TEST_F(AdmissionQueueTest, the_background_has_what_others_leave) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(enters(0));
  EXPECT_TRUE(enters(1));
  EXPECT_FALSE(enters(1));
  EXPECT_TRUE(enters(0));
}

TEST_F(AdmissionQueueTest, tokens_count_likewise) {
  ASSERT_TRUE(enters(1, "", 90));
  EXPECT_FALSE(enters(1, "", 20));
  EXPECT_TRUE(enters(0, "", 90));
  EXPECT_FALSE(enters(0, "", 20));
  EXPECT_EQ(queue_.tokens(), 180);
}

TEST_F(AdmissionQueueTest, a_tenants_own_batch_does_not_shut_it_out) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(enters(1, "a"));
  EXPECT_TRUE(enters(0, "a"));
}

TEST_F(AdmissionQueueTest, who_leaves_gives_its_own_place_back) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(enters(1));
  const AdmissionQueue::Ticket behind = last_;
  ASSERT_TRUE(enters(0));
  const AdmissionQueue::Ticket usual = last_;
  queue_.note_never_scheduled(usual);
  EXPECT_FALSE(enters(1));
  queue_.note_seated(behind);
  EXPECT_TRUE(enters(1));
  EXPECT_EQ(queue_.requests(), 4);
}

}  // namespace
}  // namespace pelton::engine
