#include "base/line_file.h"

#include <csignal>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"

namespace pelton::base {
namespace {

// Of a disk with room for 100 bytes each line is there or not.
TEST(LineFile, E4_AFullDiskHasWholeLinesOnly) {
  const std::string name = testing::TempDir() + "line_file_full";
  const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  void (*const handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  LineFile lines(file);
  const std::string line = std::string(29, 'x') + "\n";
  const LineFile::Written two = lines.write(line + line);
  const LineFile::Written one_of_three = lines.write(line + line + line);
  const LineFile::Written none = lines.write(line);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(two.lost, 0);
  EXPECT_EQ(one_of_three.lost, 2);
  EXPECT_EQ(none.lost, 1);
  EXPECT_EQ(none.why(), "File too large");
  EXPECT_EQ(*read_file(name, 1000), line + line + line);
  EXPECT_EQ(lines.write(line).lost, 0) << "there is room again";
  EXPECT_EQ(*read_file(name, 1000), line + line + line + line);
  ::close(file);
  ::unlink(name.c_str());
}

// What a pipe has taken cannot be taken back: the line goes on where it was cut.
TEST(LineFile, E4_APipeGetsTheRestOfALineFirst) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const int room = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  ASSERT_GT(room, 0);
  LineFile lines(ends[1]);
  const std::string first = std::string(static_cast<size_t>(room) - 1, 'a') + "\n";
  ASSERT_EQ(lines.write(first.substr(0, 9) + "\n").lost, 0);
  const LineFile::Written cut = lines.write(first + "lost\n");
  EXPECT_EQ(cut.lost, 1);
  EXPECT_EQ(lines.write("lost too\n").lost, 1);
  std::string got(static_cast<size_t>(room) * 3, '\0');
  const auto take = [&] {
    const ssize_t bytes = ::read(ends[0], got.data(), got.size());
    return got.substr(0, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  };
  std::string all = take();
  EXPECT_EQ(lines.write("last\n").lost, 0);
  all += take();
  EXPECT_EQ(all, first.substr(0, 9) + "\n" + first + "last\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace pelton::base
