// A request for speech, understood: what is asked for, what this model cannot do of it, and the
// prompt of each piece of its text as the engine's work. Of POST /v1/audio/speech and of each item
// of its WebSocket, so that both say the same of the same text. A value; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "api/error.h"
#include "api/speech_request.h"
#include "server/engine_work.h"
#include "server/request_pipeline.h"
#include "server/served_model.h"
#include "speech/sound_encoder.h"

namespace pelton::server {

// Of one that is served without a speech decoder.
api::ApiError no_speech(const ServedModel& model);

class SpeechPlan {
 public:
  // Reads a body. The error names the field, or says that the model makes no sound.
  std::optional<api::ApiError> read(const std::string& body, const ServedModel& model);
  // What this model, or this machine, does not have. After read(), as are the next.
  std::optional<api::ApiError> refusal(const ServedModel& model) const;

  // What is asked for of each piece, beyond what the context has room for even behind a prompt of
  // `request().input` alone. Of a session's settings, whose text is not known yet.
  std::optional<api::ApiError> no_room(const ServedModel& model) const;

  const api::SpeechRequest& request() const { return request_; }
  const std::string& id() const { return id_; }

  // Before the first piece: its id and seed, and how the model was published to be sampled, where
  // the request does not say.
  void settle(RequestIdentity& identity);
  // `piece`: its number in the text, from 0. After settle().
  std::variant<EngineWork, api::ApiError> work(size_t piece, const std::string& text,
                                               std::optional<int64_t> deadline_ns,
                                               const ModelRequest::Scope& scope) const;

  // `model` has `speech`.
  std::unique_ptr<speech::SoundEncoder> encoder(const ServedModel& model) const;

 private:
  api::SpeechRequest request_;
  std::string id_;
  uint64_t seed_ = 0;
};

}  // namespace pelton::server
