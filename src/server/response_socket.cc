#include "server/response_socket.h"

#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "net/socket_turn.h"
#include "server/responses.h"
#include "server/running_responses.h"

namespace pelton::server {
namespace {

api::ApiError shutting_down() {
  return api::api_error({ErrorCode::kUnavailable, "The server is shutting down", ""});
}

}  // namespace

// One response's way back over the socket: what it sends whole is an error, what it streams are
// lines of JSON, each of which is a message. Its Generation holds it.
class ResponseSocket::Turn final : public net::SocketTurn {
 public:
  explicit Turn(const std::shared_ptr<ResponseSocket>& socket)
      : SocketTurn(socket->call_.exchange, [weak = std::weak_ptr(socket)] {
          if (const auto alive = weak.lock()) alive->turn_over();
        }) {}

  void send(net::HttpResponse response) override {
    connection().write(api::error_event(response.status, response.body));
    end();
  }
  void write(std::string_view lines) override {
    std::string_view rest = lines;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      // Anything else is a comment that keeps a stream of events alive; pings do that here.
      if (rest.starts_with('{')) connection().write(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
};

void ResponseSocket::open(Services& services, Call call) {
  const std::shared_ptr<ResponseSocket> socket(new ResponseSocket(services, std::move(call)));
  socket->start();
}

void ResponseSocket::start() {
  link_->framing = api::ResponseEvents::Framing::kLines;
  net::Exchange& exchange = *call_.exchange;
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange.on_closed([self = shared_from_this()] { self->client_left(); });
  const std::weak_ptr<ResponseSocket> weak = weak_from_this();
  exchange.on_drained([weak] {
    if (const auto self = weak.lock()) self->on_drained();
  });
  exchange.accept_websocket(call_.headers, {.on_message =
                                                [weak](const std::string& message) {
                                                  if (const auto self = weak.lock())
                                                    self->on_message(message);
                                                },
                                            .on_drain =
                                                [weak] {
                                                  if (const auto self = weak.lock())
                                                    self->on_drain();
                                                }});
  call_.note_answered(101);
}

void ResponseSocket::on_message(const std::string& message) {
  const auto bytes = static_cast<int64_t>(message.size());
  Result<Json> json = Json::parse(message);
  if (!json.ok()) return refuse(api::api_error(json.error()), *new_entry(bytes));
  const std::optional<std::string> type = json->string("type");
  if (type == "response.create") {
    return create({.body = std::move(*json),
                   .entry = new_entry(bytes),
                   .arrived_ns = services_.clock.now_ns(),
                   .bytes = bytes});
  }
  if (type == "response.cancel") return cancel(*json);
  refuse(api::api_error({ErrorCode::kInvalidArgument,
                         "'type' must be 'response.create' or 'response.cancel'", "type"}),
         *new_entry(bytes));
}

void ResponseSocket::create(Asked asked) {
  if (draining_) {
    return refuse(shutting_down(), *asked.entry);
  }
  if (!busy_) return begin(std::move(asked));
  if (waiting_) {
    return refuse(
        api::api_error({ErrorCode::kOverloaded,
                        "a response is being made over this connection, and one waits", ""}),
        *asked.entry);
  }
  waiting_ = std::move(asked);
}

void ResponseSocket::begin(Asked asked) {
  busy_ = true;
  asked.body.set("stream", Json(true));  // which goes without saying here
  link_->compiling = link_->cancel_asked = false;
  const auto turn = std::make_shared<Turn>(shared_from_this());
  turn_ = turn;
  Call call{.request = {},
            .exchange = turn,
            .headers = {},
            .tenant = call_.tenant,
            .caller = call_.caller,
            .arrived_ns = asked.arrived_ns,
            .body_bytes = asked.bytes};
  call.request.headers = call_.request.headers;
  call.entry = std::move(asked.entry);
  create_response(std::move(call), services_, std::move(asked.body), link_);
}

// Whether it is another response than the running one that is to be cancelled.
std::optional<Error> ResponseSocket::names_other(const Json& message) const {
  constexpr size_t kIdBytesMax = 256;
  std::optional<Error> complaint;
  const api::Fields fields(message, "", complaint);
  const std::string* id = fields.text("response_id", kIdBytesMax);
  if (id != nullptr && *id != link_->running_id) {
    fields.refuse("response_id", fmt::format("'response_id' is '{}', which is not being made over "
                                             "this connection",
                                             *id));
  }
  return complaint;
}

void ResponseSocket::cancel(const Json& message) {
  const std::shared_ptr<Turn> turn = turn_.lock();
  const bool open = turn != nullptr && !turn->closed();
  if (!open || (!link_->compiling && link_->running.expired())) {
    return say(api::api_error({ErrorCode::kInvalidArgument, "no response is being made", "type"}));
  }
  const std::optional<Error> other = names_other(message);
  if (other) return say(api::api_error(*other));
  if (link_->compiling) {
    link_->cancel_asked = true;
    return;
  }
  // The one that waits has its turn when this one has ended.
  cancel_generation(turn, link_->running);
}

void ResponseSocket::turn_over() {
  busy_ = false;
  if (call_.exchange->closed()) return;
  if (draining_) return call_.exchange->finish_websocket(1001, "the server is shutting down");
  if (!waiting_) return;
  Asked next = std::move(*waiting_);
  waiting_.reset();
  begin(std::move(next));
}

void ResponseSocket::client_left() {
  waiting_.reset();
  if (const auto turn = turn_.lock()) turn->leave();
}

void ResponseSocket::on_drained() {
  if (const auto turn = turn_.lock()) turn->connection_drained();
}

void ResponseSocket::on_drain() {
  draining_ = true;
  if (waiting_) refuse(shutting_down(), *waiting_->entry);
  waiting_.reset();
  if (!busy_) call_.exchange->finish_websocket(1001, "the server is shutting down");
}

// A turn is reported like a request of its own: within the handshake's trace, by the handshake's
// name with a number behind it.
std::unique_ptr<access::TrackedRequest> ResponseSocket::new_entry(int64_t message_bytes) {
  auto entry = std::make_unique<access::TrackedRequest>(
      services_.statistics,
      access::TrackedRequest::Route{.handler = "/v1/responses", .method = "WEBSOCKET"});
  entry->note_request_bytes(static_cast<size_t>(message_bytes));
  const access::RequestRecord* const handshake = call_.entry->record();
  const std::string id = fmt::format("{}-{}", call_.headers.get("x-request-id"), ++entries_);
  services_.report(*entry, {.path = "/v1/responses",
                            .remote = call_.request.remote,
                            .request_id = id,
                            .request_bytes = message_bytes,
                            .within = handshake});
  if (entry->record() != nullptr) entry->record()->tenant = call_.tenant;
  return entry;
}

void ResponseSocket::refuse(const api::ApiError& error, access::TrackedRequest& entry) {
  entry.answered(error.status);
  say(error);
}

void ResponseSocket::say(const api::ApiError& error) {
  call_.exchange->write(api::error_event(error.status, api::error_body(error)));
}

}  // namespace pelton::server
