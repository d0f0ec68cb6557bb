#include "launch/slurm_site.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/digest.h"
#include "base/file.h"
#include "launch/process_files.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;

constexpr size_t kOutputBytesMax = size_t{64} << 10;
constexpr const char* kTokenFile = "newest-token";
constexpr int kLockTries = 200;
constexpr std::chrono::milliseconds kLockAgain{10};
// What would change the flags of Slurm's programs behind our back.
constexpr std::array<std::string_view, 3> kLeftOut = {"SQUEUE_", "SBATCH_", "SLURM_CLUSTERS="};

std::string first_line(std::string_view text) {
  constexpr size_t kBytesMax = 300;
  return std::string(text.substr(0, std::min(text.find('\n'), kBytesMax)));
}

// For room, and not for what will never be.
bool waits_its_turn(std::string_view reason) {
  return reason == "Resources" || reason == "Priority" || reason == "BeginTime" ||
         reason == "None" || reason.empty();
}

bool is_over(const LaunchedReplica& one) {
  return one.state == State::kEnded;
}

}  // namespace

Result<std::unique_ptr<SlurmSite>> SlurmSite::open(Options options, const base::Clock& clock,
                                                   base::Log& log) {
  // Nobody else is to read what replicas print.
  std::error_code failed;
  if (std::filesystem::create_directories(options.folder, failed)) {
    std::filesystem::permissions(options.folder, std::filesystem::perms::owner_all, failed);
  }
  // Jobs run elsewhere: their files are named from the root.
  const std::filesystem::path whole = std::filesystem::canonical(options.folder, failed);
  if (failed) return Error{ErrorCode::kIo, options.folder + ": " + failed.message(), {}};
  options.folder = whole.string();
  std::string fleet = base::sha256(options.folder).substr(0, 12);
  std::unique_ptr<SlurmSite> site(new SlurmSite(std::move(options), std::move(fleet), clock, log));
  // From here on an earlier leader, who looks before all that he does, does nothing more.
  TRY(site->claim(site->options_.epoch << kTokenNumberBits));
  return site;
}

// Under a lock, so that nobody writes an older token over a newer one; it is held for no longer
// than that takes, as its holder may be stopped.
Result<void> SlurmSite::claim(uint64_t token) {
  const std::string file = options_.folder + "/" + kTokenFile;
  const base::Descriptor lock(::open((file + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  for (int tries = 0; !lock.ok() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (lock.ok() && tries < kLockTries) {
      std::this_thread::sleep_for(kLockAgain);
      continue;
    }
    return Error{ErrorCode::kIo, fmt::format("{}.lock: {}", file, std::strerror(errno)), {}};
  }
  uint64_t newest = 0;
  if (const Result<std::string> text = base::read_file(file, kOutputBytesMax); text.ok()) {
    std::from_chars(text->data(), text->data() + text->size(), newest);
  }
  if (options_.epoch > 0 && epoch_of(newest) > options_.epoch) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("an autoscaler of epoch {} leads; this one is of {}", epoch_of(newest),
                             options_.epoch),
                 {}};
  }
  newest_token_ = std::max({newest_token_, newest, token});
  if (newest_token_ == newest) return {};
  return base::write_file(file, fmt::format("{}\n", newest_token_));
}

SlurmSite::SlurmSite(Options options, std::string fleet, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)), fleet_(std::move(fleet)), clock_(clock), log_(log) {}

std::string SlurmSite::file_of(const Place& place, const char* ending) const {
  return fmt::format("{}/{}.{}.{}", options_.folder, file_name_of(place.first), place.second,
                     ending);
}

Result<std::string> SlurmSite::run(const std::vector<std::string>& words,
                                   std::string_view input) const {
  TRY_ASSIGN(ProgramRun done, run_program(words, input, options_.bounds, kLeftOut));
  if (done.code == 0) return std::move(done.out);
  return Error{ErrorCode::kIo,
               fmt::format("{} ends with {}: {}", words[0], done.code, first_line(done.err)),
               {}};
}

Result<std::vector<SlurmJob>> SlurmSite::queue() const {
  TRY_ASSIGN(const std::string text,
             run({"squeue", "--noheader", "--states=all", fmt::format("--user={}", ::geteuid()),
                  fmt::format("--format={}", kQueueFormat)},
                 {}));
  return parse_queue(text, fleet_);
}

Result<void> SlurmSite::cancel(int64_t job, bool softly) {
  TRY(claim(0));
  std::vector<std::string> words = {"scancel"};
  if (softly) words.insert(words.end(), {"--batch", "--signal=TERM"});
  words.push_back(fmt::format("{}", job));
  TRY(run(words, {}));
  return {};
}

std::vector<std::string> SlurmSite::batch_words(const ReplicaOrder& order) const {
  const Pool& pool = options_.pools.at(order.pool);
  const Place place{order.pool, order.ordinal};
  std::vector<std::string> words = {
      "sbatch",
      "--parsable",
      fmt::format("--job-name=pelton-{}-{}", file_name_of(order.pool), order.ordinal),
      "--comment=" + slurm_comment(fleet_, order),
      "--output=" + file_of(place, "out"),
      "--error=" + file_of(place, "log"),
      "--open-mode=truncate",
      "--requeue",
      fmt::format("--signal=B:TERM@{}", static_cast<int>(pool.drain_s))};
  words.insert(words.end(), pool.sbatch.begin(), pool.sbatch.end());
  return words;
}

Result<void> SlurmSite::start(const ReplicaOrder& order) {
  // An earlier attempt of which no answer came may have submitted it.
  TRY_ASSIGN(const std::vector<SlurmJob> jobs, queue());
  uint64_t newest = newest_token_;
  for (const SlurmJob& job : jobs) {
    if (job.order == order) return {};
    newest = std::max(newest, job.order.token);
    const bool is_there = job.order.pool == order.pool && job.order.ordinal == order.ordinal;
    if (is_there && job.state != SlurmJob::State::kEnded && job.order.token < order.token) {
      return Error{
          ErrorCode::kInvalidArgument, fmt::format("job {} still runs in its place", job.id), {}};
    }
    if (is_there && job.order.token > order.token) newest = UINT64_MAX;
  }
  if (newest == UINT64_MAX || epoch_of(order.token) < epoch_of(newest)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the order {} for {}-{} is older than another one", order.token,
                             order.pool, order.ordinal),
                 {}};
  }
  TRY(claim(order.token));
  const Place place{order.pool, order.ordinal};
  std::vector<std::string> words = options_.pools.at(order.pool).words;
  for (std::string& word : words) {
    if (word == "{name}") word = fmt::format("{}-{}", order.pool, order.ordinal);
  }
  // What the last replica said there is not this one's word.
  std::error_code failed;
  std::filesystem::remove(file_of(place, "out"), failed);
  TRY_ASSIGN(const std::string said, run(batch_words(order), batch_script(words)));
  const std::optional<int64_t> id = parse_job_id(said);
  if (!id) return Error{ErrorCode::kIo, "sbatch does not say the job's id", {}};
  log_.info(fmt::format("replica {}-{} is job {}, log {}", order.pool, order.ordinal, *id,
                        file_of(place, "log")));
  return {};
}

Result<void> SlurmSite::stop(const ReplicaOrder& order, std::chrono::milliseconds grace) {
  const auto found = replicas_.find({order.pool, order.ordinal});
  if (found == replicas_.end() || found->second.seen.order != order) {
    // One that was submitted, but not seen yet.
    TRY(list());
  }
  const auto replica = replicas_.find({order.pool, order.ordinal});
  if (replica == replicas_.end() || replica->second.seen.order != order) return {};
  Replica& one = replica->second;
  if (is_over(one.seen)) return {};
  const bool softly = one.job.state == SlurmJob::State::kRunning && grace.count() > 0;
  TRY(cancel(one.job.id, softly));
  one.seen.state = State::kStopping;
  one.cancel_ns = clock_.now_ns() + std::max<int64_t>(grace.count(), 1) * 1'000'000;
  return {};
}

Result<std::vector<LaunchedReplica>> SlurmSite::list() {
  TRY_ASSIGN(const std::vector<SlurmJob> jobs, queue());
  std::map<Place, const SlurmJob*> current;
  for (const SlurmJob& job : jobs) {
    newest_token_ = std::max(newest_token_, job.order.token);
    const SlurmJob*& best = current[{job.order.pool, job.order.ordinal}];
    if (best == nullptr || job.order.token > best->order.token) best = &job;
  }
  for (const SlurmJob& job : jobs) {
    const SlurmJob* best = current.at({job.order.pool, job.order.ordinal});
    if (best == &job || job.state == SlurmJob::State::kEnded) continue;
    log_.warning(fmt::format("job {} is one too many beside {}", job.id, best->id));
    TRY(cancel(job.id, false));
  }
  for (const auto& [place, job] : current) follow(*job);
  for (auto& [place, one] : replicas_) {
    if (!current.contains(place) && !is_over(one.seen)) {
      one.seen.state = State::kEnded;
      one.seen.ended = fmt::format("job {} has vanished from the queue", one.job.id);
    }
    cancel_overdue(one);
  }
  std::vector<LaunchedReplica> all;
  for (const auto& [place, one] : replicas_) all.push_back(one.seen);
  return all;
}

void SlurmSite::follow(const SlurmJob& job) {
  const Place place{job.order.pool, job.order.ordinal};
  Replica& one = replicas_[place];
  if (one.seen.order != job.order) {
    one = {};
    one.seen.order = job.order;
    one.seen.ordered_ns = one.seen.progress_ns = clock_.now_ns();
  }
  if (is_over(one.seen)) return;
  if (job.state != one.job.state || job.reason != one.job.reason) {
    one.seen.progress_ns = clock_.now_ns();
  }
  if (one.has_run && job.state == SlurmJob::State::kPending) {
    log_.warning(fmt::format("job {} of replica {}-{} has been requeued", job.id, place.first,
                             place.second));
    one.has_run = false;
    // What the last run said there is not the next one's word, whenever that begins to write.
    std::error_code failed;
    std::filesystem::remove(file_of(place, "out"), failed);
  }
  one.job = job;
  one.seen.host.clear();
  one.seen.port = 0;
  switch (job.state) {
    case SlurmJob::State::kPending:
      // Who waits for his turn does not stand still.
      if (waits_its_turn(job.reason)) one.seen.progress_ns = clock_.now_ns();
      return;
    case SlurmJob::State::kRunning:
      return follow_run(place, one);
    case SlurmJob::State::kEnding:
      one.seen.state = State::kStopping;
      return;
    case SlurmJob::State::kEnded:
      return note_ended(one);
  }
}

// The node's name stands before the address, which is that of all its interfaces.
void SlurmSite::follow_run(const Place& place, Replica& one) {
  one.has_run = true;
  const int64_t said_bytes = bytes_of(file_of(place, "out")) + bytes_of(file_of(place, "log"));
  if (said_bytes != one.said_bytes) one.seen.progress_ns = clock_.now_ns();
  one.said_bytes = said_bytes;
  const auto pool = options_.pools.find(place.first);
  if (pool != options_.pools.end() && one.job.left_s) {
    const double ends_s = pool->second.drain_s + pool->second.start_s;
    if (static_cast<double>(*one.job.left_s) <= ends_s) one.seen.state = State::kStopping;
  }
  const Result<std::string> text = base::read_file(file_of(place, "out"), kOutputBytesMax);
  if (!text.ok()) return;
  const std::optional<net::HostPort> address = fleet_address_of(*text);
  if (!address) return;
  constexpr std::string_view kNode = "node ";
  const std::string node = first_line(*text);
  one.seen.host = node.starts_with(kNode) ? node.substr(kNode.size()) : address->host;
  one.seen.port = address->port;
}

// How a job ended that was not stopped: its exit code, which the queue does not say.
void SlurmSite::note_ended(Replica& one) const {
  one.seen.state = State::kEnded;
  one.seen.said = last_said(file_of({one.seen.order.pool, one.seen.order.ordinal}, "log"));
  one.seen.ended = fmt::format("job {} is {}", one.job.id, one.job.state_name);
  if (one.job.state_name != "FAILED") return;
  const Result<std::string> text =
      run({"scontrol", "--oneliner", "show", "job", fmt::format("{}", one.job.id)}, {});
  const std::optional<int> code = text.ok() ? parse_exit_code(*text) : std::nullopt;
  if (!code) return;
  one.seen.ended = fmt::format("job {} ended with {}", one.job.id, exit_text(*code));
  one.seen.is_hopeless = is_hopeless_exit(*code);
}

void SlurmSite::cancel_overdue(Replica& one) {
  if (one.cancel_ns == 0 || is_over(one.seen) || clock_.now_ns() < one.cancel_ns) return;
  const Result<void> done = cancel(one.job.id, false);
  if (done.ok()) one.cancel_ns = 0;
}

}  // namespace pelton::launch
