#include "console/pages.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "console/bundle.h"

namespace pelton::console {
namespace {

using testing::HasSubstr;
using testing::Not;

const Config kConfig{.version = "1.2", .pages = {"chat", "models"}};

net::HttpResponse get(std::string path, std::string etag = "") {
  net::HttpRequest request{.method = "GET", .path = std::move(path)};
  if (!etag.empty()) request.headers.add("If-None-Match", std::move(etag));
  return console_reply(request, kConfig);
}

class ConsolePages : public testing::Test {
 protected:
  void SetUp() override {
    if (bundle().empty()) GTEST_SKIP() << "built without esbuild";
  }
};

TEST_F(ConsolePages, AreThePageAndItsFiles) {
  std::set<std::string_view> names;
  for (const BundleFile& file : bundle()) {
    EXPECT_FALSE(file.bytes.empty()) << file.name;
    EXPECT_TRUE(names.insert(file.name).second) << file.name;
    const std::string path = file.name.empty() ? "/console" : "/console/" + std::string(file.name);
    const net::HttpResponse response = get(path);
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_EQ(response.body, file.bytes) << path;
    EXPECT_EQ(response.headers.get("Content-Type"), file.content_type);
    EXPECT_EQ(response.headers.get("ETag"), file.etag);
    const net::HttpResponse again = get(path, std::string(file.etag));
    EXPECT_EQ(again.status, 304) << path;
    EXPECT_EQ(again.body, "");
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"", "app.js", "icon.svg", "styles.css"}));
}

TEST_F(ConsolePages, AreShutIn) {
  for (const char* const path :
       {"/console", "/console/app.js", "/console/config.json", "/console/no"}) {
    const net::HttpResponse response = get(path);
    const std::string_view policy = response.headers.get("Content-Security-Policy");
    for (const char* const part :
         {"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'",
          "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"}) {
      EXPECT_THAT(policy, HasSubstr(part)) << path;
    }
    for (const char* const part : {"unsafe", "http:", "https:", "data:", "*"}) {
      EXPECT_THAT(policy, Not(HasSubstr(part))) << path;
    }
    EXPECT_EQ(response.headers.get("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(response.headers.get("X-Frame-Options"), "DENY");
    EXPECT_EQ(response.headers.get("Referrer-Policy"), "no-referrer");
  }
}

// Neither style nor script stands in the page, which names no other host.
TEST_F(ConsolePages, NameNoOtherHost) {
  const std::string page = get("/console").body;
  EXPECT_THAT(page, HasSubstr("src=\"console/app.js\""));
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THAT(page, Not(HasSubstr("<style")));
  EXPECT_THAT(page, Not(HasSubstr("style=")));
  EXPECT_THAT(page, Not(HasSubstr("<script>")));
  EXPECT_THAT(get("/console/styles.css").body, Not(HasSubstr("url(")));
  const std::string script = get("/console/app.js").body;
  for (const char* const way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                "DOMParser", "createContextualFragment", "eval("}) {
    EXPECT_THAT(script, Not(HasSubstr(way)));
  }
}

TEST_F(ConsolePages, SayWhatThereIs) {
  const Result<Json> config = Json::parse(get("/console/config.json").body);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->string("version"), "1.2");
  EXPECT_EQ(config->find("pages")->dump(), R"(["chat","models"])");
  EXPECT_EQ(get("/console/config.json").headers.get("Cache-Control"), "no-store");
}

TEST_F(ConsolePages, OtherPathsAreNone) {
  EXPECT_EQ(get("/console/").headers.get("Location"), "../console");
  for (const char* const path : {"/console/index.html", "/console/app.js/", "/console//"}) {
    EXPECT_EQ(get(path).status, 404) << path;
  }
  EXPECT_TRUE(is_console_path("/console"));
  EXPECT_TRUE(is_console_path("/console/x"));
  EXPECT_FALSE(is_console_path("/consoles"));
  EXPECT_FALSE(is_console_path("/"));
}

}  // namespace
}  // namespace pelton::console
