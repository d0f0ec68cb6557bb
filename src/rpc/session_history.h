// What a session remembers of its conversation: the last chat that came to its end, and its answer.
// No longer than a chat that its model has answered. Pure.
//
//   turn 1: user "Hi"             -> assistant "Hello"
//   turn 2: continues, user "So?" -> is asked as user "Hi", assistant "Hello", user "So?"
#pragma once

#include <optional>

#include <pelton/v1/inference.pb.h>

#include "base/result.h"

namespace pelton::rpc {

class SessionHistory {
 public:
  // The next turn as Generate would be asked. Errors: kInvalidArgument, "continues": there is
  // nothing, or no chat, to go on with.
  Result<v1::GenerateRequest> begin(v1::SessionRequest asked);
  // A piece of its answer.
  void add(const v1::GenerateChunk& chunk);
  // It has come to its end: the next may go on from it. Without this it is forgotten.
  void finish();

 private:
  std::optional<v1::GenerateRequest> last_;
  std::optional<v1::GenerateRequest> running_;  // a chat
  v1::Message answer_;
};

}  // namespace pelton::rpc
