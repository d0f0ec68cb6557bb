// What is encrypted at rest, for whom, and what is left when a key is destroyed.
#include "store/tenant_keys.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/batch_store.h"
#include "store/sealed_content.h"
#include "store/sqlite_file.h"
#include "store/sqlite_response_store.h"
#include "store/store_kinds.h"
#include "store/stored_tenants.h"
#include "store/temporary_folder.h"

namespace pelton::store {
namespace {

namespace fs = std::filesystem;

class FixedClock final : public base::Clock {
 public:
  int64_t now_ns() const override { return 0; }
  int64_t unix_ms() const override { return 1'700'000'000'000; }
};

const std::string kSecret(32, 's');
const std::string kOther(40, 'o');

class TenantKeysTest : public testing::Test {
 protected:
  using Opened = Result<std::unique_ptr<ResponseStore>>;

  Opened open(const TenantKeys::Secrets& secrets) {
    return SqliteResponseStore::open(path_, {}, clock_, log_, secrets);
  }
  std::unique_ptr<ResponseStore> opened(const TenantKeys::Secrets& secrets) {
    Opened store = open(secrets);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() ? std::move(store).value() : nullptr;
  }
  Result<std::unique_ptr<BatchStore>> open_batches(const TenantKeys::Secrets& secrets) {
    return BatchStore::open(folder_.path("batches"), {}, clock_, log_, secrets);
  }

  static StoredResponse response(const std::string& id, const std::string& owner) {
    return {.id = id,
            .owner = owner,
            .created_at = 1,
            .body = "canary-body of " + owner,
            .input = "[\"canary-input of " + owner + "\"]",
            .output = "[\"canary-output of " + owner + "\"]",
            .turn = {0x6e616301, 0x79726102}};
  }
  static std::string body_of(ResponseStore& store, std::string_view owner, std::string_view id) {
    const auto found = store.find({.owner = owner, .id = id});
    return found.ok() ? found->body : "none";
  }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // In any file of the test's folder.
  bool lies_there(const std::string& word) const {
    bool found = false;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path(""))) {
      if (entry.is_regular_file() && bytes_of(entry.path()).find(word) != std::string::npos) {
        found = true;
      }
    }
    return found;
  }
  // As somebody who has the database would, or a disk that forgets.
  static void alter(const std::string& database, const std::string& sql) {
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(database.c_str(), &handle), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(handle);
    sqlite3_close(handle);
  }
  void copy_store(const std::string& to, bool with_keys) const {
    fs::copy_file(path_, to, fs::copy_options::overwrite_existing);
    if (with_keys) fs::copy_file(path_ + ".keys", to + ".keys");
  }

  const FixedClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  const TemporaryFolder folder_;
  const std::string path_ = folder_.path("responses.db");
};

TEST_F(TenantKeysTest, NoWordOfAResponseLiesInAFile) {
  {
    const auto plain = opened({});
    ASSERT_TRUE(plain->put(response("a", "ann")).ok());
    EXPECT_TRUE(lies_there("canary-input"));  // so the search finds what is there
    ASSERT_TRUE(plain->remove({.owner = "ann", .id = "a"}).ok());
  }
  const auto store = opened({kSecret});
  ASSERT_TRUE(store->put(response("a", "ann")).ok());
  ASSERT_TRUE(store->put(response("b", "bob")).ok());
  ASSERT_TRUE(store->put_unfinished(response("c", "ann")).ok());
  EXPECT_FALSE(lies_there("canary"));
  EXPECT_FALSE(
      lies_there(std::string("\x01"
                             "can",
                             4)))
      << "the turn's tokens";
  EXPECT_FALSE(lies_there(kSecret));
  EXPECT_EQ(body_of(*store, "ann", "a"), "canary-body of ann");
  EXPECT_EQ(body_of(*store, "bob", "a"), "none");
  EXPECT_EQ(store->find({.owner = "ann", .id = "a"})->turn, response("a", "ann").turn);
}

TEST_F(TenantKeysTest, AnotherTenantsKeyOpensNothing) {
  {
    const auto store = opened({kSecret});
    ASSERT_TRUE(store->put(response("a", "ann")).ok());
    ASSERT_TRUE(store->put(response("b", "bob")).ok());
  }
  {
    // Whoever can write to the file gives ann's row to bob, and puts one text in another's place.
    const auto file = SqliteFile::open(path_, responses_kind());
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)
                    ->run("UPDATE responses SET owner = 'bob' WHERE id = 'a'; "
                          "UPDATE responses SET body = input WHERE id = 'b'")
                    .ok());
  }
  const auto store = opened({kSecret});
  for (const char* id : {"a", "b"}) {
    const auto found = store->find({.owner = "bob", .id = id});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ErrorCode::kIo);
    EXPECT_NE(found.error().message.find("cannot be decrypted"), std::string::npos);
  }
}

TEST_F(TenantKeysTest, WhatWasNotEncryptedIsFromThenOn) {
  {
    const auto plain = opened({});
    StoredResponse first = response("a", "ann");
    first.body += std::string(100'000, 'x') + "canary-end";
    ASSERT_TRUE(plain->put(first).ok());
    ASSERT_TRUE(plain->put_unfinished(response("left", "bob")).ok());
  }
  ASSERT_TRUE(lies_there("canary-end"));
  {
    const auto store = opened({kSecret});
    EXPECT_FALSE(lies_there("canary"));
    EXPECT_EQ(body_of(*store, "ann", "a").size(), 100'000 + 28u);
    EXPECT_EQ(body_of(*store, "bob", "left"), "canary-body of bob");
    EXPECT_EQ(store->counts().entries, 2);
  }
  const Opened without = open({});
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(without.error().code, ErrorCode::kBadConfig);
  EXPECT_NE(without.error().message.find("--store-key-file"), std::string::npos);
}

TEST_F(TenantKeysTest, AnotherSecretChangesNothing) {
  ASSERT_TRUE(opened({kSecret})->put(response("a", "ann")).ok());
  const std::string store = bytes_of(path_);
  const std::string keys = bytes_of(path_ + ".keys");
  const Opened refused = open({kOther});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBadConfig);
  EXPECT_NE(refused.error().message.find("another secret"), std::string::npos);
  EXPECT_EQ(bytes_of(path_), store);
  EXPECT_EQ(bytes_of(path_ + ".keys"), keys);
  EXPECT_EQ(body_of(*opened({kSecret}), "ann", "a"), "canary-body of ann");
}

TEST_F(TenantKeysTest, LostKeysAndAnotherStoresAreRefused) {
  ASSERT_TRUE(opened({kSecret})->put(response("a", "ann")).ok());
  fs::rename(path_ + ".keys", path_ + ".kept");
  EXPECT_FALSE(open({kSecret}).ok());
  EXPECT_FALSE(fs::exists(path_ + ".keys")) << "none are made in the place of lost ones";
  ASSERT_TRUE(SqliteResponseStore::open(folder_.path("other"), {}, clock_, log_, {kSecret}).ok());
  fs::copy_file(folder_.path("other.keys"), path_ + ".keys");
  const Opened refused = open({kSecret});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("another store"), std::string::npos);
  fs::copy_file(path_ + ".kept", path_ + ".keys", fs::copy_options::overwrite_existing);
  EXPECT_EQ(body_of(*opened({kSecret}), "ann", "a"), "canary-body of ann");
}

TEST_F(TenantKeysTest, ErasingATenantDestroysWhatCopiesWouldBeReadWith) {
  {
    const auto store = opened({kSecret});
    ASSERT_TRUE(store->put(response("a", "ann")).ok());
    ASSERT_TRUE(store->put(response("b", "bob")).ok());
  }
  const std::string copy = folder_.path("copy.db");
  copy_store(copy, false);
  const auto listed = list_stored_tenants(path_);
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_TRUE(listed->front().has_key);
  const auto erased = erase_stored_tenant(path_, "ann");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_EQ(*erased, 1);
  {
    const auto store = opened({kSecret});
    EXPECT_EQ(body_of(*store, "ann", "a"), "none");
    EXPECT_EQ(body_of(*store, "bob", "b"), "canary-body of bob");
    // Who comes again has another key.
    ASSERT_TRUE(store->put(response("a", "ann")).ok());
    EXPECT_EQ(body_of(*store, "ann", "a"), "canary-body of ann");
  }
  // The copy of before, with the keys as they are now.
  fs::copy_file(path_ + ".keys", copy + ".keys");
  const Opened old = SqliteResponseStore::open(copy, {}, clock_, log_, {kSecret});
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_EQ(body_of(**old, "ann", "a"), "none");
  EXPECT_EQ(body_of(**old, "bob", "b"), "canary-body of bob");
}

// The same while a server has the store: what a copy of before has is unreadable from then on.
TEST_F(TenantKeysTest, AStoreThatIsOpenErasesATenantAndItsKey) {
  {
    const auto store = opened({kSecret});
    ASSERT_TRUE(store->put(response("a", "ann")).ok());
    ASSERT_TRUE(store->put(response("b", "bob")).ok());
  }
  const std::string copy = folder_.path("copy.db");
  copy_store(copy, false);
  {
    const auto store = opened({kSecret});
    ASSERT_TRUE(store->put_unfinished(response("c", "ann")).ok());
    const Result<int64_t> erased = store->erase("ann");
    ASSERT_TRUE(erased.ok()) << erased.error().message;
    EXPECT_EQ(*erased, 1);
    EXPECT_EQ(store->counts().entries, 1);
    EXPECT_EQ(body_of(*store, "ann", "a"), "none");
    EXPECT_EQ(body_of(*store, "bob", "b"), "canary-body of bob");
    ASSERT_TRUE(store->put(response("d", "ann")).ok());
    EXPECT_EQ(body_of(*store, "ann", "d"), "canary-body of ann");
  }
  EXPECT_EQ(body_of(*opened({kSecret}), "ann", "c"), "none") << "what was being made, too";
  // The copy of before, with the keys as they are now.
  fs::copy_file(path_ + ".keys", copy + ".keys");
  const Opened old = SqliteResponseStore::open(copy, {}, clock_, log_, {kSecret});
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_NE(body_of(**old, "ann", "a"), "canary-body of ann");
  EXPECT_EQ(body_of(**old, "bob", "b"), "canary-body of bob");
}

TEST_F(TenantKeysTest, BatchesThatAreOpenEraseATenantAndItsKey) {
  auto store = open_batches({kSecret});
  ASSERT_TRUE(store.ok()) << store.error().message;
  for (const char* const owner : {"ann", "bob"}) {
    const std::string id = std::string("file-") + owner;
    ASSERT_TRUE((*store)->add_file({.id = id, .owner = owner, .name = "n"}, "canary").ok());
    ASSERT_TRUE((*store)
                    ->add_batch({.id = std::string("batch-") + owner,
                                 .owner = owner,
                                 .input_file = id,
                                 .status = BatchStatus::kInProgress,
                                 .total = 1})
                    .ok());
  }
  ASSERT_TRUE((*store)->add_result("batch-ann", {.line = 0, .text = "canary"}).ok());
  const Result<int64_t> erased = (*store)->erase("ann");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_EQ(*erased, 2);
  EXPECT_FALSE((*store)->find_file({.owner = "ann", .id = "file-ann"}).ok());
  EXPECT_FALSE((*store)->find_batch({.owner = "ann", .id = "batch-ann"}).ok());
  EXPECT_FALSE(fs::exists((*store)->content_path("file-ann")));
  EXPECT_TRUE((*store)->find_file({.owner = "bob", .id = "file-bob"}).ok());
  EXPECT_TRUE((*store)->find_batch({.owner = "bob", .id = "batch-bob"}).ok());
  store->reset();
  const auto listed = list_stored_tenants(folder_.path("batches"));
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ(listed->front().name, "bob");
}

TEST_F(TenantKeysTest, TheLastDeletionOfATenantDestroysItsKey) {
  {
    const auto store = opened({kSecret});
    ASSERT_TRUE(store->put(response("a", "ann")).ok());
    ASSERT_TRUE(store->put(response("b", "ann")).ok());
    ASSERT_TRUE(store->put(response("c", "bob")).ok());
    ASSERT_TRUE(store->remove({.owner = "ann", .id = "a"}).ok());
    EXPECT_EQ(body_of(*store, "ann", "b"), "canary-body of ann");
    ASSERT_TRUE(store->remove({.owner = "ann", .id = "b"}).ok());
  }
  const auto left = list_stored_tenants(path_);
  ASSERT_TRUE(left.ok());
  ASSERT_EQ(left->size(), 1u);
  EXPECT_EQ(left->front().name, "bob");
}

TEST_F(TenantKeysTest, AKilledErasureIsFinishedByTheNextStart) {
  {
    const auto store = opened({kSecret});
    ASSERT_TRUE(store->put(response("a", "ann")).ok());
    ASSERT_TRUE(store->put_unfinished(response("b", "ann")).ok());
  }
  {
    const auto keys = TenantKeys::open(path_ + ".keys", {});
    ASSERT_TRUE(keys.ok());
    ASSERT_TRUE((*keys)->destroy("ann").ok());  // and then the process ends
  }
  const auto store = opened({kSecret});
  EXPECT_EQ(store->counts().entries, 0);
  EXPECT_EQ(body_of(*store, "ann", "b"), "none");
  ASSERT_TRUE(store->put(response("c", "ann")).ok());
  EXPECT_EQ(body_of(*store, "ann", "c"), "canary-body of ann");
}

TEST_F(TenantKeysTest, AnotherSecretTakesOverAndTheOldOneOpensNothing) {
  ASSERT_TRUE(opened({kSecret})->put(response("a", "ann")).ok());
  EXPECT_EQ(body_of(*opened({kOther, kSecret}), "ann", "a"), "canary-body of ann");
  EXPECT_EQ(body_of(*opened({kOther}), "ann", "a"), "canary-body of ann");
  EXPECT_FALSE(open({kSecret}).ok());
}

// Whatever a process was at when it was killed: what is there can be read, and nothing of what it
// encrypts lies there in clear.
TEST_F(TenantKeysTest, EachRowIsWholeAfterAKill) {
  { const auto made = opened({kSecret}); }
  for (int round = 0; round < 6; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto store = open({kSecret});
      if (!store.ok()) ::_exit(1);
      for (int i = 0;; ++i) {
        const std::string owner = "t" + std::to_string(i % 5);
        const std::string id = "r" + std::to_string(i % 40);
        static_cast<void>((*store)->put(response(id, owner)));
        if (i % 3 == 0) static_cast<void>((*store)->remove({.owner = owner, .id = id}));
      }
    }
    ::usleep(static_cast<useconds_t>(30'000 + 17'000 * round));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(lies_there("canary"));
    const auto store = opened({kSecret});
    int64_t readable = 0;
    for (int i = 0; i < 40; ++i) {
      const std::string owner = "t" + std::to_string(i % 5);
      const auto found = store->find({.owner = owner, .id = "r" + std::to_string(i % 40)});
      if (!found.ok()) {
        EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
      }
      readable += found.ok() ? 1 : 0;
    }
    EXPECT_EQ(readable, store->counts().entries);
  }
}

TEST_F(TenantKeysTest, FilesAndBatchesAreEncryptedToo) {
  const std::string large = std::string(700'000, 'y') + "canary-large\n";
  {
    const auto plain = open_batches({});
    ASSERT_TRUE(plain.ok());
    const auto add = [&](const std::string& id, const std::string& content) {
      return (*plain)->add_file(
          {.id = id, .owner = "ann", .name = "canary-name", .purpose = "batch"}, content);
    };
    ASSERT_TRUE(add("file-11111111", large).ok());
    ASSERT_TRUE((*plain)
                    ->add_batch({.id = "b",
                                 .owner = "ann",
                                 .input_file = "file-11111111",
                                 .metadata = "{\"canary\":1}"})
                    .ok());
    ASSERT_TRUE((*plain)->add_result("b", {.line = 0, .text = "canary-result\n"}).ok());
  }
  ASSERT_TRUE(lies_there("canary-large"));
  const auto text = [](BatchStore& store, const std::string& id) {
    auto content = store.open_content({.owner = "ann", .id = id});
    if (!content.ok()) return content.error().message;
    std::string read(1 << 20, '\0');
    (*content)->read(read.data(), static_cast<std::streamsize>(read.size()));
    read.resize(static_cast<size_t>((*content)->gcount()));
    return (*content)->bad() ? "bad" : read;
  };
  int64_t bytes = 0;
  {
    const auto store = open_batches({kSecret});
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_FALSE(lies_there("canary"));
    EXPECT_EQ(text(**store, "file-11111111"), large);
    auto batch = (*store)->find_batch({.owner = "ann", .id = "b"});
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->metadata, "{\"canary\":1}");
    ASSERT_TRUE(
        (*store)->add_result("b", {.line = 1, .is_error = true, .text = "canary-2\n"}).ok());
    bytes = (*store)->bytes();
    batch->status = BatchStatus::kCompleted;
    ASSERT_TRUE((*store)->finish(*batch, {.output = "file-o", .error = "file-e"}).ok());
    EXPECT_EQ(text(**store, "file-o"), "canary-result\n");
    EXPECT_EQ(text(**store, "file-e"), "canary-2\n");
    EXPECT_FALSE((*store)->open_content({.owner = "bob", .id = "file-o"}).ok());
    EXPECT_EQ((*store)->list_files({.owner = "ann"})->back().name, "canary-name");
    EXPECT_FALSE(lies_there("canary"));
  }
  EXPECT_FALSE(open_batches({}).ok());
  EXPECT_FALSE(open_batches({kOther}).ok());
  {
    const auto store = open_batches({kSecret});
    EXPECT_EQ((*store)->bytes(), bytes) << "what encryption adds is not counted";
    // Cut by a piece: its rest is no content.
    fs::resize_file((*store)->content_path("file-11111111"),
                    2 * (SealedContent::kPieceBytes + SealedContent::kOverheadBytes));
    EXPECT_EQ(text(**store, "file-11111111"), "bad");
  }
  const auto erased = erase_stored_tenant(folder_.path("batches"), "ann");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_EQ(*erased, 4);
  EXPECT_TRUE(fs::is_empty(folder_.path("batches/files")));
}

// One damaged row is its tenant's, and nobody else's.
TEST_F(TenantKeysTest, ADamagedRowStopsNoOther) {
  const auto add = [](BatchStore& store, const std::string& id, const std::string& owner) {
    ASSERT_TRUE(store.add_file({.id = "file-" + id, .owner = owner, .purpose = "batch"}, "x").ok());
    ASSERT_TRUE(
        store.add_batch({.id = id, .owner = owner, .input_file = "file-" + id, .metadata = "{}"})
            .ok());
  };
  {
    const auto store = open_batches({kSecret});
    ASSERT_TRUE(store.ok());
    for (const char* id : {"11111111", "22222222"}) add(**store, id, "ann");
    add(**store, "33333333", "bob");
  }
  const std::string database = folder_.path("batches/batches.sqlite");
  alter(database, "UPDATE batches SET metadata = zeroblob(64) WHERE id = '11111111'");
  alter(database, "UPDATE files SET name = zeroblob(64) WHERE id = 'file-11111111'");
  const auto store = open_batches({kSecret});
  ASSERT_TRUE(store.ok());
  const auto unfinished = (*store)->unfinished_batches();
  ASSERT_TRUE(unfinished.ok());
  ASSERT_EQ(unfinished->size(), 2u);
  EXPECT_EQ(unfinished->back().owner, "bob");
  EXPECT_EQ((*store)->list_batches({.owner = "ann"})->size(), 1u);
  EXPECT_EQ((*store)->list_files({.owner = "ann"})->size(), 1u);
  EXPECT_EQ((*store)->find_file({.owner = "ann", .id = "file-11111111"}).error().code,
            ErrorCode::kIo);
}

TEST_F(TenantKeysTest, AFileWhoseRowIsDamagedCanBeDeleted) {
  {
    const auto store = open_batches({kSecret});
    const auto added =
        (*store)->add_file({.id = "file-11111111", .owner = "ann", .purpose = "batch"}, "x");
    ASSERT_TRUE(added.ok());
  }
  alter(folder_.path("batches/batches.sqlite"), "UPDATE files SET name = zeroblob(64)");
  const auto store = open_batches({kSecret});
  const BatchStore::Key key{.owner = "ann", .id = "file-11111111"};
  EXPECT_FALSE((*store)->find_file(key).ok());
  EXPECT_TRUE((*store)->remove_file(key).ok());
  EXPECT_EQ((*store)->bytes(), 0);
}

// The keys may have been put back from another day: nothing is deleted for want of them.
TEST_F(TenantKeysTest, WhatWasNotFinishedWaitsForItsKey) {
  const std::string keys = path_ + ".keys";
  { ASSERT_TRUE(opened({kSecret})->put(response("a", "ann")).ok()); }
  fs::copy_file(keys, folder_.path("keys.before"));
  { ASSERT_TRUE(opened({kSecret})->put_unfinished(response("b", "bob")).ok()); }
  fs::copy_file(keys, folder_.path("keys.after"));
  fs::copy_file(folder_.path("keys.before"), keys, fs::copy_options::overwrite_existing);
  EXPECT_EQ(body_of(*opened({kSecret}), "bob", "b"), "none");
  fs::copy_file(folder_.path("keys.after"), keys, fs::copy_options::overwrite_existing);
  EXPECT_EQ(body_of(*opened({kSecret}), "bob", "b"), "canary-body of bob");
}

TEST_F(TenantKeysTest, NoKeyReplacesAMarkOfErasure) {
  { ASSERT_TRUE(opened({kSecret})->put(response("a", "ann")).ok()); }
  const auto keys = TenantKeys::open(path_ + ".keys", {kSecret});
  ASSERT_TRUE(keys.ok());
  ASSERT_TRUE((*keys)->destroy("ann").ok());
  EXPECT_EQ((*keys)->find_or_make("ann").error().code, ErrorCode::kIo);
  EXPECT_EQ((*keys)->destroyed()->size(), 1u);
  ASSERT_TRUE((*keys)->forget("ann").ok());
  EXPECT_TRUE((*keys)->find_or_make("ann").ok());
}

// Killed behind the transaction that encrypts and before the file is written anew.
TEST_F(TenantKeysTest, TheFileIsWrittenAnewByTheNextStart) {
  { ASSERT_TRUE(opened({})->put(response("a", "ann")).ok()); }
  { const auto encrypted = opened({kSecret}); }
  alter(path_,
        "PRAGMA secure_delete = OFF; UPDATE encryption SET is_written_anew = 0; CREATE TABLE "
        "left_over (t TEXT); "
        "INSERT INTO left_over VALUES ('canary-page'); DROP TABLE left_over;");
  ASSERT_TRUE(lies_there("canary-page"));
  EXPECT_EQ(body_of(*opened({kSecret}), "ann", "a"), "canary-body of ann");
  EXPECT_FALSE(lies_there("canary-page"));
}

TEST_F(TenantKeysTest, KeysLieBesideTheStoreHoweverItIsWritten) {
  fs::create_directory(folder_.path("batches"));
  for (const char* written :
       {"batches", "batches/", "batches/.", "./batches", "batches/../batches"}) {
    EXPECT_EQ(keys_path(folder_.path(written)),
              fs::canonical(folder_.path("")).string() + "/batches.keys")
        << written;
  }
}

TEST_F(TenantKeysTest, WhatIsNotThereIsNotErased) {
  { ASSERT_TRUE(opened({kSecret})->put(response("a", "ann")).ok()); }
  EXPECT_EQ(erase_stored_tenant(path_, "anne").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(body_of(*opened({kSecret}), "ann", "a"), "canary-body of ann");
  ASSERT_TRUE((*TenantKeys::open(path_ + ".keys", {}))->destroy("ann").ok());
  const auto listed = list_stored_tenants(path_);
  ASSERT_TRUE(listed.ok());
  EXPECT_TRUE(listed->front().is_encrypted);
  EXPECT_FALSE(listed->front().has_key);
}

// A kill before the transaction leaves what was; one after it what is to be.
TEST_F(TenantKeysTest, AKilledEncryptionOfFilesGoesOn) {
  const std::string files = folder_.path("batches/files/");
  {
    const auto plain = open_batches({});
    ASSERT_TRUE(
        (*plain)
            ->add_file({.id = "file-11111111", .owner = "ann", .purpose = "batch"}, "canary")
            .ok());
  }
  std::ofstream(files + "file-11111111.sealed") << "half of a piece";
  {
    const auto plain = open_batches({});
    ASSERT_TRUE(plain.ok());
    EXPECT_FALSE(fs::exists(files + "file-11111111.sealed"));
    EXPECT_EQ(bytes_of(files + "file-11111111"), "canary");
  }
  { ASSERT_TRUE(open_batches({kSecret}).ok()); }
  fs::rename(files + "file-11111111", files + "file-11111111.sealed");
  std::ofstream(files + "file-11111111") << "canary";
  const auto store = open_batches({kSecret});
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE(lies_there("canary"));
  auto content = (*store)->open_content({.owner = "ann", .id = "file-11111111"});
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(**content), {}), "canary");
}

TEST(SealedContent, IsReadAsItWasWrittenAndFromItsBeginningAgain) {
  const RowCipher cipher(base::AuthenticatedCipher("key"), "row");
  for (const size_t size : {size_t{0}, size_t{5}, SealedContent::kPieceBytes,
                            SealedContent::kPieceBytes + 1, 3 * SealedContent::kPieceBytes}) {
    std::string text(size, 'z');
    for (size_t i = 0; i < size; i += 1000) text[i] = static_cast<char>('a' + i % 26);
    std::string sealed;
    int64_t number = 0;
    std::string_view left = text;
    for (; left.size() > SealedContent::kPieceBytes;
         left.remove_prefix(SealedContent::kPieceBytes)) {
      sealed += SealedContent::seal(cipher, {.number = number++},
                                    left.substr(0, SealedContent::kPieceBytes));
    }
    sealed += SealedContent::seal(cipher, {.number = number, .is_last = true}, left);
    const auto stream = SealedContent::reader(std::make_unique<std::istringstream>(sealed), cipher);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(*stream), {}), text) << size;
      stream->clear();
      stream->seekg(0);
      EXPECT_FALSE(stream->fail());
    }
    const auto others =
        SealedContent::reader(std::make_unique<std::istringstream>(sealed),
                              RowCipher(base::AuthenticatedCipher("key"), "another row"));
    EXPECT_EQ(others->get(), std::char_traits<char>::eof());
    EXPECT_TRUE(others->bad());
  }
}

}  // namespace
}  // namespace pelton::store
