#include "server/request_book.h"

#include <exception>
#include <utility>

#include "server/request_reporter.h"

namespace pelton::server {

void RequestBook::begin() {
  const std::lock_guard lock(mutex_);
  ++counts_.received;
}

void RequestBook::end(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (key.status == kClientLeft) {
    ++counts_.cancelled;
  } else if (key.status >= 500) {
    ++counts_.server_errors;
  } else if (key.status >= 400) {
    ++counts_.client_errors;
  } else {
    ++counts_.ok;
  }
  ++by_key_[key];
}

RequestBook::Counts RequestBook::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::map<RequestBook::Key, int64_t> RequestBook::by_key() const {
  const std::lock_guard lock(mutex_);
  return by_key_;
}

RequestEntry::RequestEntry(RequestBook& book, const Route& route) : book_(book), route_(route) {
  book_.begin();
}

RequestEntry::~RequestEntry() {
  // Thrown out for want of memory, or left by its client.
  answered(std::uncaught_exceptions() > 0 ? 503 : RequestBook::kClientLeft);
}

void RequestEntry::report_to(RequestReporter& reporter, std::unique_ptr<RequestRecord> record) {
  reporter_ = &reporter;
  record_ = std::move(record);
}

void RequestEntry::answered(int status) {
  if (ended_) return;
  ended_ = true;
  book_.end({.handler = route_.handler, .method = route_.method, .status = status});
  if (record_ == nullptr) return;
  record_->handler = route_.handler;
  record_->method = route_.method;
  record_->status = status;
  reporter_->end(*record_);
}

}  // namespace pelton::server
