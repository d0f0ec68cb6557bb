// What `pelton serve` reports of each request: the access log and the trace collector, by its
// flags. Owned by the verb; outlives the server that reports to it.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "access/access_log.h"
#include "access/request_reporter.h"
#include "base/log.h"
#include "base/output_file.h"
#include "cli/command_line.h"
#include "telemetry/trace_exporter.h"

namespace pelton::apps {

class Reporting {
 public:
  // Errors: kBadConfig, kIo.
  Result<void> open(const cli::Arguments& arguments, base::Log& log);

  // The access log's file by its name again: it was moved away. Errors: kIo, and all stays.
  Result<void> reopen();

  access::RequestReporter::Options options() const;

 private:
  base::OutputFile file_;
  std::string file_name_;
  std::unique_ptr<access::AccessLog> access_log_;
  std::unique_ptr<telemetry::TraceExporter> traces_;
  double trace_share_ = 1.0;
};

int http_threads(const cli::Arguments& arguments);

std::vector<cli::Flag> reporting_flags();
// --watchdog-seconds --watchdog-action --weight-scrub-hours --numerical-errors-max.
std::vector<cli::Flag> watch_flags();

}  // namespace pelton::apps
