// All stores by the same tests.
#include "store/response_store.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "store/memory_response_store.h"
#include "store/sqlite_response_store.h"
#include "store/temporary_folder.h"

namespace pelton::store {
namespace {

class TurnedClock final : public base::Clock {
 public:
  int64_t now_ns() const override { return ms * 1'000'000; }
  int64_t unix_ms() const override { return ms; }
  int64_t ms = 1'000'000'000;
};

StoredResponse response(std::string id, std::string previous, std::string owner = "ann") {
  StoredResponse made{
      .id = std::move(id), .owner = std::move(owner), .previous = std::move(previous)};
  made.body = "{\"id\":\"" + made.id + "\"}";
  made.input = "[1]";
  made.output = "[2]";
  made.turn = {1, 200'002, 3};
  return made;
}

enum class Kind { kMemory, kSqlite, kEncrypted };

class ResponseStoreTest : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<ResponseStore> open(const StoreBounds& bounds) {
    if (GetParam() == Kind::kMemory) return std::make_unique<MemoryResponseStore>(bounds, clock_);
    Result<std::unique_ptr<ResponseStore>> store = SqliteResponseStore::open(
        folder_.path("responses.db"), bounds, clock_, log_,
        GetParam() == Kind::kEncrypted ? TenantKeys::Secrets{std::string(32, 's')}
                                       : TenantKeys::Secrets{});
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return std::move(store).value();
  }
  static bool has(ResponseStore& store, std::string_view id, std::string_view owner = "ann") {
    return store.find({.owner = owner, .id = id}).ok();
  }

  TurnedClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  TemporaryFolder folder_;
};

TEST_P(ResponseStoreTest, FindsWhatWasPut) {
  const auto store = open({});
  const StoredResponse put = response("a", "");
  ASSERT_TRUE(store->put(put).ok());
  const Result<StoredResponse> found = store->find({.owner = "ann", .id = "a"});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->body, put.body);
  EXPECT_EQ(found->input, put.input);
  EXPECT_EQ(found->output, put.output);
  EXPECT_EQ(found->turn, put.turn);
  EXPECT_EQ(found->owner, "ann");
  EXPECT_EQ(store->counts().entries, 1);
  EXPECT_EQ(store->counts().bytes, stored_bytes(put));
}

TEST_P(ResponseStoreTest, NobodyElseSeesIt) {
  const auto store = open({});
  ASSERT_TRUE(store->put(response("a", "")).ok());
  for (const std::string_view other : {"", "bob", "ANN", "ann "}) {
    EXPECT_EQ(store->find({.owner = other, .id = "a"}).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store->history({.owner = other, .id = "a"}).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store->remove({.owner = other, .id = "a"}).error().code, ErrorCode::kNotFound);
  }
  EXPECT_EQ(store->put(response("b", "a", "bob")).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(has(*store, "a"));
}

// Histories and all, and nobody else's; who comes again begins anew.
TEST_P(ResponseStoreTest, AnOwnersAreErasedTogether) {
  const auto store = open({});
  ASSERT_TRUE(store->put(response("a", "")).ok());
  ASSERT_TRUE(store->put(response("b", "a")).ok());
  StoredResponse other = response("c", "");
  other.owner = "bob";
  ASSERT_TRUE(store->put(other).ok());
  const Result<int64_t> erased = store->erase("ann");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_EQ(*erased, 2);
  EXPECT_FALSE(store->find({.owner = "ann", .id = "a"}).ok());
  EXPECT_FALSE(store->find({.owner = "ann", .id = "b"}).ok());
  EXPECT_TRUE(store->find({.owner = "bob", .id = "c"}).ok());
  EXPECT_EQ(store->counts().entries, 1);
  EXPECT_EQ(store->counts().bytes, stored_bytes(other));
  EXPECT_EQ(*store->erase("ann"), 0);
  ASSERT_TRUE(store->put(response("a", "")).ok());
  EXPECT_TRUE(store->find({.owner = "ann", .id = "a"}).ok());
}

TEST_P(ResponseStoreTest, AHistoryBranchesAndStaysWhole) {
  const auto store = open({});
  for (const auto& [id, previous] : {std::pair("a", ""), {"b", "a"}, {"c", "b"}, {"d", "b"}}) {
    ASSERT_TRUE(store->put(response(id, previous)).ok());
  }
  const auto ids = [&](std::string_view id) {
    std::string ids;
    const auto history = store->history({.owner = "ann", .id = id});
    if (!history.ok()) return std::string("none");
    for (const StoredResponse& one : *history) ids += one.id;
    return ids;
  };
  EXPECT_EQ(ids("c"), "abc");
  EXPECT_EQ(ids("d"), "abd");
  // Deleted: seen no more, yet what hangs on it goes on.
  ASSERT_TRUE(store->remove({.owner = "ann", .id = "b"}).ok());
  EXPECT_EQ(ids("b"), "none");
  EXPECT_FALSE(store->remove({.owner = "ann", .id = "b"}).ok());
  EXPECT_EQ(ids("c"), "abc");
  ASSERT_TRUE(store->remove({.owner = "ann", .id = "c"}).ok());
  EXPECT_EQ(store->counts().entries, 3);
  ASSERT_TRUE(store->remove({.owner = "ann", .id = "d"}).ok());
  EXPECT_EQ(store->counts().entries, 1) << "the deleted one in between goes with the last";
  EXPECT_TRUE(has(*store, "a"));
}

TEST_P(ResponseStoreTest, TheLongestUnaskedGoesFirst) {
  const auto store = open({.entries_max = 3});
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(store->put(response(id, "")).ok());
    clock_.ms += 10;
  }
  EXPECT_TRUE(has(*store, "a"));
  clock_.ms += 10;
  ASSERT_TRUE(store->put(response("d", "")).ok());
  EXPECT_FALSE(has(*store, "b"));
  EXPECT_TRUE(has(*store, "a"));
}

TEST_P(ResponseStoreTest, BytesAreBounded) {
  const StoredResponse one = response("a", "");
  const auto store = open({.bytes_max = stored_bytes(one) * 5});
  StoredResponse large = response("large", "");
  large.body.assign(4096, 'x');
  EXPECT_EQ(store->put(large).error().code, ErrorCode::kDoesNotFit);
  for (char id = 'a'; id < 'z'; ++id) {
    clock_.ms += 10;
    ASSERT_TRUE(store->put(response(std::string(1, id), "")).ok());
    EXPECT_LE(store->counts().bytes, stored_bytes(one) * 5);
  }
  EXPECT_EQ(store->counts().entries, 5);
}

TEST_P(ResponseStoreTest, WhatIsNotAskedForGrowsOld) {
  const auto store = open({.age_max_s = 100});
  ASSERT_TRUE(store->put(response("a", "")).ok());
  clock_.ms += 99'000;
  EXPECT_TRUE(has(*store, "a"));
  clock_.ms += 99'000;
  EXPECT_TRUE(has(*store, "a")) << "asked for 99 s ago";
  clock_.ms += 101'000;
  EXPECT_FALSE(has(*store, "a"));
  ASSERT_TRUE(store->put(response("b", "")).ok());
  EXPECT_EQ(store->counts().entries, 1);
}

TEST_P(ResponseStoreTest, NoMixOfStepsBreaksAHistory) {
  const auto store = open({.entries_max = 40, .age_max_s = 60});
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::vector<std::string> ids = {""};
  const int rounds = GetParam() == Kind::kMemory ? 20'000 : 1'500;
  for (int i = 0; i < rounds; ++i) {
    clock_.ms += static_cast<int64_t>(random() % 2'000);
    const std::string& some = ids[ids.size() - 1 - random() % std::min<size_t>(ids.size(), 60)];
    switch (random() % 4) {
      case 0:
      case 1: {
        const Result<void> put = store->put(response("r" + std::to_string(i), some));
        if (put.ok()) ids.push_back("r" + std::to_string(i));
        break;
      }
      case 2:
        static_cast<void>(store->remove({.owner = "ann", .id = some}));
        break;
      case 3: {
        const auto history = store->history({.owner = "ann", .id = some});
        if (!history.ok()) break;
        ASSERT_EQ(history->front().previous, "");
        for (size_t k = 1; k < history->size(); ++k) {
          ASSERT_EQ((*history)[k].previous, (*history)[k - 1].id);
        }
      }
    }
    ASSERT_LE(store->counts().entries, 40);
    ASSERT_GE(store->counts().bytes, store->counts().entries * 512);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResponseStoreTest,
                         testing::Values(Kind::kMemory, Kind::kSqlite, Kind::kEncrypted),
                         [](const auto& kind) {
                           return kind.param == Kind::kMemory   ? "Memory"
                                  : kind.param == Kind::kSqlite ? "Sqlite"
                                                                : "Encrypted";
                         });

TEST(SqliteResponseStore, OutlivesTheProcess) {
  const TurnedClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const TemporaryFolder folder;
  const std::string path = folder.path("responses.db");
  {
    const auto store = SqliteResponseStore::open(path, {}, clock, log);
    ASSERT_TRUE(store.ok()) << store.error().message;
    ASSERT_TRUE((*store)->put(response("a", "")).ok());
    ASSERT_TRUE((*store)->put(response("b", "a")).ok());
    EXPECT_FALSE(SqliteResponseStore::open(path, {}, clock, log).ok()) << "one process at a time";
  }
  const auto store = SqliteResponseStore::open(path, {}, clock, log);
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ((*store)->counts().entries, 2);
  const auto history = (*store)->history({.owner = "ann", .id = "b"});
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->front().turn, response("a", "").turn);
}

TEST(SqliteResponseStore, E7_WhatWasBeingMadeIsFoundAfterTheEnd) {
  const TurnedClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const TemporaryFolder folder;
  const std::string path = folder.path("responses.db");
  const auto open = [&] {
    return std::move(SqliteResponseStore::open(path, {}, clock, log).value());
  };
  const auto body_of = [](ResponseStore& store, std::string_view id) {
    const auto found = store.find({.owner = "ann", .id = id});
    return found.ok() ? found->body : "none";
  };
  {
    auto store = open();
    ASSERT_TRUE(store->put(response("before", "")).ok());
    for (const char* id : {"killed", "ended", "deleted", "alone"}) {
      StoredResponse failed = response(id, id[0] == 'a' ? "gone" : "before");
      failed.body = "failed";
      ASSERT_TRUE(store->put_unfinished(failed).ok());
      EXPECT_EQ(body_of(*store, id), "none") << "it is being made";
    }
    ASSERT_TRUE(store->put(response("ended", "before")).ok());
    EXPECT_FALSE(store->remove({.owner = "ann", .id = "deleted"}).ok());
    EXPECT_EQ(store->counts().entries, 2);
  }
  for (int start = 0; start < 2; ++start) {
    auto store = open();
    EXPECT_EQ(body_of(*store, "killed"), "failed");
    EXPECT_EQ(body_of(*store, "alone"), "failed");
    EXPECT_EQ(body_of(*store, "ended"), response("ended", "").body);
    EXPECT_EQ(body_of(*store, "deleted"), "none");
    EXPECT_FALSE(store->find({.owner = "bob", .id = "killed"}).ok());
    EXPECT_EQ(store->history({.owner = "ann", .id = "killed"})->size(), 2u);
    EXPECT_EQ(store->history({.owner = "ann", .id = "alone"})->size(), 1u);
    EXPECT_EQ(store->counts().entries, 4);
  }
}

TEST(SqliteResponseStore, D10_NobodyElseMayReadIt) {
  const TurnedClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const TemporaryFolder folder;
  const std::string path = folder.path("responses.db");
  const auto rights = [](const std::string& file) {
    struct stat info {};
    return ::stat(file.c_str(), &info) == 0 ? info.st_mode & 0777 : 0u;
  };
  const mode_t before = ::umask(022);
  {
    const auto store = SqliteResponseStore::open(path, {}, clock, log);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->put(response("a", "")).ok());
    EXPECT_EQ(rights(path), 0600u);
    EXPECT_EQ(rights(path + "-wal"), 0600u);
  }
  ::chmod(path.c_str(), 0644);  // as versions before made it
  EXPECT_TRUE(SqliteResponseStore::open(path, {}, clock, log).ok());
  EXPECT_EQ(rights(path), 0600u);
  ::umask(before);
}

TEST(SqliteResponseStore, RefusesWhatIsNoStore) {
  const TurnedClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const TemporaryFolder folder;
  const std::string text = folder.path("text");
  std::ofstream(text) << std::string(5000, 'x');
  const auto refused = SqliteResponseStore::open(text, {}, clock, log);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBadConfig);
  EXPECT_NE(refused.error().message.find(text), std::string::npos);
  EXPECT_FALSE(SqliteResponseStore::open(folder.path("none/x.db"), {}, clock, log).ok());
}

// While it is there, no file of this process grows beyond so many bytes: what a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : before_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_handler_);
  }

 private:
  rlimit before_{};
  void (*before_handler_)(int);
};

TEST(SqliteResponseStore, E4_AFullDiskRefusesWritesAndNothingElse) {
  const TurnedClock clock;
  const TemporaryFolder folder;
  std::FILE* const said = std::tmpfile();
  base::Log log(clock, {.file = said});
  const std::string path = folder.path("responses.db");
  auto store = std::move(SqliteResponseStore::open(path, {}, clock, log).value());
  ASSERT_TRUE(store->put(response("a", "")).ok());
  ASSERT_TRUE(store->put(response("b", "a")).ok());
  const auto has = [&](std::string_view id) {
    return store->find({.owner = "ann", .id = id}).ok() &&
           store->history({.owner = "ann", .id = id}).ok();
  };
  int kept = 0;
  {
    const FileSizeLimit limit(1 << 17);
    Result<void> put;
    while (put.ok()) {
      ASSERT_LT(kept, 1000);
      put = store->put(response("r" + std::to_string(kept++), "b"));
    }
    EXPECT_EQ(put.error().code, ErrorCode::kIo);
    EXPECT_GE(store->failures().writes, 1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(has("a"));
      EXPECT_TRUE(has("b"));
      EXPECT_TRUE(has("r0"));
    }
    EXPECT_FALSE(has("r" + std::to_string(kept - 1))) << "all of it or nothing";
    const Result<void> removed = store->remove({.owner = "ann", .id = "r0"});
    ASSERT_FALSE(removed.ok());
    EXPECT_EQ(removed.error().code, ErrorCode::kIo);
    EXPECT_TRUE(has("r0"));
    EXPECT_EQ(store->counts().entries, 2 + kept - 1);
    EXPECT_EQ(store->failures().reads, 0);
    // The next start finds it all, though it cannot write either.
    store.reset();
    auto again = SqliteResponseStore::open(path, {}, clock, log);
    ASSERT_TRUE(again.ok()) << again.error().message;
    store = std::move(again).value();
    EXPECT_TRUE(has("r0"));
  }
  EXPECT_TRUE(store->put(response("last", "b")).ok());
  EXPECT_TRUE(store->remove({.owner = "ann", .id = "r0"}).ok());
  EXPECT_FALSE(has("r0"));
  EXPECT_TRUE(has("last"));
  std::rewind(said);
  std::string lines(1 << 14, '\0');
  lines.resize(std::fread(lines.data(), 1, lines.size(), said));
  std::fclose(said);
  EXPECT_NE(lines.find(path + ": cannot be"), std::string::npos) << lines;
  // Of this store, and of the one opened after it.
  EXPECT_LE(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
}

// Damage anywhere in the file: an error or an answer, never a crash.
TEST(SqliteResponseStore, ADamagedFileIsAnErrorAtMost) {
  const TurnedClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const TemporaryFolder folder;
  const std::string path = folder.path("responses.db");
  {
    const auto store = SqliteResponseStore::open(path, {}, clock, log);
    ASSERT_TRUE(store.ok());
    for (int i = 0; i < 20; ++i) {
      const std::string previous = i == 0 ? "" : "r" + std::to_string(i - 1);
      ASSERT_TRUE((*store)->put(response("r" + std::to_string(i), previous)).ok());
    }
  }
  std::ifstream in(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 60; ++i) {
    std::string bad = good;
    for (int k = 0; k < 8; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    const std::string file = folder.path("bad" + std::to_string(i));
    std::ofstream(file, std::ios::binary) << bad;
    auto store = SqliteResponseStore::open(file, {}, clock, log);
    if (!store.ok()) continue;
    static_cast<void>((*store)->history({.owner = "ann", .id = "r19"}));
    static_cast<void>((*store)->put(response("new", "r19")));
    static_cast<void>((*store)->remove({.owner = "ann", .id = "r3"}));
  }
}

}  // namespace
}  // namespace pelton::store
