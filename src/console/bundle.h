// The files of the web console (console/), as the build has bundled and embedded them. Immutable;
// any thread.
#pragma once

#include <span>
#include <string_view>

namespace pelton::console {

struct BundleFile {
  std::string_view name;  // below /console/; empty: the page itself
  std::string_view content_type;
  std::string_view bytes;
  std::string_view etag;  // with its quotes
};

// None where the build found no esbuild.
std::span<const BundleFile> bundle();

}  // namespace pelton::console
