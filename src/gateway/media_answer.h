// The answer of a worker that makes images or videos, passed on as it comes: pictures in JSON, or a
// file. What is no such answer (a proxy's page, JSON that breaks off) is found out at its head or
// at its end, and what has no end at its limit. Keeps nothing of it. One thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"

namespace pelton::gateway {

class MediaAnswer {
 public:
  explicit MediaAnswer(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Whether an answer with this head is passed on so: not one that is no success, or a stream of
  // events.
  static bool is_one(int status, const net::HttpHeaders& headers);

  // Errors: kInvalidArgument: it is none.
  Result<void> begin(const net::HttpHeaders& headers);
  Result<void> push(std::string_view bytes);
  // No more will come.
  Result<void> finish() const;

  int64_t bytes() const { return bytes_; }

 private:
  const int64_t bytes_max_;
  int64_t length_ = -1;  // that its head says; -1: none
  int64_t bytes_ = 0;
  bool is_json_ = false;
  char first_ = 0;  // that is no white space; 0: none
  char last_ = 0;   // likewise
};

}  // namespace pelton::gateway
