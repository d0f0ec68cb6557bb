#include "server/fault_injection.h"

#include <gtest/gtest.h>

namespace pelton::server {
namespace {

TEST(FaultInjection, WhatIsLeftOutIsOff) {
  FaultInjection injection;
  EXPECT_EQ(faults_body(injection.now()),
            R"({"hang":false,"slow":1.0,"errors":0.0,"drop_events":0.0})");
  const Result<Faults> all = parse_faults(
      R"({"hang":true,"slow":2.5,"errors":0.2,"drop_events":1,"abort_on":"x","lie_load":-1})");
  ASSERT_TRUE(all.ok());
  injection.set(*all);
  EXPECT_EQ(
      faults_body(injection.now()),
      R"({"hang":true,"slow":2.5,"errors":0.2,"drop_events":1.0,"abort_on":"x","lie_load":-1.0})");
  const Result<Faults> none = parse_faults("{}");
  ASSERT_TRUE(none.ok());
  injection.set(*none);
  EXPECT_FALSE(injection.now().hang);
  EXPECT_FALSE(injection.now().lie_load);
}

TEST(FaultInjection, RefusesWhatIsNone) {
  for (const auto& [text, field] : {std::pair{R"({"hang":1})", "hang"},
                                    {R"({"slow":0.5})", "slow"},
                                    {R"({"errors":1.1})", "errors"},
                                    {R"({"drop_events":-1})", "drop_events"},
                                    {R"({"lie_load":"much"})", "lie_load"},
                                    {R"({"abort_on":""})", "abort_on"},
                                    {R"({"hung":true})", "hung"},
                                    {"[]", ""}}) {
    const Result<Faults> faults = parse_faults(text);
    ASSERT_FALSE(faults.ok()) << text;
    EXPECT_EQ(faults.error().field, field) << text;
  }
  EXPECT_FALSE(parse_faults("{").ok());
}

}  // namespace
}  // namespace pelton::server
