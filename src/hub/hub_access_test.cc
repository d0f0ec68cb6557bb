#include "hub/hub_access.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "hub/hub_names.h"
#include "hub/hub_url.h"

namespace pelton::hub {
namespace {

TEST(HubAccess, TheFlagGoesBeforeTheEnvironment) {
  EXPECT_EQ(hub_access({}, "")->endpoint, "https://huggingface.co");
  EXPECT_EQ(hub_access({.hf_endpoint = "http://mirror:8080/"}, "")->endpoint, "http://mirror:8080");
  EXPECT_EQ(hub_access({.hf_endpoint = "http://mirror"}, "http://own/hub")->endpoint,
            "http://own/hub");
  for (const char* bad : {"mirror", "ftp://mirror", "http://", "http://user:word@mirror", "/x"}) {
    EXPECT_EQ(hub_access({}, bad).error().code, ErrorCode::kInvalidArgument) << bad;
  }
}

TEST(HubAccess, TheTokenIsTheVariableOrStandsInAFile) {
  const std::string home = testing::TempDir() + "hub_access_test";
  std::filesystem::create_directories(home + "/.cache/huggingface");
  std::ofstream(home + "/.cache/huggingface/token") << "from_home\n";
  std::ofstream(home + "/token") << "from_file";
  EXPECT_EQ(hub_access({.hf_token = " own\n", .home = home}, "")->token, "own");
  EXPECT_EQ(hub_access({.home = home}, "")->token, "from_home");
  EXPECT_EQ(hub_access({.hf_token_path = "~/token", .home = home}, "")->token, "from_file");
  EXPECT_EQ(hub_access({.hf_home = home}, "")->token, "from_file");
  EXPECT_EQ(hub_access({.home = home + "/nowhere"}, "")->token, "");
  const auto injected = hub_access({.hf_token = "a\r\nX-Evil: 1"}, "");
  ASSERT_FALSE(injected.ok());
  EXPECT_EQ(injected.error().message.find("Evil"), std::string::npos);
  std::filesystem::remove_all(home);
}

TEST(HubAccess, Offline) {
  EXPECT_TRUE(hub_access({.hf_hub_offline = "1"}, "")->offline);
  EXPECT_TRUE(hub_access({.hf_hub_offline = "True"}, "")->offline);
  EXPECT_FALSE(hub_access({.hf_hub_offline = "0"}, "")->offline);
}

TEST(HubNames, PathsStayInside) {
  for (const char* good :
       {"config.json", "a/b/c.bin", "with space", "gr\xC3\xBC\xC3\x9F", ".git"}) {
    EXPECT_TRUE(check_file_path(good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("/etc/passwd"), std::string("../x"), std::string("a/../../x"),
        std::string("a//b"), std::string("a/"), std::string("."), std::string("a\\..\\b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\xFF"), std::string(256, 'a'),
        std::string(600, '/') + "a"}) {
    EXPECT_FALSE(check_file_path(bad).ok()) << bad;
  }
  EXPECT_TRUE(check_revision("refs/pr/1").ok());
  for (const char* bad : {"", "..", "a/../b", "-x", "a b", "/a"}) {
    EXPECT_FALSE(check_revision(bad).ok()) << bad;
  }
  for (const char* bad : {"", "a/b/c", "a--b/c", "../x", "a/.b", "a/-b", "a b/c"}) {
    EXPECT_FALSE(check_model_id(bad).ok()) << bad;
  }
}

TEST(HubUrl, OriginsAreSchemeHostAndPort) {
  EXPECT_EQ(*origin_of("https://a/x"), *origin_of("https://a:443/y"));
  EXPECT_NE(*origin_of("https://a/x"), *origin_of("http://a/x"));
  EXPECT_NE(*origin_of("http://a/x"), *origin_of("http://a:81/x"));
  EXPECT_EQ(*resolve_location("http://a/b/c", "/d?e"), "http://a/d?e");
  EXPECT_EQ(*resolve_location("http://a/b/c", "//other/d"), "http://other/d");
  EXPECT_FALSE(resolve_location("http://a/b", "gopher://a/b").ok());
  EXPECT_EQ(encode_path("a b/c?d#e%"), "a%20b/c%3Fd%23e%25");
  EXPECT_EQ(encode_segment("refs/pr/1"), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace pelton::hub
