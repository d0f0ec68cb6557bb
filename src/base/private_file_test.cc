#include "base/private_file.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"

namespace pelton::base {
namespace {

TEST(PrivateFile, IsItsOwnersAndLeavesNothingBesideIt) {
  char name[] = "/tmp/pelton_private_XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  const std::string file = folder / "a";
  ASSERT_TRUE(write_file(file, "before").ok());
  ASSERT_TRUE(write_private_file(file, "after").ok());
  EXPECT_EQ(*read_file(file), "after");
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  // What a folder has the name of is replaced by nothing.
  std::filesystem::create_directory(folder / "b");
  EXPECT_FALSE(write_private_file(folder / "b", "text").ok());
  const std::filesystem::directory_iterator all(folder);
  EXPECT_EQ(std::distance(begin(all), end(all)), 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::base
