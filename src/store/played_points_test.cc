#include "store/played_points.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "store/temporary_folder.h"

namespace pelton::store {
namespace {

PlayedPoint point(std::string key, std::string json) {
  return {.key = std::move(key),
          .played_at = 1'700'000'000,
          .model = "m",
          .load = "l",
          .settings = "max-num-seqs=4",
          .json = std::move(json)};
}

TEST(PlayedPointsTest, IsFoundByItsKeyOverTheFilesEnd) {
  const TemporaryFolder folder;
  const std::string file = folder.path("tune.db");
  {
    auto points = PlayedPoints::open(file);
    ASSERT_TRUE(points.ok()) << points.error().message;
    EXPECT_FALSE(points->find("a").value().has_value());
    ASSERT_TRUE(points->add(point("a", "{\"x\":1}")).ok());
    ASSERT_TRUE(points->add(point("b", "{\"x\":2}")).ok());
    ASSERT_TRUE(points->add(point("a", "{\"x\":3}")).ok());
    EXPECT_EQ(PlayedPoints::open(file).error().code, ErrorCode::kBadConfig);  // it is taken
  }
  auto points = PlayedPoints::open_existing(file);
  ASSERT_TRUE(points.ok()) << points.error().message;
  EXPECT_EQ(points->find("a").value().value_or(""), "{\"x\":3}");
  const auto newest = points->newest(10);
  ASSERT_TRUE(newest.ok());
  ASSERT_EQ(newest->size(), 2u);
  EXPECT_EQ(newest->front().key, "a");
  EXPECT_EQ(newest->front().settings, "max-num-seqs=4");
  EXPECT_EQ(points->newest(1)->size(), 1u);
}

TEST(PlayedPointsTest, OtherFilesAreRefusedAndStayAsTheyAre) {
  const TemporaryFolder folder;
  const std::string text = folder.path("text");
  std::ofstream(text) << "no database, and long enough to be looked at as one: "
                      << std::string(600, 'x');
  EXPECT_EQ(PlayedPoints::open(text).error().code, ErrorCode::kBadConfig);
  EXPECT_GT(std::filesystem::file_size(text), 600u);
  EXPECT_EQ(PlayedPoints::open(folder.path("")).error().code, ErrorCode::kBadConfig);
  const std::string none = folder.path("none.db");
  EXPECT_EQ(PlayedPoints::open_existing(none).error().code, ErrorCode::kIo);
  EXPECT_FALSE(std::filesystem::exists(none));
}

}  // namespace
}  // namespace pelton::store
