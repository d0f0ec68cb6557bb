// How much of an audit log is written, and what is lost of it, of a gateway and of a server alike.
#pragma once

#include "access/audit_log.h"
#include "telemetry/prometheus_text.h"

namespace pelton::access {

// Nothing where there is none. Any thread.
void add_audit_metrics(const AuditLog* audit, telemetry::PrometheusText& text);

}  // namespace pelton::access
