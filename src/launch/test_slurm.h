// For tests: small programs in place of Slurm's. sbatch runs its script at once, squeue looks
// whether it lives, scancel kills it. A folder for tests besides.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"

namespace pelton::launch {

class TestFolder {
 public:
  TestFolder() {
    std::string made = testing::TempDir() + "launch_XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    path_ = made;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  int lines(const std::string& name) const {
    const auto text = base::read_file(file(name));
    return text.ok() ? static_cast<int>(std::count(text->begin(), text->end(), '\n')) : 0;
  }

 private:
  std::string path_;
};

class TestSlurm {
 public:
  TestSlurm() {
    std::filesystem::create_directories(folder_.file("bin"));
    std::filesystem::create_directories(folder_.file("jobs"));
    ::setenv("TEST_JOBS", folder_.file("jobs").c_str(), 1);
    program("sbatch", R"sh(
mkdir "$TEST_JOBS/lock" || exit 1
id=$(($(ls "$TEST_JOBS" | grep -c 'comment$') + 1))
for word; do
  case $word in
    --comment=*) printf '%s' "${word#--comment=}" > "$TEST_JOBS/$id.comment" ;;
    --output=*) out=${word#--output=} ;;
    --error=*) err=${word#--error=} ;;
  esac
done
rmdir "$TEST_JOBS/lock"
cat > "$TEST_JOBS/$id.sh"
[ -e "$TEST_JOBS/held" ] || setsid sh -c 'echo $$ > "$2.pid"; sh "$2.sh"; echo $? > "$2.code"' run x "$TEST_JOBS/$id" \
  > "$out" 2> "$err" < /dev/null &
[ -e "$TEST_JOBS/held" ] || until [ -e "$TEST_JOBS/$id.pid" ]; do sleep 0.01; done
[ -e "$TEST_JOBS/lost" ] && exit 1
echo "$id")sh");
    program("squeue", R"sh(
[ -e "$TEST_JOBS/down" ] && { echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }
[ -e "$TEST_JOBS/hangs" ] && sleep 60
[ -e "$TEST_JOBS/endless" ] && exec yes '1|RUNNING|1|x|y'
echo '999|RUNNING|UNLIMITED|None|somebody else'
[ -e "$TEST_JOBS/vanished" ] && exit 0
for file in "$TEST_JOBS"/*.comment; do
  [ -e "$file" ] || continue
  job=${file%.comment}
  state=PENDING
  [ -e "$job.pid" ] && { kill -0 -"$(cat "$job.pid")" 2>/dev/null && state=RUNNING || state=CANCELLED; }
  [ -e "$job.code" ] && { [ "$(cat "$job.code")" = 0 ] && state=COMPLETED || state=FAILED; }
  [ -e "$job.cancelled" ] && state=CANCELLED
  [ -e "$job.state" ] && state=$(cat "$job.state")
  left=UNLIMITED
  [ -e "$job.left" ] && left=$(cat "$job.left")
  echo "${job##*/}|$state|$left|None|$(cat "$file")"
done)sh");
    program("scancel", R"sh(
signal=KILL
for word; do
  case $word in
    --signal=*) signal=${word#--signal=} ;;
    --batch) ;;
    *) id=$word ;;
  esac
done
echo "$signal $id" >> "$TEST_JOBS/cancels"
[ $signal = KILL ] && touch "$TEST_JOBS/$id.cancelled"
[ -e "$TEST_JOBS/$id.pid" ] && kill -$signal -"$(cat "$TEST_JOBS/$id.pid")" 2>/dev/null
exit 0)sh");
    program("scontrol", R"sh(
for word; do id=$word; done
echo "JobId=$id JobName=x JobState=FAILED ExitCode=$(cat "$TEST_JOBS/$id.code"):0 Requeue=1")sh");
    path_before_ = std::getenv("PATH");
    ::setenv("PATH", (folder_.file("bin") + ":" + path_before_).c_str(), 1);
  }
  ~TestSlurm() {
    kill_all();
    ::setenv("PATH", path_before_.c_str(), 1);
  }
  TestSlurm(const TestSlurm&) = delete;
  TestSlurm& operator=(const TestSlurm&) = delete;

  // A file that the programs look at: "held" (jobs wait), "lost" (sbatch's answer), "down",
  // "hangs", "endless", "vanished"; "ID.state", "ID.left".
  void set(const std::string& name, const std::string& text = "") {
    EXPECT_TRUE(base::write_file(folder_.file("jobs/" + name), text).ok());
  }
  void clear(const std::string& name) { std::filesystem::remove(folder_.file("jobs/" + name)); }
  std::string cancels() const {
    const auto text = base::read_file(folder_.file("jobs/cancels"));
    return text.ok() ? *text : "";
  }
  int submitted() const {
    int count = 0;
    for (const auto& one : std::filesystem::directory_iterator(folder_.file("jobs"))) {
      count += one.path().extension() == ".comment" ? 1 : 0;
    }
    return count;
  }
  void kill_all() const {
    for (const auto& one : std::filesystem::directory_iterator(folder_.file("jobs"))) {
      if (one.path().extension() != ".pid") continue;
      const auto text = base::read_file(one.path().string());
      const int pid = text.ok() ? std::atoi(text->c_str()) : 0;
      if (pid > 1) ::kill(-pid, SIGKILL);
    }
  }

 private:
  void program(const std::string& name, const std::string& text) const {
    const std::string file = folder_.file("bin/" + name);
    EXPECT_TRUE(base::write_file(file, "#!/bin/sh" + text + "\n").ok());
    ::chmod(file.c_str(), 0755);
  }

  TestFolder folder_;
  std::string path_before_;
};

}  // namespace pelton::launch
