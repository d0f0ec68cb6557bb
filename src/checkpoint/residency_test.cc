#include "checkpoint/residency.h"

#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread_pool.h"
#include "checkpoint/golden_checkpoint.h"
#include "checkpoint/synthetic.h"

namespace pelton::checkpoint {
namespace {

class Residency : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "pelton_residency_" + std::to_string(::getpid());
    ASSERT_TRUE(write_golden_checkpoint(GoldenCase::kMid, folder_).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static bool all_mapped_in_memory(const Checkpoint& checkpoint) {
    for (const base::MappedFile& file : checkpoint.files()) {
      const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
      std::vector<unsigned char> pages((file.bytes().size() + page - 1) / page);
      if (::mincore(const_cast<uint8_t*>(file.bytes().data()), file.bytes().size(), pages.data()) !=
          0) {
        return false;
      }
      for (const unsigned char in_memory : pages) {
        if ((in_memory & 1) == 0) return false;
      }
    }
    return true;
  }

  std::string folder_;
};

TEST_F(Residency, EverythingIsReadAndToldSo) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  int64_t last = 0;
  const auto progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    return true;
  };
  ASSERT_TRUE(read_weights(*checkpoint, LoadMode::kMap, progress).ok());
  EXPECT_TRUE(all_mapped_in_memory(*checkpoint));
}

// Whatever the mode, tensors are where they were and hold what they held.
TEST_F(Residency, AllModesGiveTheSameBytes) {
  const auto go_on = [](int64_t, int64_t) { return true; };
  for (const LoadMode mode : {LoadMode::kMap, LoadMode::kRead, LoadMode::kLock}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
    ASSERT_TRUE(checkpoint.ok());
    const std::span<const uint8_t> bytes = checkpoint->files()[0].bytes();
    const std::string before(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const Result<void> read = read_weights(*checkpoint, mode, go_on);
    if (mode == LoadMode::kLock && !read.ok()) {  // where `ulimit -l` is low
      EXPECT_EQ(read.error().code, ErrorCode::kDoesNotFit) << read.error().message;
      continue;
    }
    ASSERT_TRUE(read.ok()) << read.error().message;
    if (mode == LoadMode::kRead) {  // of our own: what becomes of the file is all the same now
      std::filesystem::resize_file(folder_ + "/model.safetensors", 4096);
    }
    EXPECT_EQ(std::memcmp(before.data(), bytes.data(), bytes.size()), 0);
    ASSERT_TRUE(write_golden_checkpoint(GoldenCase::kMid, folder_).ok());
  }
}

// Several readers move their pieces into place side by side, and none may touch another's: the
// first version unmapped what it had moved away, and with it at times what another had mapped
// there.
TEST_F(Residency, PiecesThatAreReadSideBySideStayApart) {
  const std::string large = folder_ + "_large";
  std::filesystem::remove_all(large);
  base::ThreadPool pool({.threads = 2, .pin = false});
  ASSERT_TRUE(write_synthetic(synthetic_tiny(400'000), large, pool, [](int64_t, int64_t) {}).ok());
  const auto go_on = [](int64_t, int64_t) { return true; };
  for (int turn = 0; turn < 5; ++turn) {
    const Result<Checkpoint> mapped = Checkpoint::open(large);
    const Result<Checkpoint> read = Checkpoint::open(large);
    ASSERT_TRUE(mapped.ok() && read.ok());
    ASSERT_GT(read->weight_bytes(), int64_t{100} << 20) << "else there are few pieces";
    const Result<void> done = read_weights(*read, LoadMode::kRead, go_on);
    ASSERT_TRUE(done.ok()) << done.error().message;
    for (size_t i = 0; i < read->files().size(); ++i) {
      const std::span<const uint8_t> want = mapped->files()[i].bytes();
      ASSERT_EQ(std::memcmp(want.data(), read->files()[i].bytes().data(), want.size()), 0);
    }
  }
  std::filesystem::remove_all(large);
}

TEST_F(Residency, CanBeInterrupted) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  const auto stop = [](int64_t, int64_t) { return false; };
  const Result<void> read = read_weights(*checkpoint, LoadMode::kMap, stop);
  // All may have been read before the first look.
  if (!read.ok()) {
    EXPECT_EQ(read.error().code, ErrorCode::kCancelled);
  }
}

TEST_F(Residency, AFileCutShortIsAnErrorThatNamesIt) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(folder_ + "/model.safetensors", 1 << 20);
  const auto go_on = [](int64_t, int64_t) { return true; };
  const Result<void> read = read_weights(*checkpoint, LoadMode::kMap, go_on);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_NE(read.error().message.find("model.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace pelton::checkpoint
