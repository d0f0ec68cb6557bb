#include "launch/kubernetes_lead_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/json_writer.h"
#include "base/utc_time.h"
#include "net/url.h"

namespace pelton::launch {
namespace {

constexpr int kCreated = 201;
constexpr int kOk = 200;
constexpr int kNotThere = 404;
constexpr int kConflict = 409;
constexpr std::string_view kLabel = "pelton.dev/autoscaler";
constexpr std::string_view kEpoch = "epoch";
constexpr std::string_view kPool = "pool";
constexpr std::string_view kMemory = "memory";
constexpr int64_t kTransitionsMax = int64_t{1} << 31;

// As Kubernetes' MicroTime.
std::string micro_time(int64_t unix_ms) {
  std::string text = base::utc_time(unix_ms);
  text.insert(text.size() - 1, "000");
  return text;
}

Error not_ours(std::string_view what) {
  return {ErrorCode::kIo, fmt::format("the API server answers a {} that is none", what), {}};
}

Result<Json> object_of(const cluster::KubernetesApi::Answer& answer, std::string_view what) {
  Result<Json> json = Json::parse(answer.body);
  const Json* metadata = json.ok() ? json->find("metadata") : nullptr;
  if (metadata == nullptr || !metadata->string("resourceVersion")) return not_ours(what);
  return json;
}

std::string version_of(const Json& object) {
  return *object.find("metadata")->string("resourceVersion");
}

std::optional<uint64_t> epoch_of(const Json& map) {
  const Json* data = map.find("data");
  const std::string text = data == nullptr ? "" : data->string(kEpoch).value_or("");
  uint64_t epoch = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), epoch);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return epoch;
}

}  // namespace

KubernetesLeadStore::KubernetesLeadStore(Options options, const base::Clock& clock)
    : options_(std::move(options)), clock_(clock), api_(options_.api), writing_api_(options_.api) {}

std::chrono::milliseconds KubernetesLeadStore::look_again() const {
  return std::chrono::milliseconds(options_.lease) / 4;
}

std::string KubernetesLeadStore::leases() const {
  return fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases", options_.name_space);
}

std::string KubernetesLeadStore::maps() const {
  return fmt::format("/api/v1/namespaces/{}/configmaps", options_.name_space);
}

// A pool's name may be none of Kubernetes'.
std::string KubernetesLeadStore::map_of(const std::string& pool) const {
  constexpr size_t kDigits = 16;
  return fmt::format("{}-{}", options_.name, base::sha256(pool).substr(0, kDigits));
}

Result<KubernetesLeadStore::Lease> KubernetesLeadStore::lease_of(const Answer& answer) const {
  TRY_ASSIGN(const Json json, object_of(answer, "lease"));
  Lease lease{.version = version_of(json)};
  const Json* spec = json.find("spec");
  if (spec == nullptr || !spec->is_object()) return lease;
  constexpr int64_t kDurationMax_s = 3600;
  lease.holder = spec->string("holderIdentity").value_or("");
  lease.duration = std::chrono::seconds(
      std::clamp<int64_t>(spec->integer("leaseDurationSeconds").value_or(0), 0, kDurationMax_s));
  lease.transitions =
      std::clamp<int64_t>(spec->integer("leaseTransitions").value_or(0), 0, kTransitionsMax);
  return lease;
}

Result<std::optional<KubernetesLeadStore::Lease>> KubernetesLeadStore::look() {
  TRY_ASSIGN(const Answer answer, api_.get(leases() + "/" + net::percent_encode(options_.name)));
  if (answer.status == kNotThere) return std::optional<Lease>();
  if (answer.status != kOk) return cluster::kubernetes_error(answer);
  TRY_ASSIGN(Lease lease, lease_of(answer));
  return std::optional<Lease>(std::move(lease));
}

bool KubernetesLeadStore::is_free(const Lease& lease) {
  if (lease.holder.empty() || lease.holder == holder_) return true;
  const int64_t now_ns = clock_.now_ns();
  if (lease.version != seen_version_) {
    seen_version_ = lease.version;
    seen_ns_ = now_ns;
    return false;
  }
  const auto duration = std::max(lease.duration, options_.lease);
  return now_ns - seen_ns_ > std::chrono::nanoseconds(duration).count();
}

// With a `version`: to be written over that one alone. `is_taken`: or given up.
std::string KubernetesLeadStore::lease_body(const std::string& version, bool is_taken) const {
  const std::string now = micro_time(clock_.unix_ms());
  std::string body;
  base::JsonWriter w(body);
  w.begin_object();
  w.key("apiVersion").string("coordination.k8s.io/v1").key("kind").string("Lease");
  w.key("metadata").begin_object().key("name").string(options_.name);
  if (!version.empty()) w.key("resourceVersion").string(version);
  w.end_object().key("spec").begin_object().key("holderIdentity").string(is_taken ? holder_ : "");
  w.key("leaseDurationSeconds").integer(is_taken ? options_.lease.count() : 1);
  w.key("leaseTransitions").integer(static_cast<int64_t>(epoch_));
  w.key("renewTime").string(now).end_object().end_object();
  return body;
}

Result<std::optional<LeadStore::Term>> KubernetesLeadStore::take(const std::optional<Lease>& seen) {
  epoch_ = static_cast<uint64_t>(seen ? seen->transitions : 0) + 1;
  const Result<Answer> answer =
      seen ? api_.merge_patch(leases() + "/" + net::percent_encode(options_.name),
                              lease_body(seen->version, true))
           : api_.post(leases(), lease_body("", true));
  const auto fail = [&](Error error) {
    epoch_ = 0;
    return error;
  };
  if (!answer.ok()) return fail(answer.error());
  if (answer->status == kConflict) {
    epoch_ = 0;
    return std::optional<Term>();
  }
  if (answer->status != kOk && answer->status != kCreated) {
    return fail(cluster::kubernetes_error(*answer));
  }
  const Result<Lease> taken = lease_of(*answer);
  if (!taken.ok()) return fail(taken.error());
  version_ = taken->version;
  return std::optional<Term>({.epoch = epoch_, .left = options_.lease});
}

Result<std::optional<LeadStore::Term>> KubernetesLeadStore::enter(const std::string& name) {
  holder_ = name;
  TRY_ASSIGN(const std::optional<Lease> seen, look());
  if (seen && !is_free(*seen)) return std::optional<Term>();
  return take(seen);
}

Result<std::chrono::nanoseconds> KubernetesLeadStore::renew() {
  TRY_ASSIGN(Answer answer, api_.merge_patch(leases() + "/" + net::percent_encode(options_.name),
                                             lease_body(version_, true)));
  if (answer.status == kConflict || answer.status == kNotThere) {
    // Somebody else's, or something else of it was changed, as by `kubectl annotate`; or an earlier
    // answer was lost, and it is as we have written it.
    TRY_ASSIGN(const std::optional<Lease> now, look());
    if (!now || now->holder != holder_ || now->transitions != static_cast<int64_t>(epoch_)) {
      return Error{ErrorCode::kNotFound, "the Lease is another one's", {}};
    }
    version_ = now->version;
    TRY_ASSIGN(answer, api_.merge_patch(leases() + "/" + net::percent_encode(options_.name),
                                        lease_body(version_, true)));
  }
  if (answer.status != kOk) {
    // That it is gone the next attempt will say.
    return Error{ErrorCode::kIo, cluster::kubernetes_error(answer).message, {}};
  }
  TRY_ASSIGN(const Lease renewed, lease_of(answer));
  version_ = renewed.version;
  return std::chrono::nanoseconds(options_.lease);
}

Result<void> KubernetesLeadStore::give_up() {
  if (epoch_ == 0) return {};
  TRY_ASSIGN(const Answer answer,
             api_.merge_patch(leases() + "/" + net::percent_encode(options_.name),
                              lease_body(version_, false)));
  epoch_ = 0;
  if (answer.status != kOk) return cluster::kubernetes_error(answer);
  return {};
}

Result<std::vector<LeadStore::Entry>> KubernetesLeadStore::read() {
  const std::string selector = fmt::format("{}={}", kLabel, options_.name);
  std::vector<Entry> all;
  std::string next;
  do {
    std::string target = maps() + "?limit=100&labelSelector=" + net::percent_encode(selector);
    if (!next.empty()) target += "&continue=" + net::percent_encode(next);
    TRY_ASSIGN(const Answer answer, api_.get(target));
    if (answer.status != kOk) return cluster::kubernetes_error(answer);
    TRY_ASSIGN(const Json list, object_of(answer, "list"));
    const Json* items = list.find("items");
    if (items == nullptr || !items->is_array()) return not_ours("list");
    for (const Json& one : items->as_array()) {
      const Json* data = one.find("data");
      if (data == nullptr || !data->string(kPool) || !data->string(kMemory)) continue;
      all.push_back({.pool = *data->string(kPool), .text = *data->string(kMemory)});
    }
    next = list.find("metadata")->string("continue").value_or("");
  } while (!next.empty());
  return all;
}

Result<std::optional<KubernetesLeadStore::Map>> KubernetesLeadStore::look_at(
    const std::string& pool) {
  TRY_ASSIGN(const Answer answer, writing_api_.get(maps() + "/" + map_of(pool)));
  if (answer.status == kNotThere) return std::optional<Map>();
  if (answer.status != kOk) return cluster::kubernetes_error(answer);
  TRY_ASSIGN(const Json json, object_of(answer, "ConfigMap"));
  return std::optional<Map>({.version = version_of(json), .epoch = epoch_of(json).value_or(0)});
}

Result<bool> KubernetesLeadStore::write(const Entry& entry) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    auto known = written_.find(entry.pool);
    if (known == written_.end()) {
      TRY_ASSIGN(const std::optional<Map> there, look_at(entry.pool));
      if (there && there->epoch > epoch_) return false;
      known = written_.emplace(entry.pool, there.value_or(Map{})).first;
    }
    std::string body;
    base::JsonWriter w(body);
    w.begin_object().key("apiVersion").string("v1").key("kind").string("ConfigMap");
    w.key("metadata").begin_object().key("name").string(map_of(entry.pool));
    w.key("labels").begin_object().key(kLabel).string(options_.name).end_object();
    if (!known->second.version.empty()) w.key("resourceVersion").string(known->second.version);
    w.end_object().key("data").begin_object().key(kEpoch).string(fmt::format("{}", epoch_));
    w.key(kPool).string(entry.pool).key(kMemory).string(entry.text).end_object().end_object();
    const bool is_new = known->second.version.empty();
    TRY_ASSIGN(const Answer answer,
               is_new ? writing_api_.post(maps(), body)
                      : writing_api_.merge_patch(maps() + "/" + map_of(entry.pool), body));
    if (answer.status == kConflict || answer.status == kNotThere) {
      written_.erase(known);  // somebody has written or removed it: by whom is looked at
      continue;
    }
    if (answer.status != kOk && answer.status != kCreated) return cluster::kubernetes_error(answer);
    TRY_ASSIGN(const Json json, object_of(answer, "ConfigMap"));
    known->second = {.version = version_of(json), .epoch = epoch_};
    return true;
  }
  return Error{ErrorCode::kIo, "others write the same ConfigMap again and again", {}};
}

}  // namespace pelton::launch
