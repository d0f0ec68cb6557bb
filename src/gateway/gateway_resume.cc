// The part of gateway::Gateway that lets a client go on with a stream whose gateway it has lost
// (stream_ticket.h, relay_resume.cc).
#include <algorithm>
#include <array>
#include <utility>

#include "gateway/asked.h"
#include "gateway/gateway.h"
#include "gateway/gateway_errors.h"

namespace pelton::gateway {
namespace {

// What tools have done for a response is not done again, and a stored one is its worker's.
bool may_resume(const net::HttpRequest& request) {
  constexpr std::array<std::string_view, 3> kPaths = {"/v1/chat/completions", "/v1/completions",
                                                      "/v1/messages"};
  return request.method == "POST" && std::ranges::find(kPaths, request.path) != kPaths.end() &&
         stream_form(request) == StreamForm::kEvents && !asks_for_tools(request);
}

}  // namespace

std::optional<api::ApiError> Gateway::set_resume(Relay::Request& request,
                                                 const GatewayConfig& config,
                                                 const PoolConfig& pool) const {
  const std::string_view asked = request.http.headers.get(kResumeHeader);
  if (asked.empty()) return std::nullopt;
  const bool is_new = asked == kResumeWanted;
  const std::string& secret =
      config.regions.secret.empty() ? resume_secret_ : config.regions.secret;
  if (secret.empty() || pool.is_foreign() || !may_resume(request.http)) {
    if (is_new) return std::nullopt;
    return cannot_resume("this gateway gives no tickets for such a stream");
  }
  const StreamTicket::Of of{.tenant = request.principal.tenant,
                            .request_id = request.request_id,
                            .path = request.http.path,
                            .body = request.http.body};
  Relay::Request::Resume resume{.asked = std::string(asked)};
  if (!is_new) {
    const Result<StreamTicket> ticket = StreamTicket::open(asked, secret, of);
    if (!ticket.ok()) return cannot_resume(ticket.error().message);
    Result<StreamPlace> place = StreamPlace::parse(request.http.headers.get(kLastEventHeader));
    if (!place.ok()) return cannot_resume(place.error().message);
    request.created_ms = ticket->created_ms;
    request.seed = ticket->seed;
    resume.from = *std::move(place);
  }
  const StreamTicket ticket{.created_ms = request.created_ms, .seed = request.seed};
  resume.ticket = ticket.seal(secret, of);
  request.resume = std::move(resume);
  return std::nullopt;
}

}  // namespace pelton::gateway
