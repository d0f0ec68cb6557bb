#include "base/heap_trim.h"

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pelton::base {
namespace {

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(HeapTrim, WhatIsUsedAllTheTimeIsLeft) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_FALSE(HeapTrim::worth_it({.used_bytes = 0, .free_bytes = 0}));
  EXPECT_FALSE(HeapTrim::worth_it({.used_bytes = 8 * kMiB, .free_bytes = 8 * kMiB}));
  EXPECT_TRUE(HeapTrim::worth_it({.used_bytes = 8 * kMiB, .free_bytes = 9 * kMiB}));
  EXPECT_FALSE(HeapTrim::worth_it({.used_bytes = 200 * kMiB, .free_bytes = 90 * kMiB}));
  EXPECT_TRUE(HeapTrim::worth_it({.used_bytes = 200 * kMiB, .free_bytes = 110 * kMiB}));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // theirs is another allocator
// What lies free below a little that is still in use, which the allocator never gives back. It is
// in use when it is first seen, and the next look at all books is far off.
TEST(HeapTrim, MemoryUnderWhatIsInUseIsGivenBack) {
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr size_t kPiece = 2000;
  std::vector<std::string> last;
  const HeapTrim trim(
      {.interval = std::chrono::milliseconds(20), .books_interval = std::chrono::minutes(10)});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // it knows how little there was
  const int64_t before = resident_bytes();
  {
    std::vector<std::string> pieces(kBytes / kPiece, std::string(kPiece, 'x'));
    last.assign(100, std::string(kPiece, 'y'));  // more than fit into holes below
    ASSERT_GT(resident_bytes() - before, int64_t{48} << 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(70));
  }
  for (int i = 0; i < 500 && resident_bytes() - before > int64_t{8} << 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(resident_bytes() - before, int64_t{8} << 20);
  for (const std::string& kept : last) EXPECT_EQ(kept, std::string(kPiece, 'y'));
}

// The allocator has seen a larger piece freed, and would from then on keep such pieces at the end
// of a thread's arena, which malloc_trim leaves alone.
TEST(HeapTrim, TheEndOfAThreadsArenaIsGivenBack) {
  const HeapTrim trim(
      {.interval = std::chrono::milliseconds(20), .books_interval = std::chrono::minutes(10)});
  EXPECT_EQ(std::string(size_t{24} << 20, 'x').back(), 'x');
  int64_t left = 0;
  std::thread([&left] {
    const std::string own(1000, 'z');  // the arena is there
    const int64_t before = resident_bytes();
    EXPECT_EQ(std::string(size_t{16} << 20, 'x').back(), 'x');
    for (int i = 0; i < 300; ++i) {
      left = resident_bytes() - before;
      if (left < int64_t{4} << 20) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }).join();
  EXPECT_LT(left, int64_t{4} << 20);
}
#endif

}  // namespace
}  // namespace pelton::base
