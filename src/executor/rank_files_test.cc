#include "executor/rank_files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

constexpr const char* kWeights = "weights, file 1 of 1";

// Two copies of a small model, as two hosts have them.
class RankFilesOfHosts : public testing::Test {
 protected:
  RankFilesOfHosts() {
    const std::string from = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/qwen3";
    for (const std::string& folder : {here_, there_}) {
      std::filesystem::remove_all(folder);
      std::filesystem::copy(from, folder, std::filesystem::copy_options::recursive);
    }
  }
  ~RankFilesOfHosts() override {
    for (const std::string& folder : {here_, there_}) std::filesystem::remove_all(folder);
  }

  static RankFiles look(const std::string& folder, SameBy by, int threads = 1) {
    base::ThreadPool pool({.threads = threads});
    const auto model = checkpoint::Checkpoint::open(folder);
    EXPECT_TRUE(model.ok());
    Result<RankFiles> files = rank_files(*model, folder, by, pool);
    EXPECT_TRUE(files.ok());
    return files.ok() ? *std::move(files) : RankFiles();
  }
  static void flip_bit(const std::string& folder, int64_t at) {
    std::fstream file(folder + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
    ASSERT_TRUE(file.good());
  }

  const std::string here_ = testing::TempDir() + "rank_files_here";
  const std::string there_ = testing::TempDir() + "rank_files_there";
};

TEST_F(RankFilesOfHosts, copies_are_the_same_by_their_bytes_whoever_reads_them) {
  const RankFiles own = look(here_, SameBy::kBytes);
  EXPECT_EQ(own.size(), 2u);
  EXPECT_EQ(own, look(there_, SameBy::kBytes, 3));
}

TEST_F(RankFilesOfHosts, one_bit_anywhere_in_the_weights_is_another_file) {
  const RankFiles own = look(here_, SameBy::kBytes);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(there_ + "/model.safetensors"));
  // Behind the header, whose faults are errors of their own.
  for (int64_t at = size - 1; at > size / 2; at -= size / 19) {
    SCOPED_TRACE(at);
    flip_bit(there_, at);
    const RankFiles other = look(there_, SameBy::kBytes);
    EXPECT_NE(other.at(kWeights), own.at(kWeights));
    EXPECT_EQ(other.at("config.json"), own.at("config.json"));
    flip_bit(there_, at);
  }
  EXPECT_EQ(look(there_, SameBy::kBytes), own);
}

TEST_F(RankFilesOfHosts, another_configuration_is_another_file) {
  std::ofstream(there_ + "/config.json", std::ios::app) << ' ';
  EXPECT_NE(look(there_, SameBy::kBytes).at("config.json"),
            look(here_, SameBy::kBytes).at("config.json"));
}

TEST_F(RankFilesOfHosts, on_one_host_a_file_is_its_place) {
  const RankFiles own = look(here_, SameBy::kPlace);
  EXPECT_EQ(own, look(here_, SameBy::kPlace));
  EXPECT_NE(own.at(kWeights), look(there_, SameBy::kPlace).at(kWeights));
}

TEST(RankFiles, travel_as_text) {
  const RankFiles files = {{"config.json", "1f"}, {kWeights, "2e"}};
  const Result<RankFiles> read = rank_files_of(to_json(files).dump());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, files);
  for (const char* const wrong : {"", "[]", R"({"a": 1})"}) EXPECT_FALSE(rank_files_of(wrong).ok());
}

}  // namespace
}  // namespace pelton::executor
