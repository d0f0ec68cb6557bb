#include "apps/audit_flags.h"

#include <utility>

#include "apps/secret_file.h"

namespace pelton::apps {

std::vector<cli::Flag> audit_flags(const std::string& kept) {
  return {{.name = "--audit-log",
           .value = "FILE",
           .help = "keep " + kept +
                   ", each line sealed, for pelton audit; at 64 MiB it becomes "
                   "FILE.N",
           .may_be_empty = false,
           .only_with = {{"--audit-key-file"}}},
          {.name = "--audit-key-file",
           .value = "FILE",
           .help = "the key that seals it: a secret of 32 bytes or more",
           .may_be_empty = false,
           .only_with = {{"--audit-log"}}}};
}

Result<std::unique_ptr<access::AuditLog>> open_audit(const cli::Arguments& arguments,
                                                     const base::Clock& clock, base::Log& log) {
  if (!arguments.has("--audit-log")) return std::unique_ptr<access::AuditLog>();
  TRY_ASSIGN(std::string key, read_secret_file(arguments, "--audit-key-file"));
  return access::AuditLog::open({.file = arguments.text("--audit-log"), .key = std::move(key)},
                                clock, log);
}

}  // namespace pelton::apps
