#include "access/audit_log.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
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

struct Found {
  AuditHead end;
  int64_t bytes = 0;  // of whole lines
};

// Where the file begins and ends, and that its head says so, too.
Result<Found> look_at(const AuditLog::Options& options, base::Log& log) {
  const std::string& file = options.file;
  const Result<std::string> head_text = base::read_file(file + ".head", 4096);
  Result<std::string> text = base::read_file(file, kFileBytesMax);
  const bool has_file = text.ok();
  if (!has_file && text.error().code != ErrorCode::kNotFound) return text.error();
  if (!head_text.ok()) {
    if (has_file && !text->empty()) return not_whole(file, "its head is missing");
    return Found{};
  }
  const Result<AuditHead> head = read_audit_head(*head_text, options.key);
  if (!head.ok()) return not_whole(file + ".head", head.error().message);
  std::string whole = has_file ? *std::move(text) : std::string();
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
  if (whole.empty()) return found;
  AuditHead begins = *head;
  const Result<AuditLine> first = read_audit_line(whole.substr(0, whole.find('\n')), options.key);
  if (!first.ok()) return not_whole(file, "line 1: " + first.error().message);
  const bool is_due = is_put_aside && first->number < head->first;
  if (is_due) begins.first = first->number;
  const AuditVerdict verdict = verify_audit(whole, options.key, {.head = begins}, nullptr);
  if (verdict.fault) {
    return not_whole(file, fmt::format("line {}: {}", verdict.fault->line, verdict.fault->what));
  }
  if (is_due) {
    const std::string aside = fmt::format("{}.{}", file, first->number);
    if (::rename(file.c_str(), aside.c_str()) != 0) return io_error(aside, "rename to");
    found.bytes = 0;
    return found;
  }
  if (torn > 0) {
    log.warning(fmt::format("{}: a line that was not ended is taken out", file));
    if (::truncate(file.c_str(), found.bytes) != 0) return io_error(file, "truncate");
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
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::unique_ptr<AuditLog>> AuditLog::open(Options options, const base::Clock& clock,
                                                 base::Log& log) {
  TRY_ASSIGN(const Found found, look_at(options, log));
  std::unique_ptr<AuditLog> audit(new AuditLog(std::move(options), clock, log, found.end));
  audit->bytes_ = found.bytes;
  TRY(audit->reopen());
  TRY(audit->write_head());
  audit->thread_ = std::make_unique<base::PeriodicThread>(
      base::PeriodicThread::Options{.name = "pelton-audit", .interval = kFlush},
      [raw = audit.get()] { raw->flush(false); });
  return audit;
}

Result<void> AuditLog::reopen() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ =
      ::open(options_.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor_ < 0) return io_error(options_.file, "open");
  return {};
}

// Another name's text takes its place at once, and both are on the disk.
Result<void> AuditLog::write_head() {
  const std::string file = options_.file + ".head";
  const std::string fresh = file + ".new";
  const int descriptor =
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return io_error(fresh, "open");
  const Result<void> written = write_all(descriptor, chain_.head_text(), fresh);
  ::close(descriptor);
  TRY(written);
  if (::rename(fresh.c_str(), file.c_str()) != 0) return io_error(file, "rename into place");
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const int parent = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (parent < 0) return io_error(file, "open the folder of");
  const bool is_kept = ::fsync(parent) == 0;
  ::close(parent);
  if (!is_kept) return io_error(file, "write");
  return {};
}

// The head says so first: whoever ends between the two is about to put it aside.
Result<void> AuditLog::begin_file() {
  const std::string aside = fmt::format("{}.{}", options_.file, chain_.head().first);
  chain_.begin_file();
  TRY(write_head());
  if (::rename(options_.file.c_str(), aside.c_str()) != 0) return io_error(aside, "rename to");
  bytes_ = 0;
  return reopen();
}

// What was written of a line whose writing failed is taken out again: the next one follows the one
// before.
Result<void> AuditLog::append(const AuditEvent& event) {
  if (bytes_ >= options_.bytes_max) TRY(begin_file());
  AuditChain next = chain_;
  const std::string line = next.append(event);
  if (const Result<void> written = write_all(descriptor_, line, options_.file); !written.ok()) {
    if (::ftruncate(descriptor_, bytes_) != 0)
      log_.error(io_error(options_.file, "truncate").message);
    return written;
  }
  bytes_ += static_cast<int64_t>(line.size());
  chain_.go_on(next.head());
  return write_head();
}

bool AuditLog::note(AuditEvent event) {
  event.at = base::utc_time(clock_.unix_ms());
  std::lock_guard lock(mutex_);
  const Result<void> written = append(event);
  if (written.ok()) return true;
  if (failures_++ == 0) log_.error("the audit log is not written: " + written.error().message);
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
