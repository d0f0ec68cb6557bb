// The table of endpoints: which URL is answered by what. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/endpoint.h"

namespace pelton::server {

std::span<const Endpoint> endpoints();

struct EndpointMatch {
  const Endpoint* endpoint = nullptr;  // null: nothing fits
  std::string allowed_methods;         // of the path, if it is the method that does not fit
};

EndpointMatch find_endpoint(std::string_view method, std::string_view path);

// "POST /v1/chat/completions", each on a line.
std::string endpoint_listing();

}  // namespace pelton::server
