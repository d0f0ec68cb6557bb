#include "checkpoint/golden_cases.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/file.h"

namespace pelton::checkpoint {
namespace {

// The sums are of the files that the golden runs computed with.
TEST(GoldenFolders, MakesTheFilesOfTheGoldenRuns) {
  int compared = 0;
  const std::string root = PELTON_SOURCE_DIR "/testdata/golden";
  std::vector<GoldenFolder> goldens = golden_folders(root);
  std::ranges::move(golden_folders(root + "/embeddings"), std::back_inserter(goldens));
  for (const GoldenFolder& golden : goldens) {
    const std::string folder = testing::TempDir() + "family_golden_test_" + golden.name;
    const Result<void> written = write_weights(golden, folder);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(base::sha256(*base::read_file(folder + "/model.safetensors")),
              golden.facts.string("sha256"))
        << golden.name;
    EXPECT_EQ(Json::parse(*base::read_file(folder + "/config.json"))->dump(), golden.config.dump())
        << golden.name;
    std::filesystem::remove_all(folder);
    ++compared;
  }
  EXPECT_GE(compared, 11 + 5);
}

}  // namespace
}  // namespace pelton::checkpoint
