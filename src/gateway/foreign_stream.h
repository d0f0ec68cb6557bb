// A streamed answer of a foreign server, understood as far as another one must know to go on with
// it: its text so far (its tokens, where the server says them), and under which name its client
// knows it. One choice of text only: a tool call, reasoning, a grammar or several choices cannot go
// on elsewhere, as what the first server knows of them is nobody else's. Pure; one thread.
//
//   first:  {"messages":[user]}                 -> "Once", " upon"       | it is lost
//   next:   {"messages":[user, assistant "Once upon"], …}  -> " a", " time"   as one answer
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gateway/foreign_kind.h"
#include "net/http_message.h"

namespace pelton::gateway {

class ForeignStream {
 public:
  // None: nobody could go on with its answer. `abilities`: of its first worker.
  static std::optional<ForeignStream> of(const net::HttpRequest& request, WorkerKind kind,
                                         const ForeignAbilities& abilities);

  // What whoever goes on must be able to; kNone: nobody can any more.
  ForeignNeed need() const;
  // The body that is sent: the client's, or what goes on behind what has been said.
  std::string body() const;
  // The next worker begins: its events say the same answer's name.
  void go_on() {
    is_resumed_ = true;
    resumed_said_ = said_;
  }

  // Whole events, as their client is to see them.
  std::string pass(std::string_view events);

  // Its choice has ended, and nothing but "[DONE]" was to come.
  bool is_complete() const { return is_finished_ && (!wants_usage_ || has_usage_); }
  int64_t said() const { return said_; }  // tokens, or events with text where these are not known

 private:
  ForeignStream() = default;

  bool is_chat() const { return path_ == "/v1/chat/completions"; }
  // The data of one event; what is to be passed on instead, if it is another.
  std::optional<std::string> take(std::string_view data);
  void note(const Json& choice);
  // As the first worker called it, counted from there, and without what only we asked for.
  void rename(Json& event) const;

  std::string path_;
  WorkerKind kind_ = WorkerKind::kOpenAi;
  std::string original_;      // the client's body
  Json asked_;                // the same
  bool says_tokens_ = false;  // its events have them, because of us
  bool wants_usage_ = false;
  bool can_go_on_ = true;
  bool is_resumed_ = false;
  bool is_finished_ = false;
  bool has_usage_ = false;
  int64_t said_ = 0;
  int64_t resumed_said_ = 0;  // before the worker that goes on now
  int64_t max_tokens_ = 0;    // 0: no bound
  std::string text_;
  std::vector<int64_t> prompt_tokens_;  // where they are said
  std::vector<int64_t> tokens_;
  std::string id_;  // of its first event, as the next
  std::optional<int64_t> created_;
  std::string model_;
};

}  // namespace pelton::gateway
