#include "gateway/event_log.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::gateway {
namespace {

// All behind that number, as "kind name: was -> is".
std::vector<std::string> all(const EventLog& log, int64_t number) {
  std::vector<std::string> events;
  for (;;) {
    const EventLog::Event event = log.after(number);
    if (event.text.empty()) return events;
    EXPECT_NE(event.number, number);
    number = event.number;
    const Result<Json> json = Json::parse(event.text);
    EXPECT_TRUE(json.ok()) << event.text;
    EXPECT_EQ(json->integer("n"), number);
    events.push_back(json->string("kind").value_or("") + " " + json->string("name").value_or("") +
                     ": " + json->string("was").value_or("") + " -> " +
                     json->string("is").value_or(""));
  }
}

TEST(EventLog, SaysWhatBecomesAnother) {
  EventLog log(1000);
  EXPECT_TRUE(all(log, 0).empty());
  log.note_states("worker", {{"a", "joining"}}, 1);
  log.note_states("worker", {{"a", "joining"}}, 2);
  log.note_states("worker", {{"a", "ready"}, {"b", "joining"}}, 3);
  log.note_states("rollout", {{"a", "running"}}, 4);
  log.note_states("worker", {{"b", "joining"}}, 5);
  log.note({.kind = "configuration", .name = "3", .who = "ann", .changes = {"+ pool c"}}, 6);
  EXPECT_EQ(all(log, 0),
            (std::vector<std::string>{"worker a:  -> joining", "worker a: joining -> ready",
                                      "worker b:  -> joining", "rollout a:  -> running",
                                      "worker a: ready -> ", "configuration 3:  -> "}));
  EXPECT_EQ(all(log, 1003),
            (std::vector<std::string>{"worker a: ready -> ", "configuration 3:  -> "}));
  EXPECT_TRUE(all(log, 1005).empty());
}

TEST(EventLog, SaysHowManyAreNotKeptAnyMore) {
  EventLog log(1000);
  const auto count = static_cast<int>(EventLog::kEventsMax) + 10;
  for (int i = 0; i < count; ++i) log.note_states("worker", {{"a", std::to_string(i)}}, i);
  const EventLog::Event missed = log.after(1004);
  EXPECT_EQ(missed.text, R"({"n":1009,"kind":"missed","count":5})");
  EXPECT_EQ(all(log, 1004).size(), EventLog::kEventsMax + 1);
  EXPECT_EQ(all(log, 1009).size(), EventLog::kEventsMax) << "none is missing";
  EXPECT_EQ(all(log, 0).size(), EventLog::kEventsMax) << "whoever is new has missed nothing";
  // Of another process's nobody knows.
  EXPECT_EQ(log.after(17).text, R"({"n":1009,"kind":"missed","count":-1})");
  EXPECT_EQ(log.after(999'999).text, R"({"n":1009,"kind":"missed","count":-1})");
  // A process that has said nothing yet is asked by one who knew the one before.
  EXPECT_EQ(EventLog(2000).after(1500).text, R"({"n":1999,"kind":"missed","count":-1})");
  EXPECT_EQ(EventLog(2000).after(1999).text, "");
}

}  // namespace
}  // namespace pelton::gateway
