// How a server's own refusals are written, by the path of what is refused.
#include "net/error_form.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/json.h"
#include "net/http_server.h"
#include "net/test_socket.h"

namespace pelton::net {
namespace {

constexpr std::string_view kRest = " HTTP/1.1\r\nHost: a\r\n\r\n";

TEST(ErrorForm, IsByTheBeginningOfThePath) {
  EXPECT_EQ(error_form_of("/api/chat?x=y"), ErrorForm::kText);
  for (const char* const target : {"", "/", "/api", "/apis/chat", "/v1/api/chat", "api/chat"}) {
    EXPECT_EQ(error_form_of(target), ErrorForm::kObject) << target;
  }
  const HttpReject reject{413, "content_too_large", "it is \"too\" large"};
  const HttpResponse text = error_response(reject, ErrorForm::kText);
  EXPECT_EQ(text.status, 413);
  EXPECT_EQ(text.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(text.body, R"({"error":"it is \"too\" large"})");
  EXPECT_EQ(error_response(reject, ErrorForm::kObject).body, error_response(reject).body);
}

class RefusingServer : public testing::Test {
 protected:
  RefusingServer() {
    const Result<void> started = server_.start();
    EXPECT_TRUE(started.ok());
  }

  HttpServer::Options options() const {
    HttpServer::Options options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.body_bytes_max = 100;
    options.body_grace = std::chrono::milliseconds(50);
    options.hosts = AllowedHosts::parse({"a"}).value().at("127.0.0.1");
    return options;
  }
  // What it says is wrong: {"error": this}.
  static Json error_of(const std::string& response, int status) {
    EXPECT_TRUE(response.starts_with(fmt::format("HTTP/1.1 {} ", status))) << response;
    const size_t head = response.find("\r\n\r\n");
    if (head == std::string::npos) return {};
    const Result<Json> body = Json::parse(std::string_view(response).substr(head + 4));
    EXPECT_TRUE(body.ok()) << response;
    const Json* const error = body.ok() ? body->find("error") : nullptr;
    return error == nullptr ? Json() : *error;
  }
  Json refused(const std::string& request, int status) {
    TestSocket socket(server_.port());
    socket.send(request);
    return error_of(socket.read_response(), status);
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  // Answers nothing.
  HttpServer server_{options(), [](HttpRequest, std::shared_ptr<Exchange>) {}, log_};
};

TEST_F(RefusingServer, SaysTextsUnderApiAndObjectsElsewhere) {
  const std::vector<std::pair<std::string, int>> refusals = {
      {"Host: a\r\nContent-Length: 101\r\n\r\n", 413},
      {"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\nx", 413},
      {"Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
      {"Host: a\r\nContent-Length: 5\r\n\r\nhi", 408},
      {"Host: other\r\nContent-Length: 0\r\n\r\n", 403},
      {"Host: a\r\nContent-Length: 0\r\n\r\n", 500}};
  for (const auto& [rest, status] : refusals) {
    EXPECT_TRUE(refused("POST /api/chat?a=b HTTP/1.1\r\n" + rest, status).is_string()) << rest;
    EXPECT_TRUE(refused("POST /v1/chat HTTP/1.1\r\n" + rest, status).is_object()) << rest;
  }
}

TEST_F(RefusingServer, GoesByTheRequestAndNotByTheOneBefore) {
  TestSocket socket(server_.port());
  socket.send("GET /api/chat" + std::string(kRest));
  EXPECT_TRUE(error_of(socket.read_response(), 500).is_string());
  socket.send("GET /v1/models" + std::string(kRest));
  EXPECT_TRUE(error_of(socket.read_response(), 500).is_object());
  socket.send("GET /api/chat" + std::string(kRest));
  EXPECT_TRUE(error_of(socket.read_response(), 500).is_string());
  socket.send("nonsense\r\n\r\n");
  EXPECT_TRUE(error_of(socket.read_response(), 400).is_object());
}

}  // namespace
}  // namespace pelton::net
