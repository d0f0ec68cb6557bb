#include "server/realtime_socket.h"

#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/json_writer.h"
#include "net/websocket.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/services.h"
#include "server/socket_handshake.h"
#include "speech/transcript.h"

namespace pelton::server {
namespace {

using speech::LiveTranscript;
using What = LiveTranscript::Event::What;

constexpr size_t kEventIdBytesMax = 512;
constexpr std::string_view kItemEvents = "conversation.item.input_audio_transcription.";

speech::LiveInput::Format input_format(api::RealtimeSession::Format format) {
  switch (format) {
    case api::RealtimeSession::Format::kPcm16:
      return speech::LiveInput::Format::kPcm16;
    case api::RealtimeSession::Format::kMuLaw:
      return speech::LiveInput::Format::kMuLaw;
    case api::RealtimeSession::Format::kALaw:
      return speech::LiveInput::Format::kALaw;
  }
  return speech::LiveInput::Format::kPcm16;
}

// As the model calls it; what is none of its languages stays as it was asked.
std::string language_code(const std::string& asked) {
  const std::string_view code = speech::language_code(asked);
  return code.empty() ? asked : std::string(code);
}

}  // namespace

void RealtimeSocket::open(Services& services, Call call) {
  const std::shared_ptr<RealtimeSocket> socket(new RealtimeSocket(services, std::move(call)));
  const auto deadline_ns = session_deadline_ns(socket->call_);
  if (!deadline_ns.ok()) return socket->call_.send(api::api_error(deadline_ns.error()));
  if (socket->take_place()) socket->start(*deadline_ns);
}

RealtimeSocket::RealtimeSocket(Services& services, Call call)
    : services_(services),
      call_(std::move(call)),
      seed_(services.draw()),
      id_(random_id("sess_", {.seed = seed_, .counter = 0})),
      transcriber_(*call_.model->transcriber),
      transcript_(
          {}, [this](std::span<const TokenId> tokens) { return transcriber_.text_of(tokens); }) {
  session_.model = call_.model->shown_name(call_.model_asked.value_or(std::string()));
  transcript_.set_options(transcript_options());
}

bool RealtimeSocket::take_place() {
  access::AccessControl& control = services_.access_control;
  access::RefusalCounts& refusals = *call_.model->state->refusals;
  auto admitted = control.admit(call_.caller, refusals);
  control.add_limits(call_.caller, call_.headers);
  if (const auto* refused = std::get_if<api::ApiError>(&admitted)) {
    call_.send(*refused);
    return false;
  }
  call_.ticket = std::make_unique<access::AdmissionTicket>(
      std::get<access::AdmissionTicket>(std::move(admitted)));
  const std::weak_ptr<RealtimeSocket> weak = weak_from_this();
  const std::shared_ptr<net::Exchange> exchange = call_.exchange;
  auto live =
      transcriber_.open_live({.account = call_.tenant,
                              .on_heard =
                                  [weak, exchange](Result<speech::LiveText> heard) {
                                    exchange->post([weak, heard = std::move(heard)]() mutable {
                                      if (const auto self = weak.lock())
                                        self->on_heard(std::move(heard));
                                    });
                                  },
                              .on_abandoned =
                                  [weak, exchange](const Error& error) {
                                    exchange->post([weak, error] {
                                      if (const auto self = weak.lock()) self->on_abandoned(error);
                                    });
                                  }});
  if (!live.ok()) {
    control.refund_request(call_.caller);
    call_.send(control.overloaded(live.error(), refusals, access::RefusalCounts::By::kQueue,
                                  transcriber_.retry_after_ns()));
    return false;
  }
  live_ = *std::move(live);
  return true;
}

void RealtimeSocket::start(std::optional<int64_t> deadline_ns) {
  net::Exchange& exchange = *call_.exchange;
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange.on_closed([self = shared_from_this()] { self->live_.reset(); });
  const std::weak_ptr<RealtimeSocket> weak = weak_from_this();
  exchange.accept_websocket(call_.headers, {.message_bytes_max = api::kRealtimeEventBytesMax,
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
  if (deadline_ns) {
    end_session_at(*deadline_ns, call_, services_, [weak] {
      if (const auto self = weak.lock()) self->on_deadline();
    });
  }
  say_session("session.created");
}

void RealtimeSocket::on_message(const std::string& message) {
  if (live_ == nullptr) return;
  const Result<Json> json = Json::parse(message);
  if (!json.ok()) return refuse(api::api_error(json.error()));
  const std::string id = json->string("event_id").value_or(std::string());
  if (id.size() <= kEventIdBytesMax) about_ = id;
  obey(*json, json->string("type").value_or(std::string()));
  about_.clear();
  hear_next();
}

void RealtimeSocket::obey(const Json& message, std::string_view type) {
  if (type == "session.update" || type == "transcription_session.update") return update(message);
  if (type == "input_audio_buffer.append") return append(message);
  if (type == "input_audio_buffer.commit") return commit();
  if (type == "input_audio_buffer.clear") return clear();
  refuse(api::api_error({ErrorCode::kInvalidArgument,
                         "'type' must be 'session.update', 'transcription_session.update', "
                         "'input_audio_buffer.append', 'input_audio_buffer.commit' or "
                         "'input_audio_buffer.clear'",
                         "type"}));
}

void RealtimeSocket::update(const Json& message) {
  auto wanted = api::updated_session(message, session_);
  if (!wanted.ok()) return refuse(api::api_error(wanted.error()));
  if (!call_.model->answers_to(wanted->model)) {
    return refuse(api::api_error(
        {ErrorCode::kInvalidArgument,
         fmt::format("this session's model is '{}'; another one is named in the address, as "
                     "/v1/realtime?intent=transcription&model=NAME",
                     call_.model->id),
         "session.audio.input.transcription.model"}));
  }
  speech::Task task;
  task.language = language_code(wanted->language);
  const Result<void> fits = transcriber_.check(task);
  if (!fits.ok()) return refuse(api::api_error(fits.error()));
  session_ = *std::move(wanted);
  if (input_format(session_.format) != input_.format()) {
    input_ = speech::LiveInput(input_format(session_.format));
  }
  transcript_.set_options(transcript_options());
  const bool is_older = message.string("type") == "transcription_session.update";
  say_session(is_older ? "transcription_session.updated" : "session.updated");
}

void RealtimeSocket::append(const Json& message) {
  const std::optional<std::string> audio = message.string("audio");
  const std::optional<std::string> bytes =
      audio ? base::from_base64(*audio) : std::optional<std::string>();
  if (!bytes || bytes->size() % input_.sample_bytes() != 0) {
    return refuse(
        api::api_error({ErrorCode::kInvalidArgument,
                        fmt::format("'audio' must be base64 of whole samples, of {} bytes each",
                                    input_.sample_bytes()),
                        "audio"}));
  }
  std::vector<float> samples;
  speech::LiveInput input = input_;
  input.push(*bytes, samples);
  auto events = transcript_.push(samples);
  if (!events.ok()) {
    // One that is longer than all that is kept is not to be sent again.
    const bool is_never_taken = events.error().code == ErrorCode::kInvalidArgument;
    return refuse(events.error(), is_never_taken ? "invalid_value" : "input_audio_buffer_full");
  }
  input_ = std::move(input);
  say_all(*events);
}

void RealtimeSocket::commit() {
  std::vector<float> samples;
  if (transcript_.is_open()) input_.finish(samples);
  auto events = transcript_.push(samples);
  if (!events.ok()) return refuse(events.error(), "input_audio_buffer_full");
  say_all(*events);
  events = transcript_.commit();
  if (!events.ok()) {
    const bool is_empty = events.error().code == ErrorCode::kInvalidArgument;
    return refuse(events.error(),
                  is_empty ? "input_audio_buffer_commit_empty" : "input_audio_buffer_full");
  }
  say_all(*events);
}

void RealtimeSocket::clear() {
  std::vector<float> forgotten;
  input_.finish(forgotten);
  transcript_.clear();
  std::string out;
  base::JsonWriter(out)
      .begin_object()
      .key("type")
      .string("input_audio_buffer.cleared")
      .key("event_id")
      .string(event_id())
      .end_object();
  call_.exchange->write(out);
}

void RealtimeSocket::on_heard(Result<speech::LiveText> heard) {
  if (live_ == nullptr) return;
  if (heard.ok()) call_.note_output(heard->tokens.size());
  say_all(transcript_.heard(std::move(heard)));
  end_if_drained();
  hear_next();
}

void RealtimeSocket::on_abandoned(const Error& error) {
  if (live_ == nullptr) return;
  refuse(api::api_error(error));
  live_.reset();
  call_.exchange->finish_websocket(net::kCloseGoingAway, "the model is being unloaded");
}

void RealtimeSocket::on_drain() {
  draining_ = true;
  end_if_drained();
}

void RealtimeSocket::on_deadline() {
  if (live_ == nullptr) return;
  refuse(session_time_over());
  live_.reset();
  call_.exchange->finish_websocket(net::kClosePolicy, session_time_over().message);
}

// What has been committed still gets its text.
void RealtimeSocket::end_if_drained() {
  if (!draining_ || live_ == nullptr || !transcript_.is_settled()) return;
  live_.reset();
  call_.exchange->finish_websocket(net::kCloseGoingAway, "the server is shutting down");
}

LiveTranscript::Options RealtimeSocket::transcript_options() const {
  LiveTranscript::Options options{
      .language = language_code(session_.language), .prompt = session_.prompt, .detector = {}};
  if (const auto& turns = session_.turn_detection) {
    options.detector = {.threshold = turns->threshold,
                        .prefix_padding_ms = turns->prefix_padding_ms,
                        .silence_duration_ms = turns->silence_duration_ms};
  }
  return options;
}

void RealtimeSocket::hear_next() {
  if (live_ == nullptr) return;
  if (auto window = transcript_.next_window()) transcriber_.hear_live(live_, *std::move(window));
}

void RealtimeSocket::say_all(const LiveTranscript::Events& events) {
  for (const LiveTranscript::Event& event : events) say(event);
}

void RealtimeSocket::say(const LiveTranscript::Event& event) {
  const std::string item = item_id(event.item);
  std::string out;
  base::JsonWriter writer(out);
  const auto begin = [&](const std::string& type) {
    writer.begin_object().key("type").string(type).key("event_id").string(event_id());
    writer.key("item_id").string(item);
  };
  switch (event.what) {
    case What::kBegins:
      begin("input_audio_buffer.speech_started");
      writer.key("audio_start_ms").integer(event.ms);
      break;
    case What::kEnds:
      begin("input_audio_buffer.speech_stopped");
      writer.key("audio_end_ms").integer(event.ms);
      break;
    case What::kCommitted:
      begin("input_audio_buffer.committed");
      writer.key("previous_item_id");
      if (last_committed_.empty()) {
        writer.null();
      } else {
        writer.string(last_committed_);
      }
      last_committed_ = item;
      break;
    case What::kDelta:
      begin(std::string(kItemEvents) + "delta");
      writer.key("content_index").integer(0).key("delta").string(event.text);
      break;
    case What::kCompleted:
      begin(std::string(kItemEvents) + "completed");
      writer.key("content_index").integer(0).key("transcript").string(event.text);
      writer.key("usage").begin_object().key("type").string("duration").key("seconds");
      writer.integer(static_cast<int64_t>(std::ceil(event.seconds))).end_object();
      break;
    case What::kFailed: {
      const api::ApiError error = api::api_error(*event.error);
      begin(std::string(kItemEvents) + "failed");
      writer.key("content_index").integer(0).key("error").begin_object();
      writer.key("type").string(error.type).key("code").string(error.code);
      writer.key("message").string(error.message).end_object();
      break;
    }
  }
  writer.end_object();
  call_.note_written(out.size());
  call_.exchange->write(out);
}

void RealtimeSocket::say_session(std::string_view type) {
  call_.exchange->write(api::session_event(type, session_, {.event = event_id(), .session = id_}));
}

void RealtimeSocket::refuse(const api::ApiError& error) {
  call_.exchange->write(api::realtime_error(error, event_id(), about_));
}

void RealtimeSocket::refuse(const Error& error, std::string_view code) {
  api::ApiError known = api::api_error(error);
  known.code = code;
  known.message = error.message;
  known.param = error.field;
  refuse(known);
}

std::string RealtimeSocket::event_id() {
  return random_id("event_", {.seed = seed_ + 1, .counter = events_++});
}

std::string RealtimeSocket::item_id(int64_t item) const {
  return random_id("item_", {.seed = seed_ + 2, .counter = static_cast<uint64_t>(item)});
}

}  // namespace pelton::server
