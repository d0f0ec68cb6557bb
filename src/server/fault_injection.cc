#include "server/fault_injection.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::server {
namespace {

constexpr std::array<std::string_view, 6> kFields = {"hang",     "slow",     "errors",
                                                     "abort_on", "lie_load", "drop_events"};
constexpr double kSlowMax = 1000;
constexpr double kLieMax = 1e18;
constexpr size_t kWordMax = 256;

Error bad(std::string_view field, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, what), std::string(field)};
}

// A number from `least` to `most`, where it is given.
Result<void> read(const Json& json, std::string_view field, double least, double most,
                  double& into) {
  const Json* value = json.find(field);
  if (value == nullptr) return {};
  if (!value->is_number() || !(value->as_number() >= least && value->as_number() <= most)) {
    return bad(field, fmt::format("must be a number from {} to {}", least, most));
  }
  into = value->as_number();
  return {};
}

}  // namespace

Result<Faults> parse_faults(std::string_view text) {
  TRY_ASSIGN(const Json json, Json::parse(text));
  if (!json.is_object()) return bad("", "must be an object");
  for (const auto& [name, value] : json.as_object()) {
    if (std::ranges::find(kFields, name) != kFields.end()) continue;
    return bad(name, fmt::format("is no fault; there are {}", fmt::join(kFields, ", ")));
  }
  Faults faults;
  if (const Json* hang = json.find("hang")) {
    if (!hang->is_bool()) return bad("hang", "must be true or false");
    faults.hang = hang->as_bool();
  }
  TRY(read(json, "slow", 1, kSlowMax, faults.slow));
  TRY(read(json, "errors", 0, 1, faults.errors));
  TRY(read(json, "drop_events", 0, 1, faults.drop_events));
  if (json.find("lie_load") != nullptr) {
    TRY(read(json, "lie_load", -kLieMax, kLieMax, faults.lie_load.emplace()));
  }
  if (const Json* word = json.find("abort_on")) {
    if (!word->is_string() || word->as_string().empty() || word->as_string().size() > kWordMax) {
      return bad("abort_on", fmt::format("must be a text of 1 to {} bytes", kWordMax));
    }
    faults.abort_on = word->as_string();
  }
  return faults;
}

std::string faults_body(const Faults& faults) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("hang").boolean(faults.hang).key("slow").number(faults.slow);
  w.key("errors").number(faults.errors).key("drop_events").number(faults.drop_events);
  if (!faults.abort_on.empty()) w.key("abort_on").string(faults.abort_on);
  if (faults.lie_load) w.key("lie_load").number(*faults.lie_load);
  w.end_object();
  return body;
}

}  // namespace pelton::server
