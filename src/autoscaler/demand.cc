#include "autoscaler/demand.h"

#include <algorithm>
#include <cmath>

namespace pelton::autoscaler {
namespace {

constexpr double kFastMax_s = 15;

bool is_count(double value) {
  return std::isfinite(value) && value >= 0;
}

void write_served(base::JsonWriter& w, const ServedSums& served) {
  if (served.is_empty()) return;
  w.key("served");
  served.write(w);
}

// Sums that no gateway can have counted would spoil the window's.
ServedSums read_served(const StateReader& state) {
  const Json* json = state.optional("served");
  if (json == nullptr) return {};
  bool ok = true;
  const ServedSums served = ServedSums::read(*json, ok);
  if (!ok || !served.follows({})) state.fail();
  return ok ? served : ServedSums{};
}

}  // namespace

Demand::Demand(double window_s)
    : window_s_(window_s),
      bucket_ns_(std::max<int64_t>(static_cast<int64_t>(window_s / kBuckets * 1e9), 1)),
      buckets_(kBuckets) {}

double Demand::fast_s() const {
  return std::min(kFastMax_s, window_s_ / 4);
}

Demand::Bucket& Demand::bucket(int64_t now_ns) {
  const int64_t index = now_ns / bucket_ns_;
  Bucket& found = buckets_[static_cast<size_t>(index % kBuckets)];
  if (found.index != index) found = {.index = index};
  return found;
}

void Demand::note(std::span<const GatewayReport> reports, int64_t now_ns) {
  Bucket& now = bucket(now_ns);
  bool heard = false;
  for (const GatewayReport& report : reports) heard = note_one(report, now, now_ns) || heard;
  if (!heard) return;
  if (observed_ns_ > 0 && now_ns > observed_ns_) {
    now.span_s += std::min(static_cast<double>(now_ns - observed_ns_) * 1e-9, window_s_);
  }
  observed_ns_ = std::max(observed_ns_, now_ns);
}

// It has counted more since then than a gateway can.
bool Demand::has_leapt(const GatewayReport& report, const Seen& seen, int64_t now_ns) {
  constexpr double kRequestsMost = 1e6;  // a second
  constexpr double kAtOnceMost = 1e7;    // that wait, or are in service
  const double since_s = std::max(static_cast<double>(now_ns - seen.at_ns) * 1e-9, 1.0);
  const auto requests = static_cast<double>(report.requests - seen.requests);
  const auto finished = static_cast<double>(report.finished - seen.finished);
  return std::max(requests, finished) > kRequestsMost * since_s ||
         std::max(report.in_service_s - seen.in_service_s, report.held_s - seen.held_s) >
             kAtOnceMost * since_s;
}

// True if the report is a new one.
bool Demand::note_one(const GatewayReport& report, Bucket& bucket, int64_t now_ns) {
  if (report.requests < 0 || report.finished < 0 || !is_count(report.in_service_s) ||
      !is_count(report.held_s)) {
    ++rejected_;
    return false;
  }
  const auto [found, is_new] = seen_.try_emplace(report.gateway);
  Seen& seen = found->second;
  if (is_new || seen.incarnation != report.incarnation) {
    // Its past is not this window's: what it counted before the first report is unknown.
    const bool began_anew = !is_new;
    seen = {.incarnation = report.incarnation, .at_ns = is_new ? now_ns : seen.at_ns};
    if (!began_anew) {
      seen.requests = report.requests;
      seen.finished = report.finished;
      seen.in_service_s = report.in_service_s;
      seen.held_s = report.held_s;
      seen.served = report.served;
    }
    last_request_ns_ = std::max(last_request_ns_, now_ns);
  } else if (report.sequence <= seen.sequence) {
    return false;
  }
  if (report.requests < seen.requests || report.finished < seen.finished ||
      report.in_service_s < seen.in_service_s || report.held_s < seen.held_s ||
      !report.served.follows(seen.served)) {
    ++rejected_;
    return false;
  }
  if (has_leapt(report, seen, now_ns)) {
    ++rejected_;
    seen = {.requests = report.requests,
            .finished = report.finished,
            .in_service_s = report.in_service_s,
            .held_s = report.held_s,
            .served = report.served};
    last_request_ns_ = std::max(last_request_ns_, now_ns);
  }
  bucket.requests += report.requests - seen.requests;
  bucket.finished += report.finished - seen.finished;
  bucket.in_service_s += report.in_service_s - seen.in_service_s;
  bucket.held_s += report.held_s - seen.held_s;
  note_lately(report.finished - seen.finished, report.in_service_s - seen.in_service_s);
  bucket.served.add(report.served.since(seen.served));
  if (report.requests > seen.requests || report.in_service > 0 || report.held > 0) {
    last_request_ns_ = std::max(last_request_ns_, now_ns);
  }
  seen = {.incarnation = report.incarnation,
          .sequence = report.sequence,
          .requests = report.requests,
          .finished = report.finished,
          .in_service_s = report.in_service_s,
          .held_s = report.held_s,
          .served = report.served,
          .at_ns = now_ns};
  last_report_ns_ = std::max(last_report_ns_, now_ns);
  return true;
}

void Demand::note_lately(int64_t finished, double in_service_s) {
  constexpr double kMost = 64;
  lately_finished_ += static_cast<double>(finished);
  lately_in_service_s_ += in_service_s;
  if (lately_finished_ <= kMost) return;
  const double kept = kMost / 2 / lately_finished_;
  lately_finished_ *= kept;
  lately_in_service_s_ *= kept;
}

Demand::Lately Demand::lately() const {
  if (lately_finished_ <= 0) return {};
  return {.finished = static_cast<int64_t>(lately_finished_),
          .service_s = lately_in_service_s_ / lately_finished_};
}

Demand::Window Demand::over(double seconds, int64_t now_ns) const {
  const int64_t last = now_ns / bucket_ns_;
  const auto wanted =
      static_cast<int64_t>(std::ceil(seconds * 1e9 / static_cast<double>(bucket_ns_)));
  const int64_t first = last - std::clamp<int64_t>(wanted, 1, kBuckets) + 1;
  Window window;
  int64_t requests = 0;
  double in_service_s = 0;
  double held_s = 0;
  for (int64_t index = std::max<int64_t>(first, 0); index <= last; ++index) {
    const Bucket& one = buckets_[static_cast<size_t>(index % kBuckets)];
    if (one.index != index) continue;
    requests += one.requests;
    window.finished += one.finished;
    in_service_s += one.in_service_s;
    held_s += one.held_s;
    window.span_s += one.span_s;
    window.served.add(one.served);
  }
  // The first moments alone would make a rate of one request: what was not observed counts as
  // quiet.
  const double span_s = std::max(window.span_s, std::min(seconds, fast_s()));
  window.rate = static_cast<double>(requests) / span_s;
  window.in_service = in_service_s / span_s;
  window.held = held_s / span_s;
  if (window.finished > 0) window.service_s = in_service_s / static_cast<double>(window.finished);
  return window;
}

void Demand::save(base::JsonWriter& w) const {
  w.begin_object().key("observed_ns").integer(observed_ns_);
  w.key("last_request_ns").integer(last_request_ns_).key("last_report_ns").integer(last_report_ns_);
  w.key("lately_finished");
  write_exact(w, lately_finished_);
  w.key("lately_in_service_s");
  write_exact(w, lately_in_service_s_);
  w.key("rejected").integer(rejected_).key("buckets").begin_array();
  for (const Bucket& one : buckets_) {
    if (one.index < 0) continue;
    w.begin_object().key("index").integer(one.index).key("requests").integer(one.requests);
    w.key("finished").integer(one.finished).key("in_service_s");
    write_exact(w, one.in_service_s);
    w.key("held_s");
    write_exact(w, one.held_s);
    w.key("span_s");
    write_exact(w, one.span_s);
    write_served(w, one.served);
    w.end_object();
  }
  w.end_array().key("seen").begin_array();
  for (const auto& [gateway, seen] : seen_) {
    w.begin_object().key("gateway").string(gateway);
    w.key("incarnation").integer(static_cast<int64_t>(seen.incarnation));
    w.key("sequence").integer(static_cast<int64_t>(seen.sequence));
    w.key("requests").integer(seen.requests).key("finished").integer(seen.finished);
    w.key("in_service_s");
    write_exact(w, seen.in_service_s);
    w.key("held_s");
    write_exact(w, seen.held_s);
    write_served(w, seen.served);
    w.key("at_ns").integer(seen.at_ns).end_object();
  }
  w.end_array().end_object();
}

void Demand::load(StateReader state) {
  constexpr size_t kGatewaysMax = 10'000;
  constexpr int64_t kCountMax = int64_t{1} << 53;  // sixty of them fit into one sum
  buckets_.assign(kBuckets, {});
  seen_.clear();
  observed_ns_ = state.time("observed_ns");
  last_request_ns_ = state.time("last_request_ns");
  last_report_ns_ = state.time("last_report_ns");
  // States written before 2026-11-29 have neither.
  const bool has_lately = state.optional("lately_finished") != nullptr;
  lately_finished_ = has_lately ? state.number("lately_finished") : 0;
  lately_in_service_s_ = has_lately ? state.number("lately_in_service_s") : 0;
  rejected_ = state.integer("rejected", 0);
  state.each("buckets", kBuckets, [&](StateReader one) {
    const int64_t index = one.integer("index", 0);
    buckets_[static_cast<size_t>(index % kBuckets)] = {
        .index = index,
        .requests = one.integer("requests", 0, kCountMax),
        .finished = one.integer("finished", 0, kCountMax),
        .in_service_s = one.number("in_service_s"),
        .held_s = one.number("held_s"),
        .span_s = one.number("span_s"),
        .served = read_served(one)};
  });
  state.each("seen", kGatewaysMax, [&](StateReader one) {
    seen_[one.text("gateway")] = {
        .incarnation = one.bits("incarnation"),
        .sequence = one.bits("sequence"),
        .requests = one.integer("requests", 0, kCountMax),
        .finished = one.integer("finished", 0, kCountMax),
        .in_service_s = one.number("in_service_s"),
        .held_s = one.number("held_s"),
        .served = read_served(one),
        // States written before 2026-11-30 have none.
        .at_ns = one.optional("at_ns") != nullptr ? one.time("at_ns") : 0};
  });
}

}  // namespace pelton::autoscaler
