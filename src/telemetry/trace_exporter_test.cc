// Collectors that misbehave: what they do costs spans, never time.
#include "telemetry/trace_exporter.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "net/http_server.h"

namespace pelton::telemetry {
namespace {

using std::chrono::milliseconds;

// An answer that never ends, a byte at a time.
void trickle(const std::shared_ptr<net::Exchange>& exchange) {
  exchange->write("x");
  exchange->post_after(milliseconds(20), [exchange] { trickle(exchange); });
}

class Collectors : public testing::Test {
 protected:
  using Handler = std::function<void(const std::shared_ptr<net::Exchange>&)>;

  // The spans that got through; all are over when it returns, or it does not return.
  int64_t exported_to(Handler handler) {
    net::HttpServer collector(
        {.port = 0},
        [&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) { handler(exchange); },
        log_);
    EXPECT_TRUE(collector.start().ok());
    auto exporter = std::move(
        TraceExporter::create({.url = fmt::format("http://127.0.0.1:{}", collector.port()),
                               .batch_max = 1,
                               .gather = milliseconds(1),
                               .post_time_max = milliseconds(300)},
                              log_)
            .value());
    for (int i = 0; i < 3; ++i) exporter->offer({Span{.name = "one"}});
    while (exporter->exported() + exporter->dropped() < 3) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    const int64_t exported = exporter->exported();
    exporter->offer({Span{.name = "amid which it is closed"}});
    exporter.reset();
    collector.stop(milliseconds(0));
    return exported;
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

TEST_F(Collectors, AGoodOneGetsAll) {
  EXPECT_EQ(exported_to([](const auto& exchange) { exchange->send({.status = 200}); }), 3);
}

TEST_F(Collectors, D_AnEndlessAnswerEnds) {
  EXPECT_EQ(exported_to([](const auto& exchange) {
              exchange->start_stream(200, {});
              trickle(exchange);
            }),
            0);
}

TEST_F(Collectors, D_ASilentOneIsLeft) {
  std::vector<std::shared_ptr<net::Exchange>> held;
  EXPECT_EQ(exported_to([&](const auto& exchange) { held.push_back(exchange); }), 0);
}

TEST_F(Collectors, D_ALargeAnswerIsCut) {
  EXPECT_EQ(exported_to([](const auto& exchange) {
              exchange->send({.status = 200, .body = std::string(size_t{1} << 20, 'x')});
            }),
            0);
}

}  // namespace
}  // namespace pelton::telemetry
