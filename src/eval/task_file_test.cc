#include "eval/task_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/generated_tasks.h"
#include "eval/judge.h"

namespace pelton::eval {
namespace {

using testing::HasSubstr;

Task parsed(std::string_view line) {
  Result<Task> task = parse_task(*Json::parse(line), "set", 7);
  EXPECT_TRUE(task.ok()) << line << ": " << (task.ok() ? "" : task.error().message);
  return task.ok() ? std::move(*task) : Task{};
}

std::string error_of(std::string_view line) {
  const Result<Task> task = parse_task(*Json::parse(line), "set", 0);
  EXPECT_FALSE(task.ok()) << line;
  return task.ok() ? "" : task.error().message;
}

std::string question(const Task& task) {
  return task.request.find("messages")->as_array().back().string("content").value_or("");
}

TEST(TaskFile, published_shapes_are_read) {
  const Task gsm =
      parsed(R"({"question": "2 and 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 1,004"})");
  EXPECT_EQ(std::get<ExpectNumber>(gsm.expected).number, "1004");
  EXPECT_EQ(gsm.id, "7");

  const Task mmlu = parsed(R"({"question": "Q", "choices": ["x", "y", "z"], "answer": 2})");
  EXPECT_EQ(std::get<ExpectChoice>(mmlu.expected).letter, 'C');
  EXPECT_EQ(std::get<ExpectChoice>(mmlu.expected).count, 3);
  EXPECT_THAT(question(mmlu), HasSubstr("B) y"));
  EXPECT_EQ(std::get<ExpectChoice>(
                parsed(R"({"question": "Q", "choices": ["x", "y"], "answer": "B"})").expected)
                .letter,
            'B');
  const Task arc = parsed(
      R"({"id": "Mercury_1", "question": "Q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"})");
  EXPECT_EQ(std::get<ExpectChoice>(arc.expected).letter, 'B');
  EXPECT_EQ(arc.id, "Mercury_1");

  const Task humaneval = parsed(
      R"({"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f", "test": "def check(g): pass"})");
  EXPECT_EQ(std::get<ExpectProgram>(humaneval.expected).tests, "def check(g): pass\ncheck(f)");
  EXPECT_EQ(humaneval.id, "HumanEval/0");
  const Task mbpp = parsed(
      R"({"task_id": 2, "text": "Add.", "test_setup_code": "x = 1", "test_list": ["assert x", "assert add(1, 2) == 3"]})");
  EXPECT_EQ(std::get<ExpectProgram>(mbpp.expected).tests, "x = 1\nassert x\nassert add(1, 2) == 3");
  EXPECT_THAT(question(mbpp), HasSubstr("assert add(1, 2) == 3"));
  EXPECT_EQ(
      std::get<ExpectProgram>(
          parsed(R"({"prompt": "Add.", "expect": {"tests": "assert add(1, 2) == 3"}})").expected)
          .tests,
      "assert add(1, 2) == 3");
  EXPECT_THAT(error_of(R"({"prompt": "P", "test": "t", "entry_point": "f; import os"})"),
              HasSubstr("entry_point"));
  EXPECT_THAT(error_of(R"({"text": "P", "test_list": []})"), HasSubstr("test_list"));

  const Task ifeval = parsed(
      R"({"key": 1000, "prompt": "P", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})");
  EXPECT_EQ(std::get<ExpectInstructions>(ifeval.expected).instructions.size(), 1);
  EXPECT_EQ(ifeval.id, "1000");

  const Task bfcl = parsed(
      R"({"id": "simple_0", "question": [[{"role": "user", "content": "area?"}]],
          "function": [{"name": "area", "parameters": {"type": "dict", "properties": {"h": {"type": "float"}}}}],
          "ground_truth": [{"area": {"h": [5], "unit": ["", "m"]}}]})");
  EXPECT_TRUE(is_right(bfcl.expected, {.content = "", .calls = {{"area", R"({"h": 5})"}}}));
  EXPECT_EQ(
      bfcl.request.find("tools")->dump(),
      R"([{"type":"function","function":{"name":"area","parameters":{"type":"object","properties":{"h":{"type":"number"}}}}}])");
}

// The right choice by its letter, in either case, or by its text; what could be both is refused.
TEST(TaskFile, choices_are_named_by_letter_or_by_text) {
  const auto letter = [](const char* line) {
    return std::get<ExpectChoice>(parsed(line).expected).letter;
  };
  EXPECT_EQ(letter(R"({"question": "Q", "choices": ["x", "y"], "answer": "b"})"), 'B');
  EXPECT_EQ(letter(R"({"question": "Q", "choices": ["Rome", "Paris"], "answer": "Paris"})"), 'B');
  EXPECT_EQ(letter(R"({"question": "Q", "choices": ["A", "B"], "answer": "B"})"), 'B');
  EXPECT_THAT(error_of(R"({"question": "Q", "choices": ["B", "A", "C"], "answer": "B"})"),
              HasSubstr("none of the 3"));
  const Task own =
      parsed(R"({"prompt": "Which?\n\nA) one\n(B) two\n**C** three", "expect": {"choice": "c"}})");
  EXPECT_EQ(std::get<ExpectChoice>(own.expected).letter, 'C');
  EXPECT_EQ(std::get<ExpectChoice>(own.expected).count, 3);
  EXPECT_EQ(std::get<ExpectChoice>(
                parsed(R"({"prompt": "A letter?", "expect": {"choice": "X"}})").expected)
                .count,
            26);
}

TEST(TaskFile, numbers_are_compared_as_decimals_however_they_are_written) {
  const auto is_right_of = [](const char* number, const char* answer) {
    const std::string line =
        fmt::format(R"({{"prompt": "p", "expect": {{"number": {}}}}})", number);
    return is_right(parsed(line).expected, {.content = answer, .calls = {}});
  };
  EXPECT_TRUE(is_right_of("100000.0", "It is 100,000."));
  EXPECT_TRUE(is_right_of("1e5", "100000"));
  EXPECT_TRUE(is_right_of("0.00001", "0.00001"));
  EXPECT_TRUE(is_right_of("1e22", "10000000000000000000000"));
  EXPECT_TRUE(is_right_of("-2.5", "-2.50"));
  EXPECT_FALSE(is_right_of("100000.0", "5"));
}

TEST(TaskFile, own_shape_has_each_kind) {
  EXPECT_EQ(std::get<ExpectNumber>(parsed(R"({"prompt": "1+1", "expect": {"number": 2}})").expected)
                .number,
            "2");
  EXPECT_EQ(parsed(R"({"prompt": "a", "expect": {"text": ["b", "c"]}})").expected.index(), 2u);
  EXPECT_EQ(parsed(R"({"messages": [], "expect": {"json": null}})").expected.index(), 3u);
  EXPECT_EQ(parsed(R"({"prompt": "a", "expect": {"schema": {"type": "null"}}})").expected.index(),
            4u);
  const Task calls = parsed(
      R"({"prompt": "a", "tools": [], "tool_choice": "required", "expect": {"calls": [{"name": "f", "arguments": {"x": 1}}]}})");
  EXPECT_TRUE(is_right(calls.expected, {.content = "", .calls = {{"f", R"({"x":1})"}}}));
  EXPECT_NE(calls.request.find("tool_choice"), nullptr);
}

TEST(TaskFile, what_is_wrong_is_said) {
  EXPECT_THAT(error_of("[]"), HasSubstr("object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("none of the shapes"));
  EXPECT_THAT(error_of(R"({"prompt": "p", "test": "def check(): ..."})"), HasSubstr("entry_point"));
  EXPECT_THAT(error_of(R"({"question": "Q", "choices": ["x", "y"], "answer": 2})"),
              HasSubstr("choice"));
  EXPECT_THAT(error_of(R"({"question": "Q", "choices": ["x"], "answer": 0})"),
              HasSubstr("2 to 26"));
  EXPECT_THAT(error_of(R"({"question": "Q", "answer": "#### none"})"), HasSubstr("no number"));
  EXPECT_THAT(error_of(R"({"question": [[]], "function": []})"), HasSubstr("possible_answer"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "expect": {"rhyme": 1}})"), HasSubstr("rhyme"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "expect": {"number": 1}, "tool": []})"),
              HasSubstr("`tool`"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "expect": {"schema": {"type": "nothing"}}})"),
              HasSubstr("schema"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "instruction_id_list": ["x:y"], "kwargs": [{}]})"),
              HasSubstr("x:y"));
}

TEST(TaskFile, lines_are_named_and_bounded) {
  const std::string one = R"({"id": "a", "prompt": "1+1", "expect": {"number": 2}})";
  const Result<std::vector<Task>> two = parse_tasks(one + "\n\n" + one, "file");
  ASSERT_FALSE(two.ok());
  EXPECT_THAT(two.error().message, HasSubstr("line 3"));
  EXPECT_THAT(two.error().message, HasSubstr("twice"));
  EXPECT_EQ(parse_tasks(one, "file")->size(), 1);
  EXPECT_EQ(parse_tasks("\xEF\xBB\xBF" + one, "file")->size(), 1);
  EXPECT_THAT(parse_tasks("\n \n", "file").error().message, HasSubstr("no task"));
  EXPECT_THAT(parse_tasks("{\"prompt\": \"\xff\"}", "file").error().message, HasSubstr("line 1"));
  EXPECT_THAT(parse_tasks(std::string(kTaskLineMax + 1, ' ') + "x", "file").error().message,
              HasSubstr("bytes"));
}

TEST(GeneratedTasks, are_the_same_for_a_seed_and_right_by_their_own_answers) {
  for (const std::string_view name : generated_sets()) {
    const std::vector<Task> tasks = *generate_tasks(name, 3, 40);
    ASSERT_EQ(tasks.size(), 40);
    const std::vector<Task> fewer = *generate_tasks(name, 3, 10);
    const std::vector<Task> others = *generate_tasks(name, 4, 40);
    int same = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (i < fewer.size()) {
        EXPECT_EQ(tasks[i].request, fewer[i].request);
      }
      same += tasks[i].request == others[i].request ? 1 : 0;
      EXPECT_EQ(tasks[i].set, name);
    }
    EXPECT_LT(same, 20) << name;
    EXPECT_FALSE(describe_set(name).empty());
  }
  EXPECT_FALSE(generate_tasks("poems", 1, 1).ok());
}

// What a client sent, without how it was sampled and how it travelled.
TEST(TaskFile, recorded_requests_are_tasks) {
  const std::string body =
      R"({"model":"m","stream":true,"temperature":1.2,"seed":4,"max_tokens":3,"user":"u",)"
      R"("messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low",)"
      R"("tools":[{"type":"function","function":{"name":"f"}}],)"
      R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}}})";
  const auto tasks = parse_tasks(
      body + "\n" + R"({"custom_id":"c7","method":"POST","url":"/v1/chat/completions","body":)" +
          body + "}\n",
      "recorded");
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  ASSERT_EQ(tasks->size(), 2u);
  EXPECT_EQ((*tasks)[0].id, "0");
  EXPECT_EQ((*tasks)[1].id, "c7");
  for (const Task& task : *tasks) {
    const auto& expected = std::get<ExpectAnswer>(task.expected);
    EXPECT_TRUE(expected.is_json);
    EXPECT_TRUE(expected.schema);
    EXPECT_EQ(expected.tools, std::vector<std::string>{"f"});
    EXPECT_EQ(task.request.string("reasoning_effort"), "low");
    EXPECT_NE(task.request.find("tools"), nullptr);
    for (const char* const left :
         {"model", "stream", "temperature", "seed", "max_tokens", "user"}) {
      EXPECT_EQ(task.request.find(left), nullptr) << left;
    }
  }
  const auto error = [](const std::string& line) {
    return parse_tasks(line, "recorded").error().message;
  };
  EXPECT_NE(error(R"({"timestamp":1,"input_length":3,"output_length":4})").find("numbers only"),
            std::string::npos);
  EXPECT_NE(error(R"({"custom_id":"a","url":"/v1/embeddings","body":{}})").find("/v1/embeddings"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages":[]})").find("messages"), std::string::npos);
  EXPECT_NE(error(R"({"body":3})").find("body"), std::string::npos);
}

}  // namespace
}  // namespace pelton::eval
