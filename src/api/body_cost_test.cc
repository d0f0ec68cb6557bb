// JB-11 of the catalogue of bad inputs: however many values a body holds and whatever they are,
// reading it costs less than ten milliseconds a megabyte. Of the processor's time, so that other
// programs on the machine count little.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include "api/chat_request.h"
#include "api/completion_request.h"

namespace pelton::api {
namespace {

constexpr RequestLimits kLimits{.vocab_size = 1000};
constexpr std::string_view kChat = R"("messages":[{"role":"user","content":"hi"}])";
constexpr std::string_view kText = R"("prompt":"hi")";

double thread_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// The best of some runs, for a megabyte. `members` stand behind those that a body needs.
template <typename Read>
double cost_ms(std::string_view needed, const std::string& members, const Read& read) {
  const std::string body = fmt::format("{{{},{}}}", needed, members);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < (std::getenv("PELTON_FULL") != nullptr ? 7 : 2); ++i) {
    ::malloc_trim(0);  // as in a server that has not just read another one like it
    const double began = thread_ms();
    {
      const auto request = read(body, kLimits);
      EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.error().message);
    }
    best = std::min(best, thread_ms() - began);
  }
  return best / (static_cast<double>(body.size()) * 1e-6);
}

std::string with_array(std::string_view item, int count) {
  std::string members = fmt::format("\"unknown\":[{}", item);
  for (int i = 1; i < count; ++i) members += fmt::format(",{}", item);
  return members + "]";
}

TEST(BodyCost, JB_11_less_than_ten_milliseconds_a_megabyte) {
  std::string keys = "\"k\":1";
  for (int i = 0; i < 500'000; ++i) keys += fmt::format(",\"k{}\":1", i);
  const std::pair<const char*, std::string> bodies[] = {
      {"unknown keys", keys},
      {"numbers", with_array("1", 900'000)},
      {"empty objects", with_array("{}", 900'000)},
      {"empty texts", with_array("\"\"", 900'000)},
      {"small objects", with_array(R"({"a":1})", 450'000)},
      {"one text", with_array('"' + std::string(20'000'000, 'x') + '"', 1)},
      {"escapes", with_array('"' + std::string(4'000'000, '\\') + '"', 1)},
  };
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // On a machine that does nothing else. Another's may have other work on the other half of each
  // core, where this took 25, or be another's in part, where it took 105; a cost that is not linear
  // would be seconds.
  const double most = std::getenv("PELTON_FULL") != nullptr ? 10 : 600;
#else
  const double most = 300;  // what checks every access takes its time
#endif
  for (const auto& [what, body] : bodies) {
    const double chat = cost_ms(kChat, body, parse_chat_request);
    const double completion = cost_ms(kText, body, parse_completion_request);
    fmt::print("{}: {:.1f} ms a megabyte for chat, {:.1f} for completions\n", what, chat,
               completion);
    EXPECT_LT(chat, most) << what;
    EXPECT_LT(completion, most) << what;
  }
}

// A body of many members is read by another way: it must see the same.
TEST(BodyCost, a_member_is_found_among_thousands) {
  std::string many;
  for (int i = 0; i < 3000; ++i) many += fmt::format(",\"k{}\":{}", i, i);
  const auto model = [&](const std::string& end) {
    return parse_chat_request(fmt::format("{{{}{}{}}}", kChat, many, end), kLimits);
  };
  EXPECT_EQ(model(R"(,"model":"a","modes":"c","mudel":"d")")->model, "a");
  EXPECT_EQ(model(R"(,"model":null)")->model, "");
  const auto refused = model(R"(,"model":7)");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "model");
}

}  // namespace
}  // namespace pelton::api
