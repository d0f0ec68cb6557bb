// What clients of other servers say and read: a model named by its server's URL (Hugging Face's,
// row B8), errors below /api/ (Ollama's, row B9).
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Plain.<|return|>"}]})";

struct Answered {
  int status = 0;
  std::string model;
};

Answered ask(ServerFixture& fixture, const std::string& model) {
  const net::HttpCall call = fixture.call(
      "POST", "/v1/chat/completions",
      fmt::format(R"({{"model":"{}","messages":[{{"role":"user","content":"hi"}}]}})", model));
  const net::HttpResponse response = fixture.fetch(call);
  return {response.status, parsed(response.body).string("model").value_or("")};
}

TEST(ForeignClients, B8_the_servers_own_URL_is_its_model) {
  ServerFixture fixture(kScript, {});
  const std::string own = fmt::format("127.0.0.1:{}", fixture.http().port());
  for (const std::string& url : {"http://" + own, "http://" + own + "/", "http://" + own + "/v1",
                                 "HTTP://" + own + "/v1/chat/completions?x=1",
                                 "https://" + own}) {  // TLS may end before it comes here
    const Answered answered = ask(fixture, url);
    EXPECT_EQ(answered.status, 200) << url;
    EXPECT_EQ(answered.model, "tiny");
  }
  for (const std::string& other :
       {std::string("http://127.0.0.1:1"), "http://example.org/" + own, "http://" + own + "1", own,
        "ftp://" + own, std::string("http://"), std::string("http:///v1")}) {
    EXPECT_EQ(ask(fixture, other).status, 404) << other;
  }
}

TEST(ForeignClients, B9_below_api_an_error_is_a_text) {
  ServerFixture::Options options;
  options.server.keys.add("key");
  ServerFixture guarded(kScript, std::move(options));
  ServerFixture fixture(kScript, {});
  struct Case {
    ServerFixture& fixture;
    const char* method;
    const char* path;
    int status;
  };
  for (const Case& one :
       {Case{fixture, "GET", "/api/blobs", 404}, Case{fixture, "POST", "/api/pull", 404},
        Case{fixture, "POST", "/api/create", 404}, Case{fixture, "GET", "/api", 404},
        Case{guarded, "GET", "/api/tags", 401}}) {
    const net::HttpResponse response =
        one.fixture.fetch(one.fixture.call(one.method, one.path, *one.method == 'P' ? "{}" : ""));
    EXPECT_EQ(response.status, one.status) << one.path;
    const Json body = parsed(response.body);
    ASSERT_TRUE(body.find("error")->is_string()) << response.body;
    EXPECT_EQ(body.as_object().size(), 1u);
    if (one.status == 404) {
      EXPECT_NE(body.string("error")->find(one.path), std::string::npos) << response.body;
    }
  }
  // Elsewhere as OpenAI's clients read it.
  EXPECT_TRUE(parsed(fixture.get("/apis").body).find("error")->is_object());
}

}  // namespace
}  // namespace pelton::server
