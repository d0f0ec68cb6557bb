// An answer of JSON. A pure function.
#pragma once

#include <string>
#include <utility>

#include "net/http_message.h"

namespace pelton::net {

inline HttpResponse json_response(std::string body, int status = 200) {
  HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", "application/json");
  return response;
}

}  // namespace pelton::net
