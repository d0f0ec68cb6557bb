// What clients of other servers say and read: a model named by its server's URL (Hugging Face's,
// row B8), errors below /api/ (Ollama's, row B9).
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_house.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Plain.<|return|>"}]})";

struct Answered {
  int status = 0;
  std::string model;
};

Answered ask(ServerHouse& house, const std::string& model) {
  const net::HttpCall call = house.call(
      "POST", "/v1/chat/completions",
      fmt::format(R"({{"model":"{}","messages":[{{"role":"user","content":"hi"}}]}})", model));
  const net::HttpResponse response = house.fetch(call);
  return {response.status, parsed(response.body).string("model").value_or("")};
}

TEST(ForeignClients, B8_the_servers_own_URL_is_its_model) {
  ServerHouse house(kScript, {});
  const std::string own = fmt::format("127.0.0.1:{}", house.http().port());
  for (const std::string& url : {"http://" + own, "http://" + own + "/", "http://" + own + "/v1",
                                 "HTTP://" + own + "/v1/chat/completions?x=1",
                                 "https://" + own}) {  // TLS may end before it comes here
    const Answered answered = ask(house, url);
    EXPECT_EQ(answered.status, 200) << url;
    EXPECT_EQ(answered.model, "tiny");
  }
  for (const std::string& other :
       {std::string("http://127.0.0.1:1"), "http://example.org/" + own, "http://" + own + "1", own,
        "ftp://" + own, std::string("http://"), std::string("http:///v1")}) {
    EXPECT_EQ(ask(house, other).status, 404) << other;
  }
}

TEST(ForeignClients, B9_below_api_an_error_is_a_text) {
  ServerHouse::Options options;
  options.server.keys.add("key");
  ServerHouse guarded(kScript, std::move(options));
  ServerHouse house(kScript, {});
  struct Case {
    ServerHouse& house;
    const char* method;
    const char* path;
    int status;
  };
  for (const Case& one :
       {Case{house, "GET", "/api/tags", 404}, Case{house, "POST", "/api/chat", 404},
        Case{house, "POST", "/api/generate", 404}, Case{house, "GET", "/api", 404},
        Case{guarded, "GET", "/api/tags", 401}}) {
    const net::HttpResponse response =
        one.house.fetch(one.house.call(one.method, one.path, *one.method == 'P' ? "{}" : ""));
    EXPECT_EQ(response.status, one.status) << one.path;
    const Json body = parsed(response.body);
    ASSERT_TRUE(body.find("error")->is_string()) << response.body;
    EXPECT_EQ(body.as_object().size(), 1u);
    if (one.status == 404) {
      EXPECT_NE(body.string("error")->find(one.path), std::string::npos) << response.body;
    }
  }
  // Elsewhere as OpenAI's clients read it.
  EXPECT_TRUE(parsed(house.get("/apis").body).find("error")->is_object());
}

}  // namespace
}  // namespace pelton::server
