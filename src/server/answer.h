// What becomes of the tokens of one request, whole or streamed: a kind for each protocol. Owned by
// its Generation, on the exchange's net thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "engine/token_stream.h"
#include "net/http_message.h"
#include "server/reply.h"
#include "server/sse_event.h"

namespace pelton::net {
class Notifier;
}

namespace pelton::server {

struct Call;
class Generation;

class Answer {
 public:
  enum class Wants { kMore, kNothing };

  virtual ~Answer() = default;

  // The next token of a choice. kNothing: a stop string ended it; its end() still comes.
  virtual Wants push(size_t choice, const engine::SampledToken& token) = 0;

  // Before the first token of the choice that reports it, if asked for: how likely the prompt's
  // tokens were, but the first.
  virtual void prompt(size_t /*choice*/, std::vector<engine::PromptToken> /*scored*/) {}

  // Once for each choice, never with kError.
  virtual void end(size_t choice, const engine::StreamEnd& end) = 0;

  // Appends, as server-sent events, what has become known since the last call.
  virtual void take_events(std::string& out) = 0;

  // Somebody wants reasoning to end; and what the engine should be made to say there then, asked
  // after each batch of tokens.
  virtual void end_reasoning() {}
  virtual std::optional<engine::TokenConstraints> take_token_constraints(size_t /*choice*/) {
    return std::nullopt;
  }

  // After all ends: it is not over, but waits for something, and will go on with one more stream
  // (Generation::go_on). begin_waiting() once for each time.
  virtual bool goes_on() const { return false; }
  virtual void begin_waiting(std::weak_ptr<Generation> /*generation*/) {}

  // Instead of the ends that have not come, before append_error(): for whoever keeps what is left.
  // `end` is the one that failed, with what it had counted.
  virtual void fail(const api::ApiError& /*error*/, const engine::StreamEnd& /*end*/) {}

  // After all ends: the events that close the stream, or the whole body.
  virtual void take_last_events(std::string& out) = 0;
  virtual std::string whole_body() = 0;
  virtual net::HttpResponse whole_reply();  // that body as JSON, unless it is something else

  // Of one that waits for what is made of its tokens elsewhere (sound): notify() from any thread
  // gives its generation a turn. begin() before the first token; turn() in each turn, behind the
  // tokens that have come and before take_events().
  virtual void begin(std::shared_ptr<net::Notifier> /*turns*/) {}
  virtual void turn() {}

  // Of one that gets choices while it is made (goes_on() says whether some may come): the stream of
  // one more, which would be its `choice`-th, if there is one now. Asked behind each turn(), until
  // there is none. Choices that have ended are replaced.
  struct More {
    std::optional<engine::TokenStream> stream = {};
    std::optional<api::ApiError> error = {};  // the answer fails with it
  };
  virtual More more(size_t /*choice*/, Call& /*call*/) { return {}; }

  // Amid a stream: what it fails with, after which nothing follows (where it is no events an error
  // has no words, and it breaks off); what keeps it alive while nothing happens (empty: nothing can
  // be said); and what it is.
  virtual bool has_error_events() const { return true; }
  virtual void append_error(const api::ApiError& error, std::string& out) {
    append_sse_event(out, [&](std::string& json) { json += api::error_body(error); });
  }
  virtual std::string_view quiet_event() const { return kSseComment; }
  virtual std::string_view content_type() const { return "text/event-stream; charset=utf-8"; }
};

inline net::HttpResponse Answer::whole_reply() {
  return json_reply(whole_body());
}

}  // namespace pelton::server
