#include "server/admin_server.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "net/query_check.h"
#include "net/url.h"
#include "server/health.h"
#include "server/ledger_report.h"
#include "server/metrics_page.h"
#include "server/pinned_prefixes.h"
#include "server/reply.h"
#include "telemetry/prometheus_text.h"

namespace pelton::server {
namespace {

constexpr std::string_view kModels = "/admin/models";
constexpr std::string_view kFaults = "/admin/faults";
constexpr std::string_view kPrefixes = "/admin/prefixes";
constexpr std::string_view kPrefixesBelow = "/admin/prefixes/";
constexpr std::string_view kModelsBelow = "/admin/models/";
constexpr int64_t kDrainSecondsMax = 86'400;

net::HttpResponse with_status(int status, net::HttpResponse response) {
  response.status = status;
  return response;
}

net::HttpResponse not_allowed(const net::HttpRequest& request, std::string allowed) {
  net::HttpResponse refused = error_reply(api::method_not_allowed(request.method, request.path));
  refused.headers.add("Allow", std::move(allowed));
  return refused;
}

bool reads(const net::HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

// Why a model is not there, or not gone. To the operator, whatever it is: its words are not hidden
// in the log.
net::HttpResponse model_error(const Error& error) {
  api::ApiError shown = api::api_error(error);
  shown.message = error.message;
  const auto wrong = [&](std::string code) {
    return api::ApiError{.status = 400,
                         .message = error.message,
                         .type = "invalid_request_error",
                         .param = error.field,
                         .code = std::move(code)};
  };
  switch (error.code) {
    case ErrorCode::kNotFound:
      // Else a file that another field names.
      if (!error.field.empty() && error.field != "model" && error.field != "name") {
        shown = wrong("bad_file");
      } else {
        shown.code = "model_not_found";
      }
      break;
    case ErrorCode::kUnavailable:
      // Else the server is leaving, a step is stuck, or a hub is out of reach.
      if (error.field != "name" && error.field != "aliases") break;
      shown = {.status = 409,
               .message = error.message,
               .type = "invalid_request_error",
               .param = error.field,
               .code = "model_exists"};
      break;
    case ErrorCode::kCancelled:
      shown.status = 409;
      shown.type = "invalid_request_error";
      shown.code = "model_unloaded";
      shown.retry_after_s = 0;
      break;
    case ErrorCode::kDoesNotFit:
      shown.status = 507;
      shown.type = "server_error";
      shown.code = "insufficient_memory";
      break;
    case ErrorCode::kBadCheckpoint:
      shown = wrong("bad_checkpoint");
      break;
    case ErrorCode::kBadConfig:
    case ErrorCode::kIo:  // of a file that the request names
      shown = wrong("bad_file");
      break;
    default:
      break;
  }
  return error_reply(shown);
}

// A page that an operator looks at may not load models here: a browser asks before it sends JSON
// anywhere, and is answered that it may not.
bool is_json(const net::HttpRequest& request) {
  const std::string_view type = request.headers.get("Content-Type");
  return net::equals_without_case(type.substr(0, type.find(';')), "application/json");
}

api::ApiError not_json(const net::HttpRequest& request) {
  api::ApiError error = api::not_json(request.headers.get("Content-Type"));
  error.message = "Send JSON with the header 'Content-Type: application/json'";
  return error;
}

struct UnloadOptions {
  bool wait = true;
  int64_t drain_ms = 0;
};

// Of "wait=false&drain_seconds=5". A slip would go unseen: "?drain=0" is not "?drain_seconds=0".
Result<UnloadOptions> unload_options(std::string_view query, int64_t drain_ms) {
  TRY(net::check_query(query, {"wait", "drain_seconds"}));
  UnloadOptions options{.drain_ms = drain_ms};
  if (const auto wait = net::query_value(query, "wait")) {
    if (*wait != "true" && *wait != "false") {
      return Error{ErrorCode::kInvalidArgument, "'wait' must be true or false", "wait"};
    }
    options.wait = *wait == "true";
  }
  if (const auto seconds = net::query_value(query, "drain_seconds")) {
    int64_t value = -1;
    const char* const end = seconds->data() + seconds->size();
    const auto [stopped, failed] = std::from_chars(seconds->data(), end, value);
    if (failed != std::errc() || stopped != end || value < 0 || value > kDrainSecondsMax) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'drain_seconds' must be an integer from 0 to {}", kDrainSecondsMax),
                   "drain_seconds"};
    }
    options.drain_ms = value * 1000;
  }
  return options;
}

}  // namespace

void AdminServer::handle(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange) {
  if (request.path == kModels && request.method == "POST") return load(request, exchange);
  if (request.path.starts_with(kModelsBelow)) {
    const std::string_view id = std::string_view(request.path).substr(kModelsBelow.size());
    if (request.method == "DELETE") return unload(request, id, exchange);
    return exchange->send(reads(request) ? model_page(id)
                                         : not_allowed(request, "GET, HEAD, DELETE"));
  }
  if (request.path == kPrefixes && request.method == "POST") {
    return add_prefix(parts_.services, request, exchange);
  }
  if (request.path.starts_with(kPrefixesBelow)) {
    if (request.method != "DELETE") return exchange->send(not_allowed(request, "DELETE"));
    const std::string_view id = std::string_view(request.path).substr(kPrefixesBelow.size());
    return exchange->send(remove_prefix(parts_.services, id));
  }
  if (request.path == kFaults && parts_.faults != nullptr) return exchange->send(faults(request));
  exchange->send(page(request));
}

net::HttpResponse AdminServer::faults(const net::HttpRequest& request) const {
  if (request.method == "POST") {
    if (!is_json(request)) return error_reply(not_json(request));
    Result<Faults> asked = parse_faults(request.body);
    if (!asked.ok()) return error_reply(api::api_error(asked.error()));
    parts_.faults->set(*std::move(asked));
  } else if (!reads(request)) {
    return not_allowed(request, "GET, HEAD, POST");
  }
  return json_reply(faults_body(parts_.faults->now()));
}

net::HttpResponse AdminServer::page(const net::HttpRequest& request) const {
  using Page = net::HttpResponse (*)(const Parts&);
  struct Route {
    std::string_view path;
    Page page;
  };
  static constexpr Route kRoutes[] = {
      {"/debug/ledger",
       [](const Parts& parts) {
         return json_reply(ledger_report(parts.services, parts.listener.connection_count()));
       }},
      {kModels,
       [](const Parts& parts) {
         return json_reply(models_report(parts.services, parts.memory()));
       }},
      {kPrefixes, [](const Parts& parts) { return list_prefixes(parts.services); }},
      {"/metrics",
       [](const Parts& parts) {
         return text_reply(telemetry::kPrometheusContentType, metrics_page(parts.services));
       }},
      {"/health", [](const Parts& parts) { return health_reply(parts.services); }},
      {"/health/live", [](const Parts& parts) { return live_reply(parts.services); }},
      {"/health/ready", [](const Parts& parts) { return ready_reply(parts.services); }},
      {"/ready", [](const Parts& parts) { return ready_reply(parts.services); }},
      {"/",
       [](const Parts&) {
         return text_reply("text/plain; charset=utf-8",
                           "/admin/models (GET, POST)\n/admin/models/* (GET, DELETE)\n"
                           "/admin/prefixes (GET, POST)\n/admin/prefixes/* (DELETE)\n"
                           "/debug/ledger\n/metrics\n/health\n/health/live\n/health/ready\n");
       }},
  };
  for (const Route& route : kRoutes) {
    if (route.path != request.path) continue;
    if (reads(request)) return route.page(parts_);
    const bool takes = route.path == kModels || route.path == kPrefixes;
    return not_allowed(request, takes ? "GET, HEAD, POST" : "GET, HEAD");
  }
  return error_reply(api::not_found(request.method, request.path));
}

net::HttpResponse AdminServer::model_page(std::string_view id) const {
  Result<std::string> report = model_report(parts_.services, parts_.memory(), id);
  return report.ok() ? json_reply(*std::move(report)) : model_error(report.error());
}

void AdminServer::load(const net::HttpRequest& request, const Waiter& waiter) {
  if (!is_json(request)) return waiter->send(error_reply(not_json(request)));
  if (const auto query = net::check_query(request.query, {}); !query.ok()) {
    return waiter->send(error_reply(api::api_error(query.error())));
  }
  const Result<api::LoadModelRequest> asked = api::parse_load_model_request(request.body);
  if (!asked.ok()) return waiter->send(error_reply(api::api_error(asked.error())));
  Result<ModelLoader::Order> order = parts_.order(*asked);
  if (!order.ok()) return waiter->send(model_error(order.error()));
  const std::string id = order->names.id;
  ModelLoader::Done done;
  if (asked->wait) {
    done = [this, id, waiter](const Result<void>& outcome) {
      waiter->post([this, id, waiter, outcome] {
        waiter->send(outcome.ok() ? model_page(id) : model_error(outcome.error()));
      });
    };
  }
  const Result<void> begun =
      parts_.loader.load(*std::move(order), ModelCatalogue::When::kAtRunTime, std::move(done));
  if (!begun.ok()) return waiter->send(model_error(begun.error()));
  if (!asked->wait) waiter->send(with_status(202, model_page(id)));
}

void AdminServer::unload(const net::HttpRequest& request, std::string_view id,
                         const Waiter& waiter) {
  const Result<UnloadOptions> options = unload_options(request.query, parts_.drain_ms);
  if (!options.ok()) return waiter->send(error_reply(api::api_error(options.error())));
  const auto gone = [id = std::string(id)] {
    return json_reply(fmt::format("{{\"name\":{},\"state\":\"unloaded\"}}", Json(id).dump()));
  };
  ModelLoader::Done done;
  if (options->wait) {
    done = [waiter, gone](const Result<void>&) {
      waiter->post([waiter, gone] { waiter->send(gone()); });
    };
  }
  const Result<void> begun = parts_.loader.unload(id, options->drain_ms, std::move(done));
  if (!begun.ok()) return waiter->send(model_error(begun.error()));
  if (options->wait) return;
  net::HttpResponse now = model_page(id);
  waiter->send(now.status == 200 ? with_status(202, std::move(now)) : gone());
}

}  // namespace pelton::server
