#include "access/access_log.h"

#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/json_writer.h"
#include "base/line_file.h"
#include "base/utc_time.h"

namespace pelton::access {
namespace {

double ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

// What a client chose, as one word of a line.
std::string word(std::string_view text) {
  std::string plain;
  for (const char c : text) plain += c > 0x20 && c < 0x7F ? c : '?';
  return plain.empty() ? "-" : plain;
}

std::string text_line(const RequestRecord& record) {
  std::string line =
      fmt::format("{} {} {} {} {} {:.1f}ms id={}", base::utc_time(record.arrived_unix_ms),
                  word(record.remote), word(record.method), word(record.path), record.status,
                  ms(record.ended_ns - record.arrived_ns), word(record.request_id));
  if (!record.tenant.empty()) line += fmt::format(" tenant={}", word(record.tenant));
  if (!record.model.empty()) line += fmt::format(" model={}", word(record.model));
  if (!record.adapter.empty()) line += fmt::format(" adapter={}", word(record.adapter));
  if (record.compile_ended_ns != 0) {
    line += fmt::format(" compile={:.1f}ms", ms(record.compile_ended_ns - record.compile_began_ns));
  }
  const GenerationFacts& made = record.generation;
  if (made.answers > 0) {
    line += fmt::format(" prompt={} cached={} output={}", made.prompt_tokens, made.cached_tokens,
                        made.output_tokens);
  }
  if (made.times.first_token_ns != 0) {
    line += fmt::format(" queue={:.1f}ms first_token={:.1f}ms",
                        ms(made.times.scheduled_ns - made.times.queued_ns),
                        ms(made.times.first_token_ns - record.arrived_ns));
  }
  return line + '\n';
}

std::string json_line(const RequestRecord& record) {
  std::string line;
  base::JsonWriter writer(line);
  writer.begin_object().key("time").string(base::utc_time(record.arrived_unix_ms));
  writer.key("remote").string(record.remote).key("method").string(record.method);
  writer.key("path").string(record.path).key("status").integer(record.status);
  writer.key("duration_ms").number(ms(record.ended_ns - record.arrived_ns));
  writer.key("request_id").string(record.request_id);
  writer.key("request_bytes").integer(record.request_bytes);
  if (!record.tenant.empty()) writer.key("tenant").string(record.tenant);
  if (!record.model.empty()) writer.key("model").string(record.model);
  if (!record.adapter.empty()) writer.key("adapter").string(record.adapter);
  if (record.traced) writer.key("trace_id").string(telemetry::hex(record.trace.trace_id));
  if (record.compile_ended_ns != 0) {
    writer.key("compile_ms").number(ms(record.compile_ended_ns - record.compile_began_ns));
  }
  const GenerationFacts& made = record.generation;
  if (made.answers > 0) {
    writer.key("prompt_tokens").integer(made.prompt_tokens);
    writer.key("cached_tokens").integer(made.cached_tokens);
    writer.key("output_tokens").integer(made.output_tokens);
  }
  if (made.times.first_token_ns != 0) {
    writer.key("queue_ms").number(ms(made.times.scheduled_ns - made.times.queued_ns));
    writer.key("first_token_ms").number(ms(made.times.first_token_ns - record.arrived_ns));
  }
  writer.end_object();
  return line + '\n';
}

}  // namespace

std::string access_line(const RequestRecord& record, AccessLog::Format format) {
  return format == AccessLog::Format::kText ? text_line(record) : json_line(record);
}

AccessLog::AccessLog(const Options& options)
    : options_(options), lines_(options.lines_max), thread_([this] {
        pthread_setname_np(pthread_self(), "pelton-access");
        write_lines();
      }) {}

// Until it is closed and nothing waits; what has come meanwhile goes in one write.
void AccessLog::write_lines() {
  constexpr size_t kBatchBytes = 64 * 1024;
  base::LineFile file(fileno(options_.file));
  std::string batch;
  bool failing = false;
  while (const std::optional<std::string> line = lines_.pop()) {
    batch += *line;
    if (lines_.size() > 0 && batch.size() < kBatchBytes) continue;
    const base::LineFile::Written written = file.write(batch);
    batch.clear();
    dropped_.fetch_add(written.lost);
    if (options_.log != nullptr && written.lost > 0 && !failing) {
      options_.log->error(fmt::format("the access log loses lines: {}", written.why()));
    } else if (options_.log != nullptr && written.lost == 0 && failing) {
      options_.log->info(fmt::format("the access log is written again; {} lines are lost by now",
                                     dropped_.load()));
    }
    failing = written.lost > 0;
  }
}

AccessLog::~AccessLog() {
  lines_.close();
  thread_.join();
}

void AccessLog::write(const RequestRecord& record) {
  if (!lines_.try_push(access_line(record, options_.format))) dropped_.fetch_add(1);
}

}  // namespace pelton::access
