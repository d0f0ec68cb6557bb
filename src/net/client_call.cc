#include "net/client_call.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <sys/socket.h>

#include "base/check.h"
#include "net/sent_again.h"
#include "net/url.h"

namespace pelton::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  });
}

bool has_blank_or_control(std::string_view text) {
  return text.empty() || has_control(text) || text.find_first_of(" \t") != std::string_view::npos;
}

// Neither an end nor bytes have come.
bool is_quiet(Stream::Socket& socket) {
  char byte = 0;
  return ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

bool may_repeat(const HttpCall& call) {
  return call.repeatable || (call.method != "POST" && call.method != "PATCH");
}

Result<std::string> request_head(const HttpCall& call) {
  if (has_blank_or_control(call.method) || has_blank_or_control(call.target) ||
      has_blank_or_control(call.host)) {
    return Error{ErrorCode::kInvalidArgument,
                 "the method, host or target of an HTTP call is empty or has blanks",
                 {}};
  }
  std::string head = fmt::format("{} {} HTTP/1.1\r\n", call.method, call.target);
  if (!call.headers.has("Host")) {
    head += fmt::format("Host: {}\r\n", format_host_port(call.host, call.port));
  }
  for (const auto& [name, value] : call.headers.fields()) {
    if (has_blank_or_control(name) || name.find(':') != std::string::npos || has_control(value)) {
      return Error{
          ErrorCode::kInvalidArgument, "a header of an HTTP call has control characters", {}};
    }
    const bool framing = equals_without_case(name, "Content-Length") ||
                         equals_without_case(name, "Transfer-Encoding") ||
                         equals_without_case(name, "Connection");
    if (!framing) head += fmt::format("{}: {}\r\n", name, value);
  }
  const bool says_length = !call.body.empty() || (call.method != "GET" && call.method != "HEAD" &&
                                                  call.method != "OPTIONS");
  if (says_length) head += fmt::format("Content-Length: {}\r\n", call.body.size());
  return head + "\r\n";
}

}  // namespace

struct IdleConnections::Kept {
  Kept(std::string place, Stream kept_stream, asio::io_context& context,
       std::function<void()> passed)
      : key(std::move(place)), stream(std::move(kept_stream)), timer(context, std::move(passed)) {}

  const std::string key;
  Stream stream;
  DeadlineTimer timer;
  bool in_pool = true;
};

// One whose end has come is passed over, also if nobody has looked at it yet: nothing is sent
// there.
std::optional<Stream> IdleConnections::take(const std::string& key) {
  for (;;) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    const std::shared_ptr<Kept> kept = found->second.back();  // the warmest
    if (!is_quiet(kept->stream.socket())) {
      discard(kept);
      continue;
    }
    drop(kept);
    boost::system::error_code ignored;
    kept->stream.socket().cancel(ignored);
    return std::move(kept->stream);
  }
}

void IdleConnections::keep(const std::string& key, Stream stream) {
  if (count_ >= options_.count_max) return;  // `stream` closes itself
  const auto handle =
      std::make_shared<std::weak_ptr<Kept>>();  // the timer is made before the whole
  const std::shared_ptr<Kept> kept =
      std::make_shared<Kept>(key, std::move(stream), context_, [this, handle] {
        if (const std::shared_ptr<Kept> late = handle->lock(); late && late->in_pool) discard(late);
      });
  *handle = kept;
  ++count_;
  by_key_[key].push_back(kept);
  // Whatever comes now, the end or bytes nobody asked for, makes it useless.
  kept->stream.socket().async_wait(Stream::Socket::wait_read,
                                   [this, kept](const boost::system::error_code&) {
                                     if (kept->in_pool) discard(kept);
                                   });
  kept->timer.set(options_.time_max, kept);
}

void IdleConnections::drop(const std::shared_ptr<Kept>& kept) {
  CHECK(kept->in_pool);
  kept->in_pool = false;
  kept->timer.cancel();
  --count_;
  const auto found = by_key_.find(kept->key);
  std::erase(found->second, kept);
  if (found->second.empty()) by_key_.erase(found);
}

void IdleConnections::discard(const std::shared_ptr<Kept>& kept) {
  drop(kept);
  boost::system::error_code ignored;
  kept->stream.say_goodbye();
  kept->stream.socket().close(ignored);
}

void IdleConnections::clear() {
  while (!by_key_.empty()) {
    const std::shared_ptr<Kept> kept = by_key_.begin()->second.back();
    discard(kept);
  }
}

ClientCall::ClientCall(Loop& loop, IdleConnections& idle, HttpCall call, HttpCallEvents events,
                       std::function<void()> gone)
    : loop_(loop),
      idle_(idle),
      call_(std::move(call)),
      events_(std::move(events)),
      gone_(std::move(gone)),
      stream_(Stream::Socket(loop.context())),
      resolver_(loop.context()),
      whole_timer_(loop.context(),
                   [this] {
                     if (done_) return;
                     finish(Error{ErrorCode::kDeadline, place() + " took too long in all", {}});
                   }),
      timer_(loop.context(), [this] { on_deadline(); }) {}

std::string ClientCall::place() const {
  return format_host_port(call_.host, call_.port);
}

// Who was believed is part of it: another call may not believe them.
std::string ClientCall::idle_key() const {
  if (!call_.tls) return place();
  return fmt::format("{} {}", place(), static_cast<const void*>(call_.trust.get()));
}

void ClientCall::start() {
  if (events_.on_start) events_.on_start();
  Result<std::string> head = request_head(call_);
  if (!head) return finish(std::move(head).error());
  CHECK(!call_.tls || call_.trust != nullptr);
  if (call_.port < 1 || call_.port > 65535) {
    return finish(
        Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a port", call_.port), {}});
  }
  head_ = std::move(*head);
  if (call_.whole_time_max.count() > 0) {
    whole_timer_.set(call_.whole_time_max, shared_from_this());
  }
  if (std::optional<Stream> kept = idle_.take(idle_key())) {
    reused_ = true;
    stream_ = std::move(*kept);
    return send();
  }
  connect();
}

void ClientCall::connect() {
  set_deadline(Deadline::kConnect, call_.connect_time_max);
  SystemError error;
  const asio::ip::address address = asio::ip::make_address(call_.host, error);
  using Endpoint = Socket::endpoint_type;
  const auto connected = [self = shared_from_this()](const SystemError& failed, const Endpoint&) {
    self->on_connected(failed);
  };
  if (!error) {
    const std::vector<Endpoint> one = {
        tcp::endpoint(address, static_cast<unsigned short>(call_.port))};
    return asio::async_connect(stream_.socket(), one, connected);
  }
  resolver_.async_resolve(call_.host, std::to_string(call_.port),
                          [self = shared_from_this(), connected](
                              const SystemError& failed, const tcp::resolver::results_type& found) {
                            if (self->done_) return;
                            if (failed) return self->on_connected(failed);
                            std::vector<Endpoint> all;
                            for (const auto& entry : found) all.emplace_back(entry.endpoint());
                            asio::async_connect(self->stream_.socket(), all, connected);
                          });
}

void ClientCall::on_connected(const SystemError& error) {
  if (done_) return;
  if (error) {
    return finish_unconnected(fmt::format("cannot connect to {}: {}", place(), error.message()));
  }
  if (!call_.tls) return send();
  SystemError ignored;
  stream_.socket().non_blocking(true, ignored);
  stream_.begin_tls(TlsSession::connect(
      *call_.trust->context(), static_cast<int>(stream_.socket().native_handle()), call_.host));
  advance_handshake({});
}

void ClientCall::advance_handshake(const SystemError& error) {
  if (done_) return;
  const TlsSession::Step step = error ? TlsSession::Step::kFailed : stream_.tls()->handshake();
  switch (step) {
    case TlsSession::Step::kDone:
      return send();
    case TlsSession::Step::kWantRead:
      return wait_for_handshake(Socket::wait_read);
    case TlsSession::Step::kWantWrite:
      return wait_for_handshake(Socket::wait_write);
    case TlsSession::Step::kPlainHttp:
    case TlsSession::Step::kFailed:
      return finish_unconnected(fmt::format("no TLS with {}: {}", place(),
                                            error ? error.message() : stream_.tls()->problem()));
  }
}

// A server that is gone may have seen what the kept connection brought, and gone because of it.
void ClientCall::finish_unconnected(std::string_view why) {
  finish(Error{broke_kept_ ? ErrorCode::kIo : ErrorCode::kUnavailable,
               fmt::format("{}{}", broke_kept_ ? "the connection broke off, then " : "", why),
               {}});
}

void ClientCall::wait_for_handshake(Socket::wait_type what) {
  stream_.socket().async_wait(what, [self = shared_from_this()](const SystemError& error) {
    self->advance_handshake(error);
  });
}

void ClientCall::send() {
  ++attempt_;
  connected_ = true;
  sent_ = false;
  read_pending_ = false;
  SystemError ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  ResponseReader::Options options;
  options.limits.header_count_max = 1000;
  options.limits.body_bytes_max = call_.body_bytes_max;
  options.head_request = call_.method == "HEAD";
  reader_ = std::make_unique<ResponseReader>(options);
  set_deadline(Deadline::kHead, call_.head_time_max);
  records_sent_ = 0;
  if (call_.tls) {
    write_records();
  } else {
    write();
  }
  wait_readable();
}

void ClientCall::write() {
  const std::array<asio::const_buffer, 2> message = {asio::buffer(head_), asio::buffer(call_.body)};
  asio::async_write(
      stream_.socket(), message,
      [self = shared_from_this(), attempt = attempt_](const SystemError& error, size_t) {
        // A failure shows on the reading side too, behind an early answer if there is
        // one ("413", say), which is worth more than the failure.
        if (!error && attempt == self->attempt_) self->sent_ = true;
      });
}

void ClientCall::write_records() {
  while (records_sent_ < head_.size() + call_.body.size()) {
    const bool in_head = records_sent_ < head_.size();
    const std::string_view part =
        in_head ? std::string_view(head_).substr(records_sent_)
                : std::string_view(call_.body).substr(records_sent_ - head_.size());
    SystemError error;
    records_sent_ += stream_.write_some(asio::const_buffer(part.data(), part.size()), error);
    if (error == asio::error::would_block) {
      stream_.socket().async_wait(
          Socket::wait_write,
          [self = shared_from_this(), attempt = attempt_](const SystemError& failed) {
            if (!failed && !self->done_ && attempt == self->attempt_) self->write_records();
          });
      return;
    }
    if (error) return;  // it shows on the reading side too, as above
  }
  sent_ = true;
}

void ClientCall::wait_readable() {
  if (read_pending_ || paused_ || done_) return;
  read_pending_ = true;
  stream_.socket().async_wait(
      Socket::wait_read, [self = shared_from_this(), attempt = attempt_](const SystemError& error) {
        if (self->done_ || attempt != self->attempt_) return;
        self->read_pending_ = false;
        if (error) return self->on_broken(error.message());
        self->on_readable();
      });
}

void ClientCall::on_readable() {
  if (paused_) return;
  SystemError error;
  const size_t bytes = stream_.read_some(asio::buffer(loop_.scratch()), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return wait_readable();
  if (error == asio::error::eof) {
    if (reader_->finish_at_eof() == ResponseReader::State::kDone) return finish({});
    return on_broken(reader_->problem());
  }
  if (error) {
    const bool has_problem = stream_.tls() != nullptr && !stream_.tls()->problem().empty();
    return on_broken(has_problem ? stream_.tls()->problem() : error.message());
  }
  reader_->append({loop_.scratch().data(), bytes});
  advance();
}

void ClientCall::on_broken(const std::string& problem) {
  if (reused_ && !reader_->got_some() && may_repeat(call_)) {
    // As a rule the server closed the kept connection before it saw our request.
    reused_ = false;
    broke_kept_ = true;
    connected_ = false;
    SystemError ignored;
    stream_.socket().close(ignored);
    stream_ = Stream(Socket(loop_.context()));
    return connect();
  }
  finish(Error{ErrorCode::kIo, fmt::format("{}: {}", place(), problem), {}});
}

void ClientCall::advance() {
  const auto on_body = [this](std::string_view bytes) {
    if (events_.on_body) events_.on_body(bytes);
  };
  while (true) {
    const ResponseReader::State before = reader_->state();
    const ResponseReader::State state = reader_->advance(on_body);
    if (state == ResponseReader::State::kBad) {
      return finish(Error{ErrorCode::kIo, fmt::format("{}: {}", place(), reader_->problem()), {}});
    }
    if (state == ResponseReader::State::kHead) return wait_readable();
    if (!head_reported_) {
      head_reported_ = true;
      report_head();
    }
    if (state == ResponseReader::State::kDone) return finish({});
    if (before == ResponseReader::State::kBody) break;
  }
  set_deadline(Deadline::kQuiet, call_.quiet_time_max);
  wait_readable();
}

void ClientCall::report_head() {
  if (!events_.on_head) return;
  if (!broke_kept_) return events_.on_head(reader_->status(), reader_->headers());
  HttpHeaders headers = reader_->headers();
  headers.add(std::string(kSentAgainHeader), "1");
  events_.on_head(reader_->status(), headers);
}

void ClientCall::cancel() {
  if (!done_) finish(Error{ErrorCode::kCancelled, "the call was cancelled", {}});
}

void ClientCall::pause() {
  paused_ = true;
  if (deadline_ == Deadline::kQuiet) timer_.clear();
}

void ClientCall::resume() {
  if (!std::exchange(paused_, false) || done_ || !connected_) return;
  if (deadline_ == Deadline::kQuiet) set_deadline(Deadline::kQuiet, call_.quiet_time_max);
  wait_readable();
}

void ClientCall::finish(Result<void> result) {
  if (std::exchange(done_, true)) return;
  whole_timer_.cancel();
  timer_.cancel();
  resolver_.cancel();
  const bool reusable = result.ok() && sent_ && reader_->keep_alive() && !read_pending_;
  if (reusable) {
    idle_.keep(idle_key(), std::move(stream_));
  } else {
    SystemError ignored;
    stream_.say_goodbye();
    stream_.socket().close(ignored);
  }
  const std::shared_ptr<ClientCall> self = shared_from_this();
  gone_();
  const HttpCallEvents events = std::exchange(events_, {});
  if (events.on_done) events.on_done(std::move(result));
}

void ClientCall::set_deadline(Deadline what, std::chrono::milliseconds after) {
  deadline_ = what;
  timer_.set(after, shared_from_this());
}

void ClientCall::on_deadline() {
  if (done_) return;
  switch (deadline_) {
    case Deadline::kConnect:
      return finish(Error{ErrorCode::kDeadline, place() + " took too long to connect", {}});
    case Deadline::kHead:
      return finish(Error{ErrorCode::kDeadline, place() + " took too long to answer", {}});
    case Deadline::kQuiet:
      return finish(Error{ErrorCode::kDeadline, place() + " fell silent amid its answer", {}});
  }
}

}  // namespace pelton::net
