// Rows JB of the catalogue of bad inputs: bodies that are no JSON, or JSON of another shape, to
// every route that takes one. tests/json_suite sends the public suite of parsers' tests.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "server/hostile_fixture.h"

namespace pelton::server {
namespace {

// A route, and what makes a body of it that is answered; `{}` is where a further member may stand.
struct BodyRoute {
  const char* path;
  const char* good;
};
constexpr BodyRoute kRoutes[] = {
    {"/v1/chat/completions", R"("messages":[{"role":"user","content":"hi"}],"max_tokens":1)"},
    {"/v1/completions", R"("prompt":"hi","max_tokens":1)"},
    {"/v1/responses", R"("input":"hi","max_output_tokens":1,"store":false)"},
    {"/v1/responses/input_tokens", R"("input":"hi")"},
    {"/v1/messages",
     R"("model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":1)"},
    {"/v1/messages/count_tokens", R"("model":"tiny","messages":[{"role":"user","content":"hi"}])"},
    {"/v1/chat/completions/render", R"("messages":[{"role":"user","content":"hi"}])"},
    {"/v1/completions/render", R"("prompt":"hi")"},
    {"/inference/v1/generate", R"("token_ids":[72],"sampling_params":{"max_tokens":1})"},
    {"/v1/embeddings", R"("input":"hi")"},
    {"/v1/rerank", R"("query":"hi","documents":["ho"])"},
    {"/v1/score", R"("text_1":"hi","text_2":"ho")"},
    {"/tokenize", R"("prompt":"hi")"},
    {"/detokenize", R"("tokens":[72])"},
    {"/invocations", R"("prompt":"hi","max_tokens":1)"},
};

class HostileJson : public Hostile {
 protected:
  // One connection for all: only a broken frame may close it.
  int sent(const char* path, const std::string& body) {
    const net::HttpResponse answer = fixture_->post(path, body);
    if (answer.status >= 400) {
      const Json* error = parsed(answer.body).find("error");
      EXPECT_NE(error, nullptr) << answer.body.substr(0, 200);
      EXPECT_LT(answer.body.size(), 2000u) << "it says the input back";
    }
    return answer.status;
  }
  void refused_everywhere(const std::vector<std::string>& bodies) {
    for (const BodyRoute& route : kRoutes) {
      for (const std::string& body : bodies) {
        EXPECT_EQ(sent(route.path, body), 400) << route.path << " " << body.substr(0, 100);
      }
    }
  }
  static std::string with(const BodyRoute& route, const std::string& more) {
    return fmt::format("{{{},{}}}", route.good, more);
  }
};

TEST_F(HostileJson, JB_00_TheRoutesAreAsked) {
  for (const BodyRoute& route : kRoutes) {
    EXPECT_EQ(sent(route.path, fmt::format("{{{}}}", route.good)), 200) << route.path;
  }
}

TEST_F(HostileJson, JB_01_NoBody) {
  refused_everywhere({"", " ", "\r\n"});
}

TEST_F(HostileJson, JB_02_RootsThatAreNoObject) {
  refused_everywhere({"[]", "\"x\"", "null", "1", "true", "[{}]"});
}

TEST_F(HostileJson, JB_03_WhatOnlyLooksLikeJson) {
  for (const BodyRoute& route : kRoutes) {
    const std::string good = fmt::format("{{{}}}", route.good);
    for (const std::string& bad : {with(route, ""),
                                   good + "x",
                                   good + "{}",
                                   good + ",",
                                   "/* c */" + good,
                                   good + "// c",
                                   "// c\n" + good,
                                   with(route, "'a':1"),
                                   with(route, "a:1"),
                                   with(route, "\"a\":01"),
                                   with(route, "\"a\":.5"),
                                   with(route, "\"a\":+1"),
                                   with(route, "\"a\":0x1"),
                                   with(route, "\"a\":True"),
                                   with(route, "\"a\" 1"),
                                   with(route, "\"a\":"),
                                   with(route, "\"a\":\"\n\""),
                                   with(route, R"("a":"\x41")"),
                                   with(route, R"("a":"\u00")"),
                                   good.substr(0, good.size() - 1)}) {
      EXPECT_EQ(sent(route.path, bad), 400) << route.path << " " << bad;
    }
  }
}

TEST_F(HostileJson, JB_04_DepthWithoutEnd) {
  const size_t deep = 100'000;
  const std::string arrays = std::string(deep, '[') + std::string(deep, ']');
  std::string objects;
  for (size_t i = 0; i < deep; ++i) objects += "{\"a\":";
  refused_everywhere(
      {std::string(deep, '['), arrays, objects, objects + "1" + std::string(deep, '}')});
  for (const BodyRoute& route : kRoutes) {
    EXPECT_EQ(sent(route.path, with(route, "\"deep\":" + arrays)), 400) << route.path;
    const std::string shallow = std::string(200, '[') + std::string(200, ']');
    EXPECT_EQ(sent(route.path, with(route, "\"deep\":" + shallow)), 200) << route.path;
  }
}

// What checks a body before us may read the other one.
TEST_F(HostileJson, JB_05_TwoEqualKeysAreRefused) {
  for (const BodyRoute& route : kRoutes) {
    EXPECT_EQ(sent(route.path, with(route, R"("user":"a")")), 200) << route.path;
    EXPECT_EQ(sent(route.path, with(route, R"("user":"a","user":"a")")), 400) << route.path;
    EXPECT_EQ(sent(route.path, with(route, R"("user":"a","us\u0065r":"b")")), 400) << route.path;
    EXPECT_EQ(sent(route.path, with(route, R"("x":[{"y":{"z":1,"z":2}}])")), 400) << route.path;
  }
}

TEST_F(HostileJson, JB_06_NumbersAtTheEdges) {
  const BodyRoute& chat = kRoutes[0];
  for (const char* bad :
       {"1e400", "-1e400", "9223372036854775808", "18446744073709551616", "-9223372036854775809",
        "1e30", "0.5", "1.", "1e", "0.1garbage", "--1", "1e99999999999999999999"}) {
    EXPECT_EQ(sent(chat.path, with(chat, fmt::format("\"max_tokens\":{}", bad))), 400) << bad;
  }
  for (const char* bad : {"1e400", "1e308", "9223372036854775808", "0.1garbage"}) {
    EXPECT_EQ(sent(chat.path, with(chat, fmt::format("\"temperature\":{}", bad))), 400) << bad;
  }
  for (const char* good : {"-0", "-0.0", "0e0", "1E0", "1e-400", "0.10000000000000000000000001"}) {
    EXPECT_EQ(sent(chat.path, with(chat, fmt::format("\"temperature\":{}", good))), 200) << good;
  }
  std::string digits(100'000, '7');
  EXPECT_EQ(sent(chat.path, with(chat, "\"seed\":" + digits)), 400);
  EXPECT_EQ(sent(chat.path, with(chat, "\"temperature\":0." + digits)), 200);
}

TEST_F(HostileJson, JB_07_WordsThatAreNoNumbers) {
  for (const BodyRoute& route : kRoutes) {
    for (const char* word : {"NaN", "-NaN", "nan", "Infinity", "-Infinity", "inf", "undefined"}) {
      EXPECT_EQ(sent(route.path, with(route, fmt::format("\"temperature\":{}", word))), 400)
          << word;
    }
  }
}

TEST_F(HostileJson, JB_08_BytesThatAreNoUtf8) {
  for (const BodyRoute& route : kRoutes) {
    const std::string good = fmt::format("{{{}}}", route.good);
    std::string utf16;
    for (const char c : good) utf16 += {c, '\0'};
    for (const std::string& bad :
         {"\xEF\xBB\xBF" + good, "\xFF\xFE" + utf16, utf16, with(route, "\"a\":\"\xFF\""),
          with(route, "\"a\":\"\xC0\xAF\""), with(route, "\"a\":\"\xED\xA0\x80\""),
          with(route, "\"a\":\"\xF4\x90\x80\x80\""), with(route, "\"a\":\"\xE2\x82\""),
          with(route, "\"\xFE\":1"), with(route, R"("a":"\ud800")"),
          with(route, R"("a":"\udc00\ud800")"), with(route, "\"a\":\"x\"\xA0")}) {
      EXPECT_EQ(sent(route.path, bad), 400) << route.path;
    }
  }
}

// Legal JSON, and a text like another: no C string ends anywhere.
TEST_F(HostileJson, JB_09_NulInTexts) {
  const net::HttpResponse tokens = fixture_->post("/tokenize", R"({"prompt":"a\u0000b"})");
  EXPECT_EQ(parsed(tokens.body).integer("count"), 3);
  const BodyRoute& chat = kRoutes[0];
  EXPECT_EQ(sent(chat.path, with(chat, R"("stop":["\u0000"],"user":"a\u0000b")")), 200);
  EXPECT_EQ(sent(chat.path, with(chat, R"("model":"tiny\u0000")")), 404);
  EXPECT_EQ(sent(chat.path, with(chat, R"("max_tokens\u0000":-1)")), 200) << "an unknown field";
  EXPECT_EQ(sent(chat.path, with(chat, std::string("\"a\":\"\0\"", 7))), 400) << "bare it is not";
}

TEST_F(HostileJson, JB_10_OneEndlessText) {
  const BodyRoute& chat = kRoutes[0];
  EXPECT_EQ(
      asked(fmt::format(
          "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n{{\"a\":\"", chat.path)),
      413);
  const std::string large(size_t{30} << 20, 'x');
  const std::string_view some = std::string_view(large).substr(0, size_t{5} << 20);
  EXPECT_EQ(sent(chat.path, R"({"messages":[{"role":"user","content":")" + large + "\"}]}"), 400);
  EXPECT_EQ(sent("/v1/completions", fmt::format(R"({{"prompt":"{}"}})", some)), 400);
  EXPECT_EQ(sent("/v1/embeddings", fmt::format(R"({{"input":"{}"}})", some)), 400);
  EXPECT_EQ(sent(chat.path, with(chat, "\"unknown\":\"" + large + "\"")), 200) << "nobody reads it";
}

TEST_F(HostileJson, JB_11_AMillionUnknownKeys) {
  const auto keys = [](int count) {
    std::string members = "\"k0\":1";
    for (int i = 1; i < count; ++i) members += fmt::format(",\"k{}\":1", i);
    return members;
  };
  const std::string many = keys(300'000);
  const std::string too_many = keys(1'000'001);
  for (const BodyRoute& route : kRoutes) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(sent(route.path, with(route, many)), 200) << route.path;
    // Linear: 4 MB take a tenth of a second each; squared it would be minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << route.path;
  }
  EXPECT_EQ(sent(kRoutes[0].path, with(kRoutes[0], too_many)), 400);
}

TEST_F(HostileJson, JB_12_ValuesOfAnotherKind) {
  struct Wrong {
    const char* path;
    const char* body;
    const char* param;
  };
  for (const auto& [path, body, param] : std::vector<Wrong>{
           {"/v1/chat/completions", R"({"messages":{}})", "messages"},
           {"/v1/chat/completions", R"({"messages":"hi"})", "messages"},
           {"/v1/chat/completions", R"({"messages":[7]})", "messages[0]"},
           {"/v1/chat/completions", R"({"messages":[{"role":7,"content":"x"}]})",
            "messages[0].role"},
           {"/v1/chat/completions", R"({"messages":[{"role":"user","content":7}]})",
            "messages[0].content"},
           {"/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"x"}],"stream":"yes"})", "stream"},
           {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"model":7})",
            "model"},
           {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stop":{}})",
            "stop"},
           {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"tools":{}})",
            "tools"},
           {"/v1/completions", R"({"prompt":{}})", "prompt"},
           {"/v1/completions", R"({"prompt":"x","max_tokens":"5"})", "max_tokens"},
           {"/v1/responses", R"({"input":7})", "input"},
           {"/v1/embeddings", R"({"input":{}})", "input"},
           {"/v1/rerank", R"({"query":7,"documents":["x"]})", "query"},
           {"/v1/score", R"({"text_1":7,"text_2":"x"})", "text_1"},
           {"/tokenize", R"({"prompt":7})", "prompt"},
           {"/detokenize", R"({"tokens":{}})", "tokens"},
           {"/inference/v1/generate", R"({"token_ids":"x"})", "token_ids"}}) {
    const net::HttpResponse answer = fixture_->post(path, body);
    EXPECT_EQ(answer.status, 400) << path << body;
    const Json json = parsed(answer.body);
    const Json* error = json.find("error");
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->string("param").value_or(""), param) << answer.body;
  }
  EXPECT_EQ(
      fixture_->post("/v1/messages", R"({"model":"tiny","max_tokens":1,"messages":{}})").status,
      400);
}

}  // namespace
}  // namespace pelton::server
