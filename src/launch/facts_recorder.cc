#include "launch/facts_recorder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/line_file.h"

namespace pelton::launch {
namespace {

Result<void> keep_earlier(const std::string& path) {
  const std::string earlier = path + ".1";
  if (std::rename(path.c_str(), earlier.c_str()) == 0) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno)), {}};
}

}  // namespace

Result<std::unique_ptr<FactsRecorder>> FactsRecorder::open(std::string path, int64_t bytes_max,
                                                           base::Log& log) {
  std::error_code none;
  const bool has_earlier =
      std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0;
  if (has_earlier) TRY(keep_earlier(path));
  TRY_ASSIGN(base::OutputFile file, base::open_output(path, base::OutputMode::kReplace));
  return std::unique_ptr<FactsRecorder>(
      new FactsRecorder(std::move(path), bytes_max, std::move(file), log));
}

FactsRecorder::FactsRecorder(std::string path, int64_t bytes_max, base::OutputFile file,
                             base::Log& log)
    : path_(std::move(path)), bytes_max_(bytes_max), file_(std::move(file)), log_(log) {}

void FactsRecorder::begin(std::string_view pool, const autoscaler::PoolPolicy& policy,
                          std::string_view state) {
  write(autoscaler::begin_line(pool, policy, state));
}

void FactsRecorder::note(std::string_view pool, int64_t now_ns, const autoscaler::PoolFacts& facts,
                         const autoscaler::PoolDecision& decision) {
  write(autoscaler::decision_line(pool, now_ns, facts, decision));
}

void FactsRecorder::write(std::string line) {
  line += '\n';
  bytes_ += static_cast<int64_t>(line.size());
  if (failed_) return;  // a line that is missing makes the rest another story
  const base::LineFile::Written written = base::LineFile(::fileno(file_.get())).write(line);
  if (written.lost == 0) return;
  failed_ = true;
  log_.error(
      fmt::format("{}: {}; facts are not recorded until the next file", path_, written.why()));
}

void FactsRecorder::renew() {
  bytes_ = 0;
  if (const Result<void> kept = keep_earlier(path_); !kept.ok()) {
    log_.error(kept.error().message + "; it is begun anew");
  }
  Result<base::OutputFile> file = base::open_output(path_, base::OutputMode::kReplace);
  failed_ = !file.ok();
  if (failed_) return log_.error(file.error().message);
  file_ = *std::move(file);
}

}  // namespace pelton::launch
