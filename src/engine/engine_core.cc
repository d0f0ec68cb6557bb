#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::engine {

using Places = AdmissionQueue::Places;

EngineCore::EngineCore(const ExecutorCapacity& capacity, const Scheduler::Options& scheduler,
                       const Options& options, WithQueue with_queue)
    : options_(options),
      batch_tokens_max_(capacity.batch_tokens_max),
      with_queue_(std::move(with_queue)),
      scheduler_(capacity, scheduler),
      step_ns_(options.step_ns) {
  CHECK(options.steps_in_flight_max == 1 || options.steps_in_flight_max == 2);
}

int EngineCore::depth() const {
  if (scheduler_.drafts()) return 1;
  return step_ns_ < options_.overlapped_step_ns_max ? options_.steps_in_flight_max : 1;
}

Result<std::vector<SequenceId>> EngineCore::receive(request::GenerationRequest request,
                                                    int64_t queued_ns,
                                                    std::span<void* const> readers) {
  auto ticket = AdmissionQueue::ticket(request);
  Result<std::vector<SequenceId>> ids =
      scheduler_.submit_answers(std::move(request), static_cast<int>(readers.size()));
  for (size_t i = 0; i < readers.size(); ++i) {
    if (ids.ok()) {
      answers_.emplace(
          (*ids)[i],
          Answer{.ticket = ticket, .times = {.queued_ns = queued_ns}, .reader = readers[i]});
    } else {
      with_queue_([&](AdmissionQueue& queue) { queue.note_never_scheduled(ticket); });
    }
    ticket.prompt_tokens = 0;  // a prompt counts once
  }
  return ids;
}

std::optional<StepPlan> EngineCore::plan(int64_t now_ns) {
  planned_ = false;
  if (in_flight_ >= depth()) return std::nullopt;
  StepPlan next = scheduler_.plan(now_ns);
  const Places places = scheduler_.waiting_count() > 0 ? Places::kTaken : Places::kFree;
  with_queue_([&](AdmissionQueue& queue) { queue.note_places(places, now_ns); });
  if (next.empty()) return std::nullopt;
  if (in_flight_ == 0) running_since_ns_ = now_ns;
  if (was_idle_) committed_ns_ = now_ns;
  was_idle_ = false;
  count(next);
  ++in_flight_;
  planned_ = true;
  return next;
}

bool EngineCore::awaits_result() const {
  return in_flight_ >= depth() || (in_flight_ > 0 && !planned_);
}

void EngineCore::commit(StepResult result, int64_t now_ns) {
  CHECK(in_flight_ > 0);
  --in_flight_;
  result.elapsed_ns = now_ns - running_since_ns_;
  step_ns_ += (result.elapsed_ns - step_ns_) / 4;
  if (result.compute_ns > 0) {
    // One that began while the step before was computed did not take longer than from its result.
    result.compute_ns = std::min(result.compute_ns, result.elapsed_ns);
    result.beside_ns = std::max<int64_t>(now_ns - committed_ns_ - result.compute_ns, 1);
  }
  running_since_ns_ = committed_ns_ = now_ns;
  ++counts_.count;
  if (result.error) ++counts_.failed;
  scheduler_.commit(std::move(result));
}

std::span<Scheduler::Event> EngineCore::take_events(int64_t now_ns) {
  scheduler_.take_events(events_);
  for (const Scheduler::Event& event : events_) note_event(event, now_ns);
  return events_;
}

void EngineCore::note_idle(int64_t now_ns) {
  was_idle_ = true;
  with_queue_([&](AdmissionQueue& queue) { queue.note_places(Places::kFree, now_ns); });
}

void EngineCore::count(const StepPlan& plan) {
  int64_t tokens = 0;
  for (const ScheduledRow& row : plan.sequences) tokens += row.token_count();
  const auto& bounds = StepCounts::kTokenBounds;
  const auto range = std::lower_bound(bounds.begin(), bounds.end(), tokens) - bounds.begin();
  ++counts_.by_tokens[static_cast<size_t>(range)];
  counts_.tokens += tokens;
  if (std::ranges::none_of(plan.sequences, &ScheduledRow::embed)) return;
  const double fill = static_cast<double>(tokens) / batch_tokens_max_;
  const auto& fills = StepCounts::kFillBounds;
  ++counts_.by_fill[static_cast<size_t>(std::ranges::lower_bound(fills, fill) - fills.begin())];
  counts_.fill_sum += fill;
}

void EngineCore::note_event(const Scheduler::Event& event, int64_t now_ns) {
  const bool is_scheduled = event.slot_allocation == Scheduler::Event::SlotAllocation::kScheduled;
  if (!is_scheduled && !event.token && event.end == nullptr) return;
  Answer& answer = answers_.at(event.id);
  RequestTimes& times = answer.times;
  if (is_scheduled && !answer.was_scheduled) {
    answer.was_scheduled = true;
    times.scheduled_ns = now_ns;
    with_queue_([&](AdmissionQueue& queue) { queue.note_seated(answer.ticket); });
  }
  if (event.end != nullptr) {
    with_queue_([&](AdmissionQueue& queue) {
      if (answer.was_scheduled) {
        queue.note_left_slot(answer.ticket, *event.end, times, now_ns);
      } else {
        queue.note_never_scheduled(answer.ticket);
      }
    });
  }
  if (event.token) {
    ++counts_.output_tokens;
    if (times.first_token_ns == 0) times.first_token_ns = now_ns;
    times.last_token_ns = now_ns;
  }
  if (event.end != nullptr) event.end->times = times;
}

}  // namespace pelton::engine
