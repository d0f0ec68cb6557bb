#include "access/audit_metrics.h"

namespace pelton::access {

void add_audit_metrics(const AuditLog* audit, telemetry::PrometheusText& text) {
  if (audit == nullptr) return;
  text.counter("pelton_audit_lines_total", "Lines of the audit log, since it was begun.",
               static_cast<double>(audit->lines()));
  text.counter("pelton_audit_lines_lost_total",
               "Lines that could not be written, since this process began.",
               static_cast<double>(audit->failures()));
}

}  // namespace pelton::access
