#include "net/sse.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::net {
namespace {

struct Parsed {
  std::vector<SseEvent> events;
  bool ok = true;
};

Parsed parse(std::string_view text, size_t step, SseParser::Options options = {}) {
  SseParser parser(options);
  Parsed parsed;
  for (size_t at = 0; at < text.size(); at += step) {
    const Result<void> fed = parser.feed(
        text.substr(at, step), [&](const SseEvent& event) { parsed.events.push_back(event); });
    if (!fed) parsed.ok = false;
  }
  return parsed;
}

TEST(Sse, WritesEvents) {
  std::string out;
  append_sse_data(out, "{\"a\":1}");
  append_sse_event(out, "delta", "x");
  append_sse_comment(out, "ping");
  EXPECT_EQ(out, "data: {\"a\":1}\n\nevent: delta\ndata: x\n\n: ping\n\n");
}

TEST(Sse, LineBreaksInDataStayInsideOneEvent) {
  std::string out;
  append_sse_data(out, "a\nb\r\nc\rd\n\ndata: [DONE]\n");
  const Parsed parsed = parse(out, 1);
  ASSERT_EQ(parsed.events.size(), 1u);
  EXPECT_EQ(parsed.events[0].data, "a\nb\nc\nd\n\ndata: [DONE]\n");
}

TEST(Sse, ParsesWhatTheStandardAllows) {
  const std::string text =
      "\xEF\xBB\xBF"
      ": comment\r\n\r\nevent:e\rdata:1\rdata\r\rid: 7\ndata:  two\nunknown: x\n\ndata: half";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Parsed parsed = parse(text, step);
    ASSERT_EQ(parsed.events.size(), 2u) << step;
    EXPECT_EQ(parsed.events[0].event, "e");
    EXPECT_EQ(parsed.events[0].data, "1\n");
    EXPECT_EQ(parsed.events[1].event, "");
    EXPECT_EQ(parsed.events[1].data, " two");
    EXPECT_EQ(parsed.events[1].id, "7");
  }
}

TEST(Sse, RoundTripsAnything) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> sent;
    std::string wire;
    for (uint64_t n = random() % 5 + 1; n > 0; --n) {
      std::string data;
      for (uint64_t size = random() % 20; size > 0; --size) {
        data += "ab: \n"[random() % 5];
      }
      append_sse_data(wire, data);
      sent.push_back(data);
    }
    const Parsed parsed = parse(wire, 1 + random() % 7);
    ASSERT_EQ(parsed.events.size(), sent.size());
    for (size_t n = 0; n < sent.size(); ++n) EXPECT_EQ(parsed.events[n].data, sent[n]);
  }
}

TEST(Sse, EventsAreBounded) {
  const SseParser::Options small{.event_bytes_max = 100};
  EXPECT_FALSE(parse("data: " + std::string(200, 'a'), 1, small).ok);
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "data:\n";
  EXPECT_FALSE(parse(lines, 3, small).ok);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "data: x\n\n";
  EXPECT_EQ(parse(many, 3, small).events.size(), 200u);
}

}  // namespace
}  // namespace pelton::net
