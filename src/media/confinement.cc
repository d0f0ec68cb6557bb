#include "media/confinement.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pelton::media {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

constexpr uint32_t kOtherAbi = 0x40000000;  // x32's calls

Error refused(const char* what) {
  return {ErrorCode::kUnsupported,
          fmt::format("this machine cannot confine a process: {}: {}", what, std::strerror(errno)),
          {}};
}

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

sock_filter load(uint32_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}
sock_filter give(uint32_t verdict) {
  return BPF_STMT(BPF_RET | BPF_K, verdict);
}
// Goes on with the next instruction if the value is `k`, otherwise behind it.
sock_filter unless_equal_skip_one(uint32_t k) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
}

// A filter whose calls have the number in the accumulator behind these lines.
std::vector<sock_filter> beginning() {
  return {load(offsetof(seccomp_data, arch)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
          give(SECCOMP_RET_KILL_PROCESS),
          load(offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kOtherAbi, 0, 1),
          give(kRefuse)};
}

Result<void> install(std::vector<sock_filter>& lines) {
  if (kArchitecture == 0) {
    errno = ENOSYS;
    return refused("seccomp on this processor");
  }
  const sock_fprog program{.len = static_cast<unsigned short>(lines.size()),
                           .filter = lines.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return refused("no_new_privs");
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return refused("seccomp");
  return {};
}

void answer_calls(std::vector<sock_filter>& lines, std::span<const long> calls, uint32_t verdict) {
  for (const long call : calls) {
    lines.push_back(unless_equal_skip_one(static_cast<uint32_t>(call)));
    lines.push_back(give(verdict));
  }
}

// The flags of an open call, in argument `index`: none may be opened to be written.
void refuse_writing(std::vector<sock_filter>& lines, long call, int index) {
  constexpr uint32_t kWrites = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  const auto offset = static_cast<uint32_t>(offsetof(seccomp_data, args) +
                                            static_cast<size_t>(index) * sizeof(uint64_t));
  // Of another call these four lines are passed over.
  lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4));
  lines.push_back(load(offset));
  lines.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kWrites, 0, 1));
  lines.push_back(give(kRefuse));
  lines.push_back(give(SECCOMP_RET_ALLOW));
}

bool bound(int which, int64_t most) {
  const auto value = static_cast<rlim_t>(most);
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  return ::setrlimit(static_cast<__rlimit_resource>(which), &limit) == 0;
}

}  // namespace

Result<void> bound_process(const Bounds& bounds) {
  const bool done = bound(RLIMIT_CORE, 0) && bound(RLIMIT_FSIZE, 0) &&
                    bound(RLIMIT_CPU, bounds.cpu_s) && bound(RLIMIT_NOFILE, 64);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool has_memory = true;  // their shadow is larger than any bound
#else
  const bool has_memory = bound(RLIMIT_AS, bounds.memory_bytes);
#endif
  if (!done || !has_memory) {
    return Error{ErrorCode::kIo, fmt::format("setrlimit: {}", std::strerror(errno)), {}};
  }
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return refused("dumpable");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return refused("no_new_privs");
  return {};
}

Result<void> leave_only_computing() {
  constexpr long kCalls[] = {
      SYS_read,         SYS_write,        SYS_writev,         SYS_lseek,         SYS_close,
      SYS_fstat,        SYS_mmap,         SYS_munmap,         SYS_mremap,        SYS_mprotect,
      SYS_madvise,      SYS_brk,          SYS_futex,          SYS_exit,          SYS_exit_group,
      SYS_rt_sigreturn, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_clock_gettime, SYS_gettimeofday,
      SYS_getrandom,    SYS_sched_yield,  SYS_getpid,         SYS_gettid,        SYS_tgkill};
  std::vector<sock_filter> lines = beginning();
  answer_calls(lines, kCalls, SECCOMP_RET_ALLOW);
  lines.push_back(give(kRefuse));
  return install(lines);
}

namespace {

// The kernel's struct landlock_ruleset_attr and landlock_path_beneath_attr, as of its first
// version, which headers of some systems lack.
struct Ruleset {
  uint64_t handled_access_fs = 0;
};
struct [[gnu::packed]] PathRule {
  uint64_t allowed_access = 0;
  int32_t parent = -1;
};
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr uint64_t kExecute = 1 << 0;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kReadFolder = 1 << 3;
constexpr uint64_t kEverything = (1 << 13) - 1;  // of the first version

Result<void> see_only_programs(const char* program_folder) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return refused("no_new_privs");
  const Ruleset all{.handled_access_fs = kEverything};
  const long rules = ::syscall(kCreateRuleset, &all, sizeof all, 0);
  if (rules < 0) return refused("Landlock");
  const char* const places[] = {"/usr",
                                "/lib",
                                "/lib64",
                                "/bin",
                                "/opt",
                                "/etc/ld.so.cache",
                                "/etc/alternatives",
                                "/dev/null",
                                "/dev/urandom",
                                program_folder};
  for (const char* const place : places) {
    struct stat facts {};
    const int opened = ::open(place, O_PATH | O_CLOEXEC);
    if (opened < 0) continue;
    const bool is_folder = ::fstat(opened, &facts) == 0 && S_ISDIR(facts.st_mode);
    const PathRule rule{.allowed_access = kExecute | kReadFile | (is_folder ? kReadFolder : 0),
                        .parent = opened};
    const long added = ::syscall(kAddRule, rules, 1, &rule, 0);
    ::close(opened);
    if (added != 0) return refused("Landlock's rules");
  }
  if (::syscall(kRestrictSelf, rules, 0) != 0) return refused("Landlock");
  ::close(static_cast<int>(rules));
  return {};
}

// Threads, and no processes: the flags are the call's first argument. clone3 has them in memory,
// where no filter sees them; the C library then takes clone.
void refuse_processes(std::vector<sock_filter>& lines) {
  constexpr uint32_t kThread = 0x00010000;  // CLONE_THREAD
  lines.push_back(unless_equal_skip_one(SYS_clone3));
  lines.push_back(give(SECCOMP_RET_ERRNO | ENOSYS));
  lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
  lines.push_back(load(offsetof(seccomp_data, args)));
  lines.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kThread, 1, 0));
  lines.push_back(give(kRefuse));
  lines.push_back(give(SECCOMP_RET_ALLOW));
}

// Limits are read of oneself (process 0), and changed of nobody.
void refuse_limits_of_others(std::vector<sock_filter>& lines) {
  lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 4));
  lines.push_back(load(offsetof(seccomp_data, args)));
  lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
  lines.push_back(give(kRefuse));
  lines.push_back(give(SECCOMP_RET_ALLOW));
}

}  // namespace

namespace {

// What a program that reads a file and writes samples has no use for: the network, other processes,
// names and rights of files, the kernel.
constexpr long kOfOthers[] = {SYS_socket,
                              SYS_socketpair,
                              SYS_connect,
                              SYS_bind,
                              SYS_ptrace,
                              SYS_process_vm_readv,
                              SYS_process_vm_writev,
                              SYS_mount,
                              SYS_umount2,
                              SYS_pivot_root,
                              SYS_chroot,
                              SYS_unshare,
                              SYS_setns,
                              SYS_init_module,
                              SYS_finit_module,
                              SYS_bpf,
                              SYS_keyctl,
                              SYS_add_key,
                              SYS_request_key,
                              SYS_kexec_load,
                              SYS_unlinkat,
                              SYS_renameat2,
                              SYS_mkdirat,
                              SYS_mknodat,
                              SYS_linkat,
                              SYS_symlinkat,
                              SYS_truncate,
                              SYS_fchmod,
                              SYS_fchmodat,
                              SYS_fchown,
                              SYS_fchownat,
                              SYS_setxattr,
                              SYS_fsetxattr,
                              SYS_lsetxattr,
                              SYS_utimensat,
                              SYS_io_uring_setup,
                              SYS_perf_event_open,
                              SYS_userfaultfd,
                              SYS_kill,
                              SYS_tkill,
                              SYS_tgkill,
                              SYS_rt_sigqueueinfo,
                              SYS_pidfd_open,
                              SYS_pidfd_getfd,
                              SYS_pidfd_send_signal,
                              SYS_setpriority,
                              SYS_sched_setscheduler,
                              SYS_setpgid,
                              SYS_setsid,
                              SYS_open_by_handle_at,
                              SYS_name_to_handle_at,
                              SYS_memfd_create,
#if defined(__x86_64__)
                              SYS_fork,
                              SYS_vfork,
                              SYS_unlink,
                              SYS_rename,
                              SYS_renameat,
                              SYS_mkdir,
                              SYS_rmdir,
                              SYS_link,
                              SYS_symlink,
                              SYS_chmod,
                              SYS_chown,
                              SYS_lchown,
                              SYS_creat,
                              SYS_mknod,
                              SYS_utime,
                              SYS_utimes,
#endif
                              SYS_openat2};

}  // namespace

Result<void> leave_only_reading_programs(const std::string& program_folder) {
  TRY(see_only_programs(program_folder.c_str()));
  std::vector<sock_filter> lines = beginning();
  answer_calls(lines, kOfOthers, kRefuse);
  refuse_processes(lines);
  refuse_limits_of_others(lines);
  refuse_writing(lines, SYS_openat, 2);
#if defined(__x86_64__)
  refuse_writing(lines, SYS_open, 1);
#endif
  lines.push_back(give(SECCOMP_RET_ALLOW));
  return install(lines);
}

}  // namespace pelton::media
