// One item of a SpeechSocket: a text that is said while it is still being written. Its first piece
// goes the way of any request for speech (request_pipeline.h), with the same validator and limits;
// the pieces behind it are begun as they are known and the listener has room for them. On its
// socket's net thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "net/http_server.h"
#include "server/call.h"
#include "speech/text_pieces.h"

namespace pelton::server {

struct Services;

struct SpokenItem {
  std::string id;
  std::shared_ptr<const Json> settings;  // api/speech_session.h
  speech::TextCutter text = speech::TextCutter();
  bool committed = false;  // nothing more comes of its text
  bool begun = false;      // some of it is said, or was
  // To be notified when its text has grown, or is committed; null: nobody asks for it yet.
  std::shared_ptr<net::Notifier> turns = nullptr;

  void commit() {
    committed = true;
    text.finish();
  }
  // What is in no piece yet is forgotten.
  void clear() {
    text = speech::TextCutter();
    commit();
  }
  void notify() const {
    if (turns != nullptr) turns->notify();
  }
};

// `call`: its body asks for the item's first piece (api::speech_body), its exchange takes lines of
// JSON, each an event. `services` outlive it.
void speak_item(Call call, Services& services, std::shared_ptr<SpokenItem> item);

}  // namespace pelton::server
