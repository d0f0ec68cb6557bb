#include "net/query_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "net/url.h"

namespace pelton::net {

Result<void> check_query(std::string_view query, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : parse_query(query)) {
    if (std::ranges::find(known, name) != known.end()) continue;
    std::string shown = name.substr(0, 64);
    std::string text = "there is no query parameter '" + shown + "' here";
    return Error{ErrorCode::kInvalidArgument, std::move(text), std::move(shown)};
  }
  return {};
}

}  // namespace pelton::net
