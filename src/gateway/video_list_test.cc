#include "gateway/video_list.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::gateway {
namespace {

// Its ids, and "+" where there are more.
std::string ids(const std::vector<std::string>& bodies, std::string_view query,
                const std::string& hidden = "") {
  const auto asked = read_video_query(query);
  if (!asked.ok()) return "refused: " + asked.error().field;
  const auto body =
      video_list_body(bodies, *asked, [&](const std::string& id) { return id != hidden; });
  if (!body.ok()) return body.error().message;
  const Json list = *Json::parse(*body);
  std::string text;
  for (const Json& video : list.find("data")->as_array()) text += *video.string("id");
  if (!text.empty()) {
    EXPECT_EQ(list.string("first_id"), text.substr(0, 1));
    EXPECT_EQ(list.string("last_id"), text.substr(text.size() - 1));
  }
  return text + (*list.boolean("has_more") ? "+" : "");
}

TEST(VideoList, IsOneOfAllWorkers) {
  const std::vector<std::string> bodies = {
      R"({"data":[{"id":"a","created_at":1},{"id":"c","created_at":3}]})",
      R"({"data":[{"id":"b","created_at":2},{"id":"d","created_at":3},{"no":"id"},7]})"};
  EXPECT_EQ(ids(bodies, ""), "dcba");
  EXPECT_EQ(ids(bodies, "order=asc"), "abcd");
  EXPECT_EQ(ids(bodies, "limit=3"), "dcb+");
  EXPECT_EQ(ids(bodies, "limit=3&after=b"), "a");
  EXPECT_EQ(ids(bodies, "after=unknown"), "");
  EXPECT_EQ(ids(bodies, "", "c"), "dba");
  EXPECT_EQ(ids({}, ""), "");
  for (const char* query : {"limit=0", "limit=101", "limit=x", "limit=", "limit=1x"}) {
    EXPECT_EQ(ids(bodies, query), "refused: limit") << query;
  }
  EXPECT_EQ(ids(bodies, "order=up"), "refused: order");
}

TEST(VideoList, IsNoneWhereAWorkerSaysNone) {
  for (const char* body : {"<html>", "{}", R"({"data":{}})", ""}) {
    EXPECT_EQ(ids({body}, ""), "a worker's list of videos is none") << body;
  }
}

}  // namespace
}  // namespace pelton::gateway
