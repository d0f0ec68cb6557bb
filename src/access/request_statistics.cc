#include "access/request_statistics.h"

#include <exception>
#include <utility>

#include "access/request_reporter.h"

namespace pelton::access {

// From the bounds that others have by default (0.1, 0.5 and 1 s) in both directions: of what needs
// no model to the longest answers.
const std::vector<double>& RequestStatistics::second_bounds() {
  static const std::vector<double> bounds = {.001, .005, .01, .05, .1, .25, .5,  1,
                                             2.5,  5,    10,  30,  60, 120, 300, 600};
  return bounds;
}

int64_t RequestStatistics::begin() {
  const std::lock_guard lock(mutex_);
  ++counts_.received;
  return clock_.now_ns();
}

void RequestStatistics::end(const End& end) {
  const int64_t took_ns = clock_.now_ns() - end.begun_ns;
  const std::lock_guard lock(mutex_);
  if (end.status == kClientLeft) {
    ++counts_.cancelled;
  } else if (end.status >= 500) {
    ++counts_.server_errors;
  } else if (end.status >= 400) {
    ++counts_.client_errors;
  } else {
    ++counts_.ok;
  }
  ++by_key_[{.handler = end.route.handler, .method = end.route.method, .status = end.status}];
  Measured& measured = by_route_[end.route];
  measured.seconds.observe(static_cast<double>(took_ns) * 1e-9);
  if (!end.bytes) return;
  ++measured.sized;
  measured.bytes.asked += end.bytes->asked;
  measured.bytes.answered += end.bytes->answered;
}

RequestStatistics::Counts RequestStatistics::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::map<RequestStatistics::Key, int64_t> RequestStatistics::by_key() const {
  const std::lock_guard lock(mutex_);
  return by_key_;
}

std::map<RequestStatistics::Route, RequestStatistics::Sums> RequestStatistics::by_route() const {
  const std::lock_guard lock(mutex_);
  std::map<Route, Sums> sums;
  for (const auto& [route, measured] : by_route_) {
    sums[route] = {
        .seconds = measured.seconds.read(), .sized = measured.sized, .bytes = measured.bytes};
  }
  return sums;
}

TrackedRequest::TrackedRequest(RequestStatistics& book, const Route& route)
    : book_(book), route_(route), begun_ns_(book.begin()) {}

TrackedRequest::~TrackedRequest() {
  // Thrown out for want of memory, or left by its client.
  answered(std::uncaught_exceptions() > 0 ? 503 : RequestStatistics::kClientLeft);
}

void TrackedRequest::report_to(RequestReporter& reporter, std::unique_ptr<RequestRecord> record) {
  reporter_ = &reporter;
  record_ = std::move(record);
}

void TrackedRequest::note_request_bytes(size_t bytes) {
  bytes_ = {.asked = static_cast<int64_t>(bytes)};
}

void TrackedRequest::note_response_bytes(size_t bytes) {
  if (bytes_) bytes_->answered += static_cast<int64_t>(bytes);
}

void TrackedRequest::answered(int status) {
  if (ended_) return;
  ended_ = true;
  book_.end({.route = route_, .status = status, .begun_ns = begun_ns_, .bytes = bytes_});
  if (record_ == nullptr) return;
  record_->handler = route_.handler;
  record_->method = route_.method;
  record_->status = status;
  reporter_->end(*record_);
}

}  // namespace pelton::access
