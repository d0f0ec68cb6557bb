#include "access/audit_log.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sync_path.h"
#include "base/utc_time.h"

namespace pelton::access {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;
constexpr std::chrono::milliseconds kFlush{250};
constexpr int64_t kRepeatNs = 10'000'000'000;
constexpr size_t kKindsMax = 256;

Error io_error(const std::string& file, std::string_view what) {
  return {ErrorCode::kIo, fmt::format("{}: cannot {}: {}", file, what, std::strerror(errno)), {}};
}

Error not_whole(const std::string& file, std::string_view why) {
  return {ErrorCode::kBadConfig,
          fmt::format("{}: {}; pelton audit verify looks at all of it. A log that is not whole is "
                      "not gone on with: put it aside, with its .head, and a new one is begun",
                      file, why),
          "audit-log"};
}

Result<void> write_all(int descriptor, std::string_view bytes, const std::string& file) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return io_error(file, "write");
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  if (::fdatasync(descriptor) != 0) return io_error(file, "write");
  return {};
}

// To be appended to, by this process only; the caller's to close.
Result<int> open_alone(const std::string& file) {
  base::Descriptor opened(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened.ok()) return io_error(file, "open");
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0) return opened.release();
  if (errno != EWOULDBLOCK) return io_error(file, "lock");
  return Error{ErrorCode::kBadConfig, file + ": another process writes it", "audit-log"};
}

std::string aside_name(const std::string& file, int64_t first) {
  return fmt::format("{}.{}", file, first);
}

Error is_in_the_way(const std::string& aside) {
  return {ErrorCode::kBadConfig,
          aside +
              ": a log of before lies where this one's lines are to be put aside; move it away, "
              "nothing is written over",
          "audit-log"};
}

// Never over what lies there.
Result<void> put_aside(const std::string& file, int64_t first) {
  const std::string aside = aside_name(file, first);
  if (::renameat2(AT_FDCWD, file.c_str(), AT_FDCWD, aside.c_str(), RENAME_NOREPLACE) == 0) {
    return {};
  }
  if (errno == EEXIST) return is_in_the_way(aside);
  if (errno != EINVAL) return io_error(aside, "rename to");
  // A file system that knows only the other kind.
  if (::access(aside.c_str(), F_OK) == 0) return is_in_the_way(aside);
  if (::rename(file.c_str(), aside.c_str()) == 0) return {};
  return io_error(aside, "rename to");
}

struct Found {
  AuditHead end;
  int64_t bytes = 0;          // of whole lines
  bool is_put_aside = false;  // just now: the file is another one
};

// Where the file begins and ends, and that its head says so, too.
Result<Found> look_at(const AuditLog::Options& options, base::Log& log) {
  const std::string& file = options.file;
  const Result<std::string> head_text = base::read_file(file + ".head", 4096);
  TRY_ASSIGN(std::string whole, base::read_file(file, kFileBytesMax));
  if (!head_text.ok()) {
    if (!whole.empty()) return not_whole(file, "its head is missing");
    return Found{};
  }
  const Result<AuditHead> head = read_audit_head(*head_text, options.key);
  if (!head.ok()) return not_whole(file + ".head", head.error().message);
  const size_t end = whole.rfind('\n');
  const size_t torn = whole.size() - (end == std::string::npos ? 0 : end + 1);
  whole.resize(whole.size() - torn);
  Found found;
  found.end = *head;
  found.bytes = static_cast<int64_t>(whole.size());
  // Its lines have been put aside, or were about to be.
  const bool is_put_aside = head->number > 0 && head->first == head->number + 1;
  if (whole.empty() && head->number > 0 && !is_put_aside) {
    return not_whole(file, "its lines are missing");
  }
  const auto take_out_torn = [&]() -> Result<void> {
    if (torn == 0) return {};
    log.warning(fmt::format("{}: a line that was not ended is taken out", file));
    if (::truncate(file.c_str(), found.bytes) != 0) return io_error(file, "truncate");
    return {};
  };
  if (whole.empty()) {
    TRY(take_out_torn());
    return found;
  }
  AuditHead begins = *head;
  const Result<AuditLine> first = read_audit_line(whole.substr(0, whole.find('\n')), options.key);
  if (!first.ok()) return not_whole(file, "line 1: " + first.error().message);
  const bool is_due = is_put_aside && first->number < head->first;
  if (is_due) begins.first = first->number;
  AuditProof proof;
  proof.head = begins;
  const AuditVerdict verdict = verify_audit(whole, options.key, proof, nullptr);
  if (verdict.fault) {
    return not_whole(file, fmt::format("line {}: {}", verdict.fault->line, verdict.fault->what));
  }
  TRY(take_out_torn());
  if (is_due) {
    TRY(put_aside(file, first->number));
    found.bytes = 0;
    found.is_put_aside = true;
    return found;
  }
  found.end.number = verdict.end.number;
  found.end.hash = verdict.end.hash;
  return found;
}

}  // namespace

AuditLog::AuditLog(Options options, const base::Clock& clock, base::Log& log, AuditHead head)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      chain_(options_.key, std::move(head)) {}

AuditLog::~AuditLog() {
  thread_.reset();
  flush(true);
}

Result<std::unique_ptr<AuditLog>> AuditLog::open(Options options, const base::Clock& clock,
                                                 base::Log& log) {
  // Nobody else writes what is looked at.
  TRY_ASSIGN(const int opened, open_alone(options.file));
  base::Descriptor file(opened);
  TRY_ASSIGN(const Found found, look_at(options, log));
  // Said now, and not when this file is full.
  const std::string aside = aside_name(options.file, found.end.first);
  if (::access(aside.c_str(), F_OK) == 0) return is_in_the_way(aside);
  std::unique_ptr<AuditLog> audit(new AuditLog(std::move(options), clock, log, found.end));
  audit->bytes_ = found.bytes;
  audit->file_.reset(file.release());
  if (found.is_put_aside) TRY(audit->reopen());
  TRY(audit->write_head(audit->chain_));
  audit->thread_ = std::make_unique<base::PeriodicThread>(
      base::PeriodicThread::Options{.name = "pelton-audit", .interval = kFlush},
      [raw = audit.get()] { raw->flush(false); });
  return audit;
}

Result<void> AuditLog::reopen() {
  TRY_ASSIGN(const int opened, open_alone(options_.file));
  file_.reset(opened);
  return {};
}

// Another name's text takes its place at once, and both are on the disk. An error: the head is as
// it was.
Result<void> AuditLog::write_head(const AuditChain& chain) {
  const std::string file = options_.file + ".head";
  const std::string fresh = file + ".new";
  const base::Descriptor head(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!head.ok()) return io_error(fresh, "open");
  TRY(write_all(head.get(), chain.head_text(), fresh));
  if (::rename(fresh.c_str(), file.c_str()) != 0) return io_error(file, "rename into place");
  // It is there, if perhaps not after a loss of power: then one line is more than it says.
  const Result<void> named = base::sync_name(file);
  if (!named.ok()) log_.warning(named.error().message);
  return {};
}

// The head says so first: whoever ends between the two is about to put it aside.
Result<void> AuditLog::begin_file() {
  AuditChain next = chain_;
  next.begin_file();
  TRY(write_head(next));
  if (const Result<void> moved = put_aside(options_.file, chain_.head().first); !moved.ok()) {
    TRY(write_head(chain_));
    return moved;
  }
  file_.reset();  // nothing more goes into that one, whatever becomes of the next
  chain_.go_on(next.head());
  bytes_ = 0;
  return reopen();
}

// What was written of a line whose writing failed, or whose head's, is taken out again: the next
// one follows the one before.
Result<void> AuditLog::append(const AuditEvent& event) {
  if (!file_.ok()) TRY(reopen());
  if (bytes_ >= options_.bytes_max) TRY(begin_file());
  AuditChain next = chain_;
  const std::string line = next.append(event);
  Result<void> written = write_all(file_.get(), line, options_.file);
  if (written.ok()) written = write_head(next);
  if (!written.ok()) {
    if (::ftruncate(file_.get(), bytes_) != 0)
      log_.error(io_error(options_.file, "truncate").message);
    return written;
  }
  bytes_ += static_cast<int64_t>(line.size());
  chain_.go_on(next.head());
  return {};
}

bool AuditLog::note(AuditEvent event) {
  event.at = base::utc_time(clock_.unix_ms());
  std::lock_guard lock(mutex_);
  Result<void> written;
  if (lost_ > 0) {
    written = append({.at = event.at,
                      .what = "lost",
                      .result = fmt::format("{} lines before this one were not written", lost_)});
    if (written.ok()) lost_ = 0;
  }
  if (written.ok()) written = append(event);
  if (written.ok()) return true;
  if (lost_++ == 0) log_.error("the audit log is not written: " + written.error().message);
  ++failures_;
  return false;
}

void AuditLog::note_often(const AuditEvent& event) {
  std::string kind = event.who + "\n" + event.what + "\n" + event.target + "\n" + event.result;
  std::lock_guard lock(repeated_mutex_);
  auto found = repeated_.find(kind);
  if (found == repeated_.end()) {
    // Of so many kinds at once which ones they are is left out.
    if (repeated_.size() >= kKindsMax) kind = "\n" + event.what;
    AuditEvent first = event;
    if (repeated_.size() >= kKindsMax) first.who = first.target = first.from = "";
    found = repeated_.try_emplace(kind, Repeated{.event = std::move(first)}).first;
  }
  ++found->second.count;
  if (found->second.event.from != event.from) found->second.event.from.clear();  // several
}

void AuditLog::flush(bool all) {
  std::vector<AuditEvent> due;
  {
    std::lock_guard lock(repeated_mutex_);
    const int64_t now_ns = clock_.now_ns();
    for (auto one = repeated_.begin(); one != repeated_.end();) {
      Repeated& repeated = one->second;
      const bool is_due = all || now_ns >= repeated.due_ns;
      if (is_due && repeated.count == 0) {
        one = repeated_.erase(one);
        continue;
      }
      if (is_due) {
        AuditEvent event = repeated.event;
        if (repeated.count > 1) event.result += fmt::format(", {} times", repeated.count);
        due.push_back(std::move(event));
        repeated.count = 0;
        repeated.due_ns = now_ns + kRepeatNs;
      }
      ++one;
    }
  }
  for (AuditEvent& event : due) note(std::move(event));
}

int64_t AuditLog::lines() const {
  std::lock_guard lock(mutex_);
  return chain_.head().number;
}

int64_t AuditLog::failures() const {
  std::lock_guard lock(mutex_);
  return failures_;
}

}  // namespace pelton::access
