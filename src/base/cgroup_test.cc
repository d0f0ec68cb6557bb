#include "base/cgroup.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::base {
namespace {

class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "cgroup_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    files_ = {.of_process = root_ + "/self", .root = root_ + "/fs"};
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    ASSERT_TRUE(write_file(path.string(), text).ok());
  }

  std::string root_;
  CgroupFiles files_;
};

TEST_F(Cgroup, Version2TheSmallestOnTheWayUpCounts) {
  put("self", "0::/kube/pod/box\n");
  put("fs/kube/pod/box/memory.max", "max\n");
  put("fs/kube/pod/memory.max", "4294967296\n");
  put("fs/kube/memory.max", "8589934592\n");
  put("fs/kube/pod/box/cpu.max", "max 100000\n");
  put("fs/kube/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_memory_limit(files_), 4294967296);
  EXPECT_EQ(cgroup_cpu_quota(files_), 1.5);
}

TEST_F(Cgroup, Version1HasAFolderForEachController) {
  put("self", "5:cpu,cpuacct:/box\n4:memory:/api/box\n3:pids:/\n0::/\n");
  put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("fs/memory/api/box/memory.limit_in_bytes", "1073741824\n");
  put("fs/cpu,cpuacct/box/cpu.cfs_quota_us", "200000\n");
  put("fs/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_memory_limit(files_), 1073741824);
  EXPECT_EQ(cgroup_cpu_quota(files_), 2.0);
}

TEST_F(Cgroup, InAContainerTheRootIsItsOwn) {
  put("self", "4:memory:/docker/0123\n");  // the host's path, not to be seen in here
  put("fs/memory/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(cgroup_memory_limit(files_), 2147483648);
  put("self", "0::/../../elsewhere\n");
  put("elsewhere/memory.max", "1\n");
  put("fs/memory.max", "3221225472\n");
  EXPECT_EQ(cgroup_memory_limit(files_), 3221225472);
}

TEST_F(Cgroup, NoLimitAndNonsenseAreNone) {
  EXPECT_EQ(cgroup_memory_limit(files_), std::nullopt);  // no files at all
  EXPECT_EQ(cgroup_cpu_quota(files_), std::nullopt);
  put("self", "nonsense\n:\n::\n0::relative\n4:memory:/a\n9:cpu:/a\n");
  for (const char* text : {"", "max", "-1", "0", "12monkeys", "99999999999999999999999", "\n"}) {
    put("fs/memory.max", text);
    put("fs/memory/a/memory.limit_in_bytes", text);
    put("fs/cpu.max", text);
    put("fs/cpu/a/cpu.cfs_quota_us", text);
    put("fs/cpu/a/cpu.cfs_period_us", "100000");
    EXPECT_EQ(cgroup_memory_limit(files_), std::nullopt) << text;
    EXPECT_EQ(cgroup_cpu_quota(files_), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace pelton::base
