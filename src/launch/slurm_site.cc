#include "launch/slurm_site.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "launch/process_files.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;

constexpr size_t kOutputBytesMax = size_t{64} << 10;
constexpr const char* kTokenFile = "newest-token";

int64_t bytes_of(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_size : 0;
}

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
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  // Jobs run elsewhere: their files are named from the root.
  const std::filesystem::path whole = std::filesystem::canonical(options.folder, failed);
  if (failed) return Error{ErrorCode::kIo, options.folder + ": " + failed.message(), {}};
  options.folder = whole.string();
  std::string fleet = base::sha256(options.folder).substr(0, 12);
  std::unique_ptr<SlurmSite> site(new SlurmSite(std::move(options), std::move(fleet), clock, log));
  const Result<std::string> token =
      base::read_file(site->options_.folder + "/" + kTokenFile, kOutputBytesMax);
  if (token.ok()) {
    std::from_chars(token->data(), token->data() + token->size(), site->newest_token_);
  }
  // From here on an earlier leader, who reads it before all that he does, does nothing more.
  if (site->options_.epoch > epoch_of(site->newest_token_)) {
    site->newest_token_ = site->options_.epoch << kTokenNumberBits;
    TRY(site->keep_newest_token());
  }
  TRY(site->check_lead());
  return site;
}

Result<void> SlurmSite::keep_newest_token() const {
  return base::write_file(options_.folder + "/" + kTokenFile, fmt::format("{}\n", newest_token_));
}

Result<void> SlurmSite::check_lead() const {
  if (options_.epoch == 0) return {};
  TRY_ASSIGN(const std::string text,
             base::read_file(options_.folder + "/" + kTokenFile, kOutputBytesMax));
  uint64_t newest = 0;
  std::from_chars(text.data(), text.data() + text.size(), newest);
  if (epoch_of(newest) <= options_.epoch) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("an autoscaler of epoch {} leads; this one is of {}", epoch_of(newest),
                           options_.epoch),
               {}};
}

SlurmSite::SlurmSite(Options options, std::string fleet, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)), fleet_(std::move(fleet)), clock_(clock), log_(log) {}

std::string SlurmSite::file_of(const Place& place, const char* ending) const {
  return fmt::format("{}/{}.{}.{}", options_.folder, file_name_of(place.first), place.second,
                     ending);
}

Result<std::string> SlurmSite::run(const std::vector<std::string>& words,
                                   std::string_view input) const {
  TRY_ASSIGN(ProgramRun done, run_program(words, input, options_.bounds));
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

Result<void> SlurmSite::cancel(int64_t job, bool softly) const {
  TRY(check_lead());
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
  newest_token_ = std::max(newest_token_, order.token);
  TRY(check_lead());
  TRY(keep_newest_token());
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
  one.seen.ended = fmt::format("job {} is {}", one.job.id, one.job.state_name);
  if (one.job.state_name != "FAILED") return;
  const Result<std::string> text =
      run({"scontrol", "--oneliner", "show", "job", fmt::format("{}", one.job.id)}, {});
  const std::optional<int> code = text.ok() ? parse_exit_code(*text) : std::nullopt;
  if (!code) return;
  one.seen.ended = fmt::format("job {} ended with exit code {}", one.job.id, *code);
  // As `pelton serve` ends: a wrong command line, a wrong file, no such model, too little memory.
  one.seen.is_hopeless = (*code >= 2 && *code <= 5) || *code == 126 || *code == 127;
}

void SlurmSite::cancel_overdue(Replica& one) {
  if (one.cancel_ns == 0 || is_over(one.seen) || clock_.now_ns() < one.cancel_ns) return;
  const Result<void> done = cancel(one.job.id, false);
  if (done.ok()) one.cancel_ns = 0;
}

}  // namespace pelton::launch
