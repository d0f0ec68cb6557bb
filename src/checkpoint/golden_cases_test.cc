#include "checkpoint/golden_cases.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/file.h"

namespace pelton::checkpoint {
namespace {

// The sums are of the files that the golden runs computed with.
TEST(GoldenFolders, MakesTheFilesOfTheGoldenRuns) {
  int compared = 0;
  for (const GoldenFolder& golden : all_golden_folders(PELTON_SOURCE_DIR "/testdata/golden")) {
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
