#include "gateway/request_log.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/json_writer.h"
#include "base/line_file.h"

namespace pelton::gateway {
namespace {

constexpr int kGroupTokens = 64;
constexpr size_t kNamesMax = 4096;  // of a line: 262 144 tokens
constexpr size_t kBatchBytes = size_t{64} << 10;
constexpr size_t kNameDigits = 13;  // 52 bits: a whole number that every reader of JSON keeps

std::string drawn_salt() {
  std::random_device device;
  std::string salt;
  for (int i = 0; i < 8; ++i) salt += fmt::format("{:08x}", device());
  return salt;
}

int64_t salted(const kv::BlockHash& name, std::string_view salt) {
  const std::string digest =
      base::hmac_sha256(salt, fmt::format("{:016x}{:016x}", name.high, name.low));
  int64_t number = 0;
  std::from_chars(digest.data(), digest.data() + kNameDigits, number, 16);
  return number;
}

double ms(double seconds) {
  return std::max(0.0, static_cast<double>(static_cast<int64_t>(seconds * 1e6)) / 1e3);
}

int64_t size_of(std::FILE* file) {
  struct stat status = {};
  return ::fstat(::fileno(file), &status) == 0 ? status.st_size : 0;
}

}  // namespace

GroupedNames grouped_names(std::span<const kv::BlockHash> names, int block_tokens) {
  GroupedNames grouped;
  if (block_tokens < 1) return grouped;
  const size_t group = static_cast<size_t>(std::max(kGroupTokens / block_tokens, 1));
  grouped.block_tokens = static_cast<int>(group) * block_tokens;
  for (size_t end = group; end <= names.size() && grouped.names.size() < kNamesMax; end += group) {
    grouped.names.push_back(names[end - 1]);
  }
  return grouped;
}

std::string length_class(int64_t input_tokens, int64_t output_tokens) {
  constexpr std::pair<int64_t, const char*> kInputs[] = {
      {1'024, "1k"}, {4'096, "4k"}, {16'384, "16k"}, {65'536, "64k"}, {131'072, "128k"}};
  constexpr std::pair<int64_t, const char*> kOutputs[] = {
      {64, "64"}, {256, "256"}, {1'024, "1k"}, {4'096, "4k"}};
  const auto within = [](const auto& bounds, int64_t tokens) {
    for (const auto& [bound, name] : bounds) {
      if (tokens <= bound) return name;
    }
    return "more";
  };
  return fmt::format("{}:{}", within(kInputs, input_tokens), within(kOutputs, output_tokens));
}

std::string request_line(const RequestFacts& facts, std::string_view salt) {
  std::string line;
  base::JsonWriter w(line);
  w.begin_object().key("timestamp").integer(facts.arrived_unix_ms);
  w.key("pool").string(facts.pool);
  w.key("class").string(length_class(facts.input_tokens, facts.output_tokens));
  w.key("input_length").integer(facts.input_tokens);
  w.key("output_length").integer(facts.output_tokens);
  if (facts.cached_tokens > 0) w.key("cached_tokens").integer(facts.cached_tokens);
  if (facts.block_tokens > 0 && !facts.names.empty()) {
    w.key("block_tokens").integer(facts.block_tokens);
    w.key("hash_ids").begin_array();
    for (const kv::BlockHash& name : facts.names) w.integer(salted(name, salt));
    w.end_array();
  }
  w.key("status").integer(facts.status).key("outcome").string(facts.outcome);
  if (facts.first_token_s > 0) w.key("first_token_ms").number(ms(facts.first_token_s));
  w.key("duration_ms").number(ms(facts.duration_s));
  w.end_object();
  return line + '\n';
}

Result<std::unique_ptr<RequestLog>> RequestLog::open(std::string path, const Options& options,
                                                     base::Log& log) {
  TRY_ASSIGN(base::OutputFile file, base::open_output(path, base::OutputMode::kAppend));
  return std::unique_ptr<RequestLog>(
      new RequestLog(std::move(path), options, std::move(file), log));
}

RequestLog::RequestLog(std::string path, const Options& options, base::OutputFile file,
                       base::Log& log)
    : path_(std::move(path)),
      bytes_max_(options.bytes_max),
      salt_(drawn_salt()),
      log_(log),
      file_(std::move(file)),
      bytes_(size_of(file_.get())),
      waiting_(options.waiting_max),
      thread_([this] { write_lines(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-requests");
}

RequestLog::~RequestLog() {
  waiting_.close();
  thread_.join();
}

void RequestLog::note(RequestFacts facts) {
  if (!waiting_.try_push(std::move(facts))) ++lost_;
}

// Until it is closed and nothing waits; what has come meanwhile goes in one write.
void RequestLog::write_lines() {
  std::string lines;
  while (const std::optional<RequestFacts> facts = waiting_.pop()) {
    std::string line = request_line(*facts, salt_);
    const auto more = static_cast<int64_t>(lines.size() + line.size());
    if (bytes_ + more > bytes_max_ && bytes_ + static_cast<int64_t>(lines.size()) > 0) {
      write(lines);
      lines.clear();
      renew();
    }
    lines += line;
    if (waiting_.size() > 0 && lines.size() < kBatchBytes) continue;
    write(lines);
    lines.clear();
  }
}

void RequestLog::write(std::string_view lines) {
  if (lines.empty()) return;
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  // Where the next file could not be opened there is none.
  const base::LineFile::Written written =
      file_ != nullptr ? base::LineFile(::fileno(file_.get())).write(lines)
                       : base::LineFile::Written{.lost = count, .error = EBADF};
  bytes_ += static_cast<int64_t>(lines.size());
  lost_ += written.lost;
  if (written.lost > 0 && !failing_) {
    log_.error(fmt::format("{}: {}; the request log loses lines", path_, written.why()));
  } else if (written.lost == 0 && failing_) {
    log_.info(fmt::format("{} is written again; {} lines are lost by now", path_, lost_.load()));
  }
  failing_ = written.lost > 0;
}

void RequestLog::renew() {
  bytes_ = 0;
  const std::string earlier = path_ + ".1";
  if (std::rename(path_.c_str(), earlier.c_str()) != 0) {
    log_.error(fmt::format("{}: {}; it is begun anew", path_, std::strerror(errno)));
  }
  Result<base::OutputFile> file = base::open_output(path_, base::OutputMode::kReplace);
  if (!file.ok()) log_.error(file.error().message);
  file_ = file.ok() ? *std::move(file) : nullptr;
}

}  // namespace pelton::gateway
