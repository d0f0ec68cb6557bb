// What an operator does from a gateway's console, once he has signed in with his key: commands to
// workers and roll-outs, and another configuration. Each command is a line of the log that begins
// with "audit: " (of strangers' some, and their number), and one of the audit log, if there is one;
// the last kLines of those who had signed in are shown on the page Fleet.
//
//   /console/session                          console/sessions.h
//   POST /console/workers/NAME/drain, undrain, eject, restore
//   POST /console/rollouts/NAME/pause, resume, rollback, promote
//   PUT  /console/config, as PUT /v1/config (apps/gateway_reload.h); ?dry_run=true
//
// Owned by the console; handle() runs on the listener's net threads, rows() on any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "access/admin_gate.h"
#include "apps/config_worker.h"
#include "apps/gateway_reload.h"
#include "base/clock.h"
#include "base/log.h"
#include "console/sessions.h"
#include "gateway/gateway.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::apps {

class ConsoleOperations {
 public:
  static constexpr size_t kLines = 64;

  // All outlive it. `reload`: null: nobody writes the configuration here; `config_worker` calls it,
  // and is null with it.
  ConsoleOperations(gateway::Gateway& gateway, const access::AdminGate& gate, GatewayReload* reload,
                    ConfigWorker* config_worker, const base::Clock& clock, base::Log& log);

  // Whether there is a key to sign in with.
  bool may_sign_in() const { return gateway_.has_operators(); }
  // The name of whoever has signed in where the request comes from; none, where another page asks:
  // a browser sends the cookie along for those of this host's other ports.
  std::optional<std::string> signed_in(const net::HttpRequest& request);
  // Whether the request was one of these; then it has been answered, or will be.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);
  // {"n":…,"at":…,"who":…,"from":…,"what":…,"target":…,"result":…}, by number.
  std::map<std::string, std::string> rows() const;

 private:
  struct Event {
    std::string_view what;
    std::string_view target;
    std::string_view result;
    std::string_view who;
    std::string_view from;
    bool is_kept = false;  // in the audit log, with more words
  };
  net::HttpResponse command(const net::HttpRequest& request);
  net::HttpResponse command_rollout(const net::HttpRequest& request);
  void configure(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);
  net::HttpResponse replace_config(const net::HttpRequest& request, std::string_view who);
  // Who may; an answer if nobody does, which has been noted.
  std::variant<console::Sessions::Account, net::HttpResponse> admit(const net::HttpRequest& request,
                                                                    std::string_view what,
                                                                    std::string_view target);
  void note(const Event& event);
  void keep(const Event& event);

  gateway::Gateway& gateway_;
  GatewayReload* const reload_;
  ConfigWorker* const config_worker_;
  const base::Clock& clock_;
  base::Log& log_;
  console::Sessions sessions_;
  bool may_log_stranger();

  static constexpr size_t kTargetMax = 200;  // bytes of what is commanded, in a line of the log

  mutable std::mutex mutex_;
  int strangers_ = 0;                        // guarded by mutex_: attempts of nobody's lately
  int64_t strangers_since_ns_ = 0;           // guarded by mutex_
  int64_t number_ = 0;                       // guarded by mutex_, as the next
  std::map<std::string, std::string> rows_;  // numbers of one length sort as text does
};

}  // namespace pelton::apps
