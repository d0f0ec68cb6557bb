#include "node/cache_folder.h"

#include <cstdlib>

#include <fmt/format.h>

namespace pelton::node {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string cache_folder(std::string_view part) {
  if (const std::string own = variable("PELTON_CACHE"); !own.empty()) {
    return fmt::format("{}/{}", own, part);
  }
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) {
    return fmt::format("{}/pelton/{}", xdg, part);
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : fmt::format("{}/.cache/pelton/{}", home, part);
}

}  // namespace pelton::node
