#include "base/output_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pelton::base {
namespace {

class OutputFiles : public testing::Test {
 protected:
  OutputFiles() {
    char name[] = "/tmp/pelton_output_file.XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~OutputFiles() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string text(const std::string& name) const {
    std::stringstream all;
    all << std::ifstream(path(name)).rdbuf();
    return all.str();
  }
  static void say(const OutputFile& file, const char* words) {
    std::fputs(words, file.get());
    std::fflush(file.get());
  }

  std::string folder_;
};

TEST_F(OutputFiles, D10_PipeThatNobodyReadsIsAnErrorAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const Result<OutputFile> nobody = open_output(path("pipe"), OutputMode::kAppend);
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, ErrorCode::kIo);
  EXPECT_THAT(nobody.error().message, testing::HasSubstr("a pipe that nobody reads"));
  // With a reader it is a file like others, whose writes wait for room again.
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  const Result<OutputFile> read = open_output(path("pipe"), OutputMode::kAppend);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(::fcntl(::fileno(read->get()), F_GETFL) & O_NONBLOCK, 0);
  say(*read, "x");
  char byte = 0;
  EXPECT_EQ(::read(reader, &byte, 1), 1);
  ::close(reader);
  EXPECT_FALSE(open_output(path("no/such/folder"), OutputMode::kReplace).ok());
}

TEST_F(OutputFiles, E7_OpenedAgainWhereItWasMovedAway) {
  const Result<OutputFile> file = open_output(path("log"), OutputMode::kAppend);
  ASSERT_TRUE(file.ok());
  say(*file, "one\n");
  std::filesystem::rename(path("log"), path("log.1"));
  say(*file, "two\n");
  ASSERT_TRUE(reopen_output(file->get(), path("log")).ok());
  say(*file, "three\n");
  EXPECT_EQ(text("log.1"), "one\ntwo\n");
  EXPECT_EQ(text("log"), "three\n");
  EXPECT_FALSE(reopen_output(file->get(), path("no/such/log")).ok());
  say(*file, "four\n");
  EXPECT_EQ(text("log"), "three\nfour\n");
  EXPECT_EQ(*open_output(path("log"), OutputMode::kReplace) != nullptr, true);
  EXPECT_EQ(text("log"), "");
}

}  // namespace
}  // namespace pelton::base
