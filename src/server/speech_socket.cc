#include "server/speech_socket.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "api/realtime_session.h"
#include "api/speech_request.h"
#include "api/speech_session.h"
#include "base/json_writer.h"
#include "net/socket_turn.h"
#include "net/websocket.h"
#include "server/random_id.h"
#include "server/services.h"
#include "server/socket_handshake.h"
#include "server/speech_plan.h"
#include "server/speech_use.h"

namespace pelton::server {
namespace {

constexpr size_t kEventIdBytesMax = 512;
constexpr std::string_view kPath = "/v1/audio/speech/websocket";

api::ApiError shutting_down() {
  return api::api_error({ErrorCode::kUnavailable, "The server is shutting down", ""});
}

}  // namespace

// One item's way back over the socket: what is sent whole is an error, what is streamed are lines
// of JSON, each of which is an event. Its Generation holds it.
class SpeechSocket::Turn final : public net::SocketTurn {
 public:
  Turn(const std::shared_ptr<SpeechSocket>& socket, std::string item)
      : SocketTurn(socket->call_.exchange,
                   [weak = std::weak_ptr(socket)] {
                     if (const auto alive = weak.lock()) alive->item_over();
                   }),
        item_(std::move(item)) {}

  void send(net::HttpResponse response) override {
    if (over()) return;
    std::string event;
    api::append_item_failed(item_, response.body, event);
    connection().write(event);
    end();
  }
  void write(std::string_view lines) override {
    if (over()) return;
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      connection().write(lines.substr(0, end));
      lines.remove_prefix(std::min(end + 1, lines.size()));
    }
  }

 private:
  const std::string item_;
};

void SpeechSocket::open(Services& services, Call call, api::SpeechAddress address) {
  const std::shared_ptr<SpeechSocket> socket(
      new SpeechSocket(services, std::move(call), std::move(address)));
  if (socket->begin()) socket->start();
}

SpeechSocket::SpeechSocket(Services& services, Call call, api::SpeechAddress address)
    : services_(services),
      call_(std::move(call)),
      seed_(services.draw()),
      id_(random_id("sess_", {.seed = seed_, .counter = 0})),
      model_id_(call_.model->id),
      model_name_(call_.model_asked.value_or(std::string())),
      sample_rate_(call_.model->speech->queue.sample_rate()),
      settings_(std::make_shared<const Json>(std::move(address.settings))),
      address_warnings_(std::move(address.warnings)) {
  if (model_name_.empty()) model_name_ = model_id_;
}

bool SpeechSocket::begin() {
  std::vector<std::string> warnings;
  if (const auto error = check(*settings_, warnings)) {
    call_.send(*error);
    return false;
  }
  const auto deadline_ns = session_deadline_ns(call_);
  if (!deadline_ns.ok()) {
    call_.send(api::api_error(deadline_ns.error()));
    return false;
  }
  deadline_ns_ = *deadline_ns;
  call_.model = nullptr;
  call_.adapter = nullptr;
  return true;
}

void SpeechSocket::start() {
  net::Exchange& exchange = *call_.exchange;
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange.on_closed([self = shared_from_this()] { self->client_left(); });
  const std::weak_ptr<SpeechSocket> weak = weak_from_this();
  exchange.on_drained([weak] {
    if (const auto self = weak.lock()) self->on_drained();
  });
  exchange.accept_websocket(call_.headers, {.message_bytes_max = api::kSpeechEventBytesMax,
                                            .on_message =
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
  if (deadline_ns_) {
    end_session_at(*deadline_ns_, call_, services_, [weak] {
      if (const auto self = weak.lock()) self->on_deadline();
    });
  }
  say_session("session.created", address_warnings_);
}

void SpeechSocket::on_message(const std::string& message) {
  if (over_) return;
  const Result<Json> json = Json::parse(message);
  if (!json.ok()) return refuse(api::api_error(json.error()));
  const std::string id = json->string("event_id").value_or(std::string());
  if (id.size() <= kEventIdBytesMax) about_ = id;
  obey(*json, json->string("type").value_or(std::string()));
  about_.clear();
}

void SpeechSocket::obey(const Json& message, std::string_view type) {
  if (type == "input_text_buffer.append") return append(message);
  if (type == "input_text_buffer.commit") return commit();
  if (type == "input_text_buffer.clear") return clear();
  if (type == "response.cancel") return cancel();
  if (type == "session.update" || type == "tts_session.updated") return update(message);
  if (type == "session.finish") return finish();
  refuse(
      "'type' must be 'input_text_buffer.append', 'input_text_buffer.commit', "
      "'input_text_buffer.clear', 'response.cancel', 'session.update' (or "
      "'tts_session.updated') or 'session.finish'",
      "type", {});
}

std::optional<api::ApiError> SpeechSocket::check(const Json& settings,
                                                 std::vector<std::string>& warnings) const {
  const std::shared_ptr<const ServedModel> model = services_.catalogue.find(model_id_);
  // An item asks whoever is served by then.
  if (model == nullptr || model->speech == nullptr) return std::nullopt;
  Json full = settings;
  const std::vector<std::string>& voices = model->speech->voices;
  // It may be named later.
  if (full.find("voice") == nullptr && !voices.empty()) full.set("voice", Json(voices.front()));
  SpeechPlan plan;
  if (auto error = plan.read(api::speech_body(full, model_name_, "-"), *model)) return error;
  warnings = plan.request().warnings;
  if (auto error = plan.refusal(*model)) return error;
  return plan.no_room(*model);
}

void SpeechSocket::update(const Json& message) {
  auto wanted = api::updated_speech_settings(message, *settings_);
  if (!wanted.ok()) return refuse(api::api_error(wanted.error()));
  std::vector<std::string> warnings;
  if (const auto error = check(*wanted, warnings)) return refuse(*error);
  settings_ = std::make_shared<const Json>(*std::move(wanted));
  say_session("session.updated", warnings);
}

SpokenItem& SpeechSocket::open_item() {
  if (items_.empty() || items_.back()->committed) {
    items_.push_back(std::make_shared<SpokenItem>(
        SpokenItem{.id = random_id("item_", {.seed = seed_ + 2, .counter = item_count_++}),
                   .settings = settings_}));
  }
  return *items_.back();
}

size_t SpeechSocket::chars_waiting() const {
  size_t chars = 0;
  for (const std::shared_ptr<SpokenItem>& item : items_) chars += item->text.chars_waiting();
  return chars;
}

void SpeechSocket::append(const Json& message) {
  if (draining_) return refuse(shutting_down());
  if (finishing_) {
    return refuse("the session has been finished; no text is taken behind that", "type",
                  "session_finished");
  }
  const std::optional<std::string> text = message.string("text");
  if (!text) return refuse("'text' must be a text", "text", {});
  const auto chars =
      static_cast<size_t>(std::ranges::count_if(*text, [](char c) { return (c & 0xc0) != 0x80; }));
  if (chars_waiting() + chars > api::kSpeechInputCharsMax) {
    return refuse(fmt::format("at most {} characters wait to be spoken; nothing of this message is "
                              "taken",
                              api::kSpeechInputCharsMax),
                  "text", "input_text_buffer_full");
  }
  const bool is_new = items_.empty() || items_.back()->committed;
  if (is_new && items_.size() >= kItemsMax) {
    return refuse(
        fmt::format("at most {} items wait to be spoken; nothing of this message is taken",
                    kItemsMax),
        "text", "input_text_buffer_full");
  }
  if (settings_->find("voice") == nullptr) {
    return refuse(api::api_error({ErrorCode::kInvalidArgument, "'voice' is missing", "voice"}));
  }
  SpokenItem& item = open_item();
  item.text.push(*text);
  say("conversation.item.input_text.received", item.id, &*text);
  item.notify();
  advance();
}

void SpeechSocket::commit() {
  const bool has_text = !items_.empty() && !items_.back()->committed &&
                        (items_.back()->begun || !items_.back()->text.is_empty());
  if (!has_text) {
    return refuse("there is no text to be spoken", {}, "input_text_buffer_commit_empty");
  }
  SpokenItem& item = *items_.back();
  item.commit();
  say("input_text_buffer.committed", item.id);
  item.notify();
  advance();
}

// What is being said, and pieces that have been begun, go on to their end.
void SpeechSocket::clear() {
  while (!items_.empty() && !items_.back()->begun) items_.pop_back();
  if (!items_.empty()) {
    items_.back()->clear();
    items_.back()->notify();
  }
  say("input_text_buffer.cleared");
  end_if_all_is_said();
}

void SpeechSocket::cancel() {
  const std::shared_ptr<Turn> turn = turn_.lock();
  if (!busy_ || turn == nullptr || turn->closed()) {
    return refuse("nothing is being said", "type", "response_cancel_not_active");
  }
  turn->leave();
  std::string event;
  api::append_item_cancelled(items_.front()->id, event);
  call_.exchange->write(event);
  item_over();
}

void SpeechSocket::finish() {
  finishing_ = true;
  if (!items_.empty() && !items_.back()->committed) {
    SpokenItem& item = *items_.back();
    item.commit();
    if (!item.begun && item.text.is_empty()) {
      items_.pop_back();
    } else {
      say("input_text_buffer.committed", item.id);
      item.notify();
    }
  }
  advance();
  end_if_all_is_said();
}

void SpeechSocket::advance() {
  while (!busy_ && !over_ && !items_.empty()) {
    const std::shared_ptr<SpokenItem> item = items_.front();
    if (const std::optional<std::string> piece = item->text.next()) {
      return begin_item(item, *piece);
    }
    if (!item->committed) return;
    items_.pop_front();
  }
}

// Without a deadline of its own: the session's ends it, and says so once.
void SpeechSocket::begin_item(const std::shared_ptr<SpokenItem>& item,
                              const std::string& first_piece) {
  busy_ = true;
  item->begun = true;
  const auto turn = std::make_shared<Turn>(shared_from_this(), item->id);
  turn_ = turn;
  Call call{.request = {},
            .exchange = turn,
            .headers = {},
            .tenant = call_.tenant,
            .caller = call_.caller,
            .arrived_ns = services_.clock.now_ns(),
            .body_bytes = static_cast<int64_t>(first_piece.size())};
  call.request.body = api::speech_body(*item->settings, model_name_, first_piece);
  call.model_asked = model_name_;
  call.entry = new_entry(first_piece.size());
  speak_item(std::move(call), services_, item);
}

void SpeechSocket::item_over() {
  if (!busy_) return;
  busy_ = false;
  turn_.reset();
  items_.front()->turns = nullptr;
  items_.pop_front();
  if (over_ || call_.exchange->closed()) return;
  advance();
  end_if_all_is_said();
}

void SpeechSocket::end_if_all_is_said() {
  if (over_ || busy_ || !(finishing_ || draining_)) return;
  if (finishing_ && !items_.empty()) return;
  over_ = true;
  if (!items_.empty()) refuse(shutting_down());
  items_.clear();
  if (finishing_) {
    say("session.finished");
    return call_.exchange->finish();
  }
  call_.exchange->finish_websocket(net::kCloseGoingAway, "the server is shutting down");
}

// What is being said is said to the end, so far as it has come.
void SpeechSocket::on_drain() {
  draining_ = true;
  if (busy_ && !items_.empty()) {
    items_.front()->commit();
    items_.front()->notify();
    items_.resize(1);
  }
  end_if_all_is_said();
}

// The end of an item, which may be on its way to us, finds that nothing is being said.
void SpeechSocket::drop_all() {
  over_ = true;
  busy_ = false;
  items_.clear();
  if (const auto turn = turn_.lock()) turn->leave();
}

void SpeechSocket::on_deadline() {
  if (over_) return;
  drop_all();
  refuse(session_time_over());
  call_.exchange->finish_websocket(net::kClosePolicy, session_time_over().message);
}

void SpeechSocket::client_left() {
  drop_all();
}

void SpeechSocket::on_drained() {
  if (const auto turn = turn_.lock()) turn->connection_drained();
}

// An item is reported like a request of its own: within the handshake's trace, by the handshake's
// name with a number behind it.
std::unique_ptr<access::TrackedRequest> SpeechSocket::new_entry(size_t text_bytes) {
  auto entry = std::make_unique<access::TrackedRequest>(
      services_.statistics, access::TrackedRequest::Route{.handler = kPath, .method = "WEBSOCKET"});
  entry->note_request_bytes(text_bytes);
  const access::RequestRecord* const handshake = call_.record();
  const std::string id = fmt::format("{}-{}", call_.headers.get("x-request-id"), ++entries_);
  services_.report(*entry, {.path = kPath,
                            .remote = call_.request.remote,
                            .request_id = id,
                            .request_bytes = static_cast<int64_t>(text_bytes),
                            .within = handshake});
  if (entry->record() != nullptr) entry->record()->tenant = call_.tenant;
  return entry;
}

void SpeechSocket::say_session(std::string_view type, const std::vector<std::string>& warnings) {
  call_.exchange->write(api::speech_session_event(type, *settings_,
                                                  {.event_id = event_id(),
                                                   .session_id = id_,
                                                   .model = model_name_,
                                                   .sample_rate = sample_rate_,
                                                   .warnings = warnings}));
}

void SpeechSocket::say(std::string_view type, std::string_view item, const std::string* text) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("type").string(type).key("event_id").string(event_id());
  if (!item.empty()) writer.key("item_id").string(item);
  if (text != nullptr) writer.key("text").string(*text);
  writer.end_object();
  call_.exchange->write(out);
}

void SpeechSocket::refuse(const api::ApiError& error) {
  call_.exchange->write(api::realtime_error(error, event_id(), about_));
}

void SpeechSocket::refuse(std::string message, std::string_view param, std::string_view code) {
  api::ApiError error =
      api::api_error({ErrorCode::kInvalidArgument, std::move(message), std::string(param)});
  if (!code.empty()) error.code = code;
  refuse(error);
}

std::string SpeechSocket::event_id() {
  return random_id("event_", {.seed = seed_ + 1, .counter = events_++});
}

}  // namespace pelton::server
