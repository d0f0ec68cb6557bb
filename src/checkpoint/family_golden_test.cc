#include "checkpoint/family_golden.h"

#include <sstream>
#include <string_view>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/file.h"

namespace pelton::checkpoint {
namespace {

const std::string kGolden = PELTON_SOURCE_DIR "/testdata/golden/";

std::vector<uint8_t> made(const std::string& name) {
  const std::string folder = kGolden + name;
  const Json config = Json::parse(*base::read_file(folder + "/config.json")).value();
  const Json golden = Json::parse(*base::read_file(folder + "/case.json")).value();
  Result<std::vector<uint8_t>> file = family_golden_safetensors(config, golden);
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  return file.ok() ? std::move(file).value() : std::vector<uint8_t>();
}

std::string_view text(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The sums are of the files that the golden runs computed with.
TEST(FamilyGolden, MakesTheFilesOfTheGoldenRuns) {
  std::istringstream sums(*base::read_file(kGolden + "SHA256SUMS"));
  int compared = 0;
  for (std::string sum, file; sums >> sum >> file;) {
    const std::string name = file.substr(0, file.find('/'));
    if (!base::read_file(kGolden + name + "/case.json").ok()) continue;  // gpt-oss
    EXPECT_EQ(base::sha256(text(made(name))), sum) << name;
    ++compared;
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace pelton::checkpoint
