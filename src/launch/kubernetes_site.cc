#include "launch/kubernetes_site.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "cluster/kubernetes_objects.h"
#include "net/url.h"

namespace pelton::launch {
namespace {

using cluster::KubernetesApi;
using cluster::KubernetesWatch;
using State = LaunchedReplica::State;

constexpr const char* kBookAnnotation = "pelton/replicas";
constexpr int kConflict = 409;
constexpr int kTriesMax = 5;
constexpr std::chrono::milliseconds kConflictAgain{20};
constexpr std::chrono::milliseconds kListLook{10};
constexpr int kListLooks = 500;  // until the pods have been listed once

struct KindNames {
  const char* group;
  const char* resource;
};
KindNames names_of(KubernetesSite::Kind kind) {
  switch (kind) {
    case KubernetesSite::Kind::kDeployment:
      return {"apps/v1", "deployments"};
    case KubernetesSite::Kind::kStatefulSet:
      return {"apps/v1", "statefulsets"};
    case KubernetesSite::Kind::kLeaderWorkerSet:
      return {"leaderworkerset.x-k8s.io/v1", "leaderworkersets"};
  }
  return {"", ""};
}

Error conflict() {
  return {ErrorCode::kUnavailable, "another one has written there meanwhile", {}};
}

Error no_answer(const char* what) {
  return {ErrorCode::kIo, fmt::format("the API server's answer is no {}", what), {}};
}

Result<Json> object_of(const KubernetesApi::Answer& answer, const char* what) {
  if (answer.status == kConflict) return conflict();
  if (answer.status < 200 || answer.status > 299) return cluster::kubernetes_error(answer);
  Result<Json> json = Json::parse(answer.body);
  if (!json.ok() || !json->is_object()) return no_answer(what);
  return json;
}

}  // namespace

KubernetesSite::KubernetesSite(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)), clock_(clock), log_(log), api_(options_.api) {
  for (const Workload& workload : options_.workloads) {
    auto place = std::make_unique<Place>();
    const auto [group, resource] = names_of(workload.kind);
    const std::string name_space = net::percent_encode(workload.name_space);
    place->workload = workload;
    place->scale_target = fmt::format("/apis/{}/namespaces/{}/{}/{}/scale", group, name_space,
                                      resource, net::percent_encode(workload.name));
    place->lease_target =
        fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases", name_space);
    place->pods_target = fmt::format("/api/v1/namespaces/{}/pods", name_space);
    places_[workload.pool] = std::move(place);
  }
}

KubernetesSite::~KubernetesSite() = default;

// What the server asks for is kept: whoever is too quick for it (429) makes it slower.
Result<KubernetesApi::Answer> KubernetesSite::checked(Result<KubernetesApi::Answer> answer) {
  if (answer.ok() && answer->retry_after.count() > 0) {
    not_before_ns_ =
        clock_.now_ns() +
        std::chrono::duration_cast<std::chrono::nanoseconds>(answer->retry_after).count();
  }
  return answer;
}

Result<KubernetesSite::Scale> KubernetesSite::read_scale(const Place& place) {
  TRY_ASSIGN(const KubernetesApi::Answer answer, checked(api_.get(place.scale_target)));
  TRY_ASSIGN(const Json json, object_of(answer, "scale"));
  const Json* spec = json.find("spec");
  const Json* status = json.find("status");
  Scale scale{.version = cluster::kubernetes_version(json), .selector = {}};
  if (spec != nullptr && spec->is_object()) {
    scale.replicas =
        static_cast<int>(std::clamp<int64_t>(spec->integer("replicas").value_or(0), 0, 1'000'000));
  }
  if (status != nullptr && status->is_object()) {
    scale.selector = status->string("selector").value_or("");
  }
  if (scale.version.empty() || scale.selector.empty()) return no_answer("scale with a selector");
  return scale;
}

Result<void> KubernetesSite::write_scale(const Place& place, const Scale& before, int replicas) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("metadata").begin_object();
  w.key("resourceVersion").string(before.version).end_object();
  w.key("spec").begin_object().key("replicas").integer(replicas).end_object().end_object();
  TRY_ASSIGN(const KubernetesApi::Answer answer,
             checked(api_.merge_patch(place.scale_target, body)));
  TRY(object_of(answer, "scale"));
  log_.info(fmt::format("kubernetes: {}/{} is to have {} replicas, it had {}",
                        place.workload.name_space, place.workload.name, replicas, before.replicas));
  return {};
}

Result<KubernetesSite::WrittenBook> KubernetesSite::read_book(const Place& place, const Pods& pods,
                                                              int replicas) {
  constexpr int kNone = 404;
  TRY_ASSIGN(const KubernetesApi::Answer answer,
             checked(api_.get(place.lease_target + "/" +
                              net::percent_encode("pelton-" + place.workload.name))));
  const uint64_t first_token = options_.epoch << kTokenNumberBits;
  if (answer.status == kNone) {
    return WrittenBook{.version = {}, .book = adopted_book(pods, first_token, replicas)};
  }
  TRY_ASSIGN(const Json json, object_of(answer, "lease"));
  const Json* metadata = json.find("metadata");
  const Json* annotations =
      metadata != nullptr && metadata->is_object() ? metadata->find("annotations") : nullptr;
  const std::string text = annotations != nullptr && annotations->is_object()
                               ? annotations->string(kBookAnnotation).value_or("")
                               : "";
  WrittenBook written{.version = cluster::kubernetes_version(json), .book = {}};
  if (written.version.empty()) return no_answer("lease");
  if (text.empty()) {
    written.book = adopted_book(pods, first_token, replicas);
    return written;
  }
  TRY_ASSIGN(written.book, parse_book(text));
  return written;
}

Result<void> KubernetesSite::write_book(const Place& place, const WrittenBook& before,
                                        const ReplicaBook& book) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object();
  const std::string name = "pelton-" + place.workload.name;
  if (before.version.empty()) {
    w.key("apiVersion").string("coordination.k8s.io/v1").key("kind").string("Lease");
  }
  w.key("metadata").begin_object();
  if (before.version.empty()) w.key("name").string(name);
  if (!before.version.empty()) w.key("resourceVersion").string(before.version);
  w.key("annotations").begin_object().key(kBookAnnotation).string(book_text(book)).end_object();
  w.end_object().end_object();
  TRY_ASSIGN(
      const KubernetesApi::Answer answer,
      checked(before.version.empty()
                  ? api_.post(place.lease_target, body)
                  : api_.merge_patch(place.lease_target + "/" + net::percent_encode(name), body)));
  TRY(object_of(answer, "lease"));
  return {};
}

// Over the description that the plan was made with: whoever has written on the pod since is not
// written over.
Result<void> KubernetesSite::mark(Place& place, const PodPlan::Mark& mark,
                                  const std::string& version) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("metadata").begin_object();
  if (!version.empty()) w.key("resourceVersion").string(version);
  w.key("annotations").begin_object();
  w.key(kReplicaAnnotation).string(mark.replica);
  if (place.workload.kind == Kind::kDeployment) {
    w.key(kDeletionCost);
    // Below every pod that has none, which counts as 0.
    if (mark.goes) w.string("-1000");
    if (!mark.goes) w.null();
  }
  w.end_object().end_object().end_object();
  TRY_ASSIGN(
      const KubernetesApi::Answer answer,
      checked(api_.merge_patch(place.pods_target + "/" + net::percent_encode(mark.pod), body)));
  TRY_ASSIGN(const Json pod, object_of(answer, "pod"));
  place.marked[mark.pod] = {.replica = mark.replica, .version = cluster::kubernetes_version(pod)};
  return {};
}

void KubernetesSite::watch(Place& place, const std::string& selector) {
  place.watch = std::make_unique<KubernetesWatch>(
      KubernetesWatch::Options{
          .api = options_.api,
          .name = place.workload.name_space + "/" + place.workload.name,
          .target =
              fmt::format("{}?labelSelector={}", place.pods_target, net::percent_encode(selector)),
          .list_begins = [&place] { place.listed.clear(); },
          .listed_one = [this, &place](const Json& object) { return take(place.listed, object); },
          .listed =
              [this, &place] {
                {
                  std::lock_guard lock(place.mutex);
                  place.pods = std::exchange(place.listed, {});
                  place.is_listed = true;
                }
                changed_();
              },
          .changed = [this, &place](KubernetesWatch::Options::Kind kind,
                                    const Json& object) -> Result<void> {
            {
              std::lock_guard lock(place.mutex);
              if (kind == KubernetesWatch::Options::Kind::kDeleted) {
                place.pods.erase(cluster::kubernetes_name(object));
              } else {
                TRY(take(place.pods, object));
              }
            }
            changed_();
            return {};
          }},
      log_);
}

Result<void> KubernetesSite::take(Pods& pods, const Json& object) const {
  constexpr size_t kPodsMax = 50'000;
  TRY_ASSIGN(KubernetesPod pod, parse_kubernetes_pod(object));
  if (pods.size() >= kPodsMax) return Error{ErrorCode::kIo, "too many pods", {}};
  pods[pod.name] = std::move(pod);
  return {};
}

// As the watch has them, with what was written on them and has not come back yet.
Result<KubernetesSite::Pods> KubernetesSite::pods_of(Place& place, const Scale& scale) {
  if (place.watch == nullptr) watch(place, scale.selector);
  for (int look = 0; look < kListLooks; ++look) {
    {
      std::lock_guard lock(place.mutex);
      if (place.is_listed) {
        Pods pods = place.pods;
        std::erase_if(place.marked, [&](const auto& one) {
          const auto pod = pods.find(one.first);
          return pod == pods.end() || pod->second.replica == one.second.replica;
        });
        for (const auto& [name, marked] : place.marked) {
          pods[name].replica = marked.replica;
          pods[name].version = marked.version;
        }
        return pods;
      }
    }
    std::this_thread::sleep_for(kListLook);
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("the pods of {} could not be listed", place.workload.name),
               {}};
}

Result<void> KubernetesSite::reconcile(Place& place, const Change& change) {
  if (clock_.now_ns() < not_before_ns_) {
    return Error{ErrorCode::kUnavailable, "the API server asks to be asked later", {}};
  }
  for (int tries = 1;; ++tries) {
    Result<void> done = reconcile_once(place, change);
    const bool is_conflict = !done.ok() && done.error().message == conflict().message;
    if (!is_conflict || tries == kTriesMax) return done;
    std::this_thread::sleep_for(kConflictAgain * tries);
  }
}

// Reads all there is, and writes what is not as it should be, each over what was read: whoever has
// written in between, or leads meanwhile, is not written over.
Result<void> KubernetesSite::reconcile_once(Place& place, const Change& change) {
  TRY_ASSIGN(const Scale scale, read_scale(place));
  TRY_ASSIGN(const Pods pods, pods_of(place, scale));
  TRY_ASSIGN(const WrittenBook written, read_book(place, pods, scale.replicas));
  if (epoch_of(written.book.newest) > options_.epoch && options_.epoch > 0) {
    return Error{ErrorCode::kInvalidArgument, "a newer autoscaler leads", {}};
  }
  newest_token_ = std::max(newest_token_, written.book.newest);
  ReplicaBook book = written.book;
  // The first thing that is written fences whoever led before.
  book.newest = std::max(book.newest, options_.epoch << kTokenNumberBits);
  TRY(change(book));
  std::set<std::pair<int, uint64_t>> had = place.had;
  const PodPlan plan = plan_pods(
      book, pods,
      place.workload.kind == Kind::kDeployment ? Shrinks::kByCost : Shrinks::kFromTheEnd, had);
  if (written.version.empty() || plan.book != written.book) {
    TRY(write_book(place, written, plan.book));
    newest_token_ = std::max(newest_token_, plan.book.newest);
  }
  for (const PodPlan::Mark& one : plan.marks) TRY(mark(place, one, pods.at(one.pod).version));
  if (plan.pods != scale.replicas) TRY(write_scale(place, scale, plan.pods));
  place.had = std::move(had);
  show(place, plan);
  return {};
}

LaunchedReplica KubernetesSite::shown(const Place& place, const ReplicaOrder& order,
                                      const ReplicaBook::Entry& entry, const KubernetesPod* pod) {
  LaunchedReplica seen{.order = order,
                       .state = entry.stops ? State::kStopping : State::kRunning,
                       .host = {},
                       .ended = {}};
  if (pod != nullptr && pod->is_running && !pod->address.empty()) {
    seen.host = pod->address;
    seen.port = place.workload.port;
  }
  return seen;
}

void KubernetesSite::show(Place& place, const PodPlan& plan) {
  const int64_t now_ns = clock_.now_ns();
  for (const auto& [ordinal, entry] : plan.book.replicas) {
    const ReplicaOrder order{.pool = place.workload.pool, .ordinal = ordinal, .token = entry.token};
    const auto found = plan.of.find(ordinal);
    const KubernetesPod* pod = found == plan.of.end() ? nullptr : found->second;
    Replica& replica = place.replicas[ordinal];
    const bool is_new = replica.seen.order != order || replica.seen.state == State::kEnded;
    const int64_t ordered_ns = is_new ? now_ns : replica.seen.ordered_ns;
    const int64_t progress_ns = is_new ? now_ns : replica.seen.progress_ns;
    replica.seen = shown(place, order, entry, pod);
    replica.seen.ordered_ns = ordered_ns;
    replica.seen.progress_ns = progress_ns;
    std::string progress = pod == nullptr ? "" : pod->name + pod->progress;
    if (progress != replica.progress) replica.seen.progress_ns = now_ns;
    replica.progress = std::move(progress);
  }
  for (const auto& [ordinal, ended] : plan.ended) {
    Replica& replica = place.replicas[ordinal];
    replica.seen.order = {.pool = place.workload.pool, .ordinal = ordinal, .token = ended.token};
    replica.seen.state = State::kEnded;
    replica.seen.ended = ended.how;
    replica.seen.is_hopeless = ended.is_hopeless;
  }
}

Result<void> KubernetesSite::start(const ReplicaOrder& order) {
  Place& place = *places_.at(order.pool);
  return reconcile(place, [&](ReplicaBook& book) -> Result<void> {
    const auto known = book.replicas.find(order.ordinal);
    const uint64_t token = known == book.replicas.end() ? 0 : known->second.token;
    if (token == order.token) return {};
    const bool is_old = token > order.token || epoch_of(order.token) < epoch_of(book.newest);
    if (is_old) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the order {} for {}-{} is older than {}", order.token, order.pool,
                               order.ordinal, std::max(token, book.newest)),
                   {}};
    }
    if (known != book.replicas.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}-{} still runs", order.pool, order.ordinal),
                   {}};
    }
    book.replicas[order.ordinal] = {.token = order.token};
    book.newest = std::max(book.newest, order.token);
    return {};
  });
}

// The pod's own terminationGracePeriodSeconds counts from then on.
Result<void> KubernetesSite::stop(const ReplicaOrder& order, std::chrono::milliseconds /*grace*/) {
  Place& place = *places_.at(order.pool);
  return reconcile(place, [&](ReplicaBook& book) -> Result<void> {
    const auto known = book.replicas.find(order.ordinal);
    if (known != book.replicas.end() && known->second.token == order.token) {
      known->second.stops = true;
    }
    return {};
  });
}

// A workload that cannot be seen leaves the others alone, and what was known of it.
Result<std::vector<LaunchedReplica>> KubernetesSite::list() {
  std::vector<LaunchedReplica> all;
  for (const auto& [pool, place] : places_) {
    const Result<void> done = reconcile(*place, [](ReplicaBook&) -> Result<void> { return {}; });
    if (!done.ok() && !place->is_known) return done.error();
    place->is_known = true;
    const std::string trouble = done.ok() ? "" : done.error().message;
    if (trouble != place->trouble) {
      log_.warning(fmt::format("kubernetes: {}/{}: {}", place->workload.name_space,
                               place->workload.name, done.ok() ? "is seen again" : trouble));
    }
    place->trouble = trouble;
    for (const auto& [ordinal, one] : place->replicas) all.push_back(one.seen);
  }
  return all;
}

}  // namespace pelton::launch
