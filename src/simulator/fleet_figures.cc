#include "simulator/fleet_figures.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "report/percentile.h"

namespace pelton::simulator {
namespace {

constexpr double kHour_s = 3600;
constexpr size_t kSlowest = 100;
constexpr std::string_view kLeft = "its client left";

bool has_left(const report::RequestRecord& record) {
  return !record.ok && record.error == kLeft;
}

bool is_late(const report::RequestRecord& record, double late_s) {
  return record.ok && static_cast<double>(record.first_byte_ns - record.due_ns) > late_s * 1e9;
}

std::string seconds_text(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.3g}", *seconds) : "-";
}

std::string count_text(const FleetFigures& figures, int64_t count) {
  return figures.knows_requests ? std::to_string(count) : "-";
}

std::string share_text(const FleetFigures& figures, int64_t count, int64_t of) {
  if (!figures.knows_requests) return "-";
  return fmt::format(
      "{:.2f} %", 100 * static_cast<double>(count) / static_cast<double>(std::max<int64_t>(of, 1)));
}

}  // namespace

FleetFigures figures_of(const SimulationOptions& options, const SimulationResult& result,
                        double late_s, double price) {
  FleetFigures figures{.requests = static_cast<int64_t>(result.records.size()) + result.unfinished};
  std::vector<double> ttft_s;
  int64_t tokens = 0;
  for (const report::RequestRecord& record : result.records) {
    if (has_left(record)) {
      ++figures.left;
    } else if (!record.ok) {
      ++figures.lost;
    } else if (is_late(record, late_s)) {
      ++figures.late;
    }
    if (!record.ok) continue;
    tokens += record.output_tokens;
    ttft_s.push_back(static_cast<double>(record.first_byte_ns - record.due_ns) * 1e-9);
  }
  std::sort(ttft_s.begin(), ttft_s.end());
  if (!ttft_s.empty()) {
    figures.ttft_p50_s = report::percentile(ttft_s, 50);
    figures.ttft_p90_s = report::percentile(ttft_s, 90);
    figures.ttft_p99_s = report::percentile(ttft_s, 99);
  }
  if (result.duration_s > 0) {
    figures.output_tokens_per_s = static_cast<double>(tokens) / result.duration_s;
  }
  figures.replica_hours = options.replica_count * result.duration_s / kHour_s;
  figures.most = options.replica_count;
  if (result.scaling) {
    const ScalingCounts& counts = *result.scaling;
    figures.replica_hours = counts.replica_s / kHour_s;
    figures.most = counts.replicas_most;
    figures.started = counts.started;
    figures.failed_starts = counts.failed_starts;
    figures.direction_changes = counts.direction_changes;
    figures.held_mean_s =
        counts.held_s / static_cast<double>(std::max<int64_t>(figures.requests, 1));
  }
  if (price > 0) figures.cost = price * figures.replica_hours;
  for (const ReplicaCounts& counts : result.replicas) {
    figures.used_hours += static_cast<double>(counts.busy_ns) * 1e-9 / kHour_s;
  }
  double served_s = 0;
  for (size_t i = 0; i < std::min(result.journeys.size(), result.records.size()); ++i) {
    const double sent_s = result.journeys[i].sent_s;
    if (!result.records[i].ok || sent_s < 0) continue;
    served_s += static_cast<double>(result.records[i].end_ns) * 1e-9 - sent_s;
  }
  const int slots = std::max(options.replica.capacity.sequences_max, 1);
  figures.needed_hours = served_s / slots / kHour_s;
  return figures;
}

std::vector<SlowRequest> slowest(const SimulationResult& result, size_t most) {
  std::vector<SlowRequest> all;
  for (size_t i = 0; i < std::min(result.journeys.size(), result.records.size()); ++i) {
    const report::RequestRecord& record = result.records[i];
    const Journey& journey = result.journeys[i];
    if (!record.ok || record.first_byte_ns < 0) continue;
    const double due_s = static_cast<double>(record.due_ns) * 1e-9;
    SlowRequest one{.number = static_cast<int64_t>(i),
                    .due_s = due_s,
                    .first_s = static_cast<double>(record.first_byte_ns - record.due_ns) * 1e-9,
                    .sent_s = std::max(journey.sent_s - due_s, 0.0),
                    .further_s = static_cast<double>(record.end_ns - record.first_byte_ns) * 1e-9,
                    .input = record.input_tokens,
                    .cached = record.cached_tokens,
                    .output = record.output_tokens,
                    .replica = journey.replica,
                    .retries = journey.retries};
    all.push_back(std::move(one));
  }
  const size_t count = std::min(most, all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count), std::greater<>(),
                            &SlowRequest::first_s);
  all.resize(count);
  for (SlowRequest& one : all) {
    if (one.retries > 0) {
      one.why = fmt::format("its replica died, {} time{}", one.retries, one.retries > 1 ? "s" : "");
    } else if (one.sent_s > one.first_s / 2) {
      one.why = fmt::format("{:.3g} s until a replica had a free slot", one.sent_s);
    } else {
      one.why = fmt::format("{:.3g} s at its replica: {} tokens of its prompt, and what was before",
                            one.first_s - one.sent_s, one.input - one.cached);
    }
  }
  return all;
}

FleetTimeline timeline_of(const SimulationOptions& options, const SimulationResult& result,
                          double late_s) {
  constexpr size_t kParts = 120;
  FleetTimeline timeline;
  timeline.part_s = std::max(result.duration_s, 1e-3) / kParts;
  timeline.requests.resize(kParts);
  timeline.late.resize(kParts);
  for (const report::RequestRecord& record : result.records) {
    const double at_s = static_cast<double>(record.due_ns) * 1e-9;
    const auto part = std::min(static_cast<size_t>(at_s / timeline.part_s), kParts - 1);
    timeline.requests[part] += 1;
    if (!record.ok || is_late(record, late_s)) timeline.late[part] += 1;
  }
  if (result.scaling) {
    timeline.samples = result.scaling->history.samples();
  } else {
    const ScalingSample fixed{.desired = options.replica_count, .ready = options.replica_count};
    timeline.samples = {fixed};
  }
  return timeline;
}

PlayedFleet played_fleet(std::string name, const SimulationOptions& options,
                         const SimulationResult& result, double late_s, double price) {
  PlayedFleet fleet{.name = std::move(name),
                    .figures = figures_of(options, result, late_s, price),
                    .timeline = timeline_of(options, result, late_s),
                    .steps = {},
                    .slow = slowest(result, kSlowest)};
  if (!result.scaling) return fleet;
  fleet.steps = result.scaling->history.steps();
  fleet.steps_count = result.scaling->history.steps_count();
  return fleet;
}

std::string figures_table(const std::string& first, std::span<const PlayedFleet> fleets) {
  size_t width = first.size();
  for (const PlayedFleet& fleet : fleets) width = std::max(width, fleet.name.size());
  const bool has_cost = std::ranges::any_of(
      fleets, [](const PlayedFleet& one) { return one.figures.cost.has_value(); });
  std::string out =
      fmt::format("{:<{}} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9} {:>9} {:>7} {:>5} {:>7}{}\n", first,
                  width, "requests", "late", "lost", "left", "TTFT p50", "p90", "p99, s", "hours",
                  "most", "started", has_cost ? "      cost" : "");
  for (const PlayedFleet& fleet : fleets) {
    const FleetFigures& one = fleet.figures;
    out += fmt::format("{:<{}} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9} {:>9} {:>7.2f} {:>5} {:>7}",
                       fleet.name, width, one.requests, share_text(one, one.late, one.requests),
                       count_text(one, one.lost), count_text(one, one.left),
                       seconds_text(one.ttft_p50_s), seconds_text(one.ttft_p90_s),
                       seconds_text(one.ttft_p99_s), one.replica_hours, one.most, one.started);
    if (one.cost) out += fmt::format(" {:>9.2f}", *one.cost);
    out += "\n";
  }
  return out;
}

void write_figures(base::JsonWriter& w, const FleetFigures& figures) {
  const auto put = [&](std::string_view key, const std::optional<double>& value) {
    w.key(key);
    value ? w.number(*value) : w.null();
  };
  const auto count = [&](std::string_view key, int64_t value) {
    w.key(key);
    figures.knows_requests ? w.integer(value) : w.null();
  };
  const auto known = [&](double value) {
    return figures.knows_requests ? std::optional<double>(value) : std::nullopt;
  };
  w.begin_object().key("requests").integer(figures.requests);
  count("late", figures.late);
  count("lost", figures.lost);
  count("left", figures.left);
  put("ttft_p50_s", figures.ttft_p50_s);
  put("ttft_p90_s", figures.ttft_p90_s);
  put("ttft_p99_s", figures.ttft_p99_s);
  put("output_tokens_per_s", known(figures.output_tokens_per_s));
  w.key("replica_hours").number(figures.replica_hours).key("most").integer(figures.most);
  w.key("started").integer(figures.started);
  count("failed_starts", figures.failed_starts);
  w.key("direction_changes").integer(figures.direction_changes);
  put("held_mean_s", figures.held_mean_s);
  put("cost", figures.cost);
  put("used_hours", known(figures.used_hours));
  put("needed_hours", known(figures.needed_hours));
  w.end_object();
}

void write_steps(base::JsonWriter& w, std::span<const ScalingStep> steps) {
  w.begin_array();
  for (const ScalingStep& step : steps) {
    w.begin_object().key("at_s").number(step.at_s).key("desired").integer(step.desired);
    w.key("started").integer(step.started).key("not_started").integer(step.not_started);
    w.key("recalled").integer(step.recalled).key("drained").integer(step.drained);
    w.key("why").string(step.text).end_object();
  }
  w.end_array();
}

std::string steps_text(const PlayedFleet& fleet, size_t most) {
  std::string out;
  const size_t shown = std::min(fleet.steps.size(), most);
  for (size_t i = 0; i < shown; ++i) {
    const ScalingStep& step = fleet.steps[i];
    out += fmt::format("{:>9.1f} s  {}{}\n", step.at_s, step.text,
                       step.not_started > 0 ? "; nothing could be ordered" : "");
  }
  const auto rest = fleet.steps_count - static_cast<int64_t>(shown);
  if (rest > 0) out += fmt::format("and {} more\n", rest);
  return out;
}

}  // namespace pelton::simulator
