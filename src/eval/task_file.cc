#include "eval/task_file.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "eval/instruction_checks.h"
#include "eval/judge.h"
#include "grammar/json_schema.h"

namespace pelton::eval {
namespace {

Error wrong(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

Json user_message(std::string text) {
  Json message;
  message.set("role", "user").set("content", std::move(text));
  return Json(Json::Array{std::move(message)});
}

Json asking(std::string text) {
  Json request;
  request.set("messages", user_message(std::move(text)));
  return request;
}

constexpr int kChoicesMax = 26;  // letters that there are

Result<Expectation> choice_of(char letter, size_t count) {
  if (count < 2 || count > kChoicesMax) return wrong("there must be 2 to 26 choices");
  if (letter < 'A' || letter >= static_cast<char>('A' + count)) {
    return wrong(fmt::format("the right choice is none of the {} that there are", count));
  }
  return Expectation(ExpectChoice{.letter = letter, .count = static_cast<int>(count)});
}

std::string choices_text(const std::string& question, const std::vector<std::string>& choices) {
  std::string text = question + "\n";
  for (size_t i = 0; i < choices.size(); ++i) {
    text += fmt::format("\n{}) {}", static_cast<char>('A' + i), choices[i]);
  }
  return text + "\n\nAnswer with the letter of the right choice, as in \"Answer: A\".";
}

Result<std::vector<std::string>> strings_of(const Json* value, const char* name) {
  if (value == nullptr || !value->is_array())
    return wrong(fmt::format("`{}` wants an array", name));
  std::vector<std::string> texts;
  for (const Json& one : value->as_array()) {
    if (!one.is_string()) return wrong(fmt::format("`{}` wants strings", name));
    texts.push_back(one.as_string());
  }
  return texts;
}

char upper(char letter) {
  return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}

// The letter of the right one of `texts`, whose answer is its letter or its text; 0: neither, or
// the two say different things (choices that are letters themselves).
char letter_of(const std::string& said, const std::vector<std::string>& texts) {
  const auto text = std::ranges::find(texts, said);
  const char by_text = text == texts.end() ? '\0' : static_cast<char>('A' + (text - texts.begin()));
  const char by_letter = said.size() == 1 ? upper(said.front()) : '\0';
  const bool is_letter =
      by_letter >= 'A' && by_letter < 'A' + static_cast<int>(std::min<size_t>(texts.size(), 26));
  if (!is_letter) return by_text;
  return by_text == '\0' || by_text == by_letter ? by_letter : '\0';
}

// `answer`: the index of the right one, its letter or its text, or (labels given) its label.
Result<Task> choice_task(const std::string& question, const Json& choices, const Json* answer) {
  Task task;
  std::vector<std::string> labels;
  std::vector<std::string> texts;
  if (choices.is_object()) {
    TRY_ASSIGN(texts, strings_of(choices.find("text"), "choices.text"));
    TRY_ASSIGN(labels, strings_of(choices.find("label"), "choices.label"));
    if (labels.size() != texts.size()) return wrong("`choices` has as many labels as texts");
  } else {
    TRY_ASSIGN(texts, strings_of(&choices, "choices"));
  }
  char letter = 0;
  if (answer != nullptr && answer->is_integer() && labels.empty()) {
    const int64_t index = answer->as_integer();
    if (index >= 0 && index < kChoicesMax) letter = static_cast<char>('A' + index);
  } else if (answer != nullptr && answer->is_string()) {
    const std::string& said = answer->as_string();
    const auto label = std::ranges::find(labels, said);
    if (label != labels.end()) letter = static_cast<char>('A' + (label - labels.begin()));
    if (labels.empty()) letter = letter_of(said, texts);
  }
  TRY_ASSIGN(task.expected, choice_of(letter, texts.size()));
  task.request = asking(choices_text(question, texts));
  return task;
}

Result<Task> number_task(const std::string& question, const std::string& answer) {
  const size_t mark = answer.find("####");
  const auto number =
      last_number(std::string_view(answer).substr(mark == std::string::npos ? 0 : mark + 4));
  if (!number) return wrong("`answer` has no number");
  Task task;
  task.request = asking(question + "\n\nEnd your answer with the number alone in the last line.");
  task.expected = ExpectNumber{*number};
  return task;
}

Result<Task> instructions_task(const Json& line) {
  const std::optional<std::string> prompt = line.string("prompt");
  if (!prompt) return wrong("`prompt` wants a string");
  TRY_ASSIGN(const std::vector<std::string> ids,
             strings_of(line.find("instruction_id_list"), "instruction_id_list"));
  const Json* arguments = line.find("kwargs");
  if (arguments == nullptr || !arguments->is_array() ||
      arguments->as_array().size() != ids.size()) {
    return wrong("`kwargs` wants an array, one object for each instruction");
  }
  ExpectInstructions expected;
  for (size_t i = 0; i < ids.size(); ++i) {
    expected.instructions.push_back({.id = ids[i], .arguments = arguments->as_array()[i]});
    TRY(check_instruction(expected.instructions.back()));
  }
  if (expected.instructions.empty()) return wrong("`instruction_id_list` is empty");
  Task task;
  task.request = asking(*prompt);
  task.expected = std::move(expected);
  return task;
}

// BFCL writes Python's kinds of values in its schemas.
Json schema_with_json_kinds(const Json& schema) {
  if (schema.is_array()) {
    Json::Array items;
    for (const Json& item : schema.as_array()) items.push_back(schema_with_json_kinds(item));
    return Json(std::move(items));
  }
  if (!schema.is_object()) return schema;
  Json::Object members;
  for (const Json::Member& member : schema.as_object()) {
    Json value = schema_with_json_kinds(member.value);
    if (member.key == "type" && value.is_string()) {
      const std::string& kind = value.as_string();
      if (kind == "dict") value = Json("object");
      if (kind == "float") value = Json("number");
      if (kind == "tuple") value = Json("array");
    }
    members.push_back({member.key, std::move(value)});
  }
  return Json(std::move(members));
}

Result<ExpectCalls::Call> call_of(const std::string& name, const Json& arguments,
                                  bool alternatives) {
  if (!arguments.is_object()) return wrong("a call's arguments want an object");
  ExpectCalls::Call call{.name = name, .arguments = {}};
  for (const Json::Member& member : arguments.as_object()) {
    ExpectCalls::Argument& argument = call.arguments.emplace_back();
    argument.name = member.key;
    if (!alternatives) {
      argument.accepted = {member.value};
    } else if (member.value.is_array()) {
      argument.accepted = member.value.as_array();
    } else {
      return wrong(
          fmt::format("`ground_truth` wants an array of accepted values for '{}'", member.key));
    }
  }
  return call;
}

Result<Task> calls_task(const Json& line) {
  const Json* question = line.find("question");
  const Json* functions = line.find("function");
  const Json* truth = line.find("ground_truth");
  if (truth == nullptr || !truth->is_array()) {
    return wrong("`ground_truth` is missing: join each line with its line of possible_answer");
  }
  if (!question->is_array() || question->as_array().size() != 1 ||
      !question->as_array().front().is_array()) {
    return wrong(
        "`question` wants one conversation: [[messages]]; those of several turns are not read");
  }
  if (functions == nullptr || !functions->is_array()) return wrong("`function` wants an array");
  Task task;
  Json::Array tools;
  for (const Json& function : functions->as_array()) {
    Json tool;
    tool.set("type", "function").set("function", schema_with_json_kinds(function));
    tools.push_back(std::move(tool));
  }
  task.request.set("messages", question->as_array().front()).set("tools", Json(std::move(tools)));
  ExpectCalls expected;
  for (const Json& one : truth->as_array()) {
    if (!one.is_object() || one.as_object().size() != 1) {
      return wrong("`ground_truth` wants objects of one member: the function's name");
    }
    const Json::Member& named = one.as_object().front();
    TRY_ASSIGN(ExpectCalls::Call call, call_of(named.key, named.value, true));
    expected.calls.push_back(std::move(call));
  }
  task.expected = std::move(expected);
  return task;
}

Result<Expectation> calls_expected(const Json& value) {
  if (!value.is_array()) return wrong("`expect.calls` wants an array");
  ExpectCalls expected;
  for (const Json& one : value.as_array()) {
    const std::optional<std::string> name = one.string("name");
    const Json* arguments = one.find("arguments");
    if (!name) return wrong("`expect.calls` wants objects with `name` and `arguments`");
    TRY_ASSIGN(ExpectCalls::Call call,
               call_of(*name, arguments == nullptr ? Json(Json::Object{}) : *arguments, false));
    expected.calls.push_back(std::move(call));
  }
  return Expectation(std::move(expected));
}

// Without an exponent, which no answer is compared by: 100000.0 is 100000.
std::string decimal(const Json& number) {
  if (number.is_integer()) return number.dump();
  char digits[400];  // 309 before the point; the shortest that is read back as the same
  const auto end = std::to_chars(std::begin(digits), std::end(digits), number.as_number(),
                                 std::chars_format::fixed);
  return {digits, end.ptr};
}

// How many choices a question of one's own gives: lines that begin with A, B, C and so on, as in
// "B) Paris". Without such lines any letter may be one.
int choices_in(const std::string& question) {
  char next = 'A';
  for (size_t begin = 0; begin < question.size() && next <= 'Z';) {
    const size_t first = question.find_first_not_of(" \t(*[", begin);
    if (first == std::string::npos) break;
    const bool is_marked = first + 1 < question.size() &&
                           std::string_view(").]*").find(question[first + 1]) != std::string::npos;
    if (question[first] == next && is_marked) ++next;
    begin = std::min(question.find('\n', begin), question.size() - 1) + 1;
  }
  return next - 'A';
}

Result<Expectation> own_choice(const Json& value, const std::string& question) {
  if (!value.is_string() || value.as_string().size() != 1) {
    return wrong("`expect.choice` wants a letter");
  }
  const int count = choices_in(question);
  return choice_of(upper(value.as_string().front()), count < 2 ? kChoicesMax : count);
}

Result<Expectation> expectation_of(const Json& expect, const std::string& question) {
  if (!expect.is_object() || expect.as_object().size() != 1) {
    return wrong(
        "`expect` wants an object with one of number, choice, text, json, schema, calls, tests");
  }
  const auto& [kind, value] = expect.as_object().front();
  if (kind == "number") {
    if (value.is_number()) return Expectation(ExpectNumber{decimal(value)});
    if (value.is_string() && last_number(value.as_string())) {
      return Expectation(ExpectNumber{*last_number(value.as_string())});
    }
    return wrong("`expect.number` wants a number");
  }
  if (kind == "choice") return own_choice(value, question);
  if (kind == "text") {
    if (value.is_string()) return Expectation(ExpectText{{value.as_string()}});
    TRY_ASSIGN(std::vector<std::string> accepted, strings_of(&value, "expect.text"));
    if (accepted.empty()) return wrong("`expect.text` is empty");
    return Expectation(ExpectText{std::move(accepted)});
  }
  if (kind == "json") return Expectation(ExpectJson{value});
  if (kind == "calls") return calls_expected(value);
  if (kind == "tests") {
    if (!value.is_string() || value.as_string().empty()) {
      return wrong("`expect.tests` wants lines of Python");
    }
    return Expectation(ExpectProgram{.prompt = {}, .entry = {}, .tests = value.as_string()});
  }
  if (kind == "schema") {
    const auto grammar = grammar::compile_json_schema(value, {});
    if (!grammar.ok()) return wrong("`expect.schema`: " + grammar.error().message);
    return Expectation(ExpectSchema{value});
  }
  return wrong(fmt::format(
      "`expect` has no kind '{}'; those are number, choice, text, json, schema, calls, tests",
      kind));
}

// What was said last of a conversation; empty where that is no text.
std::string last_text(const Json& request) {
  const Json::Array& messages = request.find("messages")->as_array();
  return messages.empty() ? "" : messages.back().string("content").value_or("");
}

Result<Task> own_task(const Json& line) {
  Task task;
  const Json* messages = line.find("messages");
  const std::optional<std::string> prompt = line.string("prompt");
  if ((messages == nullptr) == !prompt) return wrong("a task wants one of `messages` and `prompt`");
  if (messages != nullptr && !messages->is_array()) return wrong("`messages` wants an array");
  task.request = prompt ? asking(*prompt) : Json(Json::Object{{"messages", *messages}});
  for (const char* name : {"tools", "tool_choice", "response_format", "reasoning_effort"}) {
    if (const Json* value = line.find(name); value != nullptr) task.request.set(name, *value);
  }
  TRY_ASSIGN(task.expected, expectation_of(*line.find("expect"), last_text(task.request)));
  for (const Json::Member& member : line.as_object()) {
    constexpr std::string_view kKnown[] = {
        "id",          "messages",        "prompt",           "tools",
        "tool_choice", "response_format", "reasoning_effort", "expect"};
    if (std::ranges::find(kKnown, member.key) == std::end(kKnown)) {
      return wrong(fmt::format("`{}` is no member of a task; those are {}", member.key,
                               fmt::join(kKnown, ", ")));
    }
  }
  return task;
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, fits);
}

// As HumanEval: a function whose head and purpose are given.
Result<Task> function_task(const Json& line) {
  const std::optional<std::string> prompt = line.string("prompt");
  const std::optional<std::string> test = line.string("test");
  const std::string entry = line.string("entry_point").value_or("");
  if (!prompt || !test) return wrong("`prompt` and `test` want texts");
  if (!is_name(entry)) return wrong("`entry_point` wants a function's name");
  Task task;
  task.request = asking(fmt::format(
      "Write this Python function. Answer with the whole function in one code block.\n\n"
      "```python\n{}\n```",
      *prompt));
  task.expected = ExpectProgram{
      .prompt = *prompt, .entry = entry, .tests = fmt::format("{}\ncheck({})", *test, entry)};
  return task;
}

// As MBPP: what is wanted in words, with the lines that the answer must pass.
Result<Task> asserted_task(const Json& line) {
  const std::optional<std::string> text =
      line.find("text") != nullptr ? line.string("text") : line.string("prompt");
  if (!text) return wrong("`text` or `prompt` wants a text");
  TRY_ASSIGN(const std::vector<std::string> tests, strings_of(line.find("test_list"), "test_list"));
  if (tests.empty()) return wrong("`test_list` is empty");
  Task task;
  task.request =
      asking(fmt::format("{}\n\nAnswer with a Python program in one code block that passes:\n\n{}",
                         *text, fmt::join(tests, "\n")));
  const std::string setup = line.string("test_setup_code").value_or("");
  task.expected = ExpectProgram{
      .prompt = {}, .entry = {}, .tests = fmt::format("{}\n{}", setup, fmt::join(tests, "\n"))};
  return task;
}

// A chat completion's body as a client sent it. How it was sampled the evaluation says, for all
// alike; who asked, and how the answer was to travel, means nothing here.
Result<Task> recorded_task(const Json& body) {
  constexpr std::string_view kLeftOut[] = {
      "model",    "stream",   "stream_options", "n",           "user",
      "store",    "metadata", "seed",           "temperature", "top_p",
      "top_k",    "min_p",    "max_tokens",     "id",          "max_completion_tokens",
      "logprobs", "priority", "top_logprobs",   "service_tier"};
  const Json* messages = body.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) {
    return wrong("`messages` of a recorded request wants messages");
  }
  Task task;
  for (const Json::Member& member : body.as_object()) {
    if (std::ranges::find(kLeftOut, member.key) != std::end(kLeftOut)) continue;
    task.request.set(member.key, member.value);
  }
  ExpectAnswer expected;
  if (const Json* format = body.find("response_format"); format != nullptr) {
    const std::string type = format->string("type").value_or("");
    expected.is_json = type == "json_object" || type == "json_schema";
    const Json* named = format->find("json_schema");
    const Json* schema = named == nullptr ? nullptr : named->find("schema");
    // One that is not read here is not judged by; the server says what it thinks of it.
    if (schema != nullptr && grammar::compile_json_schema(*schema, {}).ok()) {
      expected.schema = *schema;
    }
  }
  if (const Json* tools = body.find("tools"); tools != nullptr && tools->is_array()) {
    for (const Json& tool : tools->as_array()) {
      const Json* function = tool.find("function");
      if (function != nullptr) expected.tools.push_back(function->string("name").value_or(""));
    }
  }
  task.expected = std::move(expected);
  return task;
}

Result<Task> batch_task(const Json& line) {
  const Json* body = line.find("body");
  const std::string url = line.string("url").value_or("/v1/chat/completions");
  if (url != "/v1/chat/completions") {
    return wrong(fmt::format("a request to {} is not replayed: those to /v1/chat/completions are",
                             url.substr(0, 80)));
  }
  if (!body->is_object()) return wrong("`body` wants an object");
  TRY_ASSIGN(Task task, recorded_task(*body));
  if (const auto id = line.string("custom_id")) task.id = *id;
  return task;
}

Result<Task> task_of(const Json& line) {
  if (line.find("expect") != nullptr) return own_task(line);
  if (line.find("body") != nullptr) return batch_task(line);
  if (line.find("messages") != nullptr) return recorded_task(line);
  if (line.find("input_length") != nullptr) {
    return wrong(
        "a line of --record-requests, or of a trace, has numbers only: what was asked is not in "
        "it, and cannot be asked again");
  }
  if (line.find("instruction_id_list") != nullptr) return instructions_task(line);
  const Json* question = line.find("question");
  if (question == nullptr) {
    if (line.find("test_list") != nullptr) return asserted_task(line);
    if (line.find("test") != nullptr && line.find("prompt") != nullptr) return function_task(line);
    return wrong(
        "none of the shapes that are read: `expect`, `question`, `instruction_id_list` or "
        "`messages` is missing");
  }
  if (line.find("function") != nullptr) return calls_task(line);
  std::string text = line.string("question").value_or("");
  const Json* choices = line.find("choices");
  if (question->is_object()) {  // ARC's first form has its choices within
    text = question->string("stem").value_or("");
    if (choices == nullptr) choices = question->find("choices");
  }
  if (text.empty()) return wrong("`question` wants a text");
  const Json* answer = line.find("answerKey");
  if (answer == nullptr) answer = line.find("answer");
  if (choices != nullptr) return choice_task(text, *choices, answer);
  if (answer == nullptr || !answer->is_string()) return wrong("`answer` wants a string");
  return number_task(text, answer->as_string());
}

}  // namespace

Result<Task> parse_task(const Json& line, const std::string& set, size_t index) {
  if (!line.is_object()) return wrong("a task wants an object");
  TRY_ASSIGN(Task task, task_of(line));
  task.set = set;
  if (task.id.empty()) task.id = std::to_string(index);
  for (const char* name : {"id", "task_id", "key"}) {
    const Json* id = line.find(name);
    if (id == nullptr || !(id->is_string() || id->is_integer())) continue;
    task.id = id->is_string() ? id->as_string() : id->dump();
    break;
  }
  return task;
}

Result<std::vector<Task>> parse_tasks(std::string_view text, const std::string& set) {
  std::vector<Task> tasks;
  std::set<std::string> ids;
  size_t number = 0;
  const auto at_line = [&](const Error& error) {
    return Error{error.code, fmt::format("{}, line {}: {}", set, number, error.message),
                 error.field};
  };
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a mark of UTF-8, as editors write
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (line.size() > kTaskLineMax) {
      return at_line(
          wrong(fmt::format("{} bytes, at most {} are read", line.size(), kTaskLineMax)));
    }
    if (tasks.size() == kTasksMax) {
      return at_line(wrong(fmt::format("more than {} tasks", kTasksMax)));
    }
    const Result<Json> json = Json::parse(line);
    if (!json.ok()) return at_line(json.error());
    Result<Task> task = parse_task(*json, set, tasks.size());
    if (!task.ok()) return at_line(task.error());
    if (!ids.insert(task->id).second) {
      return at_line(wrong(fmt::format("the id '{}' is given twice", task->id)));
    }
    tasks.push_back(std::move(*task));
  }
  if (tasks.empty()) return wrong(fmt::format("{} has no task", set));
  return tasks;
}

}  // namespace pelton::eval
