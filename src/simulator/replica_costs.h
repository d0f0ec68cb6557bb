// What gateways and autoscalers know of a simulated replica's costs, derived from its step-time
// model. Pure.
#pragma once

#include "autoscaler/slo_capacity.h"
#include "cluster/block_names.h"
#include "cluster/step_fit.h"
#include "cost_model/step_time.h"
#include "engine/executor.h"
#include "workload/offered_load.h"

namespace pelton::simulator {

cluster::RoutedGroups routed_groups(const engine::ExecutorCapacity& capacity);
// A step's line through three points, and what a token of a prompt takes in a full step.
cluster::StepCosts step_costs(const cost_model::StepTimeModel& times,
                              const engine::ExecutorCapacity& capacity);
autoscaler::ReplicaModel model_of(const cluster::StepCosts& costs,
                                  const engine::ExecutorCapacity& capacity);
// Of a request of the load's mean length, alone: what the autoscaler assumes until it has seen
// some.
double service_s_assumed(const workload::OfferedLoad& load, const cluster::StepCosts& costs);

}  // namespace pelton::simulator
