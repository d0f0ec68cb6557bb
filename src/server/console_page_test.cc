#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "console/bundle.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kScript =
    R"({"rules": [{"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"}]})";

// Whoever opens it has no key yet.
TEST(ConsolePage, IsOpenWhereTheServerAsksForAKey) {
  if (console::bundle().empty()) GTEST_SKIP() << "built without esbuild";
  ServerFixture::Options options;
  options.server.keys.add("k");
  options.server.version = "4.5";
  ServerFixture fixture(kScript, std::move(options));
  EXPECT_EQ(fixture.get("/v1/models").status, 401);
  const net::HttpResponse page = fixture.get("/console");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers.get("Content-Security-Policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(page.body, HasSubstr("<!doctype html>"));
  EXPECT_THAT(fixture.get("/console/config.json").body, HasSubstr(R"("version":"4.5")"));
  EXPECT_THAT(fixture.get("/console/config.json").body, Not(HasSubstr("live")));
  EXPECT_EQ(fixture.get("/console/").status, 308);
}

TEST(ConsolePage, MayBeSwitchedOff) {
  ServerFixture::Options options;
  options.server.console = false;
  ServerFixture fixture(kScript, std::move(options));
  for (const char* const path : {"/console", "/console/", "/console/app.js"}) {
    EXPECT_EQ(fixture.get(path).status, 404) << path;
  }
}

TEST(ConsolePage, StandsBelowARootPath) {
  if (console::bundle().empty()) GTEST_SKIP() << "built without esbuild";
  ServerFixture::Options options;
  options.server.root_path = "/one";
  ServerFixture fixture(kScript, std::move(options));
  EXPECT_EQ(fixture.get("/one/console").status, 200);
  EXPECT_EQ(fixture.post("/one/console", "{}").status, 405);
  EXPECT_EQ(fixture.get("/one/console/app.js").status, 200);
}

}  // namespace
}  // namespace pelton::server
