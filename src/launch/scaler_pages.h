// What an operator asks of a running autoscaler: each pool's replicas and its last decision with
// all terms, as JSON and as metrics. Pure functions.
#pragma once

#include <map>
#include <span>
#include <string>

#include "launch/fleet_scaler.h"
#include "net/http_message.h"
#include "telemetry/prometheus_text.h"

namespace pelton::launch {

// {"pools":[{"pool":…,"state":…,"desired":…,"reason":…,"decision":"3 replicas, …","terms":{…},…}]}
std::string states_body(std::span<const FleetScaler::PoolState> states);
// pelton_autoscaler_*, by pool.
void add_metrics(std::span<const FleetScaler::PoolState> states, telemetry::PrometheusText& text);

// For the console (console/feed.h): the pools' replicas as members of a JSON object, of kPoolsShown
// pools at most, and a row for each pool as states_body() has it.
inline constexpr size_t kPoolsShown = 16;
std::string replicas_sample(std::span<const FleetScaler::PoolState> states);
std::map<std::string, std::string> state_rows(std::span<const FleetScaler::PoolState> states);

// Of a process that does nothing else: GET /v1/autoscaler, /metrics, /health; 404, 405.
net::HttpResponse scaler_answer(const net::HttpRequest& request,
                                std::span<const FleetScaler::PoolState> states);

}  // namespace pelton::launch
