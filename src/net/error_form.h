// How an error's body is written where this room answers before any handler has seen the request:
// the surfaces that a server has under one address differ in that, and clients read their own only.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "net/http_message.h"

namespace pelton::net {

enum class ErrorForm : uint8_t {
  kObject,  // error_response(): {"error":{"message",…}}
  kText,    // {"error":"…"}
};

// By the beginning of its path: what is under /api/ has texts (Ollama's clients show an object as
// "[object Object]").
ErrorForm error_form_of(std::string_view target);

HttpResponse error_response(const HttpReject& reject, ErrorForm form);

}  // namespace pelton::net
