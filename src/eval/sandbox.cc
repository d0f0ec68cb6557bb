#include "eval/sandbox.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace pelton::eval {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kNobody = 65534;
constexpr int kReport = 3;  // descriptors of the program's process
constexpr int kFault = 4;
constexpr std::array<const char*, 3> kPythons = {"/usr/bin/python3", "/usr/local/bin/python3",
                                                 "/bin/python3"};

// What the child says of itself where it does not come to the program.
struct Fault {
  std::array<char, 24> step{};
  int error = 0;
};

// All that the child needs, made before it is: between its making and the program it may only call
// the system.
struct Child {
  const char* python = nullptr;
  const char* folder = nullptr;
  const char* folder_options = nullptr;
  std::string_view program;
  SandboxLimits limits;
  bool drops_user = false;
  int go = -1;
  int report = -1;
  int fault = -1;
};

struct Pipe {
  base::Descriptor reads;
  base::Descriptor writes;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    reads.reset(ends[0]);
    writes.reset(ends[1]);
    return true;
  }
};

Error cannot(const std::string& step, int error) {
  return {ErrorCode::kUnsupported,
          fmt::format("the sandbox that programs run in cannot be made here: {}: {}", step,
                      std::strerror(error)),
          {}};
}

[[noreturn]] void fail(const Child& child, const char* step) {
  Fault fault{.error = errno};
  std::strncpy(fault.step.data(), step, fault.step.size() - 1);
  const ssize_t said = ::write(child.fault, &fault, sizeof fault);
  ::_exit(said < 0 ? 126 : 127);
}

void bound(const Child& child, int which, int64_t most) {
  const auto value = static_cast<rlim_t>(most);
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  if (::setrlimit(static_cast<__rlimit_resource>(which), &limit) != 0) fail(child, "setrlimit");
}

// The kernel's struct mount_attr, which headers of some systems lack.
struct MountAttributes {
  uint64_t set = 0;
  uint64_t clear = 0;
  uint64_t propagation = 0;
  uint64_t user_namespace = 0;
};

void enter_folder(const Child& child) {
  constexpr uint64_t kReadOnly = 1;
  constexpr uint64_t kNoSetUid = 2;
  constexpr long kMountSetattr = 442;
  constexpr unsigned kRecursive = 0x8000;
  constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) fail(child, "mount /");
  const MountAttributes sealed{.set = kReadOnly | kNoSetUid};
  if (::syscall(kMountSetattr, AT_FDCWD, "/", kRecursive, &sealed, sizeof sealed) != 0) {
    fail(child, "mount_setattr /");
  }
  for (const char* hidden : {"/proc", "/run"}) {
    if (::mount("none", hidden, "tmpfs", kFlags | MS_RDONLY, "size=4k") != 0 && errno != ENOENT) {
      fail(child, "mount /proc and /run");
    }
  }
  if (::mount("none", child.folder, "tmpfs", kFlags, child.folder_options) != 0) {
    fail(child, "mount a folder");
  }
  if (::chdir(child.folder) != 0) fail(child, "chdir");
}

void write_program(const Child& child) {
  const int file = ::open("program.py", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) fail(child, "open program.py");
  for (size_t at = 0; at < child.program.size();) {
    const ssize_t put = ::write(file, child.program.data() + at, child.program.size() - at);
    if (put <= 0) fail(child, "write program.py");
    at += static_cast<size_t>(put);
  }
  ::close(file);
}

void keep_descriptors(const Child& child) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) fail(child, "open /dev/null");
  // Above those that are to be set, which may be any of the old ones.
  constexpr int kAbove = 16;
  const int null = ::fcntl(nothing, F_DUPFD_CLOEXEC, kAbove);
  const int report = ::fcntl(child.report, F_DUPFD_CLOEXEC, kAbove);
  const int fault = ::fcntl(child.fault, F_DUPFD_CLOEXEC, kAbove);
  for (int i = 0; i < 3; ++i) ::dup2(null, i);
  ::dup2(report, kReport);
  ::dup3(fault, kFault, O_CLOEXEC);
  if (::syscall(SYS_close_range, kFault + 1, ~0U, 0) != 0) fail(child, "close_range");
}

[[noreturn]] void be_program(Child child) {
  char go = 0;
  if (::read(child.go, &go, 1) != 1) ::_exit(126);  // whoever made it has given up
  // Not by the C library, which would have all threads of the process do the same, and wait for one
  // that was just being made when this process was cloned, and is not here.
  if (child.drops_user && ::syscall(SYS_setgroups, 0, nullptr) != 0) fail(child, "setgroups");
  if (::syscall(SYS_setresgid, kNobody, kNobody, kNobody) != 0) fail(child, "setresgid");
  if (::syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) fail(child, "setresuid");
  enter_folder(child);
  write_program(child);
  keep_descriptors(child);
  child.fault = kFault;
  bound(child, RLIMIT_CORE, 0);
  bound(child, RLIMIT_CPU, child.limits.cpu_s);
  bound(child, RLIMIT_AS, child.limits.memory_bytes);
  bound(child, RLIMIT_FSIZE, child.limits.file_bytes);
  bound(child, RLIMIT_NPROC, child.limits.processes);
  bound(child, RLIMIT_NOFILE, 64);
  ::setsid();
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(child, "no_new_privs");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(child, "pdeathsig");
  const char* const words[] = {child.python, "-I", "-B", "program.py", nullptr};
  const char* const environment[] = {"PATH=/usr/bin:/bin", "HOME=.", "LANG=C.UTF-8", nullptr};
  ::execve(child.python, const_cast<char**>(words), const_cast<char**>(environment));
  fail(child, "execve");
}

bool put(const std::string& path, const std::string& text) {
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.get() >= 0 &&
         ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Which user it is beyond its namespace; only who made it may say so.
Result<void> map_user(pid_t child, bool drops_user) {
  const std::string folder = fmt::format("/proc/{}/", child);
  if (!drops_user && !put(folder + "setgroups", "deny")) return cannot("setgroups", errno);
  const unsigned user = drops_user ? kNobody : ::geteuid();
  const unsigned group = drops_user ? kNobody : ::getegid();
  if (!put(folder + "gid_map", fmt::format("{} {} 1", kNobody, group))) {
    return cannot("gid_map", errno);
  }
  if (!put(folder + "uid_map", fmt::format("{} {} 1", kNobody, user))) {
    return cannot("uid_map", errno);
  }
  return {};
}

// Waits until it is over or its time is, and ends it in any case: as it is the first process of its
// namespace, all others of it end too.
bool outlives(pid_t child, std::chrono::milliseconds wall) {
  constexpr std::chrono::milliseconds kLook{2};
  const Clock::time_point end = Clock::now() + wall;
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (Clock::now() < end) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return true;
  }
  return false;
}

std::string drawn_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

const char* find_python() {
  for (const char* python : kPythons) {
    if (::access(python, X_OK) == 0) return python;
  }
  return nullptr;
}

// A folder that something can be mounted on.
struct MountPoint {
  std::string path = (std::filesystem::temp_directory_path() / "pelton-code-XXXXXX").string();
  bool is_made = ::mkdtemp(path.data()) != nullptr;

  MountPoint() = default;
  ~MountPoint() {
    if (is_made) ::rmdir(path.c_str());
  }
  MountPoint(const MountPoint&) = delete;
  MountPoint& operator=(const MountPoint&) = delete;
};

}  // namespace

Result<ProgramEnd> run_program(std::string_view python, const SandboxLimits& limits) {
  const MountPoint folder;
  if (!folder.is_made) return cannot(folder.path, errno);
  Pipe go;
  Pipe report;
  Pipe fault;
  if (!go.open() || !report.open() || !fault.open()) return cannot("pipe", errno);
  // Only the last line of it says this, which whoever wrote the lines before cannot know.
  const std::string word = drawn_word();
  const std::string program =
      fmt::format("{}\n__import__('os').write({}, b'{}')\n", python, kReport, word);
  const std::string options = fmt::format("size={},nr_inodes=4096,mode=0700", limits.folder_bytes);
  const Child child{.python = find_python(),
                    .folder = folder.path.c_str(),
                    .folder_options = options.c_str(),
                    .program = program,
                    .limits = limits,
                    .drops_user = ::geteuid() == 0,
                    .go = go.reads.get(),
                    .report = report.writes.get(),
                    .fault = fault.writes.get()};
  if (child.python == nullptr) return cannot(kPythons.front(), ENOENT);
  constexpr unsigned long kSpaces =
      CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  const auto made = static_cast<pid_t>(
      ::syscall(SYS_clone, kSpaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (made == 0) be_program(child);
  if (made < 0) return cannot("clone into namespaces", errno);
  const Result<void> mapped = map_user(made, child.drops_user);
  report.writes.reset();
  fault.writes.reset();
  if (mapped.ok()) {
    const ssize_t begun = ::write(go.writes.get(), "g", 1);
    if (begun != 1) ::kill(made, SIGKILL);
  } else {
    ::kill(made, SIGKILL);
  }
  const bool is_ended = outlives(made, limits.wall);
  TRY(mapped);
  Fault why;
  if (::read(fault.reads.get(), &why, sizeof why) == sizeof why) {
    why.step.back() = '\0';
    return cannot(why.step.data(), why.error);
  }
  if (is_ended) return ProgramEnd::kTimeOut;
  std::string said(word.size() + 1, '\0');
  const ssize_t got = ::read(report.reads.get(), said.data(), said.size());
  said.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return said == word ? ProgramEnd::kFinished : ProgramEnd::kFailed;
}

Result<void> check_sandbox() {
  TRY_ASSIGN(const ProgramEnd end, run_program("pass", {}));
  if (end == ProgramEnd::kFinished) return {};
  return Error{ErrorCode::kUnsupported,
               "the sandbox that programs run in does not work here: an empty program failed",
               {}};
}

}  // namespace pelton::eval
