#include "checkpoint/golden_checkpoint.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"

namespace pelton::checkpoint {
namespace {

const std::string kGolden = PELTON_SOURCE_DIR "/testdata/golden/";

std::string_view text(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(GoldenCheckpoint, TinyIsTheStoredFile) {
  const std::string stored = *base::read_file(kGolden + "tiny/model.safetensors");
  const std::vector<uint8_t> made = golden_safetensors(GoldenCase::kTiny);
  EXPECT_TRUE(text(made) == stored);
}

// The FNV-1a sums are of files whose SHA-256 is the one in their case.json.
TEST(GoldenCheckpoint, MidAndOutlierAreTheFilesOfTheGoldenRuns) {
  EXPECT_EQ(base::fnv1a64(text(golden_safetensors(GoldenCase::kMid))), 18197698481925591638ull);
  EXPECT_EQ(base::fnv1a64(text(golden_safetensors(GoldenCase::kOutlier))), 15862859070925950389ull);
}

TEST(GoldenCheckpoint, ConfigurationsAreTheStoredOnes) {
  for (const auto& [golden, name] :
       {std::pair{GoldenCase::kTiny, "tiny"}, std::pair{GoldenCase::kMid, "mid"},
        std::pair{GoldenCase::kOutlier, "outlier"}}) {
    const Result<Json> stored = Json::parse(*base::read_file(kGolden + name + "/config.json"));
    EXPECT_EQ(golden_config(golden).dump(), stored->dump()) << name;
  }
}

}  // namespace
}  // namespace pelton::checkpoint
