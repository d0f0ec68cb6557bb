#include "checkpoint/residency.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "checkpoint/golden_checkpoint.h"
#include "checkpoint/huge_pages.h"
#include "checkpoint/synthetic.h"
#include "checkpoint/weight_pieces.h"

namespace pelton::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr auto kGoOn = [](int64_t, int64_t) { return true; };

// VmLck of this process.
int64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

// Whether this process may lock nothing from now on, root or not.
bool give_up_locking() {
  const rlimit nothing = {.rlim_cur = 0, .rlim_max = 0};
  if (::setrlimit(RLIMIT_MEMLOCK, &nothing) != 0) return false;
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, data) == 0;
}

// What `work` says in a process of its own.
std::string in_a_child(base::FunctionRef<std::string()> work) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = work();
    const ssize_t put = ::write(ends[1], said.data(), said.size());
    ::_exit(put == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  const ssize_t got = child > 0 ? ::read(ends[0], said.data(), said.size()) : 0;
  said.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? said : "the child ended badly: " + said;
}

WeightPieces movable_pieces(const Checkpoint& checkpoint) {
  return movable_weight_pieces(checkpoint, weight_pieces(checkpoint));
}

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

  static Result<LoadChoice> load(const Checkpoint& checkpoint, LoadMode asked) {
    TRY_ASSIGN(const LoadChoice choice,
               choose_load_mode(asked, load_facts(mapped_bytes(weight_pieces(checkpoint)), 0)));
    return read_weights(weight_pieces(checkpoint), choice, kGoOn);
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
  ASSERT_TRUE(read_weights(weight_pieces(*checkpoint), {.mode = LoadMode::kMap}, progress).ok());
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
    const Result<LoadChoice> read = read_weights(weight_pieces(*checkpoint), {.mode = mode}, go_on);
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
    const Result<LoadChoice> done =
        read_weights(weight_pieces(*read), {.mode = LoadMode::kRead}, go_on);
    ASSERT_TRUE(done.ok()) << done.error().message;
    for (size_t i = 0; i < read->files().size(); ++i) {
      const std::span<const uint8_t> want = mapped->files()[i].bytes();
      ASSERT_EQ(std::memcmp(want.data(), read->files()[i].bytes().data(), want.size()), 0);
    }
  }
  std::filesystem::remove_all(large);
}

// By the kernel's own account. The test's process locks nothing else.
TEST_F(Residency, ALockIsTakenAndGoesWithTheCheckpoint) {
  const int64_t before = locked_bytes();
  {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
    ASSERT_TRUE(checkpoint.ok());
    const LoadFacts facts = load_facts(mapped_bytes(weight_pieces(*checkpoint)), 0);
    if (facts.lock_limit_bytes < facts.weight_bytes) {
      GTEST_SKIP() << "only " << facts.lock_limit_bytes << " bytes may be locked here";
    }
    for (const LoadMode asked : {LoadMode::kMap, LoadMode::kRead}) {
      const Result<Checkpoint> other = Checkpoint::open(folder_);
      ASSERT_TRUE(other.ok() && load(*other, asked).ok());
      EXPECT_EQ(locked_bytes(), before) << load_mode_name(asked);
    }
    const Result<LoadChoice> taken = load(*checkpoint, LoadMode::kAuto);
    ASSERT_TRUE(taken.ok()) << taken.error().message;
    EXPECT_EQ(taken->mode, LoadMode::kLock) << taken->reason;
    EXPECT_TRUE(all_mapped_in_memory(*checkpoint));
    EXPECT_GE(locked_bytes() - before, facts.weight_bytes);
    // What is asked for is not what is locked: reclaim refuses the pages too.
    const std::span<const uint8_t> bytes = checkpoint->files()[0].bytes();
    EXPECT_NE(::madvise(const_cast<uint8_t*>(bytes.data()), bytes.size(), MADV_PAGEOUT), 0);
    EXPECT_TRUE(all_mapped_in_memory(*checkpoint));
  }
  EXPECT_EQ(locked_bytes(), before);
}

TEST_F(Residency, AWishForALockIsGivenUpWhereMemoryIsShort) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  if (load_facts(0, 0).lock_limit_bytes < mapped_bytes(weight_pieces(*checkpoint))) {
    GTEST_SKIP() << "so much may not be locked here";
  }
  const int64_t before = locked_bytes();
  const LoadChoice asked = {.mode = LoadMode::kLock, .keep_available = INT64_MAX};
  const Result<LoadChoice> taken = read_weights(weight_pieces(*checkpoint), asked, kGoOn);
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  EXPECT_EQ(taken->mode, LoadMode::kMap);
  EXPECT_THAT(taken->reason, HasSubstr("the system has"));
  EXPECT_EQ(locked_bytes(), before);
  EXPECT_TRUE(all_mapped_in_memory(*checkpoint)) << "read all the same";
}

// In a child that may lock nothing: no limit, no right.
TEST_F(Residency, WhereNothingMayBeLockedAutoMapsAndLockFails) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(in_a_child([&] {
              if (!give_up_locking()) return std::string("cannot give up the right");
              const Result<LoadChoice> taken = load(*checkpoint, LoadMode::kAuto);
              if (!taken.ok()) return "auto: " + taken.error().message;
              if (taken->mode != LoadMode::kMap) return std::string("auto locked");
              if (taken->reason.find("ulimit -l") == std::string::npos) return taken->reason;
              // The same where only the system knows.
              const LoadChoice preferred = {.mode = LoadMode::kLock, .keep_available = 0};
              const Result<LoadChoice> refused =
                  read_weights(weight_pieces(*checkpoint), preferred, kGoOn);
              if (!refused.ok()) return "a preference: " + refused.error().message;
              if (refused->mode != LoadMode::kMap) return std::string("a preference locked");
              if (refused->reason.find("ulimit -l") == std::string::npos) return refused->reason;
              if (locked_bytes() != 0) return std::string("something is locked");
              const Result<LoadChoice> asked = load(*checkpoint, LoadMode::kLock);
              if (asked.ok()) return std::string("lock was granted");
              if (asked.error().code != ErrorCode::kDoesNotFit) return asked.error().message;
              return std::string("as it should be");
            }),
            "as it should be");
}

// How much of `bytes` is memory of the process's own, by /proc/self/smaps.
int64_t own_bytes(std::span<const uint8_t> bytes) {
  std::ifstream maps("/proc/self/smaps");
  int64_t own = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto first = reinterpret_cast<uintptr_t>(bytes.data());
      inside = begin < first + bytes.size() && first < end;
    }
    if (inside && line.starts_with("Anonymous:")) own += std::stoll(line.substr(10)) * 1024;
  }
  return own;
}

// While somebody reads, as a step does, pieces move to memory of our own and back.
TEST_F(Residency, WeightsMoveToOwnMemoryAndBackUnderTheirReaders) {
  const std::string large = folder_ + "_pieces";
  std::filesystem::remove_all(large);
  base::ThreadPool pool({.threads = 2, .pin = false});
  ASSERT_TRUE(write_synthetic(synthetic_tiny(400'000), large, pool, [](int64_t, int64_t) {}).ok());
  {
    const Result<Checkpoint> checkpoint = Checkpoint::open(large);
    ASSERT_TRUE(checkpoint.ok());
    const std::span<const uint8_t> bytes = checkpoint->files()[0].bytes();
    const std::vector<uint8_t> before(bytes.begin(), bytes.end());
    HugePages pages(*checkpoint, weight_pieces(*checkpoint));
    if (pages.done()) {
      std::filesystem::remove_all(large);
      GTEST_SKIP() << large << " lies in memory";
    }
    ASSERT_GT(movable_pieces(*checkpoint).size(), 2u);
    std::atomic<bool> over{false};
    std::atomic<int> differences{0};
    std::thread reader([&] {
      while (!over) {
        if (std::memcmp(before.data(), bytes.data(), bytes.size()) != 0) ++differences;
      }
    });
    // What the path leads to by now is all the same.
    std::filesystem::rename(large + "/model.safetensors", large + "/other");
    std::ofstream(large + "/model.safetensors") << "something else";
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_TRUE(pages.move(1).ok());
      EXPECT_FALSE(pages.done());
      EXPECT_EQ(own_bytes(bytes), pages.moved_bytes());
      ASSERT_TRUE(pages.move(std::numeric_limits<int64_t>::max()).ok());
      EXPECT_TRUE(pages.done());
      EXPECT_GE(own_bytes(bytes), static_cast<int64_t>(bytes.size()));
      pages.give_back();
      EXPECT_EQ(own_bytes(bytes), 0);
      EXPECT_FALSE(pages.done());
    }
    over = true;
    reader.join();
    EXPECT_EQ(differences, 0);
  }
  std::filesystem::remove_all(large);
}

// Pages of the files that this process has mapped in memory, by /proc/self/smaps.
int64_t resident_bytes(const Checkpoint& checkpoint) {
  std::ifstream maps("/proc/self/smaps");
  int64_t resident = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = std::ranges::any_of(checkpoint.files(), [&](const base::MappedFile& file) {
        const auto first = reinterpret_cast<uintptr_t>(file.bytes().data());
        return begin < first + file.bytes().size() && first < end;
      });
    }
    if (inside && line.starts_with("Rss:")) resident += std::stoll(line.substr(4)) * 1024;
  }
  return resident;
}

// The first half of each large tensor, and the last 10 bytes of each: as of one of several ranks.
WeightRanges some_of(const Checkpoint& checkpoint) {
  WeightRanges some;
  for (const auto& [name, view] : checkpoint.tensors()) {
    const size_t size = view.bytes.size();
    if (size < 10'000) continue;
    some.push_back({name, static_cast<int64_t>(size) - 10, view.bytes.last(10)});
    some.push_back({name, 0, view.bytes.first(size / 2)});
  }
  return some;
}

TEST_F(Residency, PiecesOfRangesAreTheirPagesEachOnce) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  const WeightRanges some = some_of(*checkpoint);
  const WeightPieces pieces = weight_pieces(*checkpoint, some);
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  ASSERT_GT(some.size(), 2u);
  EXPECT_GE(mapped_bytes(pieces), range_bytes(some));
  EXPECT_LE(mapped_bytes(pieces), range_bytes(some) + 2 * page * std::ssize(some));
  EXPECT_LT(mapped_bytes(pieces), mapped_bytes(weight_pieces(*checkpoint)));
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].begin % page, 0);
    if (i == 0 || pieces[i].file != pieces[i - 1].file) continue;
    EXPECT_GE(pieces[i].begin, pieces[i - 1].begin + pieces[i - 1].bytes);
  }
  for (const WeightRange& range : some) {
    for (const uint8_t* const byte : {&range.bytes.front(), &range.bytes.back()}) {
      EXPECT_EQ(std::ranges::count_if(pieces,
                                      [&](const WeightPiece& piece) {
                                        const uint8_t* const at =
                                            piece.file->bytes().data() + piece.begin;
                                        return at <= byte && byte < at + piece.bytes;
                                      }),
                1)
          << range.tensor;
    }
  }
  EXPECT_EQ(mapped_bytes(weight_pieces(*checkpoint, {})), 0);
}

TEST_F(Residency, OnlyRangesAreReadLockedAndKept) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  const WeightPieces pieces = weight_pieces(*checkpoint, some_of(*checkpoint));
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  int64_t pages = 0;
  for (const WeightPiece& piece : pieces) pages += (piece.bytes + page - 1) / page;
  // What is read at once is not said to be on its way.
  const auto progress = [&](int64_t, int64_t total) { return total == mapped_bytes(pieces); };
  ASSERT_TRUE(read_weights(pieces, {.mode = LoadMode::kMap}, progress).ok());
  EXPECT_GE(resident_bytes(*checkpoint), pages * page);
  ASSERT_TRUE(read_weights(weight_pieces(*checkpoint), {.mode = LoadMode::kMap}, kGoOn).ok());
  EXPECT_GT(resident_bytes(*checkpoint), pages * page);
  drop_other_pages(*checkpoint, pieces);
  EXPECT_LE(resident_bytes(*checkpoint), pages * page);  // a huge page goes whole
  if (load_facts(0, 0).lock_limit_bytes < mapped_bytes(pieces)) return;
  const int64_t before = locked_bytes();
  ASSERT_TRUE(lock_weights(pieces).ok());
  EXPECT_EQ(locked_bytes() - before, pages * page);
  unlock_weights(pieces);
  EXPECT_EQ(locked_bytes(), before);
}

// What lies elsewhere by now leaves holes, which are not read again.
TEST_F(Residency, OnlyWhatTensorsUseIsMoved) {
  Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  if (movable_pieces(*checkpoint).empty()) GTEST_SKIP() << folder_ << " lies in memory";
  EXPECT_EQ(movable_pieces(*checkpoint).size(), weight_pieces(*checkpoint).size());
  std::vector<std::string> names;
  for (const auto& [name, view] : checkpoint->tensors()) names.push_back(name);
  const auto memory = std::make_shared<std::vector<uint8_t>>(1);
  for (const std::string& name : names) {
    tensor::TensorView view = checkpoint->tensors().find(name)->second;
    view.bytes = *memory;
    checkpoint->replace(name, std::move(view), memory);
  }
  EXPECT_TRUE(movable_pieces(*checkpoint).empty());
  EXPECT_TRUE(HugePages(*checkpoint, weight_pieces(*checkpoint)).done());
}

// Its pages would stay beside ours.
TEST_F(Residency, WhatLiesInATmpfsIsNotMoved) {
  const std::string folder = "/dev/shm/pelton_residency_" + std::to_string(::getpid());
  if (!write_golden_checkpoint(GoldenCase::kTiny, folder).ok()) GTEST_SKIP() << "no /dev/shm";
  {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_FALSE(weight_pieces(*checkpoint).empty());
    EXPECT_TRUE(HugePages(*checkpoint, weight_pieces(*checkpoint)).done());
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Residency, CanBeInterrupted) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok());
  const auto stop = [](int64_t, int64_t) { return false; };
  const Result<LoadChoice> read =
      read_weights(weight_pieces(*checkpoint), {.mode = LoadMode::kMap}, stop);
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
  const Result<LoadChoice> read =
      read_weights(weight_pieces(*checkpoint), {.mode = LoadMode::kMap}, go_on);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_NE(read.error().message.find("model.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace pelton::checkpoint
