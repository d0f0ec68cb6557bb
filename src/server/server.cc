#include "server/server.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "net/multipart_form.h"
#include "rpc/grpc_frame.h"
#include "server/grpc_forwarded.h"
#include "server/reply.h"
#include "server/root_path.h"
#include "telemetry/trace_context.h"

namespace pelton::server {
namespace {

// Also what says nothing of itself. All else is refused, above all what a browser sends for any
// page without asking first: forms and plain text.
bool may_be_json(std::string_view content_type) {
  const size_t end = std::min(content_type.find(';'), content_type.size());
  std::string type(content_type.substr(0, end));
  while (type.ends_with(' ') || type.ends_with('\t')) type.pop_back();
  for (char& c : type) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  if (type.empty() || type == "application/json") return true;
  return type.starts_with("application/") && type.ends_with("+json");
}

// Ollama's clients ask below /api/ and read its errors only.
Dialect dialect_of_unknown(std::string_view path) {
  return path == "/api" || path.starts_with("/api/") ? Dialect::kOllama : Dialect::kOpenAi;
}

access::TrackedRequest::Route entry_route(const EndpointMatch& match, std::string_view path) {
  for (const std::string_view method : {rpc::kGrpcGenerate, rpc::kGrpcTokenize, rpc::kGrpcEmbed}) {
    if (match.endpoint == nullptr && path == method) return {.handler = method, .method = "POST"};
  }
  if (match.endpoint == nullptr) return {.handler = "none", .method = "none"};
  return {.handler = match.endpoint->path, .method = match.endpoint->method};
}

// What a browser asks before it lets a page of another origin send a request.
net::HttpResponse preflight_answer(const net::HttpHeaders& headers) {
  net::HttpResponse response{.status = 204, .headers = {}, .body = {}};
  response.headers.add("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
  if (headers.has("Access-Control-Allow-Origin")) {
    response.headers.add("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    response.headers.add("Access-Control-Allow-Headers", "*, Authorization");
  }
  return response;
}

}  // namespace

// A browser lets any page send a form without asking first: from a page it is taken where pages of
// that origin have leave.
bool Server::may_send_form(const net::HttpRequest& request) const {
  if (!net::is_form(request.headers.get("Content-Type"))) return false;
  return !request.headers.has("Origin") ||
         services_.options.cors.allow(request.headers.get("Origin"));
}

void Server::drain() {
  services_.leaving = true;
  services_.draining = true;
}

net::HttpHeaders Server::common_headers(const net::HttpRequest& request) {
  net::HttpHeaders headers;
  headers.add("x-request-id", services_.request_id(request.headers.get("x-request-id")));
  services_.options.cors.add_headers(request.headers.get("Origin"), headers);
  return headers;
}

Call Server::new_call(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                      const EndpointMatch& match) {
  Call call{.request = std::move(request),
            .exchange = std::move(exchange),
            .headers = {},
            .tenant = {},
            .caller = {},
            .arrived_ns = services_.clock.now_ns()};
  call.body_bytes = static_cast<int64_t>(call.request.body.size());
  call.headers = common_headers(call.request);
  call.entry = std::make_unique<access::TrackedRequest>(services_.statistics,
                                                        entry_route(match, call.request.path));
  call.entry->note_request_bytes(call.request.body.size());
  services_.report(*call.entry, {.path = call.request.path,
                                 .http_method = call.request.method,
                                 .remote = call.request.remote,
                                 .request_id = call.headers.get("x-request-id"),
                                 .traceparent = call.request.headers.get("traceparent"),
                                 .request_bytes = call.body_bytes});
  const access::RequestRecord* const record = call.record();
  if (record != nullptr && record->traced) {
    call.headers.add("traceparent", telemetry::format_traceparent(record->trace));
  }
  call.endpoint = match.endpoint;
  call.dialect =
      match.endpoint != nullptr ? match.endpoint->dialect : dialect_of_unknown(call.request.path);
  if (call.dialect == Dialect::kAnthropic) {  // by the name that its clients know
    call.headers.add("request-id", std::string(call.headers.get("x-request-id")));
  }
  return call;
}

bool Server::identify(Call& call, const EndpointMatch& match) {
  const bool open = match.endpoint != nullptr && match.endpoint->access == Endpoint::Access::kOpen;
  std::optional<access::Principal> caller = services_.access_control.identify(
      access::AccessControl::credentials_of(call.request.headers));
  if (!open && !caller) {
    call.headers.add("WWW-Authenticate", "Bearer");
    call.send(api::bad_api_key());
    return false;
  }
  if (caller) call.caller = *std::move(caller);
  call.tenant = call.caller.tenant;
  if (call.record() != nullptr) call.record()->tenant = call.tenant;
  return true;
}

bool Server::takes_body(const net::HttpRequest& head) const {
  return services_.access_control.identify(access::AccessControl::credentials_of(head.headers))
      .has_value();
}

void Server::handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
  strip_root_path(services_.options.root_path, request.path);
  const EndpointMatch match = find_endpoint(request.method, request.path);
  Call call = new_call(std::move(request), std::move(exchange), match);
  if (call.request.method == "OPTIONS") return call.send(preflight_answer(call.headers));
  if (!identify(call, match)) return;
  answer(std::move(call), match);
}

void Server::handle_forwarded(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                              Forwarded forwarded) {
  const bool is_grpc = rpc::is_grpc_method(request.path);
  const EndpointMatch match =
      is_grpc ? EndpointMatch() : find_endpoint(request.method, request.path);
  Call call = new_call(std::move(request), std::move(exchange), match);
  call.caller = std::move(forwarded.principal);
  call.tenant = call.caller.tenant;
  if (call.record() != nullptr) call.record()->tenant = call.tenant;
  call.transport_deadline_ns = forwarded.deadline_ns;
  call.identity = std::make_shared<RequestIdentity>(forwarded.identity);
  call.resumed = std::move(forwarded.resumed);
  call.observer = std::move(forwarded.observer);
  call.peer = std::move(forwarded.peer);
  if (is_grpc) return answer_forwarded_grpc(std::move(call), services_);
  answer(std::move(call), match);
}

void Server::handle_as(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                       const access::Principal& principal) {
  const EndpointMatch match = find_endpoint(request.method, request.path);
  Call call = new_call(std::move(request), std::move(exchange), match);
  call.caller = principal;
  call.tenant = principal.tenant;
  if (call.record() != nullptr) call.record()->tenant = call.tenant;
  answer(std::move(call), match);
}

void Server::answer(Call call, const EndpointMatch& match) {
  const std::string& method = call.request.method;
  const std::string& path = call.request.path;
  if (match.endpoint == nullptr && match.allowed_methods.empty()) {
    return call.send(api::not_found(method, path));
  }
  if (match.endpoint == nullptr) {
    call.headers.add("Allow", match.allowed_methods);
    return call.send(api::method_not_allowed(method, path));
  }
  const std::string_view content_type = call.request.headers.get("Content-Type");
  const bool is_form = match.endpoint->takes_form && may_send_form(call.request);
  if (!call.request.body.empty() && !is_form && !may_be_json(content_type)) {
    return call.send(api::not_json(content_type));
  }
  if (match.endpoint->access == Endpoint::Access::kAdminKey && !call.caller.is_admin) {
    return call.send(api::not_admin_key());
  }
  match.endpoint->function(std::move(call), services_);
}

}  // namespace pelton::server
