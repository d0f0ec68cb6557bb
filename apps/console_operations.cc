#include "apps/console_operations.h"

#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "access/audited_exchange.h"
#include "api/error.h"
#include "base/json_writer.h"
#include "console/pages.h"
#include "gateway/admin_pages.h"
#include "gateway/rollout_page.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kSession = "/console/session";
constexpr std::string_view kConfig = "/console/config";
constexpr std::string_view kWorkers = "/console/workers/";
constexpr std::string_view kRollouts = "/console/rollouts/";
constexpr std::string_view kConfigure = "configure";  // as the audit has it

net::HttpResponse refusal(const api::ApiError& error) {
  return net::json_response(api::error_body(error), error.status);
}

// Of a new configuration, as the audit says it.
std::string_view result_of(int status) {
  if (status == 200) return "done";
  if (status == 412) return "refused: changed meanwhile";
  return status == 409 ? "refused: the file may not be written" : "refused: wrong";
}

}  // namespace

ConsoleOperations::ConsoleOperations(gateway::Gateway& gateway, const access::AdminGate& gate,
                                     GatewayReload* reload, ConfigWorker* config_worker,
                                     const base::Clock& clock, base::Log& log)
    : gateway_(gateway),
      reload_(reload),
      config_worker_(config_worker),
      clock_(clock),
      log_(log),
      sessions_({.account_of =
                     [&gateway](std::string_view key) -> std::optional<console::Sessions::Account> {
                   const auto principal = gateway.operator_of(key);
                   if (!principal) return std::nullopt;
                   return console::Sessions::Account{.id = principal->account,
                                                     .name = principal->tenant};
                 },
                 .is_lesser =
                     [&gate](std::string_view key) {
                       return gate.role_of(key) != access::OperatorRole::kNone;
                     },
                 .is_valid = [&gateway](const std::string& id) { return gateway.is_operator(id); },
                 .on_event =
                     [this](std::string_view what, const console::Sessions::Account& account,
                            std::string_view address) {
                       note({.what = what,
                             .target = {},
                             .result = {},
                             .who = account.name,
                             .from = address});
                     },
                 .clock = clock}) {}

std::optional<std::string> ConsoleOperations::signed_in(const net::HttpRequest& request) {
  if (!console::is_own_page(request)) return std::nullopt;
  const std::optional<console::Sessions::Account> whose = sessions_.whose(request);
  if (!whose || !gateway_.is_operator(whose->id)) return std::nullopt;
  return whose->name;
}

bool ConsoleOperations::handle(const net::HttpRequest& request,
                               const std::shared_ptr<net::Exchange>& exchange) {
  if (!may_sign_in()) sessions_.end_all();
  if (request.path == kSession) {
    exchange->send(may_sign_in() ? sessions_.answer(request)
                                 : refusal({.status = 404,
                                            .message = "no key of this gateway's keys_file is an "
                                                       "operator's (role=admin)",
                                            .type = "invalid_request_error",
                                            .param = {},
                                            .code = "no_operators"}));
    return true;
  }
  if (reload_ != nullptr && request.path == kConfig) {
    configure(request, exchange);
    return true;
  }
  if (request.path.starts_with(kRollouts)) {
    exchange->send(command_rollout(request));
    return true;
  }
  if (!request.path.starts_with(kWorkers)) return false;
  exchange->send(command(request));
  return true;
}

std::variant<console::Sessions::Account, net::HttpResponse> ConsoleOperations::admit(
    const net::HttpRequest& request, std::string_view what, std::string_view target) {
  std::variant<console::Sessions::Account, net::HttpResponse> who = sessions_.admit(request);
  if (const auto* refused = std::get_if<net::HttpResponse>(&who)) {
    const bool is_own = console::is_own_page(request);
    const auto whose = is_own ? sessions_.whose(request) : std::nullopt;
    note({.what = what,
          .target = target,
          .result = refused->status == 401 ? "refused: not signed in"
                    : is_own               ? "refused: without the session's token"
                                           : "refused: another page",
          .who = whose ? std::string_view(whose->name) : std::string_view(),
          .from = access::address_of(request)});
  }
  return who;
}

// A dry run asks for a session, too, as it reads what the text names: keys, certificates. It
// changes nothing, so there is nothing to note.
void ConsoleOperations::configure(const net::HttpRequest& request,
                                  const std::shared_ptr<net::Exchange>& exchange) {
  if (request.method != "PUT") {
    net::HttpResponse refused = refusal(api::method_not_allowed(request.method, request.path));
    refused.headers.add("Allow", "PUT");
    return exchange->send(std::move(refused));
  }
  std::variant<console::Sessions::Account, net::HttpResponse> who = admit(request, kConfigure, {});
  if (auto* refused = std::get_if<net::HttpResponse>(&who)) {
    return exchange->send(std::move(*refused));
  }
  if (std::optional<net::HttpResponse> refused = GatewayReload::refused_at_once(request)) {
    return exchange->send(*std::move(refused));
  }
  const std::string& name = std::get<console::Sessions::Account>(who).name;
  config_worker_->answer(exchange, [this, request, name] { return replace_config(request, name); });
}

net::HttpResponse ConsoleOperations::replace_config(const net::HttpRequest& request,
                                                    std::string_view who) {
  net::HttpResponse response = reload_->replace(request, who);
  if (net::query_value(request.query, "dry_run").value_or("false") == "false") {
    note({.what = kConfigure,
          .target = {},
          .result = result_of(response.status),
          .who = who,
          .from = access::address_of(request),
          .is_kept = true});
  }
  return response;
}

net::HttpResponse ConsoleOperations::command(const net::HttpRequest& request) {
  const std::string_view rest = std::string_view(request.path).substr(kWorkers.size());
  const size_t slash = rest.rfind('/');
  const std::string_view worker = rest.substr(0, slash);
  const std::string_view word =
      slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  const std::optional<gateway::Fleet::Command> wanted = gateway::command_of(word);
  if (!wanted) return refusal(api::not_found(request.method, request.path));
  if (request.method != "POST") {
    return refusal(api::method_not_allowed(request.method, request.path));
  }
  std::variant<console::Sessions::Account, net::HttpResponse> who = admit(request, word, worker);
  if (auto* refused = std::get_if<net::HttpResponse>(&who)) return std::move(*refused);
  const bool is_known = gateway_.command(worker, *wanted);
  note({.what = word,
        .target = worker,
        .result = is_known ? "done" : "no such worker",
        .who = std::get<console::Sessions::Account>(who).name,
        .from = access::address_of(request)});
  if (is_known) return net::json_response("{}");
  return refusal({.status = 404,
                  .message = fmt::format("no worker is named '{}'", worker),
                  .type = "invalid_request_error",
                  .param = {},
                  .code = "worker_not_found"});
}

net::HttpResponse ConsoleOperations::command_rollout(const net::HttpRequest& request) {
  const std::string_view rest = std::string_view(request.path).substr(kRollouts.size());
  const size_t slash = rest.rfind('/');
  const std::string_view name = rest.substr(0, slash);
  const std::string_view word =
      slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  const std::optional<gateway::RolloutCommand> wanted = gateway::rollout_command_named(word);
  if (!wanted) return refusal(api::not_found(request.method, request.path));
  if (request.method != "POST") {
    return refusal(api::method_not_allowed(request.method, request.path));
  }
  std::variant<console::Sessions::Account, net::HttpResponse> who = admit(request, word, name);
  if (auto* refused = std::get_if<net::HttpResponse>(&who)) return std::move(*refused);
  const std::string& operator_name = std::get<console::Sessions::Account>(who).name;
  net::HttpResponse response =
      gateway::rollout_command_answer(name, *wanted, operator_name, gateway_.rollouts());
  note({.what = word,
        .target = name,
        .result = response.status == 200   ? "done"
                  : response.status == 404 ? "no such roll-out"
                                           : "refused: it is over",
        .who = operator_name,
        .from = access::address_of(request)});
  return response;
}

// Whoever nobody knows may be anybody: of their attempts so many lines in a while.
bool ConsoleOperations::may_log_stranger() {
  constexpr int64_t kWhileNs = 10'000'000'000;
  constexpr int kLinesMax = 20;
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  if (now_ns - strangers_since_ns_ >= kWhileNs) {
    if (strangers_ > kLinesMax) {
      log_.info(
          fmt::format("audit: {} more attempts of nobody's were refused", strangers_ - kLinesMax));
    }
    strangers_since_ns_ = now_ns;
    strangers_ = 0;
  }
  return ++strangers_ <= kLinesMax;
}

// What was done waits for the disk.
void ConsoleOperations::keep(const Event& event) {
  if (gateway_.audit() == nullptr || event.is_kept) return;
  access::AuditEvent line{.who = std::string(event.who),
                          .from = std::string(event.from),
                          .what = std::string(event.what),
                          .result = std::string(event.result)};
  // What strangers name would be as many kinds as they like.
  if (!event.who.empty()) line.target = event.target.substr(0, kTargetMax);
  if (event.result == "done") {
    gateway_.audit()->note(std::move(line));
  } else {
    gateway_.audit()->note_often(line);
  }
}

void ConsoleOperations::note(const Event& event) {
  keep(event);
  if (event.who.empty() && !may_log_stranger()) return;
  std::string target(event.target.substr(0, kTargetMax));
  for (char& c : target) {
    if (c <= ' ' || c > '~') c = '?';  // so that nothing in it reads as another line's words
  }
  log_.info(fmt::format("audit: {} from {}: {}{}{}{}", event.who.empty() ? "nobody" : event.who,
                        event.from, event.what, target.empty() ? "" : " ", target,
                        event.result.empty() ? "" : fmt::format(": {}", event.result)));
  if (event.who.empty()) return;  // strangers would drive the others out
  std::string row;
  base::JsonWriter w(row);
  std::lock_guard lock(mutex_);
  const int64_t number = ++number_;
  w.begin_object().key("n").integer(number).key("at").integer(clock_.unix_ms());
  w.key("who").string(event.who).key("from").string(event.from).key("what").string(event.what);
  w.key("target").string(event.target).key("result").string(event.result).end_object();
  rows_.emplace(fmt::format("{:012}", number), std::move(row));
  if (rows_.size() > kLines) rows_.erase(rows_.begin());
}

std::map<std::string, std::string> ConsoleOperations::rows() const {
  std::lock_guard lock(mutex_);
  return rows_;
}

}  // namespace pelton::apps
