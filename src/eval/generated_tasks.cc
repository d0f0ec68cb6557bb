#include "eval/generated_tasks.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::eval {
namespace {

// Draws of one task: a stream of its own, so that a task is the same however many there are.
class Draws {
 public:
  Draws(uint64_t seed, std::string_view set, int index)
      : stream_(base::mix64(seed ^ base::fnv1a64(set)) + static_cast<uint64_t>(index)) {}

  // Uniform in [least, most].
  int64_t number(int64_t least, int64_t most) {
    const auto width = static_cast<uint64_t>(most - least + 1);
    return least + static_cast<int64_t>(base::random_bits(stream_, count_++) % width);
  }
  template <size_t kSize>
  const char* one_of(const std::array<const char*, kSize>& texts) {
    return texts[static_cast<size_t>(number(0, kSize - 1))];
  }

 private:
  const uint64_t stream_;
  uint64_t count_ = 0;
};

constexpr std::array kNames = {"Ada",  "Ben",   "Clara", "David", "Emma", "Felix", "Grace", "Hugo",
                               "Iris", "Jonas", "Kim",   "Lea",   "Max",  "Nora",  "Omar",  "Pia"};
constexpr std::array kCities = {"Paris",  "London", "Rome", "Berlin", "Madrid", "Vienna",
                                "Lisbon", "Prague", "Oslo", "Dublin", "Seoul",  "Tokyo"};
constexpr std::array kThings = {"apples", "books", "coins", "cards", "pens", "stamps"};

Json asking(std::string text) {
  Json message;
  message.set("role", "user").set("content", std::move(text));
  Json request;
  request.set("messages", Json(Json::Array{std::move(message)}));
  return request;
}

Task number_task(std::string question, int64_t answer) {
  Task task;
  task.request = asking(std::move(question));
  task.expected = ExpectNumber{std::to_string(answer)};
  return task;
}

Task arithmetic(Draws& draws) {
  const int64_t a = draws.number(2, 99);
  const int64_t b = draws.number(2, 99);
  switch (draws.number(0, 3)) {
    case 0:
      return number_task(fmt::format("What is {} plus {}?", a, b), a + b);
    case 1:
      return number_task(fmt::format("What is {} minus {}?", std::max(a, b), std::min(a, b)),
                         std::max(a, b) - std::min(a, b));
    case 2: {
      const int64_t small = draws.number(2, 12);
      return number_task(fmt::format("What is {} times {}?", a, small), a * small);
    }
    default: {
      const char* name = draws.one_of(kNames);
      const char* thing = draws.one_of(kThings);
      const int64_t c = draws.number(1, std::min(a + b, int64_t{50}));
      return number_task(fmt::format("{0} has {1} {4}, gets {2} more and gives {3} away. How many "
                                     "{4} does {0} have now? Answer with the number.",
                                     name, a, b, c, thing),
                         a + b - c);
    }
  }
}

Task json(Draws& draws) {
  const std::string name = draws.one_of(kNames);
  const std::string city = draws.one_of(kCities);
  const int64_t age = draws.number(18, 90);
  Json value;
  value.set("name", name).set("age", age).set("city", city);
  Task task;
  task.request =
      asking(fmt::format("{} is {} years old and lives in {}. Give this as a JSON object "
                         "with the keys name, age and city, and nothing else.",
                         name, age, city));
  task.expected = ExpectJson{std::move(value)};
  return task;
}

Json tool(const char* name, const char* description, const char* parameter, const char* kind) {
  Json one;
  one.set("type", kind);
  Json properties;
  properties.set(parameter, std::move(one));
  Json parameters;
  parameters.set("type", "object")
      .set("properties", std::move(properties))
      .set("required", Json(Json::Array{parameter}));
  Json function;
  function.set("name", name)
      .set("description", description)
      .set("parameters", std::move(parameters));
  Json tool;
  tool.set("type", "function").set("function", std::move(function));
  return tool;
}

Task tools(Draws& draws) {
  const std::string city = draws.one_of(kCities);
  Task task;
  ExpectCalls::Call call;
  if (draws.number(0, 1) == 0) {
    task.request = asking(fmt::format("What is the weather in {}?", city));
    call = {.name = "get_weather", .arguments = {{.name = "city", .accepted = {Json(city)}}}};
  } else {
    task.request = asking(fmt::format("What time is it in {}?", city));
    call = {.name = "get_time", .arguments = {{.name = "city", .accepted = {Json(city)}}}};
  }
  task.request.set(
      "tools",
      Json(Json::Array{tool("get_weather", "The weather in a city, now.", "city", "string"),
                       tool("get_time", "The time of day in a city, now.", "city", "string")}));
  task.expected = ExpectCalls{{std::move(call)}};
  return task;
}

// One fact among many of its like, at a place that is drawn.
Task retrieval(Draws& draws) {
  const int64_t facts = draws.number(8, 40);
  const int64_t place = draws.number(0, facts - 1);
  std::string text = "Here is a list of lockers and their codes.\n\n";
  std::string code;
  const int64_t first = draws.number(100, 899);
  for (int64_t i = 0; i < facts; ++i) {
    const std::string here = std::to_string(draws.number(1000, 9999));
    if (i == place) code = here;
    text += fmt::format("The code of locker {} is {}.\n", first + i, here);
  }
  text += fmt::format("\nWhat is the code of locker {}? Answer with the number.", first + place);
  Task task;
  task.request = asking(std::move(text));
  task.expected = ExpectNumber{code};
  return task;
}

Task korean(Draws& draws) {
  const int64_t a = draws.number(2, 60);
  const int64_t b = draws.number(2, 39);
  return number_task(fmt::format("{} 더하기 {}는 얼마입니까? 숫자로 답하세요.", a, b), a + b);
}

Task french(Draws& draws) {
  const int64_t a = draws.number(2, 60);
  const int64_t b = draws.number(2, 39);
  return number_task(fmt::format("Combien font {} plus {} ? Réponds par le nombre.", a, b), a + b);
}

struct Generator {
  std::string_view name;
  std::string_view what;
  Task (*make)(Draws&);
};

constexpr Generator kGenerators[] = {
    {"arithmetic", "sums, differences, products and a step or two of reasoning with them",
     arithmetic},
    {"json", "a JSON object of what a sentence says", json},
    {"tools", "the right one of two tools, with its argument", tools},
    {"retrieval", "one fact among 8 to 40 of its like", retrieval},
    {"korean", "sums, asked in Korean", korean},
    {"french", "sums, asked in French", french},
};

const Generator* find(std::string_view name) {
  const auto* found = std::ranges::find(kGenerators, name, &Generator::name);
  return found == std::end(kGenerators) ? nullptr : found;
}

}  // namespace

std::vector<std::string_view> generated_sets() {
  std::vector<std::string_view> names;
  for (const Generator& generator : kGenerators) names.push_back(generator.name);
  return names;
}

std::string_view describe_set(std::string_view name) {
  return find(name)->what;
}

Result<std::vector<Task>> generate_tasks(std::string_view name, uint64_t seed, int count) {
  const Generator* generator = find(name);
  if (generator == nullptr) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("no set of tasks is called '{}'; those made here are {}", name,
                             fmt::join(generated_sets(), ", "))};
  }
  std::vector<Task> tasks;
  for (int i = 0; i < count; ++i) {
    Draws draws(seed, name, i);
    tasks.push_back(generator->make(draws));
    tasks.back().set = name;
    tasks.back().id = std::to_string(i);
  }
  return tasks;
}

}  // namespace pelton::eval
