#include "checkpoint/hub_cache.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::checkpoint {
namespace {

using testing::HasSubstr;

class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "hub_cache_test_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    environment_.hf_hub_cache = root_;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }

  std::string root_;
  HubEnvironment environment_;
};

TEST_F(HubCache, SearchesWhereTheHubToolsPutModels) {
  HubEnvironment env{.hf_hub_cache = "/a", .hf_home = "/b", .xdg_cache_home = "/c", .home = "/d"};
  EXPECT_EQ(hub_cache_folder(env), "/a");
  env.hf_hub_cache = "";
  EXPECT_EQ(hub_cache_folder(env), "/b/hub");
  env.hf_home = "~/x";
  EXPECT_EQ(hub_cache_folder(env), "/d/x/hub");
  env.hf_home = "";
  EXPECT_EQ(hub_cache_folder(env), "/c/huggingface/hub");
  env.xdg_cache_home = "";
  EXPECT_EQ(hub_cache_folder(env), "/d/.cache/huggingface/hub");
  env.home = "";
  EXPECT_EQ(hub_cache_folder(env), "");
}

TEST_F(HubCache, AFolderIsItself) {
  EXPECT_EQ(*resolve_model(root_, environment_, "main"), root_);
}

TEST_F(HubCache, FindsTheSnapshotThatMainNames) {
  put("models--openai--gpt-oss-20b/refs/main", "abc123\n");
  put("models--openai--gpt-oss-20b/snapshots/abc123/config.json", "{}");
  put("models--openai--gpt-oss-20b/snapshots/old/config.json", "{}");
  const Result<std::string> found = resolve_model("openai/gpt-oss-20b", environment_, "main");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(*found, root_ + "/models--openai--gpt-oss-20b/snapshots/abc123");
}

TEST_F(HubCache, AMissingModelSaysHowToGetIt) {
  const Result<std::string> found = resolve_model("openai/gpt-oss-20b", environment_, "main");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(found.error().message, HasSubstr("pelton pull openai/gpt-oss-20b,"));
  EXPECT_THAT(found.error().message,
              HasSubstr("hf download openai/gpt-oss-20b --exclude \"original/*\""));
  EXPECT_THAT(found.error().message, HasSubstr(root_ + "/models--openai--gpt-oss-20b"));
}

TEST_F(HubCache, A12_ShortNamesAreHubIds) {
  EXPECT_EQ(hub_id_of("gpt-oss-120b"), "openai/gpt-oss-120b");
  EXPECT_EQ(hub_id_of("gpt-oss-safeguard-20b"), "openai/gpt-oss-safeguard-20b");
  for (const char* other : {"gpt2", "someone/gpt-oss-20b", "./gpt-oss-20b", "gpt-oss-20b/x", ""}) {
    EXPECT_EQ(hub_id_of(other), other);
  }
  EXPECT_THAT(resolve_model("gpt-oss-20b", environment_, "main").error().message,
              HasSubstr("pelton pull openai/gpt-oss-20b,"));
  put("models--openai--gpt-oss-20b/refs/main", "abc123");
  put("models--openai--gpt-oss-20b/snapshots/abc123/config.json", "{}");
  const Result<std::string> found = resolve_model("gpt-oss-20b", environment_, "main");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(*found, *resolve_model("openai/gpt-oss-20b", environment_, "main"));
}

TEST_F(HubCache, AnUnfinishedDownloadSaysSo) {
  put("models--openai--gpt-oss-20b/blobs/1.incomplete", "");
  EXPECT_THAT(resolve_model("openai/gpt-oss-20b", environment_, "main").error().message,
              HasSubstr("no finished download"));
  put("models--openai--gpt-oss-20b/refs/main", "abc123");
  EXPECT_THAT(resolve_model("openai/gpt-oss-20b", environment_, "main").error().message,
              HasSubstr("abc123 has no config.json"));
}

TEST_F(HubCache, ARevisionIsABranchATagOrACommit) {
  put("models--a--b/refs/main", "abc123");
  put("models--a--b/refs/refs/pr/1", "def456\n");
  for (const char* commit : {"abc123", "def456"}) {
    put(std::string("models--a--b/snapshots/") + commit + "/config.json", "{}");
  }
  const auto found = [&](const char* revision) {
    return resolve_model("a/b", environment_, revision);
  };
  EXPECT_THAT(*found("main"), testing::EndsWith("/abc123"));
  EXPECT_THAT(*found("refs/pr/1"), testing::EndsWith("/def456"));
  EXPECT_THAT(*found("def456"), testing::EndsWith("/def456"));
  EXPECT_THAT(found("v1").error().message, HasSubstr("pelton pull a/b --revision v1"));
  for (const char* wrong : {"", "..", "../main", "/etc", "a//b", "a/", "x y", "a/../b"}) {
    ASSERT_FALSE(found(wrong).ok()) << wrong;
    EXPECT_EQ(found(wrong).error().code, ErrorCode::kInvalidArgument) << wrong;
  }
  EXPECT_EQ(resolve_model(root_, environment_, "v1").error().code, ErrorCode::kInvalidArgument);
}

TEST_F(HubCache, ARefCannotLeadOutOfTheCache) {
  put("models--a--b/refs/main", "../../../../etc");
  const Result<std::string> found = resolve_model("a/b", environment_, "main");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kBadCheckpoint);
}

TEST_F(HubCache, PathsAreNotHubIds) {
  for (const char* model : {"/no/such/folder", "./x", "../x", "a/b/c", "a/..", "", "a b", "-x/y"}) {
    const Result<std::string> found = resolve_model(model, environment_, "main");
    ASSERT_FALSE(found.ok()) << model;
    EXPECT_THAT(found.error().message, HasSubstr("there is no folder")) << model;
    EXPECT_THAT(found.error().message, testing::Not(HasSubstr("hf download"))) << model;
  }
  put("model.bin", "");
  const Result<std::string> file = resolve_model(root_ + "/model.bin", environment_, "main");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("is a file; a model is a folder"));
  put("model.gguf", "");
  EXPECT_EQ(*resolve_model(root_ + "/model.gguf", environment_, "main"), root_ + "/model.gguf");
}

// A29: nobody is sent to fetch what no hub has.
TEST_F(HubCache, A29_AWordWithoutAnOwnerLearnsWhatAnIdLooksLike) {
  const Result<std::string> found = resolve_model("llama", environment_, "main");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(found.error().message, HasSubstr("one looks like openai/gpt-oss-20b"));
  EXPECT_THAT(found.error().message, testing::Not(HasSubstr("pull llama")));
}

}  // namespace
}  // namespace pelton::checkpoint
