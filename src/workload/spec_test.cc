#include "workload/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::workload {
namespace {

using testing::HasSubstr;

Result<WorkloadSpec> parse(const std::string& text) {
  return parse_spec(*Json::parse(text), "w.json");
}

TEST(WorkloadSpec, AFileGivesTheSameRequestsEachTime) {
  const Result<WorkloadSpec> spec = parse(
      R"({"preset":"prefill-heavy","output_tokens":7,"count":5,"rate":2,"seed":3,"turns":2})");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->lengths.input_tokens, 2048);
  const Vocabulary vocabulary = ids_vocabulary(1000);
  const Result<Workload> one = make_workload(*spec, vocabulary);
  const Result<Workload> two = make_workload(*spec, vocabulary);
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(one->conversations.size(), 5u);
  EXPECT_EQ(one->conversations[4].turns.size(), 2u);
  EXPECT_EQ(one->conversations[0].turns[0].ids.size(), 2048u);
  EXPECT_EQ(one->conversations[0].turns[0].output_tokens, 7);
  EXPECT_EQ(one->at_s, two->at_s);
  EXPECT_EQ(one->conversations[3].turns[1].ids, two->conversations[3].turns[1].ids);
  EXPECT_NEAR(one->at_s.back(), 2.5, 1e-9);
}

TEST(WorkloadSpec, RefusesWhatItDoesNotUnderstand) {
  EXPECT_THAT(parse(R"({"inptu_tokens":5})").error().message, HasSubstr("inptu_tokens"));
  EXPECT_THAT(parse(R"({"rate":-1})").error().message, HasSubstr("rate"));
  EXPECT_THAT(parse(R"({"dataset":"x"})").error().message, HasSubstr("sharegpt"));
  EXPECT_THAT(parse(R"({"dataset":"trace"})").error().message, HasSubstr("'file' is missing"));
  EXPECT_THAT(parse(R"({"file":"a"})").error().message, HasSubstr("of no use"));
  EXPECT_THAT(parse(R"({"ramp":{"shape":"round"}})").error().message, HasSubstr("exponential"));
  EXPECT_THAT(parse("[]").error().message, HasSubstr("object"));
  EXPECT_THAT(parse(R"({"inptu_tokens":5})").error().message, HasSubstr("'input_tokens'?"));
}

// What is within an object, and what means nothing for this data set, too.
TEST(WorkloadSpec, RefusesKeysThatWouldBeIgnored) {
  const auto error = [](const char* text) {
    const Result<WorkloadSpec> spec = parse(text);
    return spec.ok() ? std::string("taken") : spec.error().message;
  };
  EXPECT_THAT(error(R"({"ramp":{"start_rps":1,"stop_rps":9}})"), HasSubstr("'stop_rps'"));
  EXPECT_THAT(error(R"({"day":{"swin":0.5}})"), HasSubstr("did you mean 'swing'?"));
  EXPECT_THAT(error(R"({"day":0.5})"), HasSubstr("object"));
  EXPECT_THAT(error(R"({"spikes":[{"at_s":1,"fors":9,"rps":3}]})"), HasSubstr("'for_s'?"));
  EXPECT_THAT(error(R"({"suffix_tokens":5})"), HasSubstr("no effect on the data set random"));
  EXPECT_THAT(error(R"({"dataset":"prefix_repetition","input_tokens":5})"),
              HasSubstr("'input_tokens' has no effect"));
  EXPECT_THAT(error(R"({"dataset":"trace","file":"f","rate":5})"), HasSubstr("'rate'"));
  EXPECT_THAT(error(R"({"speed":2})"), HasSubstr("'speed'"));
  EXPECT_EQ(error(R"({"dataset":"trace","file":"f","speed":2})"), "taken");
}

}  // namespace
}  // namespace pelton::workload
