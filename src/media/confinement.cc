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
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

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

Result<void> leave_network_and_writing() {
  // Without a user namespace there are sockets' calls all the same, and those are refused below.
  static_cast<void>(::unshare(CLONE_NEWUSER | CLONE_NEWNET));
  constexpr long kCalls[] = {
    SYS_socket,
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
    SYS_kexec_load,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_truncate,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_io_uring_setup,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_kill,
#if defined(__x86_64__)
    SYS_unlink,
    SYS_rename,
    SYS_renameat,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_creat,
#endif
    SYS_openat2
  };
  std::vector<sock_filter> lines = beginning();
  answer_calls(lines, kCalls, kRefuse);
  refuse_writing(lines, SYS_openat, 2);
#if defined(__x86_64__)
  refuse_writing(lines, SYS_open, 1);
#endif
  lines.push_back(give(SECCOMP_RET_ALLOW));
  return install(lines);
}

}  // namespace pelton::media
