// How a connection with TLS begins. Once the handshake is done it is read and written as any other.
#include <fmt/format.h>

#include "net/connection.h"

namespace pelton::net {

void Connection::start_tls() {
  phase_ = Phase::kHandshake;
  wait_for_header();
  stream_.begin_tls(TlsSession::accept(*server_->options.tls->context(),
                                       static_cast<int>(stream_.socket().native_handle()),
                                       server_->options.http2));
  set_deadline(Deadline::kHandshake, server_->options.handshake_time_max);
  wait_for_handshake(Socket::wait_read);
}

void Connection::wait_for_handshake(Socket::wait_type what) {
  stream_.socket().async_wait(what, [self = shared_from_this()](const SystemError& error) {
    if (self->phase_ != Phase::kHandshake) return;
    if (error) return self->close_now();
    self->advance_handshake();
  });
}

void Connection::advance_handshake() {
  switch (stream_.tls()->handshake()) {
    case TlsSession::Step::kDone:
      return begin_reading();
    case TlsSession::Step::kWantRead:
      return wait_for_handshake(Socket::wait_read);
    case TlsSession::Step::kWantWrite:
      return wait_for_handshake(Socket::wait_write);
    case TlsSession::Step::kPlainHttp:
      // The address with the wrong scheme before it: better said than left to guess. It gets no
      // further than this.
      server_->handshakes_failed.fetch_add(1);
      stream_.forget_tls();
      return reject({400, "https_required", "this port speaks HTTPS: use https:// in the URL"},
                    ErrorForm::kObject);
    case TlsSession::Step::kFailed:
      server_->handshakes_failed.fetch_add(1);
      if (server_->log.enabled(base::LogLevel::kDebug)) {
        server_->log.debug(fmt::format("http {}: no TLS: {}", remote_, stream_.tls()->problem()));
      }
      return close_now();
  }
}

}  // namespace pelton::net
