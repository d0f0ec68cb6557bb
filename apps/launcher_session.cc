#include "apps/launcher_session.h"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/authenticated_cipher.h"
#include "base/digest.h"
#include "base/file.h"

namespace pelton::apps {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr int kPortFirst = 20'000;
constexpr int kPorts = 10'000;

struct Signs {
  const char* launcher;
  const char* started;  // is set in what it starts, and nowhere else
  const char* job[2];   // whichever is set
};

// mpirun may run within a job of Slurm's, so it is asked first.
constexpr Signs kSigns[] = {
    {"mpi", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpi", "PMI_SIZE", {"PMI_ID", "PMI_JOBID"}},
    {"slurm", "SLURM_STEP_NUM_TASKS", {"SLURM_JOB_ID", "SLURM_JOBID"}},
    {"env", "WORLD_SIZE", {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}}};

std::string text_of(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  return text == nullptr ? "" : text;
}

Error failed(const std::string& path) {
  return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno)), ""};
}

// Made whole under another name first, so that nobody reads half of it; whoever comes second finds
// the first one's.
Result<void> make_key(const std::string& folder, const std::string& path) {
  std::error_code refused;
  std::filesystem::create_directories(folder, refused);
  if (refused) return Error{ErrorCode::kIo, fmt::format("{}: {}", folder, refused.message()), ""};
  const std::string made = fmt::format("{}.{}", path, ::getpid());
  const int file = ::open(made.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return failed(made);
  const std::string key = base::random_bytes(kKeyBytes);
  const bool written = ::write(file, key.data(), key.size()) == static_cast<ssize_t>(key.size());
  ::close(file);
  const bool linked = written && (::link(made.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const Error error = failed(path);
  ::unlink(made.c_str());
  if (!linked) return error;
  return {};
}

}  // namespace

Result<std::optional<LauncherSession>> launcher_session(const Variable& variable) {
  for (const Signs& signs : kSigns) {
    if (variable(signs.started) == nullptr) continue;
    if (std::string_view(signs.launcher) == "env" && variable("RANK") == nullptr) continue;
    TRY_ASSIGN(const RankPlace place, place_of(signs.launcher, variable));
    if (place.ranks < 2) continue;
    std::string job = text_of(variable, signs.job[0]);
    if (job.empty()) job = text_of(variable, signs.job[1]);
    if (std::string_view(signs.launcher) == "slurm")
      job += "." + text_of(variable, "SLURM_STEP_ID");
    return std::optional(LauncherSession{.launcher = signs.launcher,
                                         .place = place,
                                         .job = fmt::format("{} {}", signs.launcher, job)});
  }
  return std::optional<LauncherSession>();
}

std::string describe(const LauncherSession& session) {
  const int ranks = session.place.ranks;
  if (session.launcher == "mpi") return fmt::format("mpirun has started {} of it", ranks);
  if (session.launcher == "slurm") return fmt::format("srun has started {} of it", ranks);
  return fmt::format("RANK and WORLD_SIZE say that there are {} of it", ranks);
}

Result<void> refuse_launched(const std::string& verb) {
  TRY_ASSIGN(const std::optional<LauncherSession> session, launcher_session(::getenv));
  if (!session) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is one process, and {}, each of which would measure for itself",
                           verb, describe(*session)),
               {}};
}

int meeting_port(const LauncherSession& session) {
  const std::string digest = base::hmac_sha256("meeting port", session.job);
  uint32_t drawn = 0;  // of its hexadecimal digits, eight
  std::from_chars(digest.data(), digest.data() + 8, drawn, 16);
  return kPortFirst + static_cast<int>(drawn % kPorts);
}

Result<std::string> session_secret(const LauncherSession& session, const std::string& folder) {
  if (folder.empty()) {
    return Error{ErrorCode::kIo,
                 "no folder for the ranks' key: none of PELTON_CACHE, XDG_CACHE_HOME, HOME is set; "
                 "--rank-token-file names a secret",
                 "rank-token-file"};
  }
  const std::string path = folder + "/rank_key";
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) return failed(path);
    TRY(make_key(folder, path));
    if (::stat(path.c_str(), &found) != 0) return failed(path);
  }
  if (found.st_uid != ::geteuid() || (found.st_mode & 077) != 0 ||
      found.st_size != static_cast<off_t>(kKeyBytes)) {
    return Error{
        ErrorCode::kBadConfig,
        fmt::format("{}: not a key of {} bytes that only this user may read (remove it, and "
                    "a new one is made)",
                    path, kKeyBytes),
        "rank-token-file"};
  }
  TRY_ASSIGN(const std::string key, base::read_file(path));
  return base::hmac_sha256(key, "ranks of " + session.job);
}

}  // namespace pelton::apps
