// Which pages' scripts may read our answers (CORS). Immutable, any thread. No answer ever allows
// cookies or other credentials of the browser's: keys are sent by the script itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http_message.h"

namespace pelton::access {

class CorsOrigins {
 public:
  // None, unless said otherwise.
  CorsOrigins() = default;
  // "https://chat.example.org", "http://localhost:3000"; "*": any page. Errors: kInvalidArgument.
  static Result<CorsOrigins> parse(const std::vector<std::string>& origins);

  // Does a page of that origin have leave? "null" (a file, a sandbox) only where any page has.
  bool allow(std::string_view origin) const;
  // What an answer to a request with that Origin says; to no origin only what caches must know.
  void add_headers(std::string_view origin, net::HttpHeaders& headers) const;

 private:
  bool any_ = false;
  std::vector<std::string> origins_;
};

}  // namespace pelton::access
