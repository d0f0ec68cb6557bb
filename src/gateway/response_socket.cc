#include "gateway/response_socket.h"

#include <utility>

#include <fmt/format.h>

#include "net/socket_turn.h"
#include "net/sse.h"
#include "net/websocket.h"

namespace pelton::gateway {
namespace {

constexpr size_t kEventBytesMax = size_t{32} << 20;

api::ApiError bad_message(std::string message) {
  return api::api_error({ErrorCode::kInvalidArgument, std::move(message), "type"});
}

// "input" as a list of items: a text is a user's message.
Json::Array items_of(const Json* input) {
  if (input == nullptr) return {};
  if (input->is_array()) return input->as_array();
  Json message{Json::Object{}};
  message.set("role", Json("user"));
  message.set("content", *input);
  return {message};
}

}  // namespace

// One response's way back over the socket: server-sent events become messages, what is sent whole
// is an error. Its Relay holds it.
class ResponseSocket::Turn final : public net::SocketTurn {
 public:
  explicit Turn(const std::shared_ptr<ResponseSocket>& socket)
      : SocketTurn(socket->exchange_,
                   [weak = std::weak_ptr(socket)] {
                     if (const auto alive = weak.lock()) alive->turn_over();
                   }),
        socket_(socket) {}

  void send(net::HttpResponse response) override {
    if (over()) return;
    if (const auto socket = socket_.lock()) socket->ended_ = true;
    connection().write(api::error_event(response.status, response.body));
    end();
  }
  void write(std::string_view bytes) override {
    if (over()) return;
    const Result<void> read = events_.feed(bytes, [this](const net::SseEvent& event) {
      if (!event.data.starts_with('{')) return;
      if (const auto socket = socket_.lock()) socket->note_event(event.data);
      connection().write(event.data);
    });
    if (!read.ok()) end();
  }

 private:
  const std::weak_ptr<ResponseSocket> socket_;
  net::SseParser events_{{.event_bytes_max = kEventBytesMax}};
};

void ResponseSocket::open(net::HttpRequest handshake, std::shared_ptr<net::Exchange> exchange,
                          Forward forward) {
  std::make_shared<ResponseSocket>(Key(), std::move(handshake), std::move(exchange),
                                   std::move(forward))
      ->start();
}

ResponseSocket::ResponseSocket(Key, net::HttpRequest handshake,
                               std::shared_ptr<net::Exchange> exchange, Forward forward)
    : handshake_(std::move(handshake)),
      exchange_(std::move(exchange)),
      forward_(std::move(forward)) {}

void ResponseSocket::start() {
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange_->on_closed([self = shared_from_this()] { self->client_left(); });
  const std::weak_ptr<ResponseSocket> weak = weak_from_this();
  exchange_->on_drained([weak] {
    if (const auto self = weak.lock()) self->on_drained();
  });
  exchange_->accept_websocket({}, {.on_message =
                                       [weak](const std::string& message) {
                                         if (const auto self = weak.lock())
                                           self->on_message(message);
                                       },
                                   .on_drain =
                                       [weak] {
                                         if (const auto self = weak.lock()) self->on_drain();
                                       }});
}

void ResponseSocket::on_message(const std::string& message) {
  Result<Json> json = Json::parse(message);
  if (!json.ok()) return say(api::api_error(json.error()));
  const std::optional<std::string> type = json->is_object() ? json->string("type") : std::nullopt;
  if (type == "response.create") return create(*std::move(json));
  if (type == "response.cancel") return cancel();
  say(bad_message("'type' must be 'response.create' or 'response.cancel'"));
}

void ResponseSocket::create(Json body) {
  if (draining_) {
    return say(api::api_error({ErrorCode::kUnavailable, "The server is shutting down", ""}));
  }
  if (!busy_) return begin(std::move(body));
  if (waiting_) {
    return say(
        api::api_error({ErrorCode::kOverloaded,
                        "a response is being made over this connection, and one waits", ""}));
  }
  waiting_ = std::move(body);
}

void ResponseSocket::put_history(Json& body) {
  Json::Array items = items_of(body.find("input"));
  const std::optional<std::string> previous = body.string("previous_response_id");
  if (previous && !last_id_.empty() && *previous == last_id_) {
    Json::Array all = history_;
    all.insert(all.end(), items.begin(), items.end());
    items = std::move(all);
    body.set("input", Json(items));
    body.set("previous_response_id", Json());
  }
  asked_ = std::move(items);
}

void ResponseSocket::begin(Json body) {
  busy_ = true;
  ended_ = false;
  put_history(body);
  Json::Object fields;
  for (Json::Member& field : body.as_object()) {
    if (field.key != "type" && field.key != "stream") fields.push_back(std::move(field));
  }
  Json request{std::move(fields)};
  request.set("stream", Json(true));  // which goes without saying here
  const auto turn = std::make_shared<Turn>(shared_from_this());
  turn_ = turn;
  net::HttpRequest http{.method = "POST",
                        .path = "/v1/responses",
                        .query = handshake_.query,
                        .headers = {},
                        .body = request.dump(),
                        .remote = handshake_.remote};
  for (const auto& [name, value] : handshake_.headers.fields()) {
    const bool is_handshakes = net::equals_without_case(name.substr(0, 14), "sec-websocket-") ||
                               net::equals_without_case(name, "x-request-id");
    if (!is_handshakes) http.headers.add(name, value);
  }
  http.headers.add("Content-Type", "application/json");
  forward_(std::move(http), turn);
}

// What is complete may be named by the next message.
void ResponseSocket::note_event(const std::string& event) {
  constexpr std::string_view kTerminal[] = {"response.completed", "response.incomplete",
                                            "response.failed", "response.cancelled"};
  bool is_terminal = false;
  for (const std::string_view type : kTerminal) {
    is_terminal = is_terminal || event.find(fmt::format("\"type\":\"{}\"", type)) < 64;
  }
  if (!is_terminal) return;
  ended_ = true;
  const Result<Json> json = Json::parse(event);
  const Json* response = json.ok() ? json->find("response") : nullptr;
  const Json* output = response == nullptr ? nullptr : response->find("output");
  if (output == nullptr || !output->is_array()) return;
  last_id_ = response->string("id").value_or("");
  history_ = std::move(asked_);
  history_.insert(history_.end(), output->as_array().begin(), output->as_array().end());
}

void ResponseSocket::cancel() {
  const std::shared_ptr<Turn> turn = turn_.lock();
  if (!busy_ || turn == nullptr || turn->closed()) {
    return say(bad_message("no response is being made"));
  }
  ended_ = true;
  turn->leave();
  say({.status = 499,
       .message = "The response has been cancelled",
       .type = "invalid_request_error",
       .param = {},
       .code = "response_cancelled"});
  turn_over();
}

void ResponseSocket::turn_over() {
  busy_ = false;
  if (exchange_->closed()) return;
  if (!ended_)
    return exchange_->finish_websocket(net::kCloseInternalError, "the response was interrupted");
  if (draining_)
    return exchange_->finish_websocket(net::kCloseGoingAway, "the server is shutting down");
  if (!waiting_) return;
  Json next = std::move(*waiting_);
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
  waiting_.reset();
  if (!busy_) exchange_->finish_websocket(net::kCloseGoingAway, "the server is shutting down");
}

void ResponseSocket::say(const api::ApiError& error) {
  exchange_->write(api::error_event(error.status, api::error_body(error)));
}

}  // namespace pelton::gateway
