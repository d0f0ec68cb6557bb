// The answer of a worker that is no Pelton: an OpenAI-compatible server's own HTTP. What is handed
// on is whole: a JSON body that parses, or one server-sent event after the other up to the one that
// ends the stream. A stream that just stops has failed, and is never passed on as one that ended;
// what comes after the end is dropped. Pure but for the bytes it keeps; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/envelope.h"
#include "net/http_message.h"

namespace pelton::gateway {

class ForeignAnswer {
 public:
  struct Expected {
    size_t body_bytes_max = size_t{256} << 20;
    bool json = false;  // of a success, whatever its type says
  };
  // `path`: of the request; how its stream ends depends on it.
  explicit ForeignAnswer(std::string path) : ForeignAnswer(std::move(path), Expected()) {}
  ForeignAnswer(std::string path, Expected expected)
      : path_(std::move(path)), expected_(expected) {}

  void begin(int status, const net::HttpHeaders& headers);
  bool begun() const { return head_.status != 0; }
  bool streamed() const { return head_.streamed; }
  const cluster::AnswerHead& head() const { return head_; }

  // The whole events that have come with these bytes; of a body that is not streamed nothing.
  // kInvalidArgument: an event or a body without bounds.
  Result<std::string> push(std::string_view bytes);
  // It has been said: the stream has ended.
  bool ended() const { return ended_; }
  // No more will come: the body, if that is whole. kInvalidArgument: it, or the stream, is not.
  Result<std::string> finish();

 private:
  bool is_last(std::string_view data) const;  // of an event
  bool is_picture(std::string_view event) const;

  const std::string path_;
  const Expected expected_;
  cluster::AnswerHead head_{.status = 0};
  bool is_json_ = false;
  bool has_data_ = false;  // an event has
  bool ended_ = false;
  bool may_end_ = false;  // with its last byte, without another word
  std::string kept_;      // the body so far, or the beginning of an event
};

}  // namespace pelton::gateway
