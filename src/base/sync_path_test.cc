#include "base/sync_path.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::base {
namespace {

TEST(SyncPath, TakesFilesAndFolders) {
  const std::string folder = ::testing::TempDir();
  const std::string file = folder + "/sync_path_test";
  ASSERT_TRUE(write_file(file, "x").ok());
  EXPECT_TRUE(sync_path(file).ok());
  EXPECT_TRUE(sync_path(folder).ok());
}

TEST(SyncPath, TakesANameInItsFolder) {
  EXPECT_TRUE(sync_name(::testing::TempDir() + "/sync_path_test").ok());
  EXPECT_TRUE(sync_name("sync_path_test").ok()) << "where the process stands";
  EXPECT_FALSE(sync_name("/nowhere/at-all").ok());
}

TEST(SyncPath, NamesWhatItDoesNotFind) {
  const Result<void> done = sync_path("/nowhere/at-all");
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kIo);
  EXPECT_NE(done.error().message.find("/nowhere/at-all: cannot sync"), std::string::npos);
}

}  // namespace
}  // namespace pelton::base
