#include "store/batch_store.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "store/temporary_folder.h"

namespace pelton::store {
namespace {

class SetClock final : public base::Clock {
 public:
  int64_t now_ns() const override { return 0; }
  int64_t unix_ms() const override { return ms; }
  int64_t ms = 1'700'000'000'000;
};

class BatchStoreTest : public testing::Test {
 protected:
  std::unique_ptr<BatchStore> open(const BatchBounds& bounds = {}) {
    auto store = BatchStore::open(folder_.path("batches"), bounds, clock_, log_);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return std::move(store).value();
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static StoredFile file(std::string id, std::string owner = "ann") {
    return {.id = std::move(id),
            .owner = std::move(owner),
            .name = "in.jsonl",
            .purpose = "batch",
            .created_at = 1'700'000'000};
  }

  SetClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  TemporaryFolder folder_;
};

TEST_F(BatchStoreTest, KeepsFilesAndBatchesOverItsEnd) {
  {
    const auto store = open();
    ASSERT_TRUE(store->add_file(file("file-1"), "abc").ok());
    ASSERT_TRUE(
        store->add_batch({.id = "b", .owner = "ann", .weight = 2.5, .input_file = "file-1"}).ok());
    EXPECT_FALSE(BatchStore::open(folder_.path("batches"), {}, clock_, log_).ok());  // it is taken
  }
  const auto store = open();
  EXPECT_EQ(store->bytes(), 3);
  EXPECT_EQ(text_of(store->content_path("file-1")), "abc");
  const auto batch = store->find_batch({.owner = "ann", .id = "b"});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->weight, 2.5);
  EXPECT_FALSE(store->find_batch({.owner = "bob", .id = "b"}).ok());
  EXPECT_EQ(store->unfinished_batches()->size(), 1u);
  struct stat status {};
  ASSERT_EQ(::stat(store->content_path("file-1").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077, 0u);
}

TEST_F(BatchStoreTest, ALineHasOneResult) {
  const auto store = open();
  StoredBatch batch{.id = "b", .owner = "ann", .input_file = "f", .total = 4};
  ASSERT_TRUE(store->add_batch(batch).ok());
  ASSERT_TRUE(store->add_result("b", {.line = 2, .is_error = false, .text = "two\n"}).ok());
  ASSERT_TRUE(store->add_result("b", {.line = 0, .is_error = false, .text = "zero\n"}).ok());
  ASSERT_TRUE(store->add_result("b", {.line = 2, .is_error = false, .text = "again\n"}).ok());
  ASSERT_TRUE(store->add_result("b", {.line = 1, .is_error = true, .text = "one\n"}).ok());
  EXPECT_EQ(*store->lines_done("b", 4), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(store->bytes(), 13);
  batch.status = BatchStatus::kCompleted;
  batch.ended_at = 1'700'000'100;
  batch.output_age_s = 50;
  ASSERT_TRUE(store->finish(batch, {.output = "file-o", .error = "file-e"}).ok());
  EXPECT_EQ(text_of(store->content_path("file-o")), "zero\ntwo\n");
  EXPECT_EQ(text_of(store->content_path("file-e")), "one\n");
  EXPECT_EQ(store->bytes(), 13);
  const auto found = store->find_batch({.owner = "ann", .id = "b"});
  EXPECT_EQ(found->output_file, "file-o");
  EXPECT_EQ(found->status, BatchStatus::kCompleted);
  EXPECT_TRUE(store->unfinished_batches()->empty());
  // Their time comes.
  clock_.ms = 1'700'000'149'000;
  EXPECT_TRUE(store->find_file({.owner = "ann", .id = "file-o"}).ok());
  clock_.ms = 1'700'000'150'000;
  EXPECT_FALSE(store->find_file({.owner = "ann", .id = "file-o"}).ok());
  ASSERT_TRUE(store->drop_expired().ok());
  EXPECT_EQ(store->bytes(), 0);
  EXPECT_FALSE(std::filesystem::exists(store->content_path("file-o")));
}

TEST_F(BatchStoreTest, WithoutErrorsThereIsNoErrorFile) {
  const auto store = open();
  StoredBatch batch{.id = "b", .input_file = "f", .status = BatchStatus::kInProgress, .total = 1};
  ASSERT_TRUE(store->add_batch(batch).ok());
  ASSERT_TRUE(store->add_result("b", {.line = 0, .is_error = false, .text = "x\n"}).ok());
  batch.status = BatchStatus::kCompleted;
  ASSERT_TRUE(store->finish(batch, {.output = "file-o", .error = "file-e"}).ok());
  EXPECT_EQ(batch.error_file, "");
  EXPECT_FALSE(std::filesystem::exists(store->content_path("file-e")));
}

// Its process was killed between content and row.
TEST_F(BatchStoreTest, ContentsWithoutARowGo) {
  std::string stranger;
  {
    const auto store = open();
    ASSERT_TRUE(store->add_file(file("file-1"), "abc").ok());
    stranger = store->content_path("file-22222222.partial");
    std::ofstream(stranger) << "half";
  }
  const auto store = open();
  EXPECT_FALSE(std::filesystem::exists(stranger));
  EXPECT_TRUE(std::filesystem::exists(store->content_path("file-1")));
}

TEST_F(BatchStoreTest, IsBounded) {
  const auto store = open({.bytes_max = 5, .files_max = 2, .batches_max = 2});
  ASSERT_TRUE(store->add_file(file("file-1"), "abc").ok());
  EXPECT_EQ(store->add_file(file("file-2"), "abc").error().code, ErrorCode::kDoesNotFit);
  ASSERT_TRUE(store->add_file(file("file-2"), "a").ok());
  EXPECT_EQ(store->add_file(file("file-3"), "a").error().code, ErrorCode::kDoesNotFit);
  ASSERT_TRUE(store->add_batch({.id = "a", .status = BatchStatus::kFailed}).ok());
  ASSERT_TRUE(store->add_batch({.id = "b"}).ok());
  ASSERT_TRUE(store->add_batch({.id = "c"}).ok());  // "a" is forgotten
  EXPECT_FALSE(store->find_batch({.owner = "", .id = "a"}).ok());
  EXPECT_EQ(store->add_batch({.id = "d"}).error().code, ErrorCode::kDoesNotFit);
  // Bounds are an owner's: others' stay.
  ASSERT_TRUE(store->add_batch({.id = "e", .owner = "b", .status = BatchStatus::kFailed}).ok());
  ASSERT_TRUE(store->add_batch({.id = "f", .owner = "b"}).ok());
  EXPECT_TRUE(store->find_batch({.owner = "", .id = "b"}).ok());
}

TEST_F(BatchStoreTest, LeavesWhatIsNotItsOwn) {
  const std::string files = folder_.path("batches") + "/files";
  std::filesystem::create_directories(files);
  const auto put = [&](const std::string& name) { std::ofstream(files + "/" + name) << "mine"; };
  put("thesis.txt");
  put("file-of-another-database");
  put("file-0123456789abcdef");
  { const auto first = open({}); }
  EXPECT_TRUE(std::filesystem::exists(files + "/file-0123456789abcdef")) << "its rows may be lost";
  {
    const auto store = open({});
    ASSERT_TRUE(store->add_file(file("file-aaaaaaaaaaaaaaaa"), "abc").ok());
  }
  put("file-bbbbbbbbbbbbbbbb.partial");
  const auto store = open({});
  EXPECT_FALSE(std::filesystem::exists(files + "/file-bbbbbbbbbbbbbbbb.partial"));
  EXPECT_TRUE(std::filesystem::exists(files + "/file-aaaaaaaaaaaaaaaa"));
  EXPECT_TRUE(std::filesystem::exists(files + "/thesis.txt"));
  EXPECT_TRUE(std::filesystem::exists(files + "/file-of-another-database"));
}

TEST_F(BatchStoreTest, FollowsNoLinkToItsContents) {
  std::filesystem::create_directories(folder_.path("elsewhere"));
  std::filesystem::create_directories(folder_.path("batches"));
  std::filesystem::create_directory_symlink(folder_.path("elsewhere"),
                                            folder_.path("batches") + "/files");
  const auto store = BatchStore::open(folder_.path("batches"), {}, clock_, log_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kBadConfig);
}

TEST_F(BatchStoreTest, OneHasTheFolder) {
  const auto first = open();
  const auto second = BatchStore::open(folder_.path("batches"), {}, clock_, log_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kBadConfig);
  EXPECT_NE(second.error().message.find("another process has it"), std::string::npos)
      << second.error().message;
}

TEST_F(BatchStoreTest, RefusesAnotherKindOfFolder) {
  std::filesystem::create_directory(folder_.path("batches"));
  std::ofstream(folder_.path("batches") + "/batches.sqlite") << std::string(2000, 'x');
  const auto store = BatchStore::open(folder_.path("batches"), {}, clock_, log_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kBadConfig);
}

}  // namespace
}  // namespace pelton::store
