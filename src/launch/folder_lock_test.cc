// Real processes: a child that has the folder, and this one that takes it.
#include "launch/folder_lock.h"

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

namespace pelton::launch {
namespace {

using testing::HasSubstr;

class FolderLockTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = testing::TempDir() + "folder_lock_XXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  Result<std::unique_ptr<FolderLock>> take(uint64_t epoch, const std::string& lead = "main") {
    return FolderLock::take({.folder = folder_, .epoch = epoch, .lead = lead, .grace = grace_},
                            log_);
  }
  // A process that has the folder and does not end by itself; `stops`: it is stopped, as by
  // SIGSTOP.
  void held_by_another(uint64_t epoch, bool stops) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      const auto lock = take(epoch);
      const char said = lock.ok() ? 'y' : 'n';
      if (::write(ready[1], &said, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char said = 0;
    ASSERT_EQ(::read(ready[0], &said, 1), 1);
    ASSERT_EQ(said, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
    if (!stops) return;
    ::kill(child_, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(child_, &status, WUNTRACED), child_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  bool child_lives() const { return ::waitpid(child_, nullptr, WNOHANG) == 0; }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kError}};
  std::string folder_;
  std::chrono::milliseconds grace_{20};
  pid_t child_ = -1;
};

TEST_F(FolderLockTest, ANewerLeadTakesItFromOneThatIsStopped) {
  held_by_another(5, true);
  const auto lock = take(6);
  ASSERT_TRUE(lock.ok()) << lock.error().message;
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  child_ = -1;
}

TEST_F(FolderLockTest, AnotherLeadsEpochsAreNotCompared) {
  held_by_another(5, true);
  const auto lock = take(6, "other");
  ASSERT_FALSE(lock.ok());
  EXPECT_EQ(lock.error().code, ErrorCode::kAddressInUse);
  EXPECT_TRUE(child_lives());
}

TEST_F(FolderLockTest, AFileThatOthersMayHaveWrittenIsNotBelieved) {
  ASSERT_TRUE(take(5).ok());
  const std::string name = folder_ + "/lock";
  ASSERT_EQ(::chmod(name.c_str(), 0622), 0);
  EXPECT_EQ(take(6).error().code, ErrorCode::kIo);
  ASSERT_EQ(::unlink(name.c_str()), 0);
  const std::string other = folder_ + "/other";
  ASSERT_TRUE(base::write_file(other, "kept").ok());
  ASSERT_EQ(::symlink(other.c_str(), name.c_str()), 0);
  EXPECT_EQ(take(6).error().code, ErrorCode::kIo);
  EXPECT_EQ(*base::read_file(other), "kept");
}

TEST_F(FolderLockTest, OneThatEndsByItselfIsWaitedFor) {
  held_by_another(5, false);
  grace_ = std::chrono::seconds(10);
  const pid_t ender = ::fork();
  if (ender == 0) {
    ::usleep(600'000);
    ::kill(child_, SIGTERM);
    ::_exit(0);
  }
  const auto lock = take(6);
  ASSERT_TRUE(lock.ok()) << lock.error().message;
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  ::waitpid(ender, nullptr, 0);
  child_ = -1;
}

TEST_F(FolderLockTest, NobodyElseTakesAnything) {
  held_by_another(5, true);
  for (const uint64_t epoch : {0, 4, 5}) {
    const auto lock = take(epoch);
    ASSERT_FALSE(lock.ok()) << epoch;
    EXPECT_EQ(lock.error().code, ErrorCode::kAddressInUse);
    EXPECT_THAT(lock.error().message, HasSubstr("another process starts replicas from"));
    EXPECT_TRUE(child_lives());
  }
}

TEST_F(FolderLockTest, OneWithoutALeadIsLeftAlone) {
  held_by_another(0, true);
  EXPECT_FALSE(take(6).ok());
  EXPECT_TRUE(child_lives());
}

// A number that another process has got, another machine's or another container's is no former
// leader: nothing is killed by it.
TEST_F(FolderLockTest, ARecordOfSomebodyElseKillsNobody) {
  held_by_another(5, true);
  const std::string file = folder_ + "/lock";
  const Result<std::string> record = base::read_file(file);
  ASSERT_TRUE(record.ok());
  const size_t start = record->find(' ', record->find(' ') + 1);
  for (const std::string& text :
       {std::string(), std::string("5\n"), record->substr(0, record->size() - 1),
        record->substr(0, start) + " 1 pid:[1] 0\n", "5 1" + record->substr(start)}) {
    ASSERT_EQ(::truncate(file.c_str(), 0), 0);
    std::FILE* out = std::fopen(file.c_str(), "r+");
    ASSERT_NE(out, nullptr);
    std::fwrite(text.data(), 1, text.size(), out);
    std::fclose(out);
    EXPECT_FALSE(take(6).ok()) << text;
    EXPECT_TRUE(child_lives()) << text;
  }
}

TEST_F(FolderLockTest, WhoGivesItUpIsNamedNoLonger) {
  {
    const auto lock = take(5);
    ASSERT_TRUE(lock.ok());
    EXPECT_THAT(*base::read_file(folder_ + "/lock"), HasSubstr("5 "));
  }
  EXPECT_EQ(*base::read_file(folder_ + "/lock"), "");
  EXPECT_TRUE(take(5).ok());
}

}  // namespace
}  // namespace pelton::launch
