// /v1/realtime?intent=transcription: a WebSocket in OpenAI's Realtime events, over which sound
// comes in and text goes out (speech/live_transcript.h). One session to a connection, which has a
// place among the model's files. Lives on its connection's net thread; the exchange keeps it alive
// until it is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/realtime_session.h"
#include "base/json.h"
#include "server/call.h"
#include "speech/live_input.h"
#include "speech/live_transcript.h"
#include "speech/transcriber.h"

namespace pelton::server {

struct Services;

class RealtimeSocket : public std::enable_shared_from_this<RealtimeSocket> {
 public:
  // `call`: the handshake, which has been checked, of a model that hears. A call for which there is
  // no place, or whose deadline is none, is answered so. `services` outlive it.
  static void open(Services& services, Call call);

 private:
  RealtimeSocket(Services& services, Call call);

  bool take_place();
  void start(std::optional<int64_t> deadline_ns);
  void on_message(const std::string& message);
  void obey(const Json& message, std::string_view type);
  void update(const Json& message);
  void append(const Json& message);
  void commit();
  void clear();
  void on_heard(Result<speech::LiveText> heard);
  void on_abandoned(const Error& error);
  void on_drain();
  void on_deadline();
  void end_if_drained();

  speech::LiveTranscript::Options transcript_options() const;
  void hear_next();
  void say_all(const speech::LiveTranscript::Events& events);
  void say(const speech::LiveTranscript::Event& event);
  void say_session(std::string_view type);
  void refuse(const api::ApiError& error);
  void refuse(const Error& error, std::string_view code);
  std::string event_id();
  std::string item_id(int64_t item) const;

  Services& services_;
  Call call_;
  const uint64_t seed_;  // of its ids
  const std::string id_;
  speech::Transcriber& transcriber_;  // of the call's model
  api::RealtimeSession session_;
  speech::LiveInput input_{speech::LiveInput::Format::kPcm16};
  speech::LiveTranscript transcript_;
  std::shared_ptr<speech::Transcriber::Live> live_;  // null: over
  std::string about_;           // the event_id of the message that is being obeyed
  std::string last_committed_;  // an item's id; empty: none
  uint64_t events_ = 0;
  bool draining_ = false;
};

}  // namespace pelton::server
