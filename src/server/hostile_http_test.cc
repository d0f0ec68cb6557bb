// Rows HT of the catalogue of bad inputs, as bytes to a whole server; net/http_reader_test.cc has
// the same rows finer, and net/http_server_test.cc those about time. What our answer differs in
// from the catalogue stands at the row.
#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "server/hostile_fixture.h"

namespace pelton::server {
namespace {

using HostileHttp = Hostile;

std::string get_text(std::string_view target, std::string_view lines = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n{}\r\n", target, lines);
}

TEST_F(HostileHttp, HT_01_ARequestLineOfAMebibyte) {
  net::TestSocket socket(port());
  socket.send("GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(status_of(socket.read_response()), 414);
  socket.half_close();
  EXPECT_TRUE(socket.wait_closed());
}

TEST_F(HostileHttp, HT_02_HeadersTooLongOrTooMany) {
  EXPECT_EQ(asked(get_text("/health", "X: " + std::string(1 << 20, 'a') + "\r\n")), 431);
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += fmt::format("X-{}: y\r\n", i);
  EXPECT_EQ(asked(get_text("/health", many)), 431);
  EXPECT_EQ(asked(get_text("/health", "X: " + std::string(60'000, 'a') + "\r\n")), 200);
}

TEST_F(HostileHttp, HT_05_LengthsThatAreNone) {
  for (const char* length : {"-1", "+5", "5.0", "18446744073709551616", "0x5", "5, 5", ""}) {
    net::TestSocket socket(port());
    socket.send(fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\nhello{}",
                            kChat, length, get_text("/health")));
    const std::string all = socket.read_all();
    EXPECT_EQ(status_of(all), 400) << length;
    EXPECT_EQ(all.find("200 OK"), std::string::npos) << "what stood behind it was served";
  }
  EXPECT_EQ(asked("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
            400);
}

TEST_F(HostileHttp, HT_06_ALengthAndChunks) {
  for (const char* lines : {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"}) {
    net::TestSocket socket(port());
    socket.send(fmt::format("POST {} HTTP/1.1\r\nHost: a\r\n{}\r\n0\r\n\r\n{}", kChat, lines,
                            get_text("/health")));
    const std::string all = socket.read_all();
    EXPECT_EQ(status_of(all), 400);
    EXPECT_EQ(all.find("200 OK"), std::string::npos);
  }
}

TEST_F(HostileHttp, HT_07_CodingsThatAreNone) {
  for (const char* coding :
       {": xchunked", ": chunked, identity", ": gzip, chunked", ": chunked, chunked",
        ":\r\n chunked", "\t: chunked", ": \"chunked\"", ": chunked;q=1", ":"}) {
    const int status = asked(fmt::format(
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding{}\r\n\r\n0\r\n\r\n", kChat, coding));
    EXPECT_TRUE(status == 400 || status == 501) << coding << " " << status;
  }
  // A tab before the value is white space like any other.
  EXPECT_EQ(asked(fmt::format(
                "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n{:x}\r\n{}\r\n"
                "0\r\n\r\n",
                kChat, std::string_view(kHello).size(), kHello)),
            200);
}

TEST_F(HostileHttp, HT_08_ChunksThatAreNone) {
  const auto chunked = [](std::string_view rest) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}", kChat,
                       rest);
  };
  EXPECT_EQ(asked(chunked("-2\r\nhello\r\n0\r\n\r\n")), 400);
  EXPECT_EQ(asked(chunked("11111111111111111\r\nhello")), 400);
  EXPECT_EQ(asked(chunked("5;" + std::string(1 << 20, 'e') + "\r\nhello\r\n0\r\n\r\n")), 400);
  // A million of one byte are legal and no more work than their bytes; that they are no JSON is
  // another matter.
  std::string million;
  for (int i = 0; i < 1'000'000; ++i) million += "1\r\nx\r\n";
  EXPECT_EQ(asked(chunked(million + "0\r\n\r\n")), 400);
}

TEST_F(HostileHttp, HT_09_TrailersAreNoHeaders) {
  EXPECT_EQ(asked(fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "{:x}\r\n{}\r\n0\r\nX-Request-Timeout-Ms: nonsense\r\n"
                              "Content-Length: 7\r\nHost: b\r\n\r\n",
                              kChat, std::string_view(kHello).size(), kHello)),
            200)
      << "the trailer was taken for a header";
}

TEST_F(HostileHttp, HT_10_LinesThatAreNone) {
  for (const std::string& bad : {std::string("GET /health HTTP/1.1\nHost: a\n\n"),
                                 std::string("GET /health HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"),
                                 std::string("GET /health HTTP/1.1\r\nHost: a\rX: y\r\n\r\n"),
                                 get_text("/health", std::string_view("X: \0\r\n", 6)),
                                 std::string("GET /health HTTP/1.1\r\nHost : a\r\n\r\n"),
                                 std::string("GET /health HTTP/1.1\r\nHost: a\r\nX\r\n\r\n")}) {
    EXPECT_EQ(asked(bad), 400) << bad;
  }
}

TEST_F(HostileHttp, HT_11_HostsAndPathsThatDeceive) {
  ServerFixture::Options options;
  options.server.keys.add("secret");
  // The witness has no key: there is none here.
  ServerFixture fixture(kHostileScript, std::move(options));
  const auto asked_there = [&](const std::string& bytes) {
    net::TestSocket socket(fixture.http().port());
    socket.send(bytes);
    return status_of(socket.read_response());
  };
  EXPECT_EQ(asked_there("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(asked_there("GET /health HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(asked_there(get_text("http://b/health")), 400);
  EXPECT_EQ(asked_there(get_text("/health")), 200);
  // The path that is guarded is the path that is routed: none of these is a way around the key.
  for (const char* target :
       {"/health/../v1/models", "/health/%2e%2e/v1/models", "/health%2f..%2fv1/models",
        "/%2e/v1/models", "//v1/models", "/v1//models", "/v1/models;x", "/health;/../v1/models",
        "/v1/models%00", "/v1/models%20", "/v1/models/", "/V1/models", "/v1/mod%65ls",
        "/health#/../v1/models", "/health\\..\\v1\\models", "http://a/v1/models"}) {
    const int status = asked_there(get_text(target));
    EXPECT_TRUE(status == 400 || status == 401) << target << " " << status;
  }
}

TEST_F(HostileHttp, HT_12_MethodsThatAreNone) {
  const auto series = [&] {
    std::set<std::string> names;
    const std::string page = fixture_->get("/metrics").body;
    for (size_t at = 0; at < page.size();) {
      const size_t end = std::min(page.find('\n', at), page.size());
      const std::string line = page.substr(at, end - at);
      // A label's `le` is as its histogram; the rest of a line is its value.
      if (!line.starts_with('#')) names.insert(line.substr(0, line.rfind(' ')));
      at = end + 1;
    }
    return names;
  };
  const std::set<std::string> before = series();
  EXPECT_GT(before.size(), 20u);
  EXPECT_EQ(asked("FOO /health HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(asked(std::string(8192, 'M') + " /health HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(asked("get /health HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(asked("PATCH /health HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(asked(get_text(fmt::format("/nothing-{}", i))), 404);
  std::set<std::string> added;
  const std::set<std::string> after = series();
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::inserter(added, added.end()));
  for (const std::string& name : added) {
    EXPECT_EQ(name.find("nothing-"), std::string::npos) << name;
    EXPECT_EQ(name.find("MMMM"), std::string::npos) << name;
    EXPECT_EQ(name.find("FOO"), std::string::npos) << name;
  }
  EXPECT_LT(added.size(), 60u) << "a label is made of what clients write";
}

TEST_F(HostileHttp, HT_14_AThousandRequestsInOnePacket) {
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    all +=
        post_text("/tokenize", fmt::format(R"({{"prompt":"{}"}})", std::string(1 + i % 37, 'x')));
  }
  net::TestSocket socket(port());
  std::thread sender([&] { socket.send(all); });
  for (int i = 0; i < 1000; ++i) {
    const std::string answer = socket.read_response();
    const size_t body = answer.find("\r\n\r\n");
    ASSERT_NE(body, std::string::npos) << i;
    ASSERT_EQ(parsed(answer.substr(body + 4)).integer("count"), 1 + i % 37) << i;
  }
  sender.join();
}

TEST_F(HostileHttp, HT_15_CompressedBodies) {
  // Nothing is decompressed, so there is no bomb.
  for (const char* coding : {"gzip", "deflate", "br", "zstd", "x-nothing", "gzip, gzip"}) {
    EXPECT_EQ(asked(post_text(kChat, kHello, fmt::format("Content-Encoding: {}\r\n", coding))), 415)
        << coding;
  }
  EXPECT_EQ(asked(post_text(kChat, kHello, "Content-Encoding: identity\r\n")), 200);
}

TEST_F(HostileHttp, HT_16_BodiesOfAnotherType) {
  for (const char* type : {"text/xml", "text/plain", "multipart/form-data; boundary=x",
                           "application/x-www-form-urlencoded", "application/jsonp", "json", ","}) {
    const std::string answer =
        ask(post_text(kChat, kHello, fmt::format("Content-Type: {}\r\n", type)));
    EXPECT_EQ(status_of(answer), 415) << type;
    EXPECT_NE(answer.find("application/json"), std::string::npos) << "say what would do";
  }
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/vnd.x+json", "application/json;charset=UTF-8"}) {
    EXPECT_EQ(asked(post_text(kChat, kHello, fmt::format("Content-Type: {}\r\n", type))), 200)
        << type;
  }
  EXPECT_EQ(asked(post_text(kChat, kHello)), 200);
  EXPECT_EQ(asked(post_text(kChat, kHello, "Content-Type:\r\n")), 200);
  EXPECT_EQ(asked(post_text("/ping", "", "Content-Type: text/plain\r\n")), 200) << "no body";
}

TEST_F(HostileHttp, HT_17_BodiesBeyondTheLimit) {
  constexpr size_t kLimit = size_t{32} << 20;
  // Decided by the head, before anything is read.
  EXPECT_EQ(asked(fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", kChat,
                              kLimit + 1)),
            413);
  const std::string chunked =
      fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", kChat);
  EXPECT_EQ(asked(chunked + fmt::format("{:x}\r\n", kLimit + 1)), 413);
  net::TestSocket socket(port());
  socket.send(chunked);
  const std::string chunk = fmt::format("{:x}\r\n{}\r\n", 1 << 20, std::string(1 << 20, ' '));
  for (int i = 0; i < 33; ++i) socket.send(chunk);  // and no end
  EXPECT_EQ(status_of(socket.read_response()), 413);
}

TEST_F(HostileHttp, HT_18_OriginsAndOptions) {
  const std::vector<std::string> origins = {"null", "https://evil.example", "*"};
  for (const std::string& origin : origins) {
    const std::string lines = "Origin: " + origin + "\r\n";
    const std::string answer = ask(post_text(kChat, kHello, lines));
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_EQ(answer.find("Access-Control"), std::string::npos) << "no page was allowed";
    EXPECT_EQ(
        ask("OPTIONS /v1/models HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n").find("Access-Control"),
        std::string::npos);
  }
  ServerFixture::Options options;
  options.server.cors = access::CorsOrigins::parse({"https://page.example"}).value();
  ServerFixture fixture(kHostileScript, std::move(options));
  for (const std::string& origin : origins) {
    net::HttpCall call = fixture.call("POST", kChat, kHello);
    call.headers.add("Origin", origin);
    const net::HttpResponse answer = fixture.fetch(call);
    EXPECT_FALSE(answer.headers.has("Access-Control-Allow-Origin"));
    EXPECT_FALSE(answer.headers.has("Access-Control-Allow-Credentials"));
  }
  EXPECT_EQ(asked(fmt::format("HEAD {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", kChat)),
            405);
}

TEST_F(HostileHttp, HT_21_RequestIdsThatAreNone) {
  const auto id_of = [&](const std::string& value) {
    net::HttpCall call = fixture_->call("GET", "/health", "");
    call.headers.add("X-Request-Id", value);
    return std::string(fixture_->fetch(call).headers.get("x-request-id"));
  };
  EXPECT_EQ(id_of("mine"), "mine");
  EXPECT_TRUE(id_of(std::string(60'000, 'x')).starts_with("req_"));
  EXPECT_TRUE(id_of("two words").starts_with("req_"));
  EXPECT_TRUE(id_of("\xC3\xA9").starts_with("req_"));
  const std::string split = ask(get_text("/health", "X-Request-Id: a\r\nX-Evil: b\r\n"));
  EXPECT_EQ(split.find("X-Evil"), std::string::npos);
  EXPECT_EQ(asked(get_text("/health", "X-Request-Id: a\rX-Evil: b\r\n")), 400);

  // Two at once of one name, and of one id in the body: neither knows of the other.
  const std::string same =
      R"({"messages":[{"role":"user","content":"endless"}],"stream":true,"request_id":"same"})";
  net::TestSocket one(port());
  net::TestSocket other(port());
  one.send(post_text(kChat, same, "X-Request-Id: same\r\n"));
  other.send(post_text(kChat, same, "X-Request-Id: same\r\nConnection: close\r\n"));
  EXPECT_NE(one.read_until("data: ").find("data: "), std::string::npos);
  one.reset();
  const std::string rest = other.read_all(20'000);
  EXPECT_NE(rest.find("[DONE]"), std::string::npos) << "it ended with its namesake";
}

TEST_F(HostileHttp, HT_22_ForwardedForIsNotBelieved) {
  for (const char* value :
       {",,,", "", "203.0.113.9", "::1, , 127.0.0.1", "\"_hidden\"", "999.1.1.1"}) {
    EXPECT_EQ(
        asked(post_text(kChat, kHello,
                        fmt::format("X-Forwarded-For: {}\r\nForwarded: for={}\r\n", value, value))),
        200)
        << value;
  }
}

}  // namespace
}  // namespace pelton::server
