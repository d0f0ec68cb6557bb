#include "launch/replica_book.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::launch {
namespace {

constexpr size_t kReplicasMax = 10'000;

Error no_book() {
  return {ErrorCode::kInvalidArgument, "the book of replicas is not as one is written", {}};
}

using Pods = std::map<std::string, KubernetesPod>;

// What a plan is made with.
struct Planner {
  PodPlan plan;
  std::vector<const KubernetesPod*> idle;  // that live and are nobody's

  void match(const Pods& pods, Shrinks shrinks);
  void end_lost(Shrinks shrinks, const std::set<std::pair<int, uint64_t>>& had);
  bool is_last(const KubernetesPod& pod) const;
  bool can_shrink() const;
  void end(int ordinal, const std::string& how, bool is_hopeless);
  void give_pods();
  void give_back();
  void go_from_the_end();
  void mark(bool by_cost);
  const KubernetesPod* pod_of(int ordinal) const {
    const auto found = plan.of.find(ordinal);
    return found == plan.of.end() ? nullptr : found->second;
  }
};

// The pods of those in the book, by their marks.
void Planner::match(const Pods& pods, Shrinks shrinks) {
  std::map<std::string, int> marks;
  for (const auto& [ordinal, entry] : plan.book.replicas) {
    marks[replica_mark(ordinal, entry.token)] = ordinal;
  }
  for (const auto& [name, pod] : pods) {
    if (pod.is_of_a_group) continue;
    const auto marked = marks.find(pod.replica);
    if (marked != marks.end() && pod_of(marked->second) == nullptr) {
      plan.of[marked->second] = &pod;
      // Somebody else has it end: a node that is emptied. Of a set the cluster starts it again; a
      // shorter set would lose its last one, which may be in the midst of work.
      if (shrinks == Shrinks::kByCost) {
        plan.book.replicas[marked->second].stops |= pod.is_ending;
      }
    } else if (!pod.is_ending && (pod.failed.empty() || pod.replica.empty())) {
      // One that has failed before it was anybody's is still the start that was ordered.
      idle.push_back(&pod);
    }
  }
  std::ranges::sort(idle, {}, [](const KubernetesPod* one) {
    return std::tuple(!one->failed.empty(), !one->is_running, one->index, one->created, one->name);
  });
}

void Planner::end(int ordinal, const std::string& how, bool is_hopeless) {
  plan.ended[ordinal] = {
      .token = plan.book.replicas[ordinal].token, .how = how, .is_hopeless = is_hopeless};
  plan.book.replicas.erase(ordinal);
  plan.of.erase(ordinal);
}

bool Planner::is_last(const KubernetesPod& pod) const {
  return std::ranges::none_of(plan.of,
                              [&](const auto& one) { return one.second->index > pod.index; });
}

// Whether a set that is one shorter still has all pods that are there.
bool Planner::can_shrink() const {
  const auto stay =
      std::ranges::count_if(plan.book.replicas, [](const auto& one) { return !one.second.stops; });
  return std::ranges::all_of(plan.of,
                             [&](const auto& one) { return one.second->index < stay - 1; });
}

// Those whose pod is gone, or will not come to run. Of a set a pod amid the others is left to the
// cluster, which starts it again: a shorter set would lose its last one.
void Planner::end_lost(Shrinks shrinks, const std::set<std::pair<int, uint64_t>>& had) {
  const std::map<int, ReplicaBook::Entry> before = plan.book.replicas;
  for (const auto& [ordinal, entry] : before) {
    const KubernetesPod* pod = pod_of(ordinal);
    const bool has_failed = pod != nullptr && !pod->failed.empty();
    if (has_failed && (shrinks == Shrinks::kByCost || is_last(*pod))) {
      end(ordinal, pod->failed, pod->is_hopeless);
    } else if (pod == nullptr && entry.stops) {
      end(ordinal, "stopped", false);
    } else if (pod == nullptr && had.contains({ordinal, entry.token}) &&
               (shrinks == Shrinks::kByCost || can_shrink())) {
      end(ordinal, "its pod is gone", false);
    }
  }
}

void Planner::give_pods() {
  auto next = idle.begin();
  for (const auto& [ordinal, entry] : plan.book.replicas) {
    if (next == idle.end()) break;
    if (entry.stops || pod_of(ordinal) != nullptr) continue;
    plan.of[ordinal] = *next++;
  }
  idle.erase(idle.begin(), next);
}

// A workload that shrinks takes pods that do not run yet before any other. Where the one that was
// to go is left, who has lost his gets it.
void Planner::give_back() {
  const auto lives = [&](int ordinal) {
    const KubernetesPod* pod = pod_of(ordinal);
    return pod != nullptr && !pod->is_ending;
  };
  const auto live = static_cast<int>(idle.size()) +
                    static_cast<int>(std::ranges::count_if(
                        plan.book.replicas, [&](const auto& one) { return lives(one.first); }));
  if (live > plan.pods) return;
  const std::map<int, ReplicaBook::Entry> before = plan.book.replicas;
  for (const auto& [ordinal, entry] : before) {
    if (entry.stops || pod_of(ordinal) != nullptr) continue;
    const auto left = std::ranges::find_if(
        before, [&](const auto& one) { return one.second.stops && lives(one.first); });
    if (left == before.end()) return;
    const KubernetesPod* pod = pod_of(left->first);
    end(left->first, "stopped", false);
    plan.of[ordinal] = pod;
    return;  // one at a time
  }
}

// The last pods go: who is to stay and has one of them changes with who is to go and has not.
void Planner::go_from_the_end() {
  for (const auto& [ordinal, entry] : plan.book.replicas) {
    const KubernetesPod* last = pod_of(ordinal);
    if (entry.stops || last == nullptr || last->index < plan.pods || last->is_ending) continue;
    for (const auto& [other, leaving] : plan.book.replicas) {
      const KubernetesPod* kept = pod_of(other);
      if (!leaving.stops || kept == nullptr || kept->is_ending || kept->index >= plan.pods)
        continue;
      std::swap(plan.of[ordinal], plan.of[other]);
      break;
    }
  }
}

void Planner::mark(bool by_cost) {
  for (const auto& [ordinal, pod] : plan.of) {
    const ReplicaBook::Entry& entry = plan.book.replicas.at(ordinal);
    const std::string mark = replica_mark(ordinal, entry.token);
    const bool goes = by_cost && entry.stops && !pod->is_ending;
    const bool is_right = pod->replica == mark && (pod->has_cost == goes || !by_cost);
    if (is_right || pod->is_ending) continue;
    plan.marks.push_back({.pod = pod->name, .replica = mark, .goes = goes});
  }
}

}  // namespace

std::string book_text(const ReplicaBook& book) {
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("newest").integer(static_cast<int64_t>(book.newest));
  w.key("replicas").begin_object();
  for (const auto& [ordinal, entry] : book.replicas) {
    w.key(std::to_string(ordinal)).begin_object();
    w.key("token").integer(static_cast<int64_t>(entry.token));
    if (entry.stops) w.key("stops").boolean(true);
    w.end_object();
  }
  w.end_object().end_object();
  return text;
}

Result<ReplicaBook> parse_book(std::string_view text) {
  const Result<Json> json = Json::parse(text);
  const Json* replicas = json.ok() && json->is_object() ? json->find("replicas") : nullptr;
  if (replicas == nullptr || !replicas->is_object()) return no_book();
  if (replicas->as_object().size() > kReplicasMax) return no_book();
  const std::optional<int64_t> newest = json->integer("newest");
  if (!newest || *newest < 0) return no_book();
  ReplicaBook book{.newest = static_cast<uint64_t>(*newest), .replicas = {}};
  for (const Json::Member& one : replicas->as_object()) {
    int ordinal = 0;
    const char* last = one.key.data() + one.key.size();
    const auto [end, error] = std::from_chars(one.key.data(), last, ordinal);
    if (error != std::errc() || end != last || ordinal < 0 || !one.value.is_object()) {
      return no_book();
    }
    const std::optional<int64_t> token = one.value.integer("token");
    if (!token || *token < 0) return no_book();
    book.replicas[ordinal] = {.token = static_cast<uint64_t>(*token),
                              .stops = one.value.boolean("stops").value_or(false)};
    book.newest = std::max(book.newest, static_cast<uint64_t>(*token));
  }
  return book;
}

std::string replica_mark(int ordinal, uint64_t token) {
  return fmt::format("{}.{}", ordinal, token);
}

PodPlan plan_pods(const ReplicaBook& book, const Pods& pods, Shrinks shrinks,
                  std::set<std::pair<int, uint64_t>>& had) {
  Planner planner{.plan = {.book = book}, .idle = {}};
  planner.match(pods, shrinks);
  planner.end_lost(shrinks, had);
  planner.give_pods();
  PodPlan& plan = planner.plan;
  const auto count = [&plan] {
    return static_cast<int>(std::ranges::count_if(
        plan.book.replicas, [](const auto& one) { return !one.second.stops; }));
  };
  plan.pods = count();
  planner.give_back();
  if (shrinks == Shrinks::kFromTheEnd) planner.go_from_the_end();
  planner.mark(shrinks == Shrinks::kByCost);
  had.clear();
  for (const auto& [ordinal, pod] : plan.of) {
    had.insert({ordinal, plan.book.replicas.at(ordinal).token});
  }
  return std::move(planner.plan);
}

ReplicaBook adopted_book(const Pods& pods, uint64_t token, int replicas) {
  ReplicaBook book{.newest = token, .replicas = {}};
  int ordinal = 0;
  for (const auto& [name, pod] : pods) {
    if (pod.is_ending || pod.is_of_a_group || !pod.failed.empty()) continue;
    book.replicas[ordinal++] = {.token = ++book.newest};
  }
  while (ordinal < std::min(replicas, static_cast<int>(kReplicasMax))) {
    book.replicas[ordinal++] = {.token = ++book.newest};
  }
  return book;
}

}  // namespace pelton::launch
