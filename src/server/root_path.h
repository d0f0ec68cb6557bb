// Servers that stand behind a proxy under a path of their own. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pelton::server {

// "/models/one/v1/models" below "/models/one" is "/v1/models".
inline void strip_root_path(std::string_view root, std::string& path) {
  if (root.empty() || !path.starts_with(root)) return;
  if (path.size() == root.size()) {
    path = "/";
  } else if (path[root.size()] == '/') {
    path.erase(0, root.size());
  }
}

}  // namespace pelton::server
