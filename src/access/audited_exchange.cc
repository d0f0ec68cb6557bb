#include "access/audited_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace pelton::access {
namespace {

constexpr size_t kTargetMax = 200;  // bytes of what a request names

// The code of an error as the API has it; empty: there is none.
std::string code_of(std::string_view body) {
  const Result<Json> json = Json::parse(body);
  const Json* error = json.ok() ? json->find("error") : nullptr;
  return error == nullptr ? "" : error->string("code").value_or("");
}

bool is_nowhere(int status, const std::string& code) {
  return status == 405 || (status == 404 && (code.empty() || code == "unknown_url"));
}

}  // namespace

bool is_reading(const net::HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS";
}

std::string address_of(const net::HttpRequest& request) {
  return request.remote.substr(0, request.remote.rfind(':'));
}

std::string audit_result(int status, std::string_view body) {
  if (status < 300) return status == 202 ? "begun" : "done";
  const std::string code = code_of(body);
  return fmt::format("{}: {}{}{}", status < 500 ? "refused" : "failed", status,
                     code.empty() ? "" : " ", code);
}

AuditEvent audit_event_of(const net::HttpRequest& request, std::string_view collection) {
  AuditEvent event{.from = address_of(request)};
  const std::string_view path = request.path;
  const size_t slash = path.rfind('/');
  if (!collection.empty() && path.starts_with(collection) && slash > collection.size()) {
    event.what = path.substr(slash + 1);
    event.target = path.substr(collection.size(), slash - collection.size());
    if (!request.query.empty()) event.detail = {request.query.substr(0, kTargetMax)};
  } else {
    event.what = request.method;
    event.target = path.substr(0, kTargetMax);
    if (!request.query.empty()) event.target += "?" + request.query;
  }
  event.target.resize(std::min(event.target.size(), kTargetMax));
  return event;
}

AuditedExchange::~AuditedExchange() {
  if (is_noted_) return;
  event_.result = "begun; its client has left";
  audit_.note_often(event_);
}

void AuditedExchange::note(int status, std::string_view body) {
  is_noted_ = true;
  event_.result = audit_result(status, body);
  if (status < 300 && done_ == Done::kWritten) {
    audit_.note(event_);
    return;
  }
  if (is_nowhere(status, code_of(body))) return;
  event_.detail.clear();
  // What strangers write there would be as many kinds as they like.
  if (status == 401 || status == 403) {
    event_.target.resize(std::min(event_.target.find('?'), event_.target.size()));
  }
  audit_.note_often(event_);
}

void AuditedExchange::send(net::HttpResponse response) {
  note(response.status, response.body);
  exchange_->send(std::move(response));
}

void AuditedExchange::start_stream(int status, net::HttpHeaders headers) {
  note(status, {});
  exchange_->start_stream(status, std::move(headers));
}

}  // namespace pelton::access
