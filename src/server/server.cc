#include "server/server.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "access/request_record.h"
#include "api/json_object.h"
#include "api/model_list.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "server/metrics_page.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/routes.h"
#include "telemetry/prometheus_text.h"

namespace pelton::server {
namespace {

// Not among the draws of ids.
constexpr uint64_t kTurnSeedDraw = ~uint64_t{0} - 1;
constexpr uint64_t kReportSeedDraw = ~uint64_t{0} - 2;

// Of the salts: whoever knows the seed of ids must not know it.
std::string system_secret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < 8; ++i) secret += fmt::format("{:08x}", device());
  return secret;
}

uint64_t system_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// An id that may stand in a header and a log line.
bool is_plain_id(std::string_view id) {
  constexpr size_t kIdBytesMax = 128;
  return !id.empty() && id.size() <= kIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

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

std::vector<api::ModelCard> cards_of(const ServedModel& model) {
  std::vector<api::ModelCard> cards;
  const auto add = [&](const std::string& id) {
    cards.push_back({.id = id,
                     .root = model.id,
                     .created = model.created,
                     .context_max = model.context_limit()});
  };
  add(model.id);
  for (const std::string& alias : model.aliases) add(alias);
  return cards;
}

// Why no model answers to a name, which is empty where none is named.
api::ApiError no_model(std::string_view name, const ModelCatalogue::Table& table) {
  using State = ModelCatalogue::State;
  if (name.empty()) {
    constexpr size_t kShownMax = 20;
    std::vector<std::string> names;
    for (const ModelCatalogue::Entry& entry : table) {
      if (entry.state == State::kServing && names.size() < kShownMax) {
        names.push_back("'" + entry.names.id + "'");
      }
    }
    return api::model_missing(fmt::format("{}", fmt::join(names, ", ")));
  }
  for (const ModelCatalogue::Entry& entry : table) {
    if (entry.state == State::kLoading && entry.answers_to(name)) {
      return not_ready(fmt::format("The model '{}' is still being loaded", entry.names.id));
    }
  }
  return api::model_not_found(name);
}

// Ollama's clients ask below /api/ and read its errors only.
Dialect dialect_of_unknown(std::string_view path) {
  return path == "/api" || path.starts_with("/api/") ? Dialect::kOllama : Dialect::kOpenAi;
}

access::TrackedRequest::Route entry_route(const Routes::Match& match) {
  if (match.route == nullptr) return {.handler = "none", .method = "none"};
  return {.handler = match.route->path, .method = match.route->method};
}

}  // namespace

Server::Server(const Options& options, const base::Clock& clock, base::Log& log)
    : options_(options),
      seed_(options.seed != 0 ? options.seed : system_seed()),
      clock_(clock),
      log_(log),
      access_(options.keys, system_secret(), clock),
      encrypted_reasoning_(options.reasoning_key),
      sampled_turns_({.tokens_max = options.sampled_turn_tokens_max,
                      .seed = base::random_bits(seed_, kTurnSeedDraw)}),
      reporter_([&] {
        access::RequestReporter::Options reports = options.reports;
        reports.seed = base::random_bits(seed_, kReportSeedDraw);
        return access::RequestReporter(reports, clock);
      }()),
      started_ns_(clock.now_ns()),
      formats_(options.compile_pool, clock) {}

void Server::serve(std::shared_ptr<ServedModel> model) {
  model->state = std::make_unique<ModelState>(clock_);
  catalogue_.serve(std::move(model));
}

void Server::announce_drain() {
  leaving_ = true;
}

void Server::drain() {
  leaving_ = true;
  draining_ = true;
}

uint64_t Server::draw() {
  return base::random_bits(seed_, draws_.fetch_add(1));
}

std::string Server::request_id(std::string_view asked) {
  return is_plain_id(asked) ? std::string(asked)
                            : random_id("req_", {.seed = draw(), .counter = 0});
}

void Server::report(access::TrackedRequest& entry,
                    const access::RequestReporter::Arrival& arrival) {
  std::unique_ptr<access::RequestRecord> record = reporter_.begin(arrival);
  if (record == nullptr) return;
  entry.report_to(reporter_, std::move(record));
}

net::HttpHeaders Server::common_headers(const net::HttpRequest& request) {
  net::HttpHeaders headers;
  headers.add("x-request-id", request_id(request.headers.get("x-request-id")));
  options_.cors.add_headers(request.headers.get("Origin"), headers);
  return headers;
}

void Server::handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
  Call call{.request = std::move(request),
            .exchange = std::move(exchange),
            .headers = {},
            .tenant = {},
            .caller = {},
            .arrived_ns = clock_.now_ns()};
  call.body_bytes = static_cast<int64_t>(call.request.body.size());
  call.headers = common_headers(call.request);
  const std::string& method = call.request.method;
  const std::string& path = call.request.path;

  const Routes::Match match = Routes::find(method, path);
  call.entry = std::make_unique<access::TrackedRequest>(book_, entry_route(match));
  call.entry->note_request_bytes(call.request.body.size());
  report(*call.entry, {.path = path,
                       .http_method = method,
                       .remote = call.request.remote,
                       .request_id = call.headers.get("x-request-id"),
                       .traceparent = call.request.headers.get("traceparent"),
                       .request_bytes = static_cast<int64_t>(call.request.body.size())});
  const access::RequestRecord* const record = call.entry->record();
  if (record != nullptr && record->traced) {
    call.headers.add("traceparent", telemetry::format_traceparent(record->trace));
  }
  call.dialect = match.route != nullptr ? match.route->dialect : dialect_of_unknown(path);
  if (call.dialect == Dialect::kAnthropic) {  // by the name that its clients know
    call.headers.add("request-id", std::string(call.headers.get("x-request-id")));
  }
  if (method == "OPTIONS") {
    net::HttpResponse response{.status = 204, .headers = {}, .body = {}};
    response.headers.add("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
    if (call.headers.has("Access-Control-Allow-Origin")) {
      response.headers.add("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
      response.headers.add("Access-Control-Allow-Headers", "*, Authorization");
    }
    return call.send(std::move(response));
  }
  const bool open = match.route != nullptr && match.route->guard == Routes::Guard::kOpen;
  std::optional<access::Principal> caller =
      access_.identify(access::AccessControl::credentials_of(call.request.headers));
  if (!open && !caller) {
    call.headers.add("WWW-Authenticate", "Bearer");
    return call.send(api::bad_api_key());
  }
  if (caller) call.caller = *std::move(caller);
  call.tenant = call.caller.tenant;
  if (call.entry->record() != nullptr) call.entry->record()->tenant = call.tenant;
  if (match.route == nullptr && match.allowed_methods.empty()) {
    return call.send(api::not_found(method, path));
  }
  if (match.route == nullptr) {
    call.headers.add("Allow", match.allowed_methods);
    return call.send(api::method_not_allowed(method, path));
  }
  const std::string_view content_type = call.request.headers.get("Content-Type");
  if (!call.request.body.empty() && !may_be_json(content_type)) {
    return call.send(api::not_json(content_type));
  }
  (this->*match.route->function)(std::move(call));
}

std::optional<api::ApiError> Server::refusal() const {
  if (draining_) return not_ready("The server is shutting down");
  if (catalogue_.serving().empty()) return not_ready("The model is still being loaded");
  return std::nullopt;
}

Server::ModelOrError Server::model_now(std::string_view name) const {
  if (auto refused = refusal()) return *std::move(refused);
  std::shared_ptr<const ServedModel> model =
      name.empty() ? catalogue_.only() : catalogue_.find(name);
  if (model == nullptr) return no_model(name, *catalogue_.table());
  if (auto unfit = model->unfit()) return *std::move(unfit);
  return model;
}

const ServedModel* Server::model_for(Call& call) const {
  std::string name;
  if (catalogue_.only() == nullptr) {
    if (!call.model_asked) {
      Result<std::string> asked = api::model_asked(call.request.body);
      if (!asked.ok()) {
        call.send(refusal().value_or(api::api_error(asked.error())));
        return nullptr;
      }
      call.model_asked = *std::move(asked);
    }
    if (!call.is_own_url(*call.model_asked)) name = *call.model_asked;
  }
  ModelOrError model = model_now(name);
  if (const auto* error = std::get_if<api::ApiError>(&model)) {
    call.send(*error);
    return nullptr;
  }
  call.model = std::get<0>(std::move(model));
  if (call.entry != nullptr && call.entry->record() != nullptr) {
    call.entry->record()->model = call.model->id;
  }
  return call.model.get();
}

const ServedModel* Server::model_at_work_for(Call& call, Work work) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return nullptr;
  auto entered = admit(access_, call.caller, *model, work);
  if (const auto* refused = std::get_if<api::ApiError>(&entered)) {
    access_.add_limits(call.caller, call.headers);
    call.send(*refused);
    return nullptr;
  }
  call.ticket = std::make_unique<access::AdmissionTicket>(
      std::get<access::AdmissionTicket>(std::move(entered)));
  return model;
}

std::optional<std::vector<engine::TokenStream>> Server::submit(Call& call,
                                                               request::GenerationRequest request,
                                                               int answers) {
  auto submitted =
      server::submit(*call.ticket, *call.model, std::move(request),
                     {.answers = answers, .courier = couriers_.of_thread(*call.exchange)});
  access_.add_limits(call.caller, call.headers);
  if (auto* streams = std::get_if<std::vector<engine::TokenStream>>(&submitted)) {
    return std::move(*streams);
  }
  call.send(std::get<api::ApiError>(submitted));
  return std::nullopt;
}

const ServedModel* Server::model_named(const Call& call, std::string_view name) const {
  if (call.model->answers_to(name) || call.is_own_url(name)) return call.model.get();
  call.send(no_model(name, *catalogue_.table()));
  return nullptr;
}

void Server::answer_index(Call call) {
  call.send(text_reply(
      "text/plain; charset=utf-8",
      fmt::format(
          "Pelton {}: an OpenAI-compatible server.\n\n"
          "curl -s http://{}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
          "  -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}]}}'\n\n"
          "All routes (* stands for an id or a name):\n{}",
          options_.version,
          is_plain_id(call.request.headers.get("Host")) ? call.request.headers.get("Host") : "HOST",
          Routes::listing())));
}

void Server::answer_metrics(Call call) {
  call.send(text_reply(telemetry::kPrometheusContentType, metrics_page(*this)));
}

void Server::answer_version(Call call) {
  std::string body;
  base::JsonWriter(body).begin_object().key("version").string(options_.version).end_object();
  call.send(json_reply(std::move(body)));
}

void Server::answer_models(Call call) {
  std::vector<api::ModelCard> cards;
  for (const std::shared_ptr<const ServedModel>& model : catalogue_.serving()) {
    std::ranges::move(cards_of(*model), std::back_inserter(cards));
  }
  call.send(json_reply(api::model_list_body(cards)));
}

void Server::answer_model(Call call) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string name = call.request.path.substr(kPrefix.size());
  const std::shared_ptr<const ServedModel> model = catalogue_.find(name);
  if (model == nullptr) {
    return call.send(catalogue_.serving().empty() ? not_ready("The model is still being loaded")
                                                  : no_model(name, *catalogue_.table()));
  }
  for (const api::ModelCard& card : cards_of(*model)) {
    if (card.id == name) return call.send(json_reply(api::model_body(card)));
  }
}

}  // namespace pelton::server
