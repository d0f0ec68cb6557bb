#include "net/send_queue.h"

#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::net {
namespace {

std::string first_bytes(const SendQueue& queue) {
  std::array<std::string_view, SendQueue::kPiecesMax> views;
  std::string bytes;
  const size_t count = queue.front(views);
  for (size_t i = 0; i < count; ++i) bytes += views[i];
  return bytes;
}

TEST(SendQueue, small_pieces_leave_together_and_large_ones_as_they_are) {
  SendQueue queue;
  queue.push(std::string_view("one "));
  queue.push(std::string_view("two "));
  queue.push(std::string(100'000, 'x'));
  queue.push(std::string_view(" end"));
  std::array<std::string_view, SendQueue::kPiecesMax> views;
  ASSERT_EQ(queue.front(views), 3u);
  EXPECT_EQ(views[0], "one two ");
  EXPECT_EQ(views[1].size(), 100'000u);
  EXPECT_EQ(views[2], " end");
}

TEST(SendQueue, what_the_kernel_takes_at_once_leaves_no_memory_behind) {
  SendQueue queue;
  std::string buffer;
  queue.borrow(buffer);
  queue.push(std::string_view("data: token\n\n"));
  EXPECT_EQ(buffer, "data: token\n\n");
  queue.pop(queue.bytes());
  EXPECT_TRUE(buffer.empty());
  queue.give_back();
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, a_buffer_that_has_grown_large_is_not_kept) {
  SendQueue queue;
  std::string buffer;
  queue.borrow(buffer);
  queue.push(std::string_view(std::string(1'000'000, 'x')));
  queue.pop(queue.bytes());
  queue.give_back();
  EXPECT_LT(buffer.capacity(), 100'000u);
}

// Whatever is pushed comes out, once and in order, borrowed or not, in pieces of any size.
TEST(SendQueue, bytes_come_out_in_order) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t draw = 0;
    const auto random = [&](uint64_t below) { return base::random_bits(seed, draw++) % below; };
    SendQueue queue;
    std::string buffer;
    std::string expected;
    bool borrowing = false;
    char next = 'a';
    for (int step = 0; step < 400; ++step) {
      switch (random(4)) {
        case 0:
        case 1: {
          const size_t size = random(8) == 0 ? random(60'000) : random(40);
          const std::string bytes(size, next);
          next = next == 'z' ? 'a' : static_cast<char>(next + 1);
          expected += bytes;
          if (random(2) == 0) {
            queue.push(std::string_view(bytes));
          } else {
            queue.push(std::string(bytes));
          }
          break;
        }
        case 2: {
          const std::string front = first_bytes(queue);
          ASSERT_EQ(front.empty(), expected.empty());
          ASSERT_TRUE(expected.starts_with(front));
          const size_t taken = random(front.size() + 1);
          queue.pop(taken);
          expected.erase(0, taken);
          break;
        }
        case 3:
          borrowing ? queue.give_back() : queue.borrow(buffer);
          borrowing = !borrowing;
          ASSERT_TRUE(borrowing || buffer.empty());
          break;
      }
      ASSERT_EQ(queue.bytes(), expected.size());
    }
  }
}

}  // namespace
}  // namespace pelton::net
