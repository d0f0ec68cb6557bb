// What an operator sees of roll-outs, and says to them: pages of the admin listener, and metrics.
//
//   GET  /v1/rollouts, /v1/rollouts/NAME
//   POST /v1/rollouts/NAME/pause, resume, rollback, promote
//
// Any thread.
#pragma once

#include <string>
#include <string_view>

#include "gateway/rollouts.h"
#include "net/http_message.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

bool is_rollout_path(std::string_view path);
net::HttpResponse rollout_answer(const net::HttpRequest& request, Rollouts& rollouts);
// The same command from elsewhere, by whoever may.
net::HttpResponse rollout_command_answer(std::string_view name, RolloutCommand command,
                                         std::string_view who, Rollouts& rollouts);
void add_rollout_metrics(const Rollouts& rollouts, telemetry::PrometheusText& text);

}  // namespace pelton::gateway
