// The events of a streamed response, each numbered, as server-sent events or as one JSON text a
// line (what a WebSocket's messages are made of). Owned by one answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/response_object.h"
#include "base/function_ref.h"

namespace pelton::api {

class ResponseEvents {
 public:
  enum class Framing { kServerSent, kLines };

  explicit ResponseEvents(Framing framing) : framing_(framing) {}

  // Where an item stands in the output.
  struct Place {
    const OutputItem& item;
    size_t index;
  };

  // Each appends one event, or as many as the step takes, to `out`.
  void lifecycle(std::string_view type, std::string_view response_body, std::string& out);
  void item_begins(const Place& place, std::string& out);  // and its part, if it has one
  void text_grows(const Place& place, std::string_view delta,
                  std::span<const TokenLogprobs> logprobs, std::string& out);
  void item_ends(const Place& place, std::string& out);  // its text and part too
  // Of a tool's call, before it ends: the server begins to run it.
  void call_runs(const Place& place, std::string& out);

 private:
  using Members = base::FunctionRef<void(base::JsonWriter&)>;
  void event(std::string_view type, Members members, std::string& out);
  void item_event(std::string_view type, const Place& place, Members members, std::string& out);
  void item_is_done(const Place& place, std::string& out);
  void summary_event(std::string_view type, const Place& place, Members members, std::string& out);

  const Framing framing_;
  int64_t sequence_number_ = 0;
};

}  // namespace pelton::api
