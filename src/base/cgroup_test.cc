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

// Files may be dropped from the cache, memory that is locked or of a process may not.
TEST_F(Cgroup, WhatIsLeftCountsCachedFiles) {
  EXPECT_EQ(cgroup_memory_available(files_), std::nullopt);
  put("self", "0::/pod/box\n");
  put("fs/pod/box/memory.max", "max\n");
  put("fs/pod/box/memory.current", "6000\n");
  EXPECT_EQ(cgroup_memory_available(files_), std::nullopt);
  put("fs/pod/memory.max", "10000\n");
  put("fs/pod/memory.current", "9000\n");
  EXPECT_EQ(cgroup_memory_available(files_), 1000);
  put("fs/pod/memory.stat", "anon 3000\nfile 5000\ninactive_file 1500\nactive_file 500\nmore\n\n");
  EXPECT_EQ(cgroup_memory_available(files_), 3000);
  put("fs/pod/memory.stat", "inactive_file 99999999\n");
  EXPECT_EQ(cgroup_memory_available(files_), 10000) << "more than there is";
  put("fs/pod/memory.current", "12000\n");  // lowered below what is used
  put("fs/pod/memory.stat", "inactive_file nonsense\n");
  EXPECT_EQ(cgroup_memory_available(files_), 0);

  put("self", "4:memory:/box\n");
  put("fs/memory/box/memory.limit_in_bytes", "5000\n");
  put("fs/memory/box/memory.usage_in_bytes", "4000\n");
  put("fs/memory/box/memory.stat",
      "inactive_file 7\ntotal_inactive_file 30\ntotal_active_file 40\n");
  EXPECT_EQ(cgroup_memory_available(files_), 1070);
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
