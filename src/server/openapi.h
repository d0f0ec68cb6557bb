// The OpenAPI 3.1 document of the public listener, made of the table of endpoints: each route and
// method, who may call it, the fields that its parser reads (names, kinds, limits), the shapes of
// its errors. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/endpoint.h"

namespace pelton::server {

std::string openapi_document(std::span<const Endpoint> endpoints, std::string_view version);

// The paths that an endpoint stands for: its templates, or its own.
std::vector<std::string_view> documented_paths(const Endpoint& endpoint);

}  // namespace pelton::server
