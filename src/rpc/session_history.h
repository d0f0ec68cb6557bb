// What a session remembers of its conversation: the last chat that came to its end, and its answer,
// within a bound of bytes. Pure.
//
//   turn 1: user "Hi"             -> assistant "Hello"
//   turn 2: continues, user "So?" -> is asked as user "Hi", assistant "Hello", user "So?"
#pragma once

#include <cstddef>
#include <optional>

#include <pelton/v1/inference.pb.h>

#include "base/result.h"

namespace pelton::rpc {

class SessionHistory {
 public:
  explicit SessionHistory(size_t bytes_max) : bytes_max_(bytes_max) {}

  // The next turn as Generate would be asked. Errors: kInvalidArgument, "continues": there is
  // nothing, or no chat, to go on with.
  Result<v1::GenerateRequest> begin(v1::SessionRequest asked);
  // A piece of its answer.
  void add(const v1::GenerateChunk& chunk);
  // It has come to its end: the next may go on from it, unless it is too large.
  void finish();
  // It is over, however that was. What did not come to its end is forgotten.
  void drop();
  // There is no room for what was remembered: one that continues is refused.
  void forget();
  size_t bytes() const { return bytes_; }  // of what the next may go on from

 private:
  const size_t bytes_max_;
  size_t bytes_ = 0;
  bool was_too_large_ = false;
  std::optional<v1::GenerateRequest> last_;
  std::optional<v1::GenerateRequest> running_;  // a chat
  v1::Message answer_;
};

}  // namespace pelton::rpc
