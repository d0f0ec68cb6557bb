#include "gateway/endpoint_slice.h"

#include <charconv>
#include <optional>
#include <utility>

#include "net/ip_address.h"

namespace pelton::gateway {
namespace {

constexpr size_t kEndpointsMax = 4096;
constexpr int kPortMax = 65'535;

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

// The target's among the slice's ports; none: it has no such port.
std::optional<int> port_of(const Json& slice, const std::string& wanted) {
  int number = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  const bool is_number = error == std::errc() && end == wanted.data() + wanted.size();
  const Json* ports = slice.find("ports");
  if (ports == nullptr || !ports->is_array()) return std::nullopt;
  for (const Json& one : ports->as_array()) {
    if (!one.is_object()) continue;
    const std::optional<int64_t> port = one.integer("port");
    if (!port || *port < 1 || *port > kPortMax) continue;
    const bool is_wanted = is_number ? *port == number : one.string("name") == wanted;
    if (is_wanted) return static_cast<int>(*port);
  }
  return std::nullopt;
}

// A condition that nobody states holds, but for `terminating` (the API's own rule).
bool condition(const Json& endpoint, std::string_view name, bool otherwise) {
  const Json* all = endpoint.find("conditions");
  if (all == nullptr || !all->is_object()) return otherwise;
  return all->boolean(name).value_or(otherwise);
}

void add_workers(const Json& endpoint, const WorkerConfig& like, EndpointSlice& slice) {
  const bool is_terminating = condition(endpoint, "terminating", false);
  const bool is_there =
      is_terminating ? condition(endpoint, "serving", true) : condition(endpoint, "ready", true);
  const Json* addresses = endpoint.find("addresses");
  if (!is_there || addresses == nullptr || !addresses->is_array()) return;
  // More addresses of an endpoint are the same one's.
  if (addresses->as_array().empty() || !addresses->as_array().front().is_string()) return;
  WorkerConfig worker = like;
  worker.host = addresses->as_array().front().as_string();
  if (!net::is_ip_address(worker.host) || slice.workers.size() == kEndpointsMax) return;
  worker.zone = endpoint.string("zone").value_or("");
  worker.draining = is_terminating;
  slice.workers.push_back(std::move(worker));
}

}  // namespace

Result<EndpointSlice> parse_endpoint_slice(const Json& object, const SliceTarget& target) {
  const Json* metadata = object.is_object() ? object.find("metadata") : nullptr;
  if (metadata == nullptr || !metadata->is_object()) return bad("an EndpointSlice has no metadata");
  EndpointSlice slice{.name = metadata->string("name").value_or(""), .workers = {}};
  if (slice.name.empty()) return bad("an EndpointSlice has no name");
  const std::optional<int> port = port_of(object, target.port);
  const Json* endpoints = object.find("endpoints");
  if (!port || endpoints == nullptr || !endpoints->is_array()) return slice;
  const WorkerConfig like{.pool = target.pool, .host = {}, .port = *port, .zone = {}};
  for (const Json& endpoint : endpoints->as_array()) {
    if (endpoint.is_object()) add_workers(endpoint, like, slice);
  }
  return slice;
}

}  // namespace pelton::gateway
