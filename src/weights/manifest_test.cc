#include "weights/manifest.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"

namespace pelton::weights {
namespace {

const auto kGoOn = [](int64_t, int64_t) { return true; };
const std::string kHash = base::sha256("abc");

class ManifestFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "/manifest_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

std::string file_text(const std::string& path, const std::string& bytes = "3",
                      const std::string& chunks = '"' + kHash + '"') {
  return fmt::format(R"({{"path":"{}","bytes":{},"chunks":[{}]}})", path, bytes, chunks);
}

std::string field_of(const std::string& files, const std::string& chunk_bytes = "16777216") {
  const Result<Manifest> manifest = parse_manifest(
      fmt::format(R"({{"pelton_manifest":1,"chunk_bytes":{},"files":[{}]}})", chunk_bytes, files));
  return manifest.ok() ? "none" : manifest.error().field;
}

TEST_F(ManifestFolder, CutsFilesIntoChunksAndIsReadAsItWasWritten) {
  const std::string large = std::string(kChunkBytes, 'x') + "abc";
  std::filesystem::create_directory(folder_ + "/sub");
  ASSERT_TRUE(base::write_file(folder_ + "/sub/large", large).ok());
  ASSERT_TRUE(base::write_file(folder_ + "/exact", std::string(kChunkBytes, 'x')).ok());
  ASSERT_TRUE(base::write_file(folder_ + "/empty", "").ok());
  const Result<Manifest> manifest = make_manifest(folder_, {.threads = 2}, kGoOn);
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  ASSERT_EQ(manifest->files.size(), 3u);
  EXPECT_EQ(manifest->bytes(), 2 * kChunkBytes + 3);
  EXPECT_TRUE(manifest->files[0].chunks.empty());
  const std::string full = base::sha256(std::string(kChunkBytes, 'x'));
  EXPECT_EQ(manifest->files[1].chunks, std::vector<std::string>{full});
  EXPECT_EQ(manifest->files[2].path, "sub/large");
  EXPECT_EQ(manifest->files[2].chunks, (std::vector<std::string>{full, kHash}));
  const std::vector<Chunk> chunks = chunks_of(*manifest);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[2].offset, kChunkBytes);
  EXPECT_EQ(chunks[2].bytes, 3);
  EXPECT_EQ(digest_of(*manifest, chunks[2]), kHash);
  const Result<Manifest> again = parse_manifest(manifest->to_json());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *manifest);
}

TEST_F(ManifestFolder, OtherChunksAreOthers) {
  ASSERT_TRUE(base::write_file(folder_ + "/a", std::string(3 * kChunkBytesMin - 1, 'x')).ok());
  const Result<Manifest> manifest = make_manifest(folder_, {.chunk_bytes = kChunkBytesMin}, kGoOn);
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(chunks_of(*manifest).size(), 3u);
  EXPECT_EQ(*parse_manifest(manifest->to_json()), *manifest);
}

TEST_F(ManifestFolder, FollowsLinksToFilesOnly) {
  ASSERT_TRUE(base::write_file(folder_ + "/.hidden", "abc").ok());
  ASSERT_TRUE(base::write_file(folder_ + "/" + kManifestName, "abc").ok());
  ASSERT_EQ(::symlink(".hidden", (folder_ + "/link").c_str()), 0);  // as a hub's cache has them
  Result<Manifest> manifest = make_manifest(folder_, {}, kGoOn);
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  ASSERT_EQ(manifest->files.size(), 1u);
  EXPECT_EQ(manifest->files[0].chunks, std::vector<std::string>{kHash});
  ASSERT_EQ(::symlink("/etc", (folder_ + "/folder").c_str()), 0);
  EXPECT_EQ(make_manifest(folder_, {}, kGoOn).error().field, "folder");
  ASSERT_EQ(::unlink((folder_ + "/folder").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(make_manifest(folder_, {}, kGoOn).error().field, "pipe");
  EXPECT_EQ(make_manifest(folder_ + "/absent", {}, kGoOn).error().code, ErrorCode::kNotFound);
}

// 60 GB of holes are hashed in no time, and are what 60 GB of zeros would be.
TEST_F(ManifestFolder, HolesAreNotRead) {
  ASSERT_TRUE(base::write_file(folder_ + "/sparse", "").ok());
  constexpr int64_t kBytes = int64_t{60} * 1000 * 1000 * 1000;
  ASSERT_EQ(::truncate((folder_ + "/sparse").c_str(), kBytes), 0);
  const Result<Manifest> manifest = make_manifest(folder_, {}, kGoOn);
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(manifest->bytes(), kBytes);
  EXPECT_EQ(manifest->files[0].chunks[0],
            base::sha256(std::string(static_cast<size_t>(kChunkBytes), '\0')));
}

TEST_F(ManifestFolder, EndsWhenItIsAskedTo) {
  ASSERT_TRUE(base::write_file(folder_ + "/one", "abc").ok());
  const auto stop = [](int64_t, int64_t) { return false; };
  EXPECT_EQ(make_manifest(folder_, {}, stop).error().code, ErrorCode::kCancelled);
}

TEST(Manifest, ForeignPathsAreRefused) {
  EXPECT_EQ(field_of(file_text("a/b")), "none");
  for (const char* path :
       {"../a", "a/../../b", "/etc/passwd", "", "a//b", "./a", "a/", "a\\u0000b"}) {
    EXPECT_EQ(field_of(file_text(path)), "files[0].path") << path;
  }
  EXPECT_EQ(field_of(file_text("a") + "," + file_text("a")), "files[1].path");
  EXPECT_EQ(field_of(file_text("a/b/c") + "," + file_text("a/b")), "files[0].path");
  EXPECT_EQ(field_of(file_text(kManifestName)), "files[0].path");
}

TEST(Manifest, ForeignSizesAndHashesAreRefused) {
  EXPECT_EQ(field_of(file_text("a", "-1")), "files[0].bytes");
  EXPECT_EQ(field_of(file_text("a", "9223372036854775807")), "files[0].bytes");
  EXPECT_EQ(field_of(file_text("a", "\"3\"")), "files[0].bytes");
  EXPECT_EQ(field_of(file_text("a", "16777217")), "files[0].chunks");
  EXPECT_EQ(field_of(file_text("a", "0")), "files[0].chunks");
  EXPECT_EQ(field_of(file_text("a", "3", "7")), "files[0].chunks[0]");
  EXPECT_EQ(field_of(file_text("a", "3", "\"" + kHash.substr(1) + "\"")), "files[0].chunks[0]");
  EXPECT_EQ(field_of(file_text("a", "3", "\"" + std::string(64, 'A') + "\"")),
            "files[0].chunks[0]");
  EXPECT_EQ(field_of(file_text("a"), "131072"), "none");
  for (const char* size : {"1", "0", "-65536", "131073", "134217728", "\"65536\"", "1e300"}) {
    EXPECT_EQ(field_of(file_text("a"), size), "chunk_bytes") << size;
  }
  EXPECT_EQ(parse_manifest("{").error().field, "text");
  EXPECT_EQ(parse_manifest("{}").error().field, "pelton_manifest");
}

}  // namespace
}  // namespace pelton::weights
