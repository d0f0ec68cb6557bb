#include "gateway/registry_view.h"

#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

using cluster::EtcdClient;
using cluster::Registration;

constexpr std::string_view kPrefix = "/pelton/v1/main";

Registration worker(const std::string& name, int port = 9000) {
  return {
      .name = name, .incarnation = "i", .host = "10.0.0.1", .port = port, .pool = "p", .zone = {}};
}

EtcdClient::Entry entry(const Registration& worker, int64_t revision) {
  return {.key = cluster::worker_key(kPrefix, worker.name),
          .value = encode(worker),
          .mod_revision = revision};
}

EtcdClient::Change put(const Registration& worker, int64_t revision) {
  return {.deleted = false, .entry = entry(worker, revision)};
}

EtcdClient::Change removed(const Registration& worker, int64_t revision) {
  return {.deleted = true, .entry = entry(worker, revision)};
}

bool take(RegistryView& view, const std::vector<EtcdClient::Change>& changes) {
  return view.take(changes).is_other;
}

bool take_all(RegistryView& view, int64_t revision, const EtcdClient::Entry& only) {
  EtcdClient::Snapshot snapshot;
  snapshot.revision = revision;
  snapshot.entries.push_back(only);
  return view.take(snapshot).is_other;
}

std::set<std::string> names(const RegistryView& view) {
  std::set<std::string> all;
  for (const Registration& one : view.workers()) {
    all.insert(fmt::format("{}:{}", one.name, one.port));
  }
  return all;
}

// ET-01, ET-02, ET-03: what is no record, has another schema or stands under another one's key.
TEST(RegistryView, TakesNothingButAWorkersOwnRecord) {
  RegistryView view{std::string(kPrefix)};
  EtcdClient::Snapshot snapshot;
  snapshot.revision = 9;
  snapshot.entries.push_back(entry(worker("good"), 3));
  const std::string folder = cluster::workers_prefix(kPrefix);
  for (const std::string& key : {folder + "../workers/evil", folder + "evil/../other", folder,
                                 std::string("/other/evil"), folder + "Evil", folder + "evil\n"}) {
    snapshot.entries.push_back({.key = key, .value = encode(worker("evil")), .mod_revision = 4});
  }
  snapshot.entries.push_back({.key = folder + "a", .value = "", .mod_revision = 4});
  snapshot.entries.push_back({.key = folder + "a", .value = "[1", .mod_revision = 4});
  snapshot.entries.push_back({.key = folder + "a",
                              .value = encode(worker("a")) + std::string(1 << 20, ' '),
                              .mod_revision = 4});
  snapshot.entries.push_back(
      {.key = folder + "a", .value = R"({"schema":2,"name":"a"})", .mod_revision = 4});
  const RegistryView::Taken taken = view.take(snapshot);
  EXPECT_TRUE(taken.is_other);
  EXPECT_EQ(taken.refused.size(), snapshot.entries.size() - 1);
  EXPECT_EQ(names(view), (std::set<std::string>{"good:9000"}));
}

// ET-06, ET-09: a change that is older than what is known, as a member that lags says it.
TEST(RegistryView, WhatIsOldChangesNothing) {
  RegistryView view{std::string(kPrefix)};
  take_all(view, 5, entry(worker("a", 9001), 5));
  EXPECT_FALSE(take(view, {put(worker("a", 9000), 4)}));
  EXPECT_FALSE(take(view, {put(worker("a", 9000), 5)}));
  EXPECT_FALSE(take(view, {removed(worker("a"), 5)}));
  EXPECT_TRUE(view.unlisted().empty());
  EXPECT_EQ(names(view), (std::set<std::string>{"a:9001"}));
  EXPECT_TRUE(take(view, {put(worker("a", 9002), 6)}));
  EXPECT_EQ(names(view), (std::set<std::string>{"a:9002"}));
}

// ET-07: events that come twice, and events that are missing until all is read anew.
TEST(RegistryView, IsPutRightByReadingAllAnew) {
  RegistryView view{std::string(kPrefix)};
  const std::vector<EtcdClient::Change> changes = {put(worker("a"), 2), put(worker("b"), 3),
                                                   removed(worker("a"), 4)};
  EXPECT_TRUE(take(view, changes));
  EXPECT_FALSE(take(view, changes)) << "said twice";
  ASSERT_EQ(view.unlisted().size(), 1u);
  EXPECT_EQ(view.unlisted().front().second.name, "a");
  // That b went and c came nobody said.
  EXPECT_TRUE(take_all(view, 9, entry(worker("c"), 8)));
  EXPECT_EQ(names(view), (std::set<std::string>{"a:9000", "b:9000", "c:9000"})) << "FT-45";
  EXPECT_EQ(view.unlisted().size(), 2u);
  EXPECT_TRUE(view.drop(cluster::worker_key(kPrefix, "a")));
  EXPECT_FALSE(view.drop(cluster::worker_key(kPrefix, "a")));
  EXPECT_FALSE(view.drop(cluster::worker_key(kPrefix, "c"))) << "it is listed";
  // A backup that was restored has lower revisions; its records are taken as they are.
  EXPECT_TRUE(take_all(view, 2, entry(worker("b", 9009), 2)));
  EXPECT_EQ(names(view), (std::set<std::string>{"b:9009", "c:9000"}));
}

// Whoever comes when all room is taken is not passed over in silence; said once, until there is
// room.
TEST(RegistryView, WhoFindsNoRoomIsNamed) {
  RegistryView view{std::string(kPrefix)};
  EtcdClient::Snapshot snapshot{.revision = 9, .entries = {}};
  for (size_t i = 0; i < RegistryView::kRecordsMax + 3; ++i) {
    snapshot.entries.push_back(entry(worker(fmt::format("w{:05}", i)), 5));
  }
  const RegistryView::Taken taken = view.take(snapshot);
  EXPECT_EQ(view.workers().size(), RegistryView::kRecordsMax);
  ASSERT_EQ(taken.refused.size(), 1u);
  EXPECT_EQ(taken.refused.front(),
            cluster::worker_key(kPrefix, "w08192") +
                ": it and 2 further records are passed over: a gateway knows 8192 workers of a "
                "registry");
  EXPECT_TRUE(view.take(snapshot).refused.empty()) << "said already";
  view.take({removed(worker("w00000"), 10)});
  EXPECT_TRUE(view.drop(cluster::worker_key(kPrefix, "w00000")));
  EXPECT_TRUE(take(view, {put(worker("late"), 11)})) << "there is room again";
  EXPECT_EQ(view.take({put(worker("later"), 12)}).refused.size(), 1u);
}

// ET-10: a hundred thousand keys that come and go are worked in one by one, and never all kept.
TEST(RegistryView, ChurnIsBounded) {
  RegistryView view{std::string(kPrefix)};
  take(view, {put(worker("stays"), 1)});
  int64_t revision = 1;
  int taken = 0;
  for (int i = 0; i < 100'000; ++i) {
    const Registration one = worker(fmt::format("w{}", i));
    taken += take(view, {put(one, ++revision)}) ? 1 : 0;
    take(view, {removed(one, ++revision)});
    // Nobody answers there; of the others somebody does.
    if (i % 2 == 0) view.drop(cluster::worker_key(kPrefix, one.name));
  }
  EXPECT_EQ(view.workers().size(), RegistryView::kRecordsMax);
  EXPECT_GE(taken, 2 * static_cast<int>(RegistryView::kRecordsMax) - 4);
  EXPECT_TRUE(names(view).contains("stays:9000"));
}

}  // namespace
}  // namespace pelton::gateway
