#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/random.h"
#include "base/result.h"
#include "base/utf8.h"

namespace pelton::base {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd"};
  return value / 2;
}
Result<int> quarter(int value) {
  TRY_ASSIGN(const int once, half(value));
  TRY_ASSIGN(const int twice, half(once));
  return twice;
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().message, "odd");
}

TEST(Utf8, ReplacesAsTextDecoderDoes) {
  // WHATWG: one U+FFFD for each maximal invalid prefix.
  EXPECT_EQ(replace_invalid_utf8("a\xF0\x9F\x92 b"), "a\xEF\xBF\xBD b");
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), "\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_TRUE(is_valid_utf8("na\xC3\xAFve \xF0\x9F\x92\x96"));
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    append_utf8(text, code_point);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCodePoint);
    ASSERT_EQ(step.code_point, code_point);
    ASSERT_EQ(step.bytes, text.size());
  }
}

TEST(BoundedQueue, FullIsAnAnswerAndCloseDrains) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  queue.close();
  EXPECT_FALSE(queue.try_push(4));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(File, WriteThenReadAndMap) {
  const std::string path = ::testing::TempDir() + "pelton_file_test";
  ASSERT_TRUE(write_file(path, "hello").ok());
  EXPECT_EQ(*read_file(path), "hello");
  EXPECT_FALSE(read_file(path, 4).ok());
  Result<MappedFile> mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->bytes().size(), 5u);
  EXPECT_EQ(read_file(path + ".none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open("/").error().code, ErrorCode::kIo);
  ::remove(path.c_str());
}

TEST(Machine, TellsWhatMayBeUsed) {
  EXPECT_GE(usable_cpus().size(), 1u);
  EXPECT_GT(memory_limit_bytes(), int64_t{1} << 20);
  EXPECT_GT(peak_rss_bytes(), int64_t{1} << 20);
  const std::optional<int64_t> available = available_memory_bytes();
  ASSERT_TRUE(available);  // Linux 3.14
  EXPECT_GT(*available, int64_t{1} << 20);
  EXPECT_LT(*available, ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
}

TEST(Machine, TheLimitOfLocksIsRaisedAsFarAsItGoes) {
  const int64_t limit = raise_lock_limit();
  rlimit now{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &now), 0);
  EXPECT_TRUE(limit == INT64_MAX || static_cast<rlim_t>(limit) == now.rlim_max);
  // As far as it says, the system agrees.
  const int64_t bytes = std::min<int64_t>(limit, int64_t{16} << 20);
  if (bytes < 1 << 16) GTEST_SKIP() << "only " << limit << " bytes may be locked here";
  std::vector<char> some(static_cast<size_t>(bytes) / 2);
  EXPECT_EQ(::mlock(some.data(), some.size()), 0);
  EXPECT_EQ(::munlock(some.data(), some.size()), 0);
}

// The kernel is asked what it took over.
TEST(Machine, AThreadMayAskForShortTurns) {
  utsname kernel{};
  ASSERT_EQ(::uname(&kernel), 0);
  int major = 0;
  int minor = 0;
  ASSERT_EQ(std::sscanf(kernel.release, "%d.%d", &major, &minor), 2);
  if (std::pair(major, minor) < std::pair(6, 12)) GTEST_SKIP() << "Linux " << kernel.release;
  bool asked = false;
  std::thread([&] { asked = ask_for_short_turns(); }).join();
  EXPECT_TRUE(asked);
}

TEST(Clock, VirtualClockMovesByHand) {
  VirtualClock clock(1'000);
  clock.advance_ns(5'000'000);
  EXPECT_EQ(clock.now_ns(), 5'000'000);
  EXPECT_EQ(clock.unix_ms(), 1'005);
}

TEST(Random, IsAPureFunctionAndLooksUniform) {
  EXPECT_EQ(random_bits(1, 2), random_bits(1, 2));
  EXPECT_NE(random_bits(1, 2), random_bits(2, 1));
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) sum += random_unit(7, i);
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace pelton::base
