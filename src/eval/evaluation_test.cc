#include "eval/evaluation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::eval {
namespace {

using testing::HasSubstr;

Evaluation evaluation_of(const std::vector<std::pair<const char*, std::vector<int>>>& sets) {
  Evaluation evaluation{.setting = {.model = "m", .sampling = Json(Json::Object{}), .tasks = "t"},
                        .outcomes = {}};
  for (const auto& [set, rights] : sets) {
    for (size_t i = 0; i < rights.size(); ++i) {
      evaluation.outcomes.push_back({.set = set,
                                     .id = std::to_string(i),
                                     .is_right = rights[i] == 1,
                                     .error = rights[i] == 2 ? "status 500: broken" : "",
                                     .finish_reason = "stop",
                                     .answer = "<b>&\x1b[2J",
                                     .prompt_tokens = 3,
                                     .completion_tokens = 4});
    }
  }
  return evaluation;
}

TEST(Evaluation, scores_count_by_set_and_in_all) {
  const std::vector<SetScore> rows = scores(evaluation_of({{"a", {1, 0, 1, 2}}, {"b", {1}}}));
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0].share(), 0.5);
  EXPECT_EQ(rows[0].errors, 1);
  EXPECT_EQ(rows[2].set, "all");
  EXPECT_EQ(rows[2].right, 3);
  EXPECT_EQ(scores(evaluation_of({{"a", {1}}})).size(), 1);
  EXPECT_TRUE(scores({}).empty());
}

TEST(Evaluation, a_result_file_is_read_back_as_it_was) {
  const Evaluation before = evaluation_of({{"a", {1, 2}}, {"b", {0}}});
  const std::string text = result_text(before);
  const Result<Evaluation> after = parse_result(text, "f.json");
  ASSERT_TRUE(after.ok()) << after.error().message;
  Evaluation expected = before;
  expected.outcomes[1].answer = "";  // of one without an answer nothing else is kept
  expected.outcomes[1].finish_reason = "";
  expected.outcomes[1].prompt_tokens = expected.outcomes[1].completion_tokens = 0;
  EXPECT_EQ(result_text(*after), result_text(expected));
  EXPECT_EQ(result_text(*after), text);
  EXPECT_THAT(parse_result("{}", "f.json").error().message, HasSubstr("f.json"));
  EXPECT_THAT(parse_result("{\"pelton_eval\": 9}", "f.json").error().message,
              HasSubstr("format 9"));
  EXPECT_FALSE(parse_result("{\"pelton_eval\": 1}", "f").ok());
  EXPECT_FALSE(parse_result("{\"pelton_eval\": 1, \"outcomes\": [{}]}", "f").ok());
}

TEST(Evaluation, comparison_pairs_the_tasks_that_both_have) {
  const Evaluation a = evaluation_of({{"a", {1, 1, 0, 1}}, {"old", {1}}});
  const Evaluation b = evaluation_of({{"a", {1, 0, 0, 1, 1}}, {"new", {1}}});
  const Result<std::vector<SetComparison>> sets = compare(a, b);
  ASSERT_TRUE(sets.ok());
  ASSERT_EQ(sets->size(), 1);
  EXPECT_EQ((*sets)[0].tasks, 4);
  EXPECT_EQ((*sets)[0].only_a, 1);
  EXPECT_EQ((*sets)[0].only_b, 0);
  EXPECT_EQ((*sets)[0].a, 0.75);
  EXPECT_EQ((*sets)[0].b, 0.5);
  const Json numbers = figures(b, *sets);
  EXPECT_EQ(numbers.number("drop"), 0.25);
  EXPECT_EQ(numbers.number("a.drop"), 0.25);
  EXPECT_EQ(numbers.number("p"), 1);
  EXPECT_NEAR(*numbers.number("score"), 4.0 / 6, 1e-12);
  EXPECT_FALSE(compare(a, evaluation_of({{"z", {1}}})).ok());
}

TEST(Evaluation, pages_and_tables_are_harmless_whatever_was_answered) {
  Evaluation evaluation = evaluation_of({{"<script>", {0, 1}}, {"b", {2}}});
  const std::string page = result_page(evaluation, {}, {});
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_THAT(page, HasSubstr("no answer: status 500"));
  evaluation.outcomes[0].set = "x\x1b[2J";
  EXPECT_EQ(scores_text(evaluation, 80).find('\x1b'), std::string::npos);
}

TEST(Evaluation, digests_know_tasks_and_settings) {
  Task task{.set = "s", .id = "1", .request = Json(Json::Object{}), .expected = ExpectNumber{"1"}};
  const std::string one = tasks_digest({task});
  task.expected = ExpectNumber{"2"};
  const std::string other = tasks_digest({task});
  EXPECT_NE(one, other);
  task.expected = ExpectText{{"2"}};
  EXPECT_NE(tasks_digest({task}), other);
  Setting setting{.model = "m", .sampling = Json(Json::Object{{"seed", 1}}), .tasks = one};
  const std::string before = setting_digest(setting);
  setting.sampling.set("seed", 2);
  EXPECT_NE(setting_digest(setting), before);
}

// Which answers are the same word for word, and which are longer: of those that both gave.
TEST(Evaluation, comparison_says_how_many_answers_are_the_same) {
  Evaluation a = evaluation_of({{"r", {1, 1, 1, 1, 1, 1, 1, 2}}});
  Evaluation b = a;
  for (size_t i = 0; i < 6; ++i) b.outcomes[i].completion_tokens = 10;
  b.outcomes[0].answer = "other";
  const SetComparison one = compare(a, b)->front();
  EXPECT_EQ(one.answered, 7);
  EXPECT_EQ(one.same, 6);
  EXPECT_DOUBLE_EQ(one.tokens_a, 4);
  EXPECT_DOUBLE_EQ(one.tokens_b, (6 * 10 + 4) / 7.0);
  EXPECT_GT(one.tokens_difference.low, 0);
  EXPECT_DOUBLE_EQ(one.tokens_p, mcnemar_p(0, 6));
  EXPECT_DOUBLE_EQ(*figures(b, {one}).number("same"), 6 / 7.0);
  EXPECT_THAT(comparison_text({one}, {.name = "a"}, "b", 0), HasSubstr("85.7 %"));
  EXPECT_THAT(result_page(b, {one}, {.name = "a"}), HasSubstr("same answer"));
}

// Another task under the same name is none that both have; what else was not alike is said.
TEST(Evaluation, only_the_same_tasks_are_compared) {
  Evaluation a = evaluation_of({{"s", {1, 1, 0}}});
  for (Outcome& one : a.outcomes) one.task = "d" + one.id;
  Evaluation b = a;
  b.setting.tasks = "of fewer";
  b.outcomes.pop_back();  // --limit: what both have is compared
  EXPECT_EQ(compare(a, b)->front().tasks, 2);
  b.outcomes[1].task = "other";
  const Result<std::vector<SetComparison>> refused = compare(a, b);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("task '1' of 's'"));
  // A file that does not say what each was asked: the tasks as a whole decide.
  for (Outcome& one : b.outcomes) one.task.clear();
  EXPECT_FALSE(compare(a, b).ok());
  b.setting.tasks = a.setting.tasks;
  EXPECT_TRUE(compare(a, b).ok());
  EXPECT_EQ(parse_result(result_text(a), "f")->outcomes[2].task, "d2");
  const Task task{
      .set = "s", .id = "1", .request = Json(Json::Object{}), .expected = ExpectNumber{"1"}};
  Task other = task;
  other.request.set("messages", Json());
  EXPECT_NE(task_digest(task), task_digest(other));
}

TEST(Evaluation, a_comparison_says_what_was_not_alike) {
  Evaluation a = evaluation_of({{"s", {1}}});
  a.setting.sampling = Json(Json::Object{{"temperature", 0}, {"top_k", 1}});
  a.setting.server = Json(Json::Object{{"chat_template", "x"}});
  Evaluation b = a;
  EXPECT_TRUE(setting_differences(a.setting, b.setting).empty());
  b.setting.sampling = Json(Json::Object{{"temperature", 1}, {"min_p", 0.5}});
  b.setting.server.set("chat_template", "y");
  const Against against{.name = "a", .differences = setting_differences(a.setting, b.setting)};
  EXPECT_THAT(against.differences,
              testing::ElementsAre("temperature 0, now 1", "top_k 1, now unset",
                                   "min_p unset, now 0.5", "chat_template \"x\", now \"y\""));
  const std::vector<SetComparison> sets = *compare(a, b);
  EXPECT_THAT(comparison_text(sets, against, "b", 0), HasSubstr("temperature 0, now 1"));
  EXPECT_THAT(result_page(b, sets, against), HasSubstr("top_k 1, now unset"));
}

// What a server says that it computes with is part of the experiment.
TEST(Evaluation, a_result_names_the_template_and_the_formats) {
  Evaluation one = evaluation_of({{"a", {1}}});
  const std::string without = setting_digest(one.setting);
  one.setting.server = Json(Json::Object{{"chat_template", "harmony"}, {"kv_dtype", "bf16"}});
  EXPECT_NE(setting_digest(one.setting), without);
  const std::string text = result_text(one);
  EXPECT_THAT(text, HasSubstr(R"("server":{"chat_template":"harmony","kv_dtype":"bf16"})"));
  EXPECT_EQ(result_text(*parse_result(text, "f")), text);
  EXPECT_THAT(result_page(one, {}, {}), HasSubstr("harmony"));
}

}  // namespace
}  // namespace pelton::eval
