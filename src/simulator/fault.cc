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
// Whom a fault befalls.
enum class Place { kReplicas, kGateways, kBoth, kFleet };
// The members of one kind beside `kind`, `at_s` and its place.
struct KindInfo {
  Fault::Kind kind;
  std::string_view name;
  Place place;
  std::string_view member;  // without it the fault would be none; empty: it has none
  bool is_optional = false;
  bool lasts = true;  // until until_s
};
constexpr KindInfo kKinds[] = {
    {Fault::Kind::kCrash, "crash", Place::kReplicas, ""},
    {Fault::Kind::kSlow, "slow", Place::kReplicas, "factor"},
    {Fault::Kind::kStepError, "step_error", Place::kReplicas, "count", true, false},
    {Fault::Kind::kCut, "cut", Place::kBoth, ""},
    {Fault::Kind::kLossy, "lossy", Place::kBoth, "share"},
    {Fault::Kind::kLate, "late", Place::kBoth, "delay_s"},
    {Fault::Kind::kGatewayDown, "gateway_down", Place::kGateways, ""},
    {Fault::Kind::kSlowStart, "slow_start", Place::kFleet, "factor"},
    {Fault::Kind::kStartError, "start_error", Place::kFleet, "count", true, false},
    {Fault::Kind::kStockOut, "stock_out", Place::kFleet, ""},
    {Fault::Kind::kFactsCut, "facts_cut", Place::kFleet, ""},
    {Fault::Kind::kAutoscalerDown, "autoscaler_down", Place::kFleet, ""}};

std::vector<std::string> members_of(const KindInfo& info) {
  std::vector<std::string> members = {"kind", "at_s"};
  if (info.lasts) members.emplace_back("until_s");
  if (info.place == Place::kReplicas || info.place == Place::kBoth) {
    members.insert(members.end(), {"replica", "node", "zone"});
  }
  if (info.place == Place::kGateways || info.place == Place::kBoth) {
    members.emplace_back("gateway");
  }
  if (!info.member.empty()) members.emplace_back(info.member);
  return members;
}

// A member that is ignored would be another fault than the one that is meant.
Result<void> check_members(const Json& json, const KindInfo& info, const std::string& name) {
  const std::vector<std::string> members = members_of(info);
  for (const auto& [key, value] : json.as_object()) {
    if (std::find(members.begin(), members.end(), key) == members.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} has no member '{}': a fault of the kind {} has {}", name, key,
                               info.name, fmt::join(members, ", ")),
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

// What is left out must not be guessed: a fault that is none, or one of the first replica only.
Result<void> check_presence(const Json& json, const KindInfo& info, int replicas,
                            const std::string& name) {
  if (!info.member.empty() && !info.is_optional && json.find(info.member) == nullptr) {
    const std::string member(info.member);
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}.{} is missing", name, member),
                 member};
  }
  const bool is_of_replicas = info.place == Place::kReplicas || info.place == Place::kBoth;
  const bool has_place = json.find("replica") != nullptr || json.find("node") != nullptr ||
                         json.find("zone") != nullptr;
  if (!is_of_replicas || has_place || replicas == 1) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}.replica is missing: of {} replicas it says which (or 'node' or "
                           "'zone')",
                           name, replicas),
               "replica"};
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
  // One of nothing would be none.
  if (fault.kind == Fault::Kind::kLossy && fault.share == 0) return bad("share", "is 0 or missing");
  if (fault.kind == Fault::Kind::kLate && fault.delay_s == 0) {
    return bad("delay_s", "is 0 or missing");
  }
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
  if (!json.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} must be an object", name), "faults"};
  }
  Fault fault;
  const std::string kind = json.string("kind").value_or("");
  const auto known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const KindInfo& one) { return one.name == kind; });
  if (known == std::end(kKinds)) {
    return bad(
        "kind",
        "must be crash, slow, step_error or gateway_down, of the network cut, lossy or late, "
        "and of a fleet that is scaled slow_start, start_error, stock_out, facts_cut or "
        "autoscaler_down");
  }
  fault.kind = known->kind;
  TRY(check_members(json, *known, name));
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
  TRY(check_presence(json, *known, replica_count, name));
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
