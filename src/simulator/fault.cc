#include "simulator/fault.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace pelton::simulator {
namespace {

constexpr size_t kFaultsMax = 100'000;
constexpr int kGatewaysMax = 64;  // of a simulation
constexpr std::pair<Fault::Kind, std::string_view> kKinds[] = {
    {Fault::Kind::kCrash, "crash"},
    {Fault::Kind::kSlow, "slow"},
    {Fault::Kind::kStepError, "step_error"},
    {Fault::Kind::kCut, "cut"},
    {Fault::Kind::kLossy, "lossy"},
    {Fault::Kind::kLate, "late"},
    {Fault::Kind::kGatewayDown, "gateway_down"},
    {Fault::Kind::kSlowStart, "slow_start"},
    {Fault::Kind::kStartError, "start_error"},
    {Fault::Kind::kStockOut, "stock_out"},
    {Fault::Kind::kFactsCut, "facts_cut"},
    {Fault::Kind::kAutoscalerDown, "autoscaler_down"}};

// A member that is ignored would be another fault than the one that is meant.
Result<void> check_members(const Json& json, const std::string& name) {
  if (!json.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} must be an object", name), "faults"};
  }
  static const std::vector<std::string> kKeys = {"kind",    "replica", "at_s",    "until_s",
                                                 "factor",  "count",   "gateway", "share",
                                                 "delay_s", "node",    "zone"};
  for (const auto& [key, value] : json.as_object()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} has no member '{}', but {}", name, key, fmt::join(kKeys, ", ")),
                   "faults"};
    }
    const bool is_whole =
        key == "replica" || key == "gateway" || key == "count" || key == "node" || key == "zone";
    const bool is_sound =
        key == "kind" || (is_whole ? json.integer(key).has_value() : json.number(key).has_value());
    if (is_sound) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}.{} must be {} number", name, key, is_whole ? "a whole" : "a"),
                 key};
  }
  return {};
}

Result<void> read_of_network(const Json& json, const std::string& name, Fault& fault) {
  const auto bad = [&](const char* field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}.{} {}", name, field, what), field};
  };
  const int64_t gateway = json.integer("gateway").value_or(-1);
  if (gateway < -1 || gateway >= kGatewaysMax) {
    return bad("gateway", fmt::format("must be from 0 to {}", kGatewaysMax - 1));
  }
  fault.gateway = static_cast<int>(gateway);
  fault.share = json.number("share").value_or(0);
  if (!(fault.share >= 0 && fault.share <= 0.9)) return bad("share", "must be 0 to 0.9");
  fault.delay_s = json.number("delay_s").value_or(0);
  if (!(fault.delay_s >= 0 && fault.delay_s <= 60))
    return bad("delay_s", "must be 0 to 60 seconds");
  // One without would be none.
  if (fault.kind == Fault::Kind::kLossy && fault.share == 0) return bad("share", "is missing");
  if (fault.kind == Fault::Kind::kLate && fault.delay_s == 0) return bad("delay_s", "is missing");
  return {};
}

// Of a fault that names a node or a zone: one for each replica there.
Result<std::vector<Fault>> spread(const Json& json, const FaultPlaces& places, const Fault& fault,
                                  const std::string& name) {
  const auto bad = [&](const char* field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}.{} {}", name, field, what), field};
  };
  const std::optional<int64_t> node = json.integer("node");
  const std::optional<int64_t> zone = json.integer("zone");
  if (!node && !zone) return std::vector<Fault>{fault};
  const char* const field = node ? "node" : "zone";
  if ((node && zone) || json.find("replica") != nullptr) {
    return bad(field, "stands beside another place: give one of replica, node and zone");
  }
  if (fault.is_of_scaling()) return bad(field, "has no effect: the fault is the whole fleet's");
  if (fault.kind == Fault::Kind::kGatewayDown) {
    return bad(field, "has no effect: the fault is a gateway's");
  }
  const int count =
      node ? (places.replicas + places.node_replicas - 1) / places.node_replicas : places.zones;
  const int64_t place = node ? *node : *zone;
  if (place < 0 || place >= count)
    return bad(field, fmt::format("must be from 0 to {}", count - 1));
  std::vector<Fault> faults;
  for (int i = 0; i < places.replicas; ++i) {
    if ((node ? i / places.node_replicas : i % places.zones) != place) continue;
    faults.push_back(fault);
    faults.back().replica = i;
  }
  return faults;
}

Result<Fault> parse_fault(const Json& json, int replica_count, const std::string& name) {
  const auto bad = [&](const char* field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}.{} {}", name, field, what), field};
  };
  TRY(check_members(json, name));
  Fault fault;
  const std::string kind = json.string("kind").value_or("");
  const auto known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const auto& one) { return one.second == kind; });
  if (known == std::end(kKinds)) {
    return bad(
        "kind",
        "must be crash, slow, step_error or gateway_down, of the network cut, lossy or late, "
        "and of a fleet that is scaled slow_start, start_error, stock_out, facts_cut or "
        "autoscaler_down");
  }
  fault.kind = known->first;
  const int64_t replica = json.integer("replica").value_or(0);
  if (replica < 0 || replica >= replica_count) {
    return bad("replica", fmt::format("must be from 0 to {}", replica_count - 1));
  }
  fault.replica = static_cast<int>(replica);
  fault.at_s = json.number("at_s").value_or(-1);
  if (!(fault.at_s >= 0 && fault.at_s <= 1e9)) return bad("at_s", "must be 0 to 1e9 seconds");
  fault.until_s = json.number("until_s").value_or(1e9);
  if (!(fault.until_s > fault.at_s && fault.until_s <= 1e9)) {
    return bad("until_s", "must be after at_s, at most 1e9");
  }
  fault.factor = json.number("factor").value_or(1);
  if (!(fault.factor >= 0.01 && fault.factor <= 1e4)) return bad("factor", "must be 0.01 to 10000");
  const int64_t count = json.integer("count").value_or(1);
  if (count < 1 || count > 1'000'000) return bad("count", "must be 1 to 1000000");
  fault.count = static_cast<int>(count);
  TRY(read_of_network(json, name, fault));
  return fault;
}

}  // namespace

Result<std::vector<Fault>> parse_faults(const Json& json, const FaultPlaces& places,
                                        const std::string& origin) {
  if (!json.is_array() || json.as_array().size() > kFaultsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: faults must be a list of at most {}", origin, kFaultsMax),
                 "faults"};
  }
  std::vector<Fault> faults;
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    const Json& one = json.as_array()[i];
    const std::string name = fmt::format("{}: faults[{}]", origin, i);
    TRY_ASSIGN(const Fault fault, parse_fault(one, places.replicas, name));
    TRY_ASSIGN(const std::vector<Fault> all, spread(one, places, fault, name));
    if (faults.size() + all.size() > kFaultsMax) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: more than {} faults of replicas", origin, kFaultsMax),
                   "faults"};
    }
    faults.insert(faults.end(), all.begin(), all.end());
  }
  return faults;
}

}  // namespace pelton::simulator
