// The part of routes.h that finds a path's endpoint: by its pattern, and by the templates that say
// what such a pattern stands for.
#include <algorithm>
#include <vector>

#include "base/split.h"
#include "server/routes.h"

namespace pelton::server {
namespace {

bool fits(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

// Of the templates "/v1/files/{file_id} /v1/files/{file_id}/content" /v1/files/a/content is one.
bool has_template(std::string_view templates, std::string_view path) {
  const std::vector<std::string_view> parts = base::split(path, '/');
  const auto fits_part = [](std::string_view wanted, std::string_view part) {
    return wanted == part || (wanted.starts_with('{') && !part.empty());
  };
  return std::ranges::any_of(base::split(templates, ' '), [&](std::string_view one) {
    return std::ranges::equal(base::split(one, '/'), parts, fits_part);
  });
}

void add_method(std::string_view method, std::string& methods) {
  if (!methods.empty()) methods += ", ";
  methods += method == "GET" ? "GET, HEAD" : method;
}

}  // namespace

EndpointMatch find_endpoint(std::string_view method, std::string_view path) {
  // A HEAD is a GET whose body stays here; net/ sees to that.
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  const Endpoint* nearest = nullptr;
  std::string nearly;  // the methods of paths that begin as this one
  std::string allowed;
  for (const Endpoint& endpoint : endpoints()) {
    if (!fits(endpoint.path, path)) continue;
    const bool has_path = endpoint.templates.empty() || has_template(endpoint.templates, path);
    if (endpoint.method != wanted) {
      add_method(endpoint.method, nearly);
      if (has_path) add_method(endpoint.method, allowed);
    } else if (has_path) {
      return {.endpoint = &endpoint, .allowed_methods = {}};
    } else if (nearest == nullptr) {
      nearest = &endpoint;
    }
  }
  // Of a path that none has by itself (a model's name with a slash) whoever takes such ones.
  if (allowed.empty() && nearest != nullptr) return {.endpoint = nearest, .allowed_methods = {}};
  return {.endpoint = nullptr, .allowed_methods = allowed.empty() ? nearly : allowed};
}

}  // namespace pelton::server
