#include "net/query_check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "net/url.h"

namespace pelton::net {

Result<void> check_query(std::string_view query, std::initializer_list<std::string_view> known) {
  std::vector<std::string> seen;
  for (auto& [name, value] : parse_query(query)) {
    std::string shown = name.substr(0, 64);
    if (std::ranges::find(known, name) == known.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("there is no query parameter '{}' here{}{}", shown,
                               known.size() == 0 ? "" : "; known: ", fmt::join(known, ", ")),
                   std::move(shown)};
    }
    if (std::ranges::find(seen, name) != seen.end()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is given twice", shown),
                   std::move(shown)};
    }
    seen.push_back(std::move(name));
  }
  return {};
}

Result<void> check_no_body(std::string_view body) {
  std::string said(body);
  std::erase_if(said, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
  if (said.empty() || said == "{}") return {};
  return Error{ErrorCode::kInvalidArgument,
               "no body is read here: say it in the query, as in ?tenant=NAME", "body"};
}

}  // namespace pelton::net
