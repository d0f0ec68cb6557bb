#include "apps/reporting.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "apps/version.h"
#include "base/machine.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Our flag, or where every OpenTelemetry exporter looks.
std::string collector_url(const cli::Arguments& arguments) {
  if (arguments.has("--otlp-endpoint")) return arguments.text("--otlp-endpoint");
  for (const char* name : {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

}  // namespace

Result<void> Reporting::open(const cli::Arguments& arguments, base::Log& log) {
  const std::string& format = arguments.text("--access-log");
  if (format != "none") {
    std::FILE* file = stderr;
    if (arguments.has("--access-log-file")) {
      const std::string& name = arguments.text("--access-log-file");
      Result<base::OutputFile> opened = base::open_output(name, base::OutputMode::kAppend);
      if (!opened.ok()) {
        return Error{ErrorCode::kIo, opened.error().message, "access-log-file"};
      }
      file_ = *std::move(opened);
      file_name_ = name;
      file = file_.get();
    }
    access_log_ = std::make_unique<access::AccessLog>(
        access::AccessLog::Options{.format = format == "json" ? access::AccessLog::Format::kJson
                                                              : access::AccessLog::Format::kText,
                                   .file = file,
                                   .log = &log});
  }
  const std::string url = collector_url(arguments);
  if (url.empty()) {
    // A variable is for other servers too, and --print-config prints the default.
    const cli::Arguments::Source source = arguments.source("--trace-share");
    const bool is_meant =
        source == cli::Arguments::Source::kWord ||
        (source == cli::Arguments::Source::kFile && arguments.number("--trace-share") != 1);
    if (!is_meant) return {};
    return Error{ErrorCode::kInvalidArgument,
                 "--trace-share has no effect without a collector: give --otlp-endpoint",
                 "trace-share"};
  }
  TRY_ASSIGN(traces_, telemetry::TraceExporter::create(
                          {.url = url, .service = {.name = "pelton", .version = kVersion}}, log));
  trace_share_ = arguments.number("--trace-share");
  return {};
}

Result<void> Reporting::reopen() {
  if (file_ == nullptr) return {};
  return base::reopen_output(file_.get(), file_name_);
}

access::RequestReporter::Options Reporting::options() const {
  return {.access_log = access_log_.get(), .traces = traces_.get(), .trace_share = trace_share_};
}

// Of hundreds of streams that get their tokens in one step the last should not wait for all writes
// of the others; and while they write, computing threads lose the less the more processors share
// it. Idle ones cost nothing.
int http_threads(const cli::Arguments& arguments) {
  constexpr size_t kMost = 4;
  if (arguments.has("--http-threads")) return static_cast<int>(arguments.integer("--http-threads"));
  return static_cast<int>(std::min(base::usable_cpus().size(), kMost));
}

std::vector<Flag> watch_flags() {
  return {{.name = "--watchdog-seconds",
           .value = "N",
           .help = "/health is 503 while a step takes longer; 0: never",
           .kind = Flag::Kind::kInteger,
           .default_text = "300",
           .most = 86400},
          {.name = "--watchdog-action",
           .value = "A",
           .help = "then: only report, or exit with code 7, for a supervisor to start it anew",
           .default_text = "report",
           .choices = {"report", "exit"},
           .not_with = {{"--watchdog-seconds", {"0"}}}},
          {.name = "--weight-scrub-hours",
           .value = "H",
           .help = "in this time all weights are looked at once, whether they are what they were; "
                   "0: never",
           .kind = Flag::Kind::kNumber,
           .default_text = "24",
           .most = 8760},
          {.name = "--numerical-errors-max",
           .value = "N",
           .help = "not ready once more requests in a minute end with numbers that are not finite; "
                   "0: however many",
           .kind = Flag::Kind::kInteger,
           .default_text = "5",
           .most = 1'000'000}};
}

std::vector<Flag> reporting_flags() {
  return {{.name = "--access-log",
           .value = "FORMAT",
           .help = "a line for each request, without a word of prompts and answers",
           .default_text = "none",
           .choices = {"none", "text", "json"}},
          {.name = "--access-log-file",
           .value = "FILE",
           .help = "where these lines are appended; opened again at SIGHUP; default stderr",
           .only_with = {{"--access-log", {"text", "json"}}}},
          {.name = "--otlp-endpoint",
           .value = "URL",
           .help = "an OpenTelemetry collector (OTLP over HTTP) that gets a trace of each request"},
          {.name = "--trace-share",
           .value = "X",
           .help = "of the requests whose caller does not say (traceparent), this share is traced",
           .kind = Flag::Kind::kNumber,
           .default_text = "1",
           .least = 0,
           .most = 1},
          {.name = "--http-threads",
           .value = "N",
           .help = "threads that read requests and write answers; default one for each processor, "
                   "at most 4",
           .kind = Flag::Kind::kInteger,
           .least = 1,
           .most = 64}};
}

}  // namespace pelton::apps
