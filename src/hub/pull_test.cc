#include "hub/pull.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/random.h"
#include "checkpoint/hub_cache.h"
#include "hub/cached_models.h"
#include "hub/fake_hub.h"
#include "hub/model_folder.h"

namespace pelton::hub {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = "openai/gpt-oss-20b";
const std::string kCommit(40, 'c');
constexpr const char* kToken = "hf_secret";

std::string random_bytes(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(base::random_bits(seed, i));
  return bytes;
}

std::string git_id(const std::string& bytes) {
  base::Digest digest(base::Digest::Kind::kSha1);
  digest.update("blob " + std::to_string(bytes.size()) + std::string(1, '\0') + bytes);
  return digest.finish();
}

// What a test puts before a server's good answers: a value is the answer instead. Changed by the
// test, called by the servers' threads.
class Hook {
 public:
  using Function = std::function<std::optional<FakeAnswer>(const FakeRequest&)>;
  void operator=(Function function) {
    std::lock_guard lock(mutex_);
    function_ = std::move(function);
  }
  std::optional<FakeAnswer> operator()(const FakeRequest& request) {
    std::lock_guard lock(mutex_);
    return function_ ? function_(request) : std::nullopt;
  }

 private:
  std::mutex mutex_;
  Function function_;
};

// A hub with one model, whose large files lie on a second server, as the public one's do. A test
// changes what it wants to see go wrong.
class Pull : public testing::Test {
 protected:
  Pull()
      : cdn_([this](const FakeRequest& request) { return cdn_answer(request); }),
        hub_([this](const FakeRequest& request) { return hub_answer(request); }) {}

  void SetUp() override {
    cache_ = testing::TempDir() + "pull_test_" +
             testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(cache_);
    small_["config.json"] = "{\"architectures\": []}";
    small_["README.md"] = "read me";
    small_["empty.txt"] = "";
    small_["original/config.json"] = "{}";
    large_["model-00000-of-00001.safetensors"] = random_bytes(1'000'003, 1);
    large_["metal/model.bin"] = random_bytes(5000, 2);
    options_.model = kModel;
    options_.access = {.endpoint = hub_.url(), .token = kToken};
    options_.cache = cache_;
    options_.transfers.connections = 4;
    options_.retry = {.tries_max = 4, .delay = std::chrono::milliseconds(5)};
    options_.block_bytes = 4096;
    options_.piece_bytes = 65536;
  }
  void TearDown() override { std::filesystem::remove_all(cache_); }

  std::string list() const {
    std::string files;
    for (const auto& [path, bytes] : small_) {
      files += fmt::format(R"({{"rfilename":"{}","size":{},"blobId":"{}"}},)", path, bytes.size(),
                           git_id(bytes));
    }
    for (const auto& [path, bytes] : large_) {
      files += fmt::format(
          R"({{"rfilename":"{}","size":{},"blobId":"{}","lfs":{{"sha256":"{}","size":{}}}}},)",
          path, bytes.size(), kCommit, base::sha256(bytes), bytes.size());
    }
    files.pop_back();
    return fmt::format(R"({{"id":"{}","sha":"{}","siblings":[{}]}})", kModel, kCommit, files);
  }

  FakeAnswer hub_answer(const FakeRequest& request) {
    if (std::optional<FakeAnswer> answer = on_hub(request)) return *answer;
    if (request.target == fmt::format("/api/models/{}/revision/main?blobs=true", kModel)) {
      return {.body = list()};
    }
    const std::string prefix = fmt::format("/{}/resolve/{}/", kModel, kCommit);
    if (!request.target.starts_with(prefix)) return {.status = 404};
    const std::string path = request.target.substr(prefix.size());
    if (const auto found = large_.find(path); found != large_.end()) {
      return {.status = 302,
              .headers = {{"Location", cdn_.url() + "/signed/" + path},
                          {"X-Linked-Etag", '"' + base::sha256(found->second) + '"'},
                          {"X-Linked-Size", std::to_string(found->second.size())}}};
    }
    const auto found = small_.find(path);
    if (found == small_.end()) return {.status = 404};
    FakeAnswer answer = file_answer(request, found->second);
    answer.headers["ETag"] = '"' + git_id(found->second) + '"';
    return answer;
  }

  FakeAnswer cdn_answer(const FakeRequest& request) {
    if (std::optional<FakeAnswer> answer = on_cdn(request)) return *answer;
    const auto found = large_.find(request.target.substr(std::string("/signed/").size()));
    return found == large_.end() ? FakeAnswer{.status = 404} : file_answer(request, found->second);
  }

  Result<PullReport> pull_now() {
    return pull(options_, clock_, [](const PullProgress&) { return true; });
  }
  Error error_of(const Result<PullReport>& result) {
    EXPECT_FALSE(result.ok());
    return result.ok() ? Error{} : result.error();
  }
  std::string snapshot(const std::string& path) const {
    return cache_ + "/models--openai--gpt-oss-20b/snapshots/" + kCommit + "/" + path;
  }
  void expect_whole() {
    for (const auto& [path, bytes] : large_) {
      if (path.find('/') != std::string::npos) continue;
      EXPECT_EQ(*base::read_file(snapshot(path)), bytes);
    }
    EXPECT_EQ(*base::read_file(snapshot("config.json")), small_["config.json"]);
    for (const auto& entry :
         std::filesystem::directory_iterator(cache_ + "/models--openai--gpt-oss-20b/blobs")) {
      EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr("pelton")));
    }
  }

  Hook on_hub, on_cdn;
  std::map<std::string, std::string> small_, large_;
  std::string cache_;
  PullOptions options_;
  base::SystemClock clock_;
  FakeServer cdn_;
  FakeServer hub_;
};

TEST_F(Pull, LeavesASnapshotThatTheLoaderFinds) {
  const Result<PullReport> report = pull_now();
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_whole();
  EXPECT_EQ(report->files_fetched, 4);
  EXPECT_EQ(report->files_kept, 0);
  EXPECT_THAT(report->unchecked, testing::IsEmpty());
  EXPECT_EQ(*checkpoint::resolve_model(kModel, {.hf_hub_cache = cache_}, "main"), report->folder);
  EXPECT_EQ(std::filesystem::read_symlink(snapshot("config.json")),
            "../../blobs/" + git_id(small_["config.json"]));
  EXPECT_FALSE(std::filesystem::exists(snapshot("original")));
  EXPECT_FALSE(std::filesystem::exists(snapshot("metal")));
  int ranges = 0;
  for (const FakeRequest& request : cdn_.requests()) ranges += !request.range.empty();
  EXPECT_GE(ranges, 15);  // a megabyte in pieces of 64 KiB
}

TEST_F(Pull, ShowsTheTokenToTheHubOnly) {
  ASSERT_TRUE(pull_now().ok());
  for (const FakeRequest& request : hub_.requests()) {
    EXPECT_EQ(request.authorization, std::string("Bearer ") + kToken);
  }
  EXPECT_FALSE(cdn_.requests().empty());
  for (const FakeRequest& request : cdn_.requests()) EXPECT_EQ(request.authorization, "");
}

TEST_F(Pull, AListFromAnotherServerIsAskedForWithoutTheToken) {
  on_hub = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    if (!request.target.starts_with("/api/")) return std::nullopt;
    return FakeAnswer{.status = 307, .headers = {{"Location", cdn_.url() + "/list"}}};
  };
  on_cdn = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    if (request.target != "/list") return std::nullopt;
    return FakeAnswer{.body = list()};
  };
  ASSERT_TRUE(pull_now().ok());
  EXPECT_EQ(cdn_.requests().front().target, "/list");
  EXPECT_EQ(cdn_.requests().front().authorization, "");
}

TEST_F(Pull, FetchesNothingTwice) {
  ASSERT_TRUE(pull_now().ok());
  const size_t asked = hub_.requests().size() + cdn_.requests().size();
  const Result<PullReport> again = pull_now();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->files_kept, 4);
  EXPECT_EQ(again->bytes_fetched, 0);
  EXPECT_EQ(hub_.requests().size() + cdn_.requests().size(), asked + 1);  // the list
}

TEST_F(Pull, PyTorchsFileComesWhereThereIsNoOther) {
  large_["pytorch_model.bin"] = random_bytes(5000, 3);
  ASSERT_TRUE(pull_now().ok());
  EXPECT_FALSE(std::filesystem::exists(snapshot("pytorch_model.bin")));
  large_.erase("model-00000-of-00001.safetensors");
  options_.exclude = {"*.bin"};
  ASSERT_TRUE(pull_now().ok());
  EXPECT_FALSE(std::filesystem::exists(snapshot("pytorch_model.bin")));
  options_.exclude.clear();
  ASSERT_TRUE(pull_now().ok());
  EXPECT_TRUE(std::filesystem::exists(snapshot("pytorch_model.bin")));
  EXPECT_FALSE(std::filesystem::exists(snapshot("metal")));
}

// Without 1_Pooling an embedding model that names it in modules.json is refused; bge-m3's
// sparse_linear.pt is what /embed_sparse weighs tokens by.
TEST_F(Pull, WhatEmbeddingsAreMadeByComesToo) {
  small_["modules.json"] = "[]";
  small_["1_Pooling/config.json"] = "{\"pooling_mode_cls_token\": true}";
  small_["onnx/config.json"] = "{}";
  large_["sparse_linear.pt"] = random_bytes(3000, 4);
  large_["colbert_linear.pt"] = random_bytes(3000, 5);
  ASSERT_TRUE(pull_now().ok());
  EXPECT_TRUE(std::filesystem::exists(snapshot("modules.json")));
  EXPECT_EQ(*base::read_file(snapshot("1_Pooling/config.json")), small_["1_Pooling/config.json"]);
  EXPECT_EQ(*base::read_file(snapshot("sparse_linear.pt")), large_["sparse_linear.pt"]);
  EXPECT_FALSE(std::filesystem::exists(snapshot("onnx")));
  EXPECT_FALSE(std::filesystem::exists(snapshot("colbert_linear.pt")));
}

TEST_F(Pull, IncludeAndExcludeChooseFiles) {
  options_.include = {"original/*", "*.json"};
  options_.exclude = {"config.json"};
  ASSERT_TRUE(pull_now().ok());
  EXPECT_EQ(*base::read_file(snapshot("original/config.json")), "{}");
  EXPECT_FALSE(std::filesystem::exists(snapshot("config.json")));
  options_.include = {"*.gguf"};
  EXPECT_THAT(error_of(pull_now()).message, HasSubstr("none of the 6 files"));
}

TEST_F(Pull, DroppedConnectionsAreContinued) {
  std::atomic<int> count = 0;
  on_cdn = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    FakeAnswer answer = file_answer(request, large_["model-00000-of-00001.safetensors"]);
    if (++count % 2 == 0) answer.cut_after = 10'000;
    return answer;
  };
  const Result<PullReport> report = pull_now();
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_whole();
}

TEST_F(Pull, AnInterruptedPullContinuesWhereItWas) {
  const Result<PullReport> stopped = pull(
      options_, clock_, [](const PullProgress& progress) { return progress.bytes_done < 400'000; });
  EXPECT_EQ(error_of(stopped).code, ErrorCode::kCancelled);
  EXPECT_FALSE(checkpoint::resolve_model(kModel, {.hf_hub_cache = cache_}, "main").ok());
  EXPECT_GT(cached_models(cache_)->front().unfinished_bytes, 300'000);
  const Result<PullReport> report = pull_now();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LT(report->bytes_fetched, 650'000);
  EXPECT_GT(report->bytes_fetched, 0);
  expect_whole();
}

TEST_F(Pull, BytesThatWereLostSinceComeAgain) {
  const Result<PullReport> stopped = pull(
      options_, clock_, [](const PullProgress& progress) { return progress.bytes_done < 400'000; });
  const ModelFolder folder(cache_, kModel);
  const std::string name = base::sha256(large_["model-00000-of-00001.safetensors"]);
  {
    std::fstream file(folder.unfinished_blob(name), std::ios::in | std::ios::out);
    file << "not what came";  // as after a loss of power
  }
  const Result<PullReport> report = pull_now();
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_whole();
}

TEST_F(Pull, ARecordOfAnotherFileIsNotBelieved) {
  const ModelFolder folder(cache_, kModel);
  ASSERT_TRUE(folder.create(kCommit).ok());
  const std::string name = base::sha256(large_["model-00000-of-00001.safetensors"]);
  std::ofstream(folder.unfinished_blob(name)) << random_bytes(1'000'003, 9);
  std::ofstream(folder.blocks_record(name)) << "pelton blocks 1 999 4096\n" << std::string(245, 1);
  ASSERT_TRUE(pull_now().ok());
  expect_whole();
}

TEST_F(Pull, AWrongHashIsNeverKept) {
  on_cdn = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    return file_answer(request, random_bytes(1'000'003, 3));
  };
  const Error error = error_of(pull_now());
  EXPECT_EQ(error.code, ErrorCode::kBadCheckpoint);
  EXPECT_THAT(error.message, HasSubstr("model-00000-of-00001.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(snapshot("model-00000-of-00001.safetensors")));
  on_cdn = nullptr;
  ASSERT_TRUE(pull_now().ok());  // what was thrown away is not in the way
  expect_whole();
}

TEST_F(Pull, AWrongHashOfASmallFileToo) {
  on_hub = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    if (request.method == "HEAD" || !request.target.ends_with("/config.json")) return std::nullopt;
    return file_answer(request, std::string(small_["config.json"].size(), 'x'));
  };
  const Error error = error_of(pull_now());
  EXPECT_EQ(error.code, ErrorCode::kBadCheckpoint);
  EXPECT_THAT(error.message, HasSubstr("config.json"));
}

TEST_F(Pull, WrongSizesAreErrors) {
  const std::string bytes = random_bytes(1'000'002, 1);  // one byte less than promised
  on_cdn = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    return file_answer(request, bytes);
  };
  Error error = error_of(pull_now());
  EXPECT_EQ(error.code, ErrorCode::kBadCheckpoint);
  EXPECT_THAT(error.message, HasSubstr("should have 1000003 bytes"));
  on_cdn = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    FakeAnswer answer = file_answer(request, large_["model-00000-of-00001.safetensors"]);
    answer.body += "and more";
    return answer;
  };
  EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kBadCheckpoint);
  on_cdn = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    return FakeAnswer{.status = 206, .headers = {{"Content-Range", "bytes what"}}, .body = "x"};
  };
  EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kBadCheckpoint);
}

TEST_F(Pull, AServerWithoutRangesIsReadFromTheStart) {
  std::atomic<int> whole = 0;
  on_cdn = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    FakeAnswer answer{.body = large_["model-00000-of-00001.safetensors"]};
    // The first whole answer breaks off.
    if (request.range.empty() && ++whole == 1) answer.cut_after = 300'000;
    return answer;
  };
  const Result<PullReport> report = pull_now();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(whole, 2);
  expect_whole();
}

TEST_F(Pull, PassingFailuresAreRetriedAndLastingOnesEnd) {
  std::atomic<int> count = 0;
  on_cdn = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    const int status[] = {500, 503, 429};
    const int number = count++;
    if (number < 6) return FakeAnswer{.status = status[number % 3]};
    return std::nullopt;
  };
  on_hub = [&, first = true](const FakeRequest&) mutable -> std::optional<FakeAnswer> {
    if (!std::exchange(first, false)) return std::nullopt;
    return FakeAnswer{.status = 502};
  };
  ASSERT_TRUE(pull_now().ok());
  expect_whole();

  std::filesystem::remove_all(cache_);
  on_cdn = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    return FakeAnswer{.status = 500};
  };
  const Error error = error_of(pull_now());
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("status 500"));
}

TEST_F(Pull, WaitsAsLongAsTheServerAsks) {
  on_hub = [&, first = true](const FakeRequest&) mutable -> std::optional<FakeAnswer> {
    if (!std::exchange(first, false)) return std::nullopt;
    return FakeAnswer{.status = 429, .headers = {{"Retry-After", "1"}}};
  };
  const int64_t start = clock_.now_ns();
  ASSERT_TRUE(pull_now().ok());
  EXPECT_GE(clock_.now_ns() - start, 1'000'000'000);
}

TEST_F(Pull, AnExpiredAddressIsAskedForAgain) {
  std::atomic<int> count = 0;
  on_cdn = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    if (++count % 5 == 0) return FakeAnswer{.status = 403};
    return std::nullopt;
  };
  const Result<PullReport> report = pull_now();
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_whole();
  on_cdn = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    return FakeAnswer{.status = 403};
  };
  std::filesystem::remove_all(cache_);
  EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kNotFound);  // and not for ever
}

TEST_F(Pull, SaysWhatToDoAboutARefusal) {
  const auto refuse = [&](int status, const char* reason) {
    on_hub = [=](const FakeRequest&) -> std::optional<FakeAnswer> {
      return FakeAnswer{.status = status, .headers = {{"X-Error-Code", reason}}};
    };
    const Error error = error_of(pull_now());
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    return error.message;
  };
  EXPECT_THAT(refuse(401, "RepoNotFound"), HasSubstr("does not accept the token"));
  EXPECT_THAT(refuse(403, "GatedRepo"), HasSubstr("ask for access at"));
  EXPECT_THAT(refuse(404, "RevisionNotFound"), HasSubstr("no such revision"));
  EXPECT_THAT(refuse(404, ""), HasSubstr("no such model"));
  options_.access.token = "";
  EXPECT_THAT(refuse(401, "RepoNotFound"), HasSubstr("set HF_TOKEN"));
}

TEST_F(Pull, NobodyThereIsSaidSo) {
  options_.access.endpoint = "http://127.0.0.1:1";
  const Error error = error_of(pull_now());
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("127.0.0.1:1"));
}

TEST_F(Pull, SilenceEnds) {
  options_.transfers.stall_time_max = std::chrono::seconds(1);
  options_.retry.tries_max = 1;
  on_hub = [](const FakeRequest&) -> std::optional<FakeAnswer> {
    return FakeAnswer{.body = "{}", .pause = std::chrono::milliseconds(4000)};
  };
  const int64_t start = clock_.now_ns();
  EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kUnavailable);
  EXPECT_LT(clock_.now_ns() - start, 3'500'000'000);
}

TEST_F(Pull, ListsThatAreNoneAreRefused) {
  const std::string commit = "\"sha\":\"" + kCommit + "\"";
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("{}"), "{" + commit + "}",
        "{" + commit + R"(,"siblings":{}})", "{" + commit + R"(,"siblings":[3]})",
        std::string(R"({"sha":"../../x","siblings":[]})"),
        "{" + commit + R"(,"siblings":[{"rfilename":"a.json","size":-1}]})",
        "{" + commit + R"(,"siblings":[{"rfilename":"a.json","size":1,"lfs":{"sha256":"x"}}]})",
        "{" + commit + R"(,"siblings":[{"rfilename":"../../a.json","size":1}]})"}) {
    on_hub = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
      return FakeAnswer{.body = body};
    };
    EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kBadCheckpoint) << body;
  }
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

TEST_F(Pull, RedirectsInACircleEnd) {
  on_hub = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    return FakeAnswer{.status = 302, .headers = {{"Location", "/again"}}};
  };
  EXPECT_THAT(error_of(pull_now()).message, HasSubstr("redirected too often"));
  on_hub = [&](const FakeRequest&) -> std::optional<FakeAnswer> {
    return FakeAnswer{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}};
  };
  EXPECT_THAT(error_of(pull_now()).message, HasSubstr("file:///etc/passwd"));
}

TEST_F(Pull, TwoAtOnceDoNotMix) {
  Result<FolderLock> lock = FolderLock::take(ModelFolder(cache_, kModel));
  ASSERT_TRUE(lock.ok());
  EXPECT_THAT(error_of(pull_now()).message, HasSubstr("another process"));
  EXPECT_EQ(purge(cache_, kModel).error().code, ErrorCode::kNotFound);
}

TEST_F(Pull, BadArgumentsAndOffline) {
  options_.model = "../../etc";
  EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kInvalidArgument);
  options_.model = kModel;
  options_.revision = "../x";
  EXPECT_EQ(error_of(pull_now()).code, ErrorCode::kInvalidArgument);
  options_.revision = "main";
  options_.access.offline = true;
  EXPECT_THAT(error_of(pull_now()).message, HasSubstr("HF_HUB_OFFLINE"));
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(Pull, AFileLargerThanTheDiskIsNotBegun) {
  on_hub = [&](const FakeRequest& request) -> std::optional<FakeAnswer> {
    if (!request.target.starts_with("/api/")) return std::nullopt;
    return FakeAnswer{.body =
                          fmt::format(R"({{"sha":"{0}","siblings":[{{"rfilename":"m.safetensors",)"
                                      R"("lfs":{{"sha256":"{1}","size":60000000000000}}}}]}})",
                                      kCommit, base::sha256("x"))};
  };
  const Error error = error_of(pull_now());
  EXPECT_EQ(error.code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(error.message, HasSubstr("60000.0 GB more"));
  EXPECT_EQ(hub_.requests().size(), 1u);
}

TEST_F(Pull, PurgeLeavesNoByte) {
  ASSERT_TRUE(pull_now().ok());
  options_.model = "openai/other";
  EXPECT_FALSE(pull_now().ok());  // the fake hub has one model only
  const auto models = cached_models(cache_);
  ASSERT_EQ(models->size(), 1u);
  EXPECT_EQ(models->front().model, kModel);
  EXPECT_EQ(models->front().files, 4);
  EXPECT_GT(models->front().bytes, 1'000'003);
  EXPECT_THAT(models->front().revisions, testing::ElementsAre("main"));
  const Result<int64_t> freed = purge(cache_, kModel);
  ASSERT_TRUE(freed.ok()) << freed.error().message;
  EXPECT_GT(*freed, 1'000'003);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache_)) {
    EXPECT_TRUE(entry.is_directory()) << entry.path();
    EXPECT_EQ(entry.path().filename(), ".locks");
  }
  EXPECT_EQ(purge(cache_, kModel).error().code, ErrorCode::kNotFound);
}

TEST_F(Pull, PurgeTakesUnfinishedOnesToo) {
  const auto stopped = pull(
      options_, clock_, [](const PullProgress& progress) { return progress.bytes_done < 400'000; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_GT(*purge(cache_, kModel), 300'000);
  EXPECT_TRUE(cached_models(cache_)->empty());
}

TEST_F(Pull, PurgeDoesNotFollowALinkOutOfTheCache) {
  std::filesystem::create_directories(cache_ + "/elsewhere");
  std::filesystem::create_symlink(cache_ + "/elsewhere", cache_ + "/models--a--b");
  EXPECT_EQ(purge(cache_, "a/b").error().code, ErrorCode::kIo);
  EXPECT_TRUE(std::filesystem::exists(cache_ + "/elsewhere"));
}

}  // namespace
}  // namespace pelton::hub
