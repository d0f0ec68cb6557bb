// The server-sent events of a chat or a completion as texts, and at its end as the answer that it
// would have been whole. No sockets; owned by one call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/json.h"
#include "chain/step_call.h"
#include "net/sse.h"

namespace pelton::chain_http {

// A chat's or a completion's body, asked for as a stream that ends with its usage. `body` is an
// object that says neither.
std::string with_stream(std::string body);

class TextStream {
 public:
  TextStream(chain::Endpoint endpoint, int64_t bytes_max)
      : endpoint_(endpoint), bytes_max_(bytes_max), events_({}) {}

  // False: no more is wanted, it is broken or too long.
  bool feed(std::string_view bytes, base::FunctionRef<void(std::string text)> on_text);
  // When all bytes have come.
  chain::CallAnswer answer() const;

 private:
  void take(std::string_view data, base::FunctionRef<void(std::string text)> on_text);
  void break_off(std::string why, chain::CallAnswer::Fault fault);

  const chain::Endpoint endpoint_;
  const int64_t bytes_max_;
  net::SseParser events_;
  std::string text_;
  std::string finish_reason_;
  Json usage_;
  bool done_ = false;    // [DONE] has come
  bool broken_ = false;  // then what is answered
  chain::CallAnswer failure_;
};

}  // namespace pelton::chain_http
