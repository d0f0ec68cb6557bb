// A gateway that has no engine: it identifies, limits, records and traces requests, and answers by
// itself. That this file builds and links is half of the test: access_test knows neither server/
// nor engine/.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access/access_control.h"
#include "access/access_log.h"
#include "access/cors.h"
#include "access/request_reporter.h"
#include "access/request_statistics.h"
#include "api/error.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace pelton::access {
namespace {

using testing::HasSubstr;

ApiKeys keys_of(std::string_view file) {
  ApiKeys keys;
  EXPECT_TRUE(keys.add_file(file, "keys").ok());
  return keys;
}

class Gateway {
 public:
  explicit Gateway(std::FILE* log_file)
      : log_(clock_, {.level = base::LogLevel::kNone}),
        access_log_({.format = AccessLog::Format::kJson, .file = log_file}),
        reporter_({.access_log = &access_log_}, clock_),
        control_(keys_of("sk-1 wheel rpm=1\n"), "secret", clock_),
        http_(
            {.address = "127.0.0.1", .port = 0},
            [this](const net::HttpRequest& request,
                   const std::shared_ptr<net::Exchange>& exchange) {
              exchange->send(forward(request));
            },
            log_) {
    EXPECT_TRUE(http_.start().ok());
  }
  ~Gateway() { http_.stop(std::chrono::milliseconds(0)); }

  net::HttpResponse ask(std::string_view key) {
    net::HttpCall call{.method = "POST", .port = http_.port(), .target = "/v1/chat/completions"};
    call.headers.add("x-api-key", std::string(key));
    call.headers.add("Origin", "https://chat.example.org");
    Result<net::HttpResponse> response = net::http_fetch(client_, std::move(call));
    EXPECT_TRUE(response.ok());
    return response.ok() ? *std::move(response) : net::HttpResponse{.status = 0};
  }

  RequestStatistics::Counts counts() const { return statistics_.counts(); }

 private:
  net::HttpResponse forward(const net::HttpRequest& request) {
    TrackedRequest tracked(statistics_, {.handler = "/v1/chat/completions", .method = "POST"});
    tracked.report_to(reporter_, reporter_.begin({.path = request.path,
                                                  .http_method = request.method,
                                                  .remote = request.remote,
                                                  .request_id = "req_1",
                                                  .traceparent = {}}));
    net::HttpResponse response = admitted(request, *tracked.record());
    cors_.add_headers(request.headers.get("Origin"), response.headers);
    tracked.answered(response.status);
    return response;
  }

  net::HttpResponse admitted(const net::HttpRequest& request, RequestRecord& record) {
    const auto principal = control_.identify(AccessControl::credentials_of(request.headers));
    if (!principal) return refusal(api::bad_api_key());
    record.tenant = principal->tenant;
    const auto ticket = control_.admit(*principal, refusals_);
    if (const auto* error = std::get_if<api::ApiError>(&ticket)) return refusal(*error);
    return {.status = 200, .headers = {}, .body = "forwarded"};
  }

  static net::HttpResponse refusal(const api::ApiError& error) {
    return {.status = error.status, .headers = {}, .body = api::error_body(error)};
  }

  const base::SystemClock clock_;
  base::Log log_;
  AccessLog access_log_;
  RequestReporter reporter_;
  RequestStatistics statistics_{clock_};
  AccessControl control_;
  RefusalCounts refusals_;
  const CorsOrigins cors_ = *CorsOrigins::parse({"https://chat.example.org"});
  net::HttpServer http_;
  net::HttpClient client_{{}};
};

TEST(GatewayUse, IdentifiesLimitsAndRecordsWithoutAnEngine) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Gateway gateway(file);
    const net::HttpResponse first = gateway.ask("sk-1");
    EXPECT_EQ(first.status, 200);
    EXPECT_EQ(first.headers.get("Access-Control-Allow-Origin"), "https://chat.example.org");
    EXPECT_EQ(gateway.ask("sk-2").status, 401);
    EXPECT_EQ(gateway.ask("sk-1").status, 429);
    EXPECT_EQ(gateway.counts().received, 3);
    EXPECT_EQ(gateway.counts().ok, 1);
    EXPECT_EQ(gateway.counts().client_errors, 2);
  }
  std::rewind(file);
  std::string lines(4096, '\0');
  lines.resize(std::fread(lines.data(), 1, lines.size(), file));
  std::fclose(file);
  EXPECT_THAT(lines, HasSubstr("\"tenant\":\"wheel\""));
  EXPECT_THAT(lines, HasSubstr("\"status\":401"));
  EXPECT_THAT(lines, HasSubstr("\"status\":429"));
}

}  // namespace
}  // namespace pelton::access
