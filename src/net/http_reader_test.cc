#include "net/http_reader.h"

#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pelton::net {
namespace {

using State = RequestReader::State;

struct Read {
  State state;
  std::vector<HttpRequest> requests;
  HttpReject reject;
};

// Feeds `text` in steps of `step` bytes and takes every request that comes out.
Read read_requests(std::string_view text, size_t step, const HttpLimits& limits = {}) {
  RequestReader reader(limits);
  Read read{State::kIdle, {}, {}};
  const auto advance = [&] {
    while ((read.state = reader.advance()) == State::kDone) {
      read.requests.push_back(reader.take());
    }
  };
  for (size_t at = 0; at < text.size(); at += step) {
    reader.append(text.substr(at, step));
    advance();
  }
  read.reject = reader.reject();
  return read;
}

// The status `text` is refused with, whole and byte by byte; 0 if it is not refused.
int refusal(std::string_view text, const HttpLimits& limits = {}) {
  const Read whole = read_requests(text, text.size(), limits);
  const Read dripped = read_requests(text, 1, limits);
  EXPECT_EQ(whole.state, dripped.state);
  EXPECT_EQ(whole.requests.size(), dripped.requests.size());
  if (whole.state != State::kBad) return 0;
  EXPECT_EQ(whole.reject.status, dripped.reject.status);
  return whole.reject.status;
}

std::string with_headers(std::string_view lines) {
  return "POST /v1/x HTTP/1.1\r\nHost: a\r\n" + std::string(lines) + "\r\n";
}

TEST(RequestReader, ReadsARequestWithBody) {
  const Read read = read_requests(
      "POST /v1/ch%61t?a=1%20 HTTP/1.1\r\nHost: x\r\nX-A:  b c \r\nContent-Length: 5\r\n\r\nhello",
      3);
  ASSERT_EQ(read.requests.size(), 1u);
  const HttpRequest& request = read.requests[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/chat");
  EXPECT_EQ(request.query, "a=1%20");
  EXPECT_EQ(request.headers.get("x-a"), "b c");
  EXPECT_EQ(request.body, "hello");
  EXPECT_EQ(read.state, State::kIdle);
}

TEST(RequestReader, ReadsChunkedBodies) {
  const std::string text = with_headers("Transfer-Encoding: chunked\r\n") +
                           "5;ext=\"a b\"\r\nhello\r\n006\r\n world\r\n0\r\n\r\n";
  for (size_t step = 1; step < 40; ++step) {
    const Read read = read_requests(text, step);
    ASSERT_EQ(read.requests.size(), 1u) << step;
    EXPECT_EQ(read.requests[0].body, "hello world");
  }
}

TEST(RequestReader, EmptyChunkedBodyInEverySplit) {
  // Beast 1.81 asserts when the end of the first chunk comes in the wrong pieces.
  const std::string text = with_headers("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n";
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      RequestReader reader({});
      State state = State::kIdle;
      for (const std::string& part : {text.substr(0, a), text.substr(a, b - a), text.substr(b)}) {
        reader.append(part);
        if (state != State::kDone) state = reader.advance();
      }
      ASSERT_EQ(state, State::kDone) << a << " " << b;
      EXPECT_EQ(reader.take().body, "");
    }
  }
}

TEST(RequestReader, PipelinedRequestsComeInOrder) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", i);
  for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}, text.size()}) {
    const Read read = read_requests(text, step);
    ASSERT_EQ(read.requests.size(), 1000u);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(read.requests[static_cast<size_t>(i)].path, fmt::format("/{}", i));
    }
  }
}

// Each in every split; the reader holds nothing of them.
TEST(RequestReader, D9_MoreThanTwoEmptyLinesAreNoBeginningOfARequest) {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(refusal("\r\n\r\n" + get), 0);
  EXPECT_EQ(refusal("\r\n\r\n\r\n" + get), 400);
  EXPECT_EQ(refusal(get + "\r\n\r\n\r\n"), 400);
  EXPECT_EQ(refusal(get + "\r\n\r\n" + get + "\r\n\r\n" + get), 0);
  RequestReader reader({});
  reader.append("\r\n");
  EXPECT_EQ(reader.advance(), RequestReader::State::kIdle);
  reader.append("\r\n\r");
  EXPECT_EQ(reader.advance(), RequestReader::State::kIdle);
  reader.append("\n");
  EXPECT_EQ(reader.advance(), RequestReader::State::kBad);
  EXPECT_EQ(reader.buffered_bytes(), 0u);
}

TEST(RequestReader, D4_AMalformedHostIsRefused) {
  for (const char* const bad : {"a b", "a/b", "a:b", "user@a", "[::1", "::1", "a,b:1:2", "<a>"}) {
    EXPECT_EQ(refusal(std::string("GET / HTTP/1.1\r\nHost: ") + bad + "\r\n\r\n"), 400) << bad;
  }
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), 0);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 0);
}

// A29: the line that is wrong is named, its value never.
TEST(RequestReader, A29_AMalformedHeaderIsNamed) {
  const auto why = [](const std::string& headers) {
    RequestReader reader({});
    reader.append("GET / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n");
    EXPECT_EQ(reader.advance(), RequestReader::State::kBad) << headers;
    return reader.reject().message;
  };
  EXPECT_EQ(why("X-Key: secret\x01\r\n"),
            "the header 'X-Key' has a control character or a bare CR or LF");
  EXPECT_EQ(why("X-A: 1\r\nX-Key: sec\nret\r\n"),
            "the header 'X-Key' has a control character or a bare CR or LF");
  EXPECT_EQ(why("X-A: 1\r\nsecret\r\n"), "header line 3 has no colon behind a name");
  EXPECT_NE(why("X Key: secret\r\n").find("header line 2 has a name"), std::string::npos);
  EXPECT_NE(why(": secret\r\n").find("header line 2 has a name"), std::string::npos);
  EXPECT_NE(why("X-A: 1\r\n  secret\r\n").find("header line 3 starts with white space"),
            std::string::npos);
  EXPECT_EQ(why("Host: b\r\n"), "the header 'Host' is there twice");
  RequestReader reader({});
  reader.append("GET / HTTP/1.1\r\nX-A: 1\r\n\r\n");
  EXPECT_EQ(reader.advance(), RequestReader::State::kBad);
  EXPECT_EQ(reader.reject().message, "the header 'Host' is missing");
}

TEST(RequestReader, EmptyLinesBeforeARequestAreForgiven) {
  for (const size_t step : {1, 2, 3, 100}) {
    const Read read = read_requests("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n", step);
    EXPECT_EQ(read.requests.size(), 1u);
    EXPECT_EQ(read.state, State::kIdle);
  }
}

TEST(RequestReader, Ht01RequestLineTooLong) {
  EXPECT_EQ(refusal("GET /" + std::string(20 * 1024, 'a')), 414);
}

TEST(RequestReader, Ht02HeaderTooLargeOrTooMany) {
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(70 * 1024, 'a')), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 10'000; ++i) many += "a: b\r\n";
  EXPECT_EQ(refusal(many), 431);
}

TEST(RequestReader, Ht02HeaderJustInsideTheLimitsPasses) {
  HttpLimits limits;
  std::string text = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  text += std::string(limits.header_bytes_max - text.size() - 2, 'a') + "\r\n\r\n";
  EXPECT_EQ(refusal(text, limits), 0);
}

TEST(RequestReader, Ht05BadContentLengths) {
  for (const char* value : {"-1", "+5", "5.0", "18446744073709551616", "0x5", "5, 5", "", "5 5",
                            "99999999999999999999"}) {
    const int status = refusal(with_headers(std::string("Content-Length: ") + value + "\r\n"));
    EXPECT_EQ(status, 400) << value;
  }
  EXPECT_EQ(refusal(with_headers("Content-Length: 5\r\nContent-Length: 6\r\n")), 400);
  EXPECT_EQ(refusal(with_headers("Content-Length: 5\r\nContent-Length: 5\r\n")), 400);
}

TEST(RequestReader, Ht06ContentLengthWithTransferEncoding) {
  EXPECT_EQ(refusal(with_headers("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), 400);
  EXPECT_EQ(refusal(with_headers("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")), 400);
}

TEST(RequestReader, Ht07OddTransferEncodings) {
  for (const char* value : {"xchunked", "chunked, identity", "identity", "gzip, chunked",
                            "chunked, chunked", "\"chunked\"", "chunked;q=1", ""}) {
    const int status = refusal(with_headers(std::string("Transfer-Encoding: ") + value + "\r\n"));
    EXPECT_TRUE(status == 400 || status == 501) << value << " " << status;
  }
  const int twice =
      refusal(with_headers("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_TRUE(twice == 400 || twice == 501);
  EXPECT_EQ(refusal(with_headers("Transfer-Encoding:\r\n chunked\r\n")), 400);
  EXPECT_EQ(refusal(with_headers("Transfer-Encoding\t: chunked\r\n")), 400);
  EXPECT_EQ(refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(RequestReader, Ht08BadChunkSizes) {
  for (const char* size :
       {"-2", "11111111111111111", "0x5", "5 ", " 5", "", "+5", "5g", "5\n", "ffffffffffffffff"}) {
    const std::string text =
        with_headers("Transfer-Encoding: chunked\r\n") + size + "\r\nhello\r\n0\r\n\r\n";
    const int status = refusal(text);
    EXPECT_TRUE(status == 400 || status == 413) << size << " " << status;
  }
  EXPECT_EQ(
      refusal(with_headers("Transfer-Encoding: chunked\r\n") + "5;" + std::string(1 << 20, 'a')),
      400);
  EXPECT_EQ(refusal(with_headers("Transfer-Encoding: chunked\r\n") + "5\r\nhelloX\r\n0\r\n\r\n"),
            400);
}

TEST(RequestReader, Ht08AMillionOneByteChunks) {
  std::string text = with_headers("Transfer-Encoding: chunked\r\n");
  for (int i = 0; i < 1'000'000; ++i) text += "1\r\na\r\n";
  text += "0\r\n\r\n";
  const Read read = read_requests(text, 64 * 1024);
  ASSERT_EQ(read.requests.size(), 1u);
  EXPECT_EQ(read.requests[0].body.size(), 1'000'000u);
}

TEST(RequestReader, Ht09TrailersAreDropped) {
  const std::string text =
      with_headers("Transfer-Encoding: chunked\r\n") +
      "1\r\na\r\n0\r\nHost: evil\r\nAuthorization: b\r\nContent-Length: 7\r\nConnection: "
      "close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t step = 1; step < 60; ++step) {
    const Read read = read_requests(text, step);
    ASSERT_EQ(read.requests.size(), 2u) << step;
    EXPECT_EQ(read.requests[0].headers.fields().size(), 2u);
    EXPECT_EQ(read.requests[0].headers.get("Host"), "a");
    EXPECT_EQ(read.requests[1].path, "/2");
  }
  EXPECT_EQ(refusal(with_headers("Transfer-Encoding: chunked\r\n") + "0\r\na: b\nc: d\r\n\r\n"),
            400);
  EXPECT_EQ(refusal(with_headers("Transfer-Encoding: chunked\r\n") +
                    "0\r\na: " + std::string(20 * 1024, 'a')),
            400);
}

TEST(RequestReader, Ht10BrokenHeaderLines) {
  EXPECT_EQ(refusal("GET / HTTP/1.1\nHost: a\n\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n"), 400);
  EXPECT_EQ(refusal(std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29)), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400);
}

TEST(RequestReader, Ht11HostsAndTargets) {
  const auto get = [](const std::string& target) {
    return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.0\r\n\r\n"), 0);
  EXPECT_EQ(refusal(get("http://b/")), 400);
  EXPECT_EQ(refusal(get("http://a/x?y")), 0);
  for (const char* target :
       {"/v1/../admin", "/v1/%2e%2e/admin", "/v1/%2E./admin", "/..", "/./x", "/%00", "/%0a", "/%",
        "/%4", "/%zz", "/a#b", "x", "*", "/%ff", "http://a@b/"}) {
    EXPECT_EQ(refusal(get(target)), 400) << target;
  }
  EXPECT_EQ(read_requests(get("//v1"), 99).requests.at(0).path, "//v1");
  EXPECT_EQ(read_requests(get("/a;x"), 99).requests.at(0).path, "/a;x");
  EXPECT_EQ(read_requests(get("/%252e%252e"), 99).requests.at(0).path, "/%2e%2e");
  EXPECT_EQ(refusal("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
}

TEST(RequestReader, Ht12Methods) {
  EXPECT_EQ(refusal("FOO / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(refusal("get / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(refusal("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(refusal(std::string(8192, 'M') + " / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(refusal("GE(T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal(" / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

TEST(RequestReader, Versions) {
  EXPECT_EQ(refusal("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(refusal("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(refusal("GET / HTTP/0.9\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(refusal("GET /\r\nHost: a\r\n\r\n"), 400);
}

TEST(RequestReader, Ht15CompressedBodies) {
  EXPECT_EQ(refusal(with_headers("Content-Encoding: gzip\r\nContent-Length: 5\r\n")), 415);
  EXPECT_EQ(refusal(with_headers("Content-Encoding: identity\r\nContent-Length: 0\r\n")), 0);
}

TEST(RequestReader, Ht17BodyLimits) {
  HttpLimits limits;
  limits.body_bytes_max = 10;
  EXPECT_EQ(refusal(with_headers("Content-Length: 10\r\n") + "0123456789", limits), 0);
  EXPECT_EQ(refusal(with_headers("Content-Length: 11\r\n"), limits), 413);
  const std::string chunked = with_headers("Transfer-Encoding: chunked\r\n");
  EXPECT_EQ(refusal(chunked + "5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n", limits), 0);
  EXPECT_EQ(refusal(chunked + "5\r\nhello\r\n6\r\n", limits), 413);
}

TEST(RequestReader, Ht19TlsOnThePlainPort) {
  EXPECT_EQ(refusal(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)), 400);
}

TEST(RequestReader, ExpectContinue) {
  RequestReader reader({});
  reader.append(with_headers("Expect: 100-continue\r\nContent-Length: 2\r\n"));
  EXPECT_EQ(reader.advance(), State::kBody);
  EXPECT_TRUE(reader.expects_continue());
  reader.append("ab");
  EXPECT_EQ(reader.advance(), State::kDone);
  EXPECT_FALSE(reader.expects_continue());
  EXPECT_EQ(refusal(with_headers("Expect: 200-ok\r\nContent-Length: 2\r\n")), 417);
}

TEST(RequestReader, KeepAlive) {
  const auto keeps = [](const std::string& text) {
    RequestReader reader({});
    reader.append(text);
    EXPECT_EQ(reader.advance(), State::kDone);
    return reader.keep_alive();
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, Close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

// However a stream is cut, the same requests and the same refusal come out.
TEST(RequestReader, CutsDoNotMatter) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::string base = with_headers("Transfer-Encoding: chunked\r\n") +
                           "5;a=b\r\nhello\r\n1\r\n \r\n0\r\nT: v\r\n\r\n" +
                           with_headers("Content-Length: 3\r\n") +
                           "abcGET /x HTTP/1.1\r\nHost: b\r\n\r\n";
  for (int i = 0; i < 2000; ++i) {
    std::string text = base;
    for (uint64_t edits = random() % 3; edits > 0; --edits) {
      text[random() % text.size()] = static_cast<char>(random() % 128);
    }
    const Read whole = read_requests(text, text.size());
    const Read cut = read_requests(text, 1 + random() % 9);
    ASSERT_EQ(whole.requests.size(), cut.requests.size()) << text;
    for (size_t n = 0; n < whole.requests.size(); ++n) {
      EXPECT_EQ(whole.requests[n].body, cut.requests[n].body);
      EXPECT_EQ(whole.requests[n].path, cut.requests[n].path);
    }
    EXPECT_EQ(whole.state, cut.state) << text;
    EXPECT_EQ(whole.reject.status, cut.reject.status) << text;
  }
}

struct Response {
  ResponseReader::State state;
  int status = 0;
  std::string body;
  bool keep_alive = false;
};

Response read_response(std::string_view text, size_t step, ResponseReader::Options options = {}) {
  ResponseReader reader(options);
  Response response{};
  const auto on_body = [&](std::string_view bytes) { response.body += bytes; };
  for (size_t at = 0; at < text.size() && reader.state() != ResponseReader::State::kDone;
       at += step) {
    reader.append(text.substr(at, step));
    ResponseReader::State before;
    do {
      before = reader.state();
      reader.advance(on_body);
    } while (before == ResponseReader::State::kHead &&
             reader.state() == ResponseReader::State::kBody);
  }
  response.state = reader.state();
  response.status = reader.status();
  response.keep_alive = reader.keep_alive();
  return response;
}

TEST(ResponseReader, ReadsAnswersInAnyCut) {
  const std::string chunked =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "05\r\nhello\r\n00\r\n\r\n";
  for (size_t step = 1; step <= chunked.size(); ++step) {
    const Response response = read_response(chunked, step);
    EXPECT_EQ(response.state, ResponseReader::State::kDone) << step;
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
    EXPECT_TRUE(response.keep_alive);
  }
  const std::string sized = "HTTP/1.1 404 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
  const Response response = read_response(sized, 4);
  EXPECT_EQ(response.state, ResponseReader::State::kDone);
  EXPECT_EQ(response.body, "abc");
  EXPECT_FALSE(response.keep_alive);
}

TEST(ResponseReader, DataDoesNotWaitForTheNextChunk) {
  ResponseReader reader({});
  std::string body;
  const auto on_body = [&](std::string_view bytes) { body += bytes; };
  reader.append("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe");
  reader.advance(on_body);
  reader.advance(on_body);
  EXPECT_EQ(body, "he");
  reader.append("l");
  reader.advance(on_body);
  reader.append("lo");
  reader.advance(on_body);
  EXPECT_EQ(body, "hello");
}

TEST(ResponseReader, EndOfConnectionEndsABodyWithoutLength) {
  ResponseReader reader({});
  std::string body;
  const auto on_body = [&](std::string_view bytes) { body += bytes; };
  reader.append("HTTP/1.1 200 OK\r\n\r\nabc");
  reader.advance(on_body);
  reader.advance(on_body);
  EXPECT_EQ(reader.finish_at_eof(), ResponseReader::State::kDone);
  EXPECT_EQ(body, "abc");
  ResponseReader cut({});
  cut.append("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc");
  cut.advance(on_body);
  cut.advance(on_body);
  EXPECT_EQ(cut.finish_at_eof(), ResponseReader::State::kBad);
  EXPECT_FALSE(cut.problem().empty());
}

TEST(ResponseReader, RefusesNonsense) {
  for (const char* text :
       {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 99 X\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n",
        "HTTP/1.1 101 Switching\r\n\r\n", "HTTP/1.1 999 X\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n\r\n"}) {
    EXPECT_EQ(read_response(text, 1).state, ResponseReader::State::kBad) << text;
  }
  ResponseReader::Options small;
  small.limits.body_bytes_max = 2;
  EXPECT_EQ(read_response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 99, small).state,
            ResponseReader::State::kBad);
  EXPECT_EQ(read_response("HTTP/1.1 200 OK\r\n\r\nabc", 99, small).state,
            ResponseReader::State::kBad);
}

TEST(ResponseReader, HeadHasNoBody) {
  ResponseReader::Options head;
  head.head_request = true;
  const Response response = read_response("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 99, head);
  EXPECT_EQ(response.state, ResponseReader::State::kDone);
  EXPECT_TRUE(response.keep_alive);
}

}  // namespace
}  // namespace pelton::net
