// A fleet's figures for its gateway's metrics: workers and their states, and what is known of their
// prefix caches. Any thread.
#pragma once

#include <span>

#include "gateway/fleet.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

void add_fleet_metrics(const Fleet& fleet, std::span<const Fleet::Row> rows,
                       telemetry::PrometheusText& text);

}  // namespace pelton::gateway
