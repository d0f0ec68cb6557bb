#include "apps/gateway_chains.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "api/error.h"
#include "apps/chains_flags.h"
#include "gateway/interruption.h"
#include "net/json_response.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kList = "/v1/chains";
constexpr std::string_view kOne = "/v1/chains/";

void send(net::Exchange& exchange, int status, std::string body) {
  exchange.send(net::json_response(std::move(body), status));
}

void refuse(net::Exchange& exchange, const api::ApiError& error) {
  send(exchange, error.status, api::error_body(error));
}

// Whose the requests are, which conversation they are of, which trace.
net::HttpHeaders passed_on(const net::HttpHeaders& headers) {
  net::HttpHeaders passed;
  for (const char* name :
       {"Authorization", "x-api-key", "x-session-id", "traceparent", "tracestate"}) {
    if (headers.has(name)) passed.add(name, std::string(headers.get(name)));
  }
  return passed;
}

// The one that all of its pools have; empty: they have several. A gateway takes a request that
// names none for its only pool's, and refuses it where there are more.
std::string only_model(const gateway::GatewayConfig& config) {
  std::string only;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (pool.models.size() != 1 || (!only.empty() && only != pool.models.front())) return {};
    only = pool.models.front();
  }
  return only;
}

// None where the header is missing or is no number; then the gateway's own bounds hold.
std::optional<int64_t> time_left_ms(const net::HttpHeaders& headers) {
  std::optional<int64_t> least;  // the soonest counts
  for (const char* name : {"x-request-timeout-ms", "x-request-deadline-ms"}) {
    const std::string_view text = headers.get(name);
    int64_t ms = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), ms);
    if (failed == std::errc() && end == text.data() + text.size() && ms > 0) {
      least = std::min(least.value_or(ms), ms);
    }
  }
  return least;
}

}  // namespace

Result<std::unique_ptr<GatewayChains>> GatewayChains::open(const cli::Arguments& arguments,
                                                           gateway::Gateway& gateway,
                                                           const base::Clock& clock) {
  std::unique_ptr<GatewayChains> chains(new GatewayChains(gateway, clock));
  TRY_ASSIGN(chains->service_, open_chains(
                                   arguments,
                                   [&gateway](net::HttpRequest request,
                                              const std::shared_ptr<net::Exchange>& exchange,
                                              const chain_http::ChainService::Caller&) {
                                     gateway.handle(std::move(request), exchange);
                                   },
                                   clock));
  if (chains->service_ == nullptr) chains.reset();
  return chains;
}

bool GatewayChains::handle(net::HttpRequest& request,
                           const std::shared_ptr<net::Exchange>& exchange) {
  const bool is_list = request.path == kList;
  if (!is_list && !request.path.starts_with(kOne)) return false;
  if (!gateway_.takes_body(request)) {
    refuse(*exchange, api::bad_api_key());
  } else if (request.method != (is_list ? "GET" : "POST")) {
    refuse(*exchange, api::method_not_allowed(request.method, request.path));
  } else if (is_list) {
    send(*exchange, 200, service_->list_body());
  } else if (gateway_.drains()) {
    // A run is many requests: begun now it would be cut amid them.
    exchange->send(gateway::error_answer(request.path,
                                         {.status = 503,
                                          .message = "The gateway is shutting down",
                                          .type = "service_unavailable",
                                          .param = {},
                                          .code = "draining",
                                          .retry_after_s = 1},
                                         ""));
  } else {
    run(request, exchange);
  }
  return true;
}

void GatewayChains::run(net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
  const std::string name = request.path.substr(kOne.size());
  std::shared_ptr<const chain::Chain> chain = service_->find(name);
  if (chain == nullptr) return refuse(*exchange, service_->missing(name));
  const int64_t now_ns = clock_.now_ns();
  chain_http::ChainService::Request asked;
  asked.chain = std::move(chain);
  asked.id = fmt::format("chain_{:016x}", now_ns);
  asked.body = std::move(request.body);
  asked.any_model = only_model(*gateway_.in_force());
  asked.caller.headers = passed_on(request.headers);
  if (const auto left_ms = time_left_ms(request.headers)) {
    constexpr int64_t kDayMs = 86'400'000;
    asked.deadline_ns = now_ns + std::min(*left_ms, kDayMs) * 1'000'000;
  }
  service_->run(std::move(asked), exchange);
}

}  // namespace pelton::apps
