// /v1/audio/speech/websocket: text comes in bit by bit, and its sound goes out while it is still
// coming, in the events of Together's API. An item is the text up to a commit; its sound is what
// POST /v1/audio/speech makes of that text. Items are said one after the other, and each is a
// request of its own to admission, limits and reports. Lives on its connection's net thread; the
// exchange keeps it alive until it is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/speech_session.h"
#include "base/json.h"
#include "server/call.h"
#include "server/spoken_item.h"

namespace pelton::server {

struct Services;

class SpeechSocket : public std::enable_shared_from_this<SpeechSocket> {
 public:
  // Items that wait to be said: their text is bounded, too (kSpeechInputCharsMax characters).
  static constexpr size_t kItemsMax = 32;

  // `call`: the handshake, which has been checked, of a model that speaks. One whose settings
  // (api/speech_session.h) or deadline are none is answered so. `services` outlive it.
  static void open(Services& services, Call call, api::SpeechAddress address);

 private:
  class Turn;

  SpeechSocket(Services& services, Call call, api::SpeechAddress address);

  bool begin();
  void start();
  void on_message(const std::string& message);
  void obey(const Json& message, std::string_view type);
  void update(const Json& message);
  void append(const Json& message);
  void commit();
  void clear();
  void cancel();
  void finish();
  void on_drain();
  void on_deadline();
  void client_left();
  void on_drained();

  // Of settings, what their reader says; `warnings`: what of them is not obeyed.
  std::optional<api::ApiError> check(const Json& settings,
                                     std::vector<std::string>& warnings) const;
  SpokenItem& open_item();
  size_t chars_waiting() const;
  // Says the first item, if it is not being said and some of it is known.
  void advance();
  void begin_item(const std::shared_ptr<SpokenItem>& item, const std::string& first_piece);
  void item_over();
  void drop_all();
  void end_if_all_is_said();
  std::unique_ptr<access::TrackedRequest> new_entry(size_t text_bytes);

  void say_session(std::string_view type, const std::vector<std::string>& warnings);
  void say(std::string_view type, std::string_view item = {}, const std::string* text = nullptr);
  void refuse(const api::ApiError& error);
  void refuse(std::string message, std::string_view param, std::string_view code);
  std::string event_id();

  Services& services_;
  Call call_;             // without its model, which may be unloaded meanwhile
  const uint64_t seed_;   // of its ids
  const std::string id_;  // the session's
  const std::string model_id_;
  std::string model_name_;  // as it is asked for
  int sample_rate_ = 0;
  std::shared_ptr<const Json> settings_;
  const std::vector<std::string> address_warnings_;  // said once
  std::optional<int64_t> deadline_ns_;
  std::deque<std::shared_ptr<SpokenItem>> items_;  // the first is said, the last may be open
  std::weak_ptr<Turn> turn_;                       // of the first
  bool busy_ = false;       // the first is being said, or its end is on its way here
  bool finishing_ = false;  // the client wants no more than what it has sent
  bool draining_ = false;
  bool over_ = false;
  std::string about_;  // the event_id of the message that is being obeyed
  uint64_t events_ = 0;
  uint64_t item_count_ = 0;
  int64_t entries_ = 0;
};

}  // namespace pelton::server
