#include "net/connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "net/connection_exchange.h"
#include "net/http_framing.h"
#include "net/url.h"

namespace pelton::net {
namespace {

namespace asio = boost::asio;

// While an answer is being given, this much of the requests behind it is read ahead.
constexpr size_t kPipelinedBytesMax = 64 * 1024;
// What a connection may hold of a request without asking what the others hold.
constexpr size_t kOwnBytes = 64 * 1024;
// How long a client may take to hear a last answer. Closing at once, with its bytes unread, would
// make the kernel send a reset that can destroy the answer on its way.
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr std::chrono::milliseconds kLingerTimeDraining{200};  // a stopping server waits for these
// And how much of what it still sends is read and thrown away. Beyond that its bytes wait in the
// kernel's buffers: a client that reads meanwhile has its answer, one that only sends gets no more
// of our processor time.
constexpr size_t kLingerBytes = 256 * 1024;

// "127.0.0.1:50123"; who comes by a Unix socket has no name.
std::string name_of(const asio::generic::stream_protocol::endpoint& peer) {
  asio::ip::tcp::endpoint address;
  const int family = peer.protocol().family();
  if (peer.size() > address.capacity() || (family != AF_INET && family != AF_INET6)) return "unix";
  std::memcpy(address.data(), peer.data(), peer.size());
  boost::system::error_code ignored;
  return format_host_port(address.address().to_string(ignored), address.port());
}

}  // namespace

bool ConnectionRegistry::make_room(std::chrono::milliseconds patience) {
  if (waiting.empty()) return false;
  Connection& first = *waiting.front();
  if (std::chrono::steady_clock::now() - first.waiting_since() < patience) return false;
  first.close_now();
  return true;
}

Connection::Connection(std::shared_ptr<Loop> loop, std::shared_ptr<ServerState> server,
                       ConnectionRegistry& registry, Socket socket)
    : loop_(std::move(loop)),
      server_(std::move(server)),
      registry_(registry),
      stream_(std::move(socket)),
      timer_(loop_->context(), [this] { on_deadline(); }),
      look_timer_(loop_->context(), [this] { look_at_peer(); }),
      reader_(limits_of(server_->options)) {
  place_ = apart_.insert(apart_.end(), this);
}

bool Connection::open() {
  registry_.open.emplace(this, shared_from_this());
  SystemError ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  notice_lost_peer(stream_.socket().native_handle(), server_->options.lost_time_max);
  remote_ = name_of(stream_.socket().remote_endpoint(ignored));
  SystemError error;
  stream_.socket().non_blocking(true, error);
  if (error) close_now();
  return !error;
}

void Connection::start() {
  if (!open()) return;
  if (server_->options.tls != nullptr) return start_tls();
  begin_reading();
}

void Connection::begin_reading() {
  phase_ = Phase::kReading;
  wait_for_header();
  if (server_->options.http2) {
    if (stream_.tls() != nullptr && stream_.tls()->speaks_http2()) return begin_http2({});
    may_be_http2_ = stream_.tls() == nullptr;
  }
  set_deadline(Deadline::kIdle, server_->options.first_byte_time_max);
  wait_readable();
}

bool Connection::find_version(std::string_view& bytes) {
  const std::string_view preface = Http2Session::kPreface;
  preface_ += bytes;
  bytes = preface_;
  if (bytes.size() < preface.size() && preface.starts_with(bytes)) {
    if (deadline_ == Deadline::kHeader) return false;
    wait_for_header();
    set_deadline(Deadline::kHeader, server_->options.header_time_max);
    return false;
  }
  may_be_http2_ = false;
  return true;
}

void Connection::begin_http2(const std::string& bytes) {
  phase_ = Phase::kAnswering;
  http2_ = std::make_unique<Http2Connection>(*this);
  http2_->on_bytes(bytes);
}

// From now on it may have to make room for others. Said again it is the last to do so.
void Connection::wait_for_header() {
  waiting_since_ = std::chrono::steady_clock::now();
  std::list<Connection*>& from = apart_.empty() ? registry_.waiting : apart_;
  registry_.waiting.splice(registry_.waiting.end(), from, place_);
}

void Connection::stop_waiting() {
  if (apart_.empty()) apart_.splice(apart_.end(), registry_.waiting, place_);
}

void Connection::refuse(const HttpReject& refusal) {
  if (!open()) return;
  // Who must be sent away is not worth a handshake.
  if (server_->options.tls != nullptr) return close_now();
  reject(refusal, ErrorForm::kObject);
}

void Connection::drain() {
  const bool idle = phase_ == Phase::kReading && preface_.empty() &&
                    reader_.state() == RequestReader::State::kIdle;
  if (idle || phase_ == Phase::kHandshake) return close_now();
  if (http2_ != nullptr && phase_ == Phase::kAnswering) return http2_->drain();
  reply_.keep_alive = false;
  if (websocket_ != nullptr && reply_.open) websocket_->socket.on_drain();
  if (phase_ == Phase::kLingering) set_deadline(Deadline::kLinger, kLingerTimeDraining);
}

void Connection::close_now() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kReading) stream_.say_goodbye();
  phase_ = Phase::kClosed;
  SystemError ignored;
  stream_.socket().close(ignored);
  timer_.cancel();
  look_timer_.cancel();
  queue_.clear();
  hold_bytes(0);
  const Reply reply = std::exchange(reply_, {});
  const std::shared_ptr<Connection> self = shared_from_this();
  stop_waiting();
  registry_.open.erase(this);
  server_->connection_count.fetch_sub(1);
  if (reply.open && reply.closed) reply.closed();
  if (http2_ != nullptr) http2_->close();
}

// ---- reading

void Connection::wait_readable() {
  if (read_pending_ || eof_ || phase_ == Phase::kClosed) return;
  read_pending_ = true;
  stream_.socket().async_wait(
      Socket::wait_read,
      [self = shared_from_this()](const SystemError& error) { self->on_readable(error); });
}

void Connection::on_readable(const SystemError& error) {
  read_pending_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return close_now();
  SystemError read_error;
  const size_t bytes = stream_.read_some(asio::buffer(loop_->scratch()), read_error);
  if (read_error == asio::error::would_block || read_error == asio::error::try_again) {
    return wait_readable();
  }
  if (read_error == asio::error::eof) return on_eof();
  if (read_error) return close_now();
  try {
    on_bytes({loop_->scratch().data(), bytes});
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }
}

// Of this one request, for something large: the others go on. What it held has been given back on
// the way here.
void Connection::out_of_memory() {
  if (phase_ == Phase::kClosed) return;
  server_->log.error(fmt::format("http {}: no memory for this request", remote_));
  const bool answers = phase_ == Phase::kAnswering;
  if (http2_ != nullptr || (answers && (!reply_.open || reply_.streaming))) return close_now();
  const std::function<void()> closed = std::move(reply_.closed);
  reject({503, "out_of_memory", "the server has no memory for this request"},
         answers ? reply_.error_form : reader_.error_form());
  if (closed) closed();
}

void Connection::on_bytes(std::string_view bytes) {
  if (phase_ == Phase::kLingering) {
    linger_bytes_left_ -= std::min(linger_bytes_left_, bytes.size());
    if (linger_bytes_left_ == 0) return;  // the deadline closes it
    return wait_readable();
  }
  if (websocket_ != nullptr) return on_websocket_bytes(bytes);
  if (http2_ != nullptr) return http2_->on_bytes(bytes);
  if (may_be_http2_) {
    if (!find_version(bytes)) return wait_readable();
    if (bytes.starts_with(Http2Session::kPreface)) return begin_http2(std::exchange(preface_, {}));
  }
  reader_.append(bytes);
  if (!preface_.empty()) std::string().swap(preface_);
  if (deadline_ == Deadline::kBody) body_bytes_ += static_cast<int64_t>(bytes.size());
  if (phase_ == Phase::kReading) {
    advance_reader();
  } else if (reader_.buffered_bytes() > kPipelinedBytesMax) {
    // The client is far ahead; it waits in its own buffers until this answer is through.
    return watch_for_reset();
  }
  wait_readable();
}

void Connection::on_eof() {
  eof_ = true;
  if (phase_ != Phase::kAnswering || websocket_ != nullptr || http2_ != nullptr) {
    return close_now();
  }
  // Half-closed, or gone? A FIN alone does not say.
  watch_for_reset();
  probe_half_closed();
}

void Connection::watch_for_reset() {
  if (reset_watched_) return;
  reset_watched_ = true;
  stream_.socket().async_wait(Socket::wait_error,
                              [self = shared_from_this()](const SystemError& error) {
                                self->reset_watched_ = false;
                                if (!error) self->close_now();
                              });
}

// A client that only half-closed must be answered; one that is gone must not cost another token. So
// say something harmless: a host whose socket is gone answers with a reset, which watch_for_reset()
// sees. Before the head that is an interim response; inside a chunked body a leading zero of the
// next chunk's size.
void Connection::probe_half_closed() {
  // What is on its way may have left before the client did: it proves nothing.
  probe_due_ = reply_.open && !queue_.empty();
  if (!reply_.open || probe_due_ || reply_.http_1_0) return;
  if (!reply_.streaming) {
    queue_.push(std::string_view("HTTP/1.1 100 Continue\r\n\r\n"));
  } else if (reply_.framing == Framing::kChunked && !reply_.head_request) {
    queue_.push(std::string_view("0"));
  }
  schedule_flush();
}

void Connection::advance_reader() {
  const HttpServer::Options& options = server_->options;
  switch (reader_.advance()) {
    case RequestReader::State::kIdle:
      if (eof_) return close_now();
      return;
    case RequestReader::State::kHead:
      if (eof_) return close_now();
      if (deadline_ == Deadline::kHeader) return;
      wait_for_header();
      return set_deadline(Deadline::kHeader, options.header_time_max);
    case RequestReader::State::kBody:
      if (eof_) return close_now();
      if (deadline_ != Deadline::kBody && options.takes_body &&
          !options.takes_body(reader_.head())) {
        reader_.leave_body();
        return begin_exchange();
      }
      if (!hold_bytes(reader_.held_bytes())) {
        reader_.refuse({503, "too_many_bytes", "too many large requests are being read just now"});
        return reject(reader_.reject(), reader_.error_form());
      }
      if (reader_.expects_continue()) {
        queue_.push(std::string_view("HTTP/1.1 100 Continue\r\n\r\n"));
        schedule_flush();
      }
      return on_body_bytes();
    case RequestReader::State::kBad:
      return reject(reader_.reject(), reader_.error_form());
    case RequestReader::State::kDone:
      return begin_exchange();
  }
}

// The deadline moves with what has come: with 16 KiB/s and a grace of 20 s, a body of which 160 KiB
// are there has 30 s from its beginning on, and one that comes byte by byte 20 s.
void Connection::on_body_bytes() {
  const HttpServer::Options& options = server_->options;
  const auto now = std::chrono::steady_clock::now();
  if (deadline_ != Deadline::kBody) {
    stop_waiting();
    body_begun_ = now;
    body_bytes_ = 0;
  }
  const std::chrono::milliseconds earned(body_bytes_ * 1000 / options.body_rate_min);
  const auto allowed = std::min(options.body_grace + earned, options.body_time_max);
  const auto used = std::chrono::floor<std::chrono::milliseconds>(now - body_begun_);
  set_deadline(Deadline::kBody, std::max(allowed - used, std::chrono::milliseconds(0)));
}

// False: with that much, more would be held for all requests together than there may be.
bool Connection::hold_bytes(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes - std::min(bytes, kOwnBytes));
  const int64_t more = wanted - bytes_held_;
  if (more == 0) return true;
  const int64_t held = server_->bodies_bytes.fetch_add(more) + more;
  if (more > 0 && held > static_cast<int64_t>(server_->options.bodies_bytes_max)) {
    server_->bodies_bytes.fetch_sub(more);
    return false;
  }
  bytes_held_ = wanted;
  return true;
}

void Connection::begin_exchange() {
  phase_ = Phase::kAnswering;
  stop_waiting();
  clear_deadline();
  HttpRequest request = reader_.take();
  if (!server_->options.hosts.allow(request.headers.get("Host"))) {
    return reject(foreign_host(), error_form_of(request.path));
  }
  request.remote = remote_;
  request.tls = server_->options.tls != nullptr;
  websocket_key_ = request.headers.get("Sec-WebSocket-Key");
  reply_ = {};
  reply_.open = true;
  reply_.head_request = request.method == "HEAD";
  reply_.error_form = error_form_of(request.path);
  reply_.http_1_0 = reader_.is_http_1_0();
  reply_.keep_alive = reader_.keep_alive() && !server_->draining.load();
  ++exchange_id_;
  server_->handler(std::move(request), make_exchange(shared_from_this(), exchange_id_));
  hold_bytes(0);
  if (!eof_ || phase_ == Phase::kClosed) return;
  watch_for_reset();
  probe_half_closed();
}

HttpReject Connection::foreign_host() {
  return {403, "forbidden_host",
          "the server does not answer to the host name of this request; a name that is its "
          "own is given with --allowed-host, or 'allowed_hosts' in a gateway's file"};
}

HttpResponse Connection::refusal_response(const HttpReject& refusal, ErrorForm form) {
  HttpResponse response = error_response(refusal, form);
  if (refusal.status == 405) {
    response.headers.add("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
  }
  if (refusal.status == 503) response.headers.add("Retry-After", "1");
  return response;
}

void Connection::reject(const HttpReject& refusal, ErrorForm form) {
  if (server_->log.enabled(base::LogLevel::kDebug)) {
    server_->log.debug(
        fmt::format("http {}: refused with {} {}", remote_, refusal.status, refusal.code));
  }
  phase_ = Phase::kAnswering;
  stop_waiting();
  clear_deadline();
  hold_bytes(0);
  reply_ = {};
  HttpResponse response = refusal_response(refusal, form);
  append_head(response.status, response.headers,
              fmt::format("Content-Length: {}\r\n", response.body.size()));
  queue_.push(std::move(response.body));
  schedule_flush();
}

// ---- what exchanges ask for

void Connection::send(uint64_t id, HttpResponse response) {
  if (http2_ != nullptr) return http2_->send(id, std::move(response));
  if (is_over(id)) return;
  CHECK(response.status >= 200 && response.status <= 599);
  reply_.open = false;
  const std::string length = has_no_body(response.status)
                                 ? std::string()
                                 : fmt::format("Content-Length: {}\r\n", response.body.size());
  append_head(response.status, response.headers, length);
  if (!reply_.head_request && !has_no_body(response.status)) queue_.push(std::move(response.body));
  schedule_flush();
}

void Connection::start_stream(uint64_t id, int status, const HttpHeaders& headers) {
  if (is_over(id)) return;
  CHECK(status >= 200 && status <= 599 && !has_no_body(status));
  if (http2_ != nullptr) return http2_->start_stream(id, status, headers);
  reply_.streaming = true;
  reply_.framing = reply_.http_1_0 ? Framing::kUntilClose : Framing::kChunked;
  if (reply_.http_1_0) reply_.keep_alive = false;
  append_head(status, headers, reply_.http_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
  schedule_flush();
}

void Connection::write(uint64_t id, std::string_view bytes) {
  if (http2_ != nullptr) return http2_->write(id, bytes);
  if (is_over(id) || bytes.empty() || reply_.head_request) return;
  if (websocket_ != nullptr) {
    websocket_->message_at = std::chrono::steady_clock::now();
    return send_frame(WebSocketOpcode::kText, bytes);
  }
  if (reply_.framing == Framing::kChunked) {
    char size[20];
    char* end = std::to_chars(size, size + 16, bytes.size(), 16).ptr;
    *end++ = '\r';
    *end++ = '\n';
    queue_.push_framed({size, static_cast<size_t>(end - size)}, bytes, "\r\n");
  } else {
    queue_.push(bytes);
  }
  schedule_flush();
}

void Connection::finish(uint64_t id) {
  if (http2_ != nullptr) return http2_->finish(id);
  if (is_over(id)) return;
  if (websocket_ != nullptr) return finish_websocket(id, {});
  reply_.open = false;
  if (reply_.framing == Framing::kChunked && !reply_.head_request) {
    queue_.push(std::string_view("0\r\n\r\n"));
  }
  schedule_flush();
}

void Connection::on_drained(uint64_t id, std::function<void()> drained) {
  if (http2_ != nullptr) return http2_->on_drained(id, std::move(drained));
  if (!is_over(id)) reply_.drained = std::move(drained);
}

void Connection::on_closed(uint64_t id, std::function<void()> closed) {
  if (is_over(id)) {
    loop_->post(std::move(closed));
  } else if (http2_ != nullptr) {
    http2_->on_closed(id, std::move(closed));
  } else {
    reply_.closed = std::move(closed);
  }
}

void Connection::post_after(uint64_t id, std::chrono::milliseconds delay,
                            std::function<void()> work) {
  if (http2_ != nullptr) return http2_->post_after(id, delay, std::move(work));
  if (is_over(id)) return;
  reply_.timers.push_back(std::make_unique<asio::steady_timer>(loop_->context(), delay));
  asio::steady_timer* const timer = reply_.timers.back().get();
  timer->async_wait(
      [self = shared_from_this(), id, timer, work = std::move(work)](const SystemError& error) {
        if (error || self->is_over(id)) return;
        std::erase_if(self->reply_.timers, [timer](const auto& one) { return one.get() == timer; });
        work();
      });
}

void Connection::exchange_dropped(uint64_t id) {
  if (http2_ != nullptr) return http2_->dropped(id);
  if (is_over(id)) return;
  reply_.closed = nullptr;
  if (!reply_.streaming) {
    return send(id, error_response({500, "internal_error", "the request was not answered"},
                                   reply_.error_form));
  }
  server_->log.warning(fmt::format("http {}: a stream was dropped unfinished", remote_));
  if (reply_.framing == Framing::kUntilClose) {  // its end would look like the answer's
    reset_when_closed(stream_.socket().native_handle());
    return close_now();
  }
  reply_.open = false;
  reply_.keep_alive = false;
  schedule_flush();
}

// ---- writing

void Connection::append_head(int status, const HttpHeaders& headers,
                             std::string_view framing_lines) {
  if (server_->draining.load()) reply_.keep_alive = false;
  std::string head;
  head.reserve(256);
  head += fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_phrase(status),
                      loop_->http_date_now());
  for (const auto& [name, value] : headers.fields()) {
    if (is_framing_header(name)) continue;
    append_header_text(head, name);
    head += ": ";
    append_header_text(head, value);
    head += "\r\n";
  }
  head += framing_lines;
  if (!reply_.keep_alive) {
    head += "Connection: close\r\n";
  } else if (reply_.http_1_0) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  queue_.push(std::string_view(head));
}

// Not at once: what else is said in this turn goes with it.
void Connection::schedule_flush() {
  if (flush_due_ || write_pending_) return;
  flush_due_ = true;
  if (working_) return;
  loop_->post([self = shared_from_this()] { self->flush_if_due(); });
}

void Connection::begin_work(base::FunctionRef<void()> work) {
  if (!std::exchange(working_, true)) {
    outgoing_ = loop_->lend_outgoing();
    if (outgoing_ != nullptr) queue_.borrow(*outgoing_);
  }
  try {
    work();
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }
}

void Connection::end_work() {
  if (!std::exchange(working_, false)) return;
  flush_if_due();
  queue_.give_back();
  if (outgoing_ != nullptr) loop_->give_back_outgoing(std::exchange(outgoing_, nullptr));
}

void Connection::flush_if_due() {
  if (std::exchange(flush_due_, false)) flush();
}

void Connection::flush() {
  if (write_pending_ || phase_ == Phase::kClosed) return;
  do {
    if (http2_ != nullptr) http2_->pump();
    while (!queue_.empty()) {
      if (!write_some()) return;
    }
  } while (http2_ != nullptr && http2_->has_more());
  on_queue_empty();
}

// False: the kernel takes no more for now, or the client is gone. The kernel's buffer bounds what
// one turn of the loop can be made to write.
bool Connection::write_some() {
  SystemError error;
  const std::string_view only = queue_.only_piece();
  // The common case, and the kernel's shorter way.
  const size_t bytes =
      only.empty() ? write_pieces(error)
                   : stream_.write_some(asio::const_buffer(only.data(), only.size()), error);
  queue_.pop(bytes);
  sent_bytes_ += bytes;
  if (!looking_) watch_peer();
  if (error == asio::error::would_block || error == asio::error::try_again) {
    write_pending_ = true;
    stream_.socket().async_wait(Socket::wait_write,
                                [self = shared_from_this()](const SystemError& failed) {
                                  self->write_pending_ = false;
                                  if (failed) return self->close_now();
                                  self->flush();
                                });
    return false;
  }
  if (error) close_now();
  return !error;
}

size_t Connection::write_pieces(SystemError& error) {
  std::array<std::string_view, SendQueue::kPiecesMax> pieces;
  std::array<asio::const_buffer, SendQueue::kPiecesMax> buffers;
  const size_t count = queue_.front(pieces);
  for (size_t i = 0; i < count; ++i) {
    buffers[i] = asio::const_buffer(pieces[i].data(), pieces[i].size());
  }
  return stream_.write_some(std::span(buffers).first(count), error);
}

// Whether what is said is also taken, by the client or at least by its machine. A client that reads
// slowly shows that it does by what it makes room for, long before there is room here.
void Connection::watch_peer() {
  looking_ = true;
  look_timer_.set(server_->options.stall_time_max / PeerPatience::kLooks, shared_from_this());
}

void Connection::look_at_peer() {
  looking_ = false;
  if (phase_ == Phase::kClosed) return;
  switch (patience_.look(taken_by_peer(stream_.socket().native_handle(), sent_bytes_))) {
    case PeerPatience::Look::kHasTakenAll:
      if (queue_.empty()) return;  // until something is said again
      break;
    case PeerPatience::Look::kTakesSome:
      break;
    case PeerPatience::Look::kTakesNothing:
      server_->log.debug(fmt::format("http {}: takes nothing, and is cut off", remote_));
      reset_when_closed(stream_.socket().native_handle());
      return close_now();
  }
  watch_peer();
}

void Connection::on_queue_empty() {
  if (phase_ != Phase::kAnswering) return;
  if (http2_ != nullptr) return http2_->on_queue_empty();
  clear_deadline();
  if (!reply_.open) return end_exchange();
  if (websocket_ != nullptr) {
    websocket_->pong_queued = false;
    set_deadline(Deadline::kPing, server_->options.websocket_ping_time);
  }
  if (probe_due_) probe_half_closed();
  if (!reply_.drained) return;
  std::function<void()> drained = std::move(reply_.drained);  // it may replace itself
  reply_.drained = nullptr;
  const uint64_t id = exchange_id_;
  drained();
  if (!is_over(id) && !reply_.drained) reply_.drained = std::move(drained);
}

void Connection::end_exchange() {
  const bool keep_alive = reply_.keep_alive && !server_->draining.load();
  const Reply ended = std::exchange(reply_, {});  // callbacks go when we are done here
  if (!keep_alive) return linger();
  phase_ = Phase::kReading;
  wait_for_header();
  set_deadline(Deadline::kIdle, server_->options.idle_time_max);
  advance_reader();
  wait_readable();
}

void Connection::linger() {
  if (eof_) return close_now();
  phase_ = Phase::kLingering;
  linger_bytes_left_ = kLingerBytes;
  SystemError ignored;
  stream_.shutdown_send(ignored);
  set_deadline(Deadline::kLinger, server_->draining.load() ? kLingerTimeDraining : kLingerTime);
  wait_readable();
}

// ---- time

void Connection::set_deadline(Deadline what, std::chrono::milliseconds after) {
  deadline_ = what;
  timer_.set(after, shared_from_this());
}

void Connection::clear_deadline() {
  deadline_ = Deadline::kNone;
  timer_.clear();
}

void Connection::on_deadline() {
  if (phase_ == Phase::kClosed) return;
  switch (std::exchange(deadline_, Deadline::kNone)) {
    case Deadline::kHeader:
      return reject({408, "request_timeout", "the request header took too long"},
                    ErrorForm::kObject);
    case Deadline::kBody:
      return reject({408, "request_timeout", "the request body took too long"},
                    reader_.error_form());
    case Deadline::kNone:
      return;
    case Deadline::kPing:
      return on_ping_time();
    case Deadline::kTick:
      return http2_->on_tick();
    case Deadline::kHandshake:
      server_->handshakes_failed.fetch_add(1);
      return close_now();
    case Deadline::kIdle:
    case Deadline::kLinger:
      return close_now();
  }
}

}  // namespace pelton::net
