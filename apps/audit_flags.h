// --audit-log and --audit-key-file, of a gateway and of a server alike.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "access/audit_log.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/command_line.h"

namespace pelton::apps {

// `kept`: what of it is kept, for the help text.
std::vector<cli::Flag> audit_flags(const std::string& kept);
// Null: none is kept. Errors: kBadConfig, kIo.
Result<std::unique_ptr<access::AuditLog>> open_audit(const cli::Arguments& arguments,
                                                     const base::Clock& clock, base::Log& log);

}  // namespace pelton::apps
