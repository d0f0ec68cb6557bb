// Where this user's caches are: packed weights, kernels' choices. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace pelton::node {

// $PELTON_CACHE, $XDG_CACHE_HOME/pelton or ~/.cache/pelton, and in it `part`; empty if no variable
// says.
std::string cache_folder(std::string_view part);

}  // namespace pelton::node
