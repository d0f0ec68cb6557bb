// The server's public HTTP listener: gives each request its endpoint (server/routes.h). Owned by
// the program's entry, which hands handle() to net::HttpServer and stops that before this goes
// away.
//
// handle() runs on the request's net thread; drain() and the rest may be called from any.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "server/routes.h"
#include "server/served_model.h"
#include "server/services.h"

namespace pelton::server {

class Server {
 public:
  using Options = Services::Options;

  // `clock` and `log` outlive it.
  Server(const Options& options, const base::Clock& clock, base::Log& log)
      : services_(options, clock, log) {}

  // Says not ready, so that balancers turn away, and answers what still comes.
  void announce_drain() { services_.leaving = true; }
  // Refuses new generations too; running ones go on.
  void drain();

  // From the next request on; any thread. What keys have used of their limits stays used.
  void set_keys(access::ApiKeys keys) { services_.access_control.replace_keys(std::move(keys)); }

  void handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange);
  // Whether to wait for the body of a request with this header: handle() needs none for a wrong
  // key.
  bool takes_body(const net::HttpRequest& head) const;

  // The same for a request that a gateway of this fleet sends: it has seen whose it is.
  struct Forwarded {
    access::Principal principal;
    RequestIdentity identity;
    std::optional<int64_t> deadline_ns;  // on the server's clock
    std::shared_ptr<const ResumedAnswers> resumed;
    std::shared_ptr<AnswerObserver> observer;
    std::optional<request::PrefixPeer> peer;
  };
  void handle_forwarded(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                        Forwarded forwarded);

  // The same for a request that this process sends itself: it knows whose it is.
  void handle_as(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                 const access::Principal& principal);

  // What its endpoints share, for listeners of other protocols and for those who report.
  Services& services() { return services_; }
  const Services& services() const { return services_; }

 private:
  net::HttpHeaders common_headers(const net::HttpRequest& request);
  // The call, counted and recorded, and with the headers of its answer.
  Call new_call(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                const EndpointMatch& match);
  // Whether it may come in; otherwise it has been answered.
  bool identify(Call& call, const EndpointMatch& match);
  bool may_send_form(const net::HttpRequest& request) const;
  void answer(Call call, const EndpointMatch& match);

  Services services_;
};

}  // namespace pelton::server
