#include "eval/evaluation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"

namespace pelton::eval {
namespace {

constexpr int kFormat = 1;
constexpr int kBootstrapRounds = 2000;
constexpr uint64_t kBootstrapSeed = 1;
constexpr std::string_view kAll = "all";

Error wrong(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

struct ExpectationText {
  Json operator()(const ExpectNumber& one) const { return one.number; }
  Json operator()(const ExpectChoice& one) const {
    return fmt::format("{} of {}", one.letter, one.count);
  }
  Json operator()(const ExpectText& one) const {
    Json::Array texts(one.accepted.begin(), one.accepted.end());
    return texts;
  }
  Json operator()(const ExpectJson& one) const { return one.value; }
  Json operator()(const ExpectSchema& one) const { return one.schema; }
  Json operator()(const ExpectAnswer& one) const {
    Json::Array tools(one.tools.begin(), one.tools.end());
    return Json::Array{one.is_json, one.schema ? *one.schema : Json(), std::move(tools)};
  }
  Json operator()(const ExpectProgram& one) const {
    return Json::Array{one.prompt, one.entry, one.tests};
  }
  Json operator()(const ExpectCalls& one) const {
    Json::Array calls;
    for (const ExpectCalls::Call& call : one.calls) {
      Json arguments(Json::Object{});
      for (const ExpectCalls::Argument& argument : call.arguments) {
        arguments.set(argument.name, Json(argument.accepted));
      }
      Json json;
      json.set("name", call.name).set("arguments", std::move(arguments));
      calls.push_back(std::move(json));
    }
    return calls;
  }
  Json operator()(const ExpectInstructions& one) const {
    Json::Array all;
    for (const auto& instruction : one.instructions) {
      Json json;
      json.set("id", instruction.id).set("arguments", instruction.arguments);
      all.push_back(std::move(json));
    }
    return all;
  }
};

std::string task_text(const Task& task) {
  const Json expected = std::visit(ExpectationText{}, task.expected);
  return Json(Json::Array{task.set, task.id, task.request, std::string(kind_name(task.expected)),
                          expected})
      .dump();
}

// By (set, id).
using Outcomes = std::map<std::pair<std::string_view, std::string_view>, const Outcome*>;

Outcomes outcomes_of(const Evaluation& evaluation) {
  Outcomes all;
  for (const Outcome& outcome : evaluation.outcomes) all[{outcome.set, outcome.id}] = &outcome;
  return all;
}

// One task, asked twice.
struct Pair {
  const Outcome* a;
  const Outcome* b;
};

// Outcomes say what they are of; of files older than that the tasks as a whole have to be the same.
bool is_same_task(const Evaluation& a, const Outcome& in_a, const Evaluation& b,
                  const Outcome& in_b) {
  if (!in_a.task.empty() && !in_b.task.empty()) return in_a.task == in_b.task;
  return a.setting.tasks == b.setting.tasks;
}

void add_differences(const Json& a, const Json& b, std::vector<std::string>& found) {
  if (!a.is_object() || !b.is_object()) return;
  const auto text = [](const Json* value) {
    return value == nullptr ? std::string("unset") : value->dump();
  };
  for (const Json::Member& member : a.as_object()) {
    const Json* other = b.find(member.key);
    if (other != nullptr && *other == member.value) continue;
    found.push_back(fmt::format("{} {}, now {}", member.key, member.value.dump(), text(other)));
  }
  for (const Json::Member& member : b.as_object()) {
    if (a.find(member.key) != nullptr) continue;
    found.push_back(fmt::format("{} unset, now {}", member.key, member.value.dump()));
  }
}

std::vector<std::string_view> sets_of(const Evaluation& evaluation) {
  std::vector<std::string_view> sets;
  for (const Outcome& outcome : evaluation.outcomes) {
    if (std::ranges::find(sets, outcome.set) == sets.end()) sets.emplace_back(outcome.set);
  }
  return sets;
}

void compare_answers(const std::vector<Pair>& pairs, SetComparison& one) {
  std::vector<double> differences;
  int64_t longer_a = 0;
  int64_t longer_b = 0;
  for (const auto& [a, b] : pairs) {
    if (!a->error.empty() || !b->error.empty()) continue;
    ++one.answered;
    one.same += a->answer == b->answer ? 1 : 0;
    one.tokens_a += static_cast<double>(a->completion_tokens);
    one.tokens_b += static_cast<double>(b->completion_tokens);
    longer_a += a->completion_tokens > b->completion_tokens ? 1 : 0;
    longer_b += b->completion_tokens > a->completion_tokens ? 1 : 0;
    differences.push_back(static_cast<double>(b->completion_tokens - a->completion_tokens));
  }
  if (one.answered == 0) return;
  one.tokens_a /= static_cast<double>(one.answered);
  one.tokens_b /= static_cast<double>(one.answered);
  one.tokens_difference = bootstrap_interval(differences, kBootstrapSeed, kBootstrapRounds);
  one.tokens_p = mcnemar_p(longer_a, longer_b);
}

SetComparison compare_set(const std::vector<Pair>& pairs, std::string_view name) {
  SetComparison one{.set = std::string(name), .tasks = static_cast<int64_t>(pairs.size())};
  std::vector<double> differences;
  int64_t right_a = 0;
  int64_t right_b = 0;
  for (const Pair& pair : pairs) {
    const bool a = pair.a->is_right;
    const bool b = pair.b->is_right;
    right_a += a ? 1 : 0;
    right_b += b ? 1 : 0;
    one.only_a += a && !b ? 1 : 0;
    one.only_b += b && !a ? 1 : 0;
    differences.push_back(static_cast<double>(b) - static_cast<double>(a));
  }
  const auto count = static_cast<double>(std::max<size_t>(pairs.size(), 1));
  one.a = static_cast<double>(right_a) / count;
  one.b = static_cast<double>(right_b) / count;
  one.difference = bootstrap_interval(differences, kBootstrapSeed, kBootstrapRounds);
  one.p = mcnemar_p(one.only_a, one.only_b);
  compare_answers(pairs, one);
  return one;
}

}  // namespace

std::string task_digest(const Task& task) {
  constexpr size_t kDigits = 16;  // of 200 000 tasks two are the same by chance once in 10^9 files
  return base::sha256(task_text(task)).substr(0, kDigits);
}

std::string tasks_digest(const std::vector<Task>& tasks) {
  base::Digest digest(base::Digest::Kind::kSha256);
  for (const Task& task : tasks) {
    digest.update(task_text(task));
    digest.update("\n");
  }
  return digest.finish();
}

std::string setting_digest(const Setting& setting) {
  Json::Array all{setting.model, setting.sampling, setting.tasks};
  if (setting.server.is_object()) all.push_back(setting.server);
  return base::sha256(Json(std::move(all)).dump());
}

std::vector<std::string> setting_differences(const Setting& a, const Setting& b) {
  std::vector<std::string> found;
  add_differences(a.sampling, b.sampling, found);
  add_differences(a.server, b.server, found);
  return found;
}

Json outcome_json(const Outcome& outcome) {
  Json json;
  json.set("set", outcome.set).set("id", outcome.id).set("right", outcome.is_right);
  if (!outcome.task.empty()) json.set("task", outcome.task);
  if (!outcome.error.empty()) {
    json.set("error", outcome.error);
    return json;
  }
  json.set("finish_reason", outcome.finish_reason)
      .set("answer", outcome.answer)
      .set("prompt_tokens", outcome.prompt_tokens)
      .set("completion_tokens", outcome.completion_tokens);
  if (!outcome.usage_fault.empty()) json.set("usage_fault", outcome.usage_fault);
  return json;
}

Result<Outcome> parse_outcome(const Json& json) {
  const std::optional<std::string> set = json.string("set");
  const std::optional<std::string> id = json.string("id");
  const std::optional<bool> right = json.boolean("right");
  if (!set || !id || !right) return wrong("an outcome wants `set`, `id` and `right`");
  return Outcome{.set = *set,
                 .id = *id,
                 .is_right = *right,
                 .error = json.string("error").value_or(""),
                 .finish_reason = json.string("finish_reason").value_or(""),
                 .answer = json.string("answer").value_or(""),
                 .prompt_tokens = json.integer("prompt_tokens").value_or(0),
                 .completion_tokens = json.integer("completion_tokens").value_or(0),
                 .usage_fault = json.string("usage_fault").value_or(""),
                 .task = json.string("task").value_or("")};
}

std::string result_text(const Evaluation& evaluation) {
  Json json;
  json.set("pelton_eval", kFormat)
      .set("model", evaluation.setting.model)
      .set("sampling", evaluation.setting.sampling)
      .set("tasks_sha256", evaluation.setting.tasks);
  if (evaluation.setting.server.is_object()) json.set("server", evaluation.setting.server);
  Json::Array sets;
  for (const SetScore& score : scores(evaluation)) {
    Json one;
    one.set("set", score.set)
        .set("tasks", score.tasks)
        .set("right", score.right)
        .set("errors", score.errors)
        .set("usage_faults", score.usage_faults)
        .set("score", score.share())
        .set("low", score.interval.low)
        .set("high", score.interval.high);
    sets.push_back(std::move(one));
  }
  json.set("scores", Json(std::move(sets)));
  std::string text = json.dump();
  text.back() = ',';
  text += "\"outcomes\":[";  // a line each, so that two results can be compared as texts
  for (size_t i = 0; i < evaluation.outcomes.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    text += outcome_json(evaluation.outcomes[i]).dump();
  }
  return text + "\n]}\n";
}

Result<Evaluation> parse_result(std::string_view text, const std::string& file) {
  const Result<Json> json = Json::parse(text);
  if (!json.ok()) return wrong(fmt::format("{}: {}", file, json.error().message));
  const std::optional<int64_t> format = json->integer("pelton_eval");
  if (!format) return wrong(fmt::format("{} is no result of an evaluation", file));
  if (*format != kFormat) {
    return wrong(fmt::format("{} has format {}, {} is read", file, *format, kFormat));
  }
  Evaluation evaluation;
  evaluation.setting.model = json->string("model").value_or("");
  evaluation.setting.tasks = json->string("tasks_sha256").value_or("");
  if (const Json* sampling = json->find("sampling")) evaluation.setting.sampling = *sampling;
  if (const Json* server = json->find("server")) evaluation.setting.server = *server;
  const Json* outcomes = json->find("outcomes");
  if (outcomes == nullptr || !outcomes->is_array()) {
    return wrong(fmt::format("{} has no `outcomes`", file));
  }
  for (const Json& one : outcomes->as_array()) {
    Result<Outcome> outcome = parse_outcome(one);
    if (!outcome.ok()) return wrong(fmt::format("{}: {}", file, outcome.error().message));
    evaluation.outcomes.push_back(std::move(*outcome));
  }
  return evaluation;
}

std::vector<SetScore> scores(const Evaluation& evaluation) {
  std::vector<SetScore> sets;
  SetScore all{.set = std::string(kAll)};
  for (const Outcome& outcome : evaluation.outcomes) {
    auto set = std::ranges::find(sets, outcome.set, &SetScore::set);
    if (set == sets.end()) set = sets.insert(set, SetScore{.set = outcome.set});
    for (SetScore* score : {&*set, &all}) {
      ++score->tasks;
      score->right += outcome.is_right ? 1 : 0;
      score->errors += outcome.error.empty() ? 0 : 1;
      score->usage_faults += outcome.usage_fault.empty() ? 0 : 1;
    }
  }
  if (sets.size() > 1) sets.push_back(std::move(all));
  for (SetScore& score : sets) score.interval = wilson_interval(score.right, score.tasks);
  return sets;
}

Result<std::vector<SetComparison>> compare(const Evaluation& a, const Evaluation& b) {
  const Outcomes others = outcomes_of(a);
  std::vector<SetComparison> sets;
  std::vector<Pair> all;
  for (const std::string_view name : sets_of(b)) {
    std::vector<Pair> pairs;
    for (const Outcome& outcome : b.outcomes) {
      if (outcome.set != name) continue;
      const auto other = others.find({outcome.set, outcome.id});
      if (other == others.end()) continue;
      if (!is_same_task(a, *other->second, b, outcome)) {
        return wrong(
            fmt::format("what is compared was asked something else: task '{}' of '{}' is not the "
                        "same in both (another --seed, another file, or an older result, which "
                        "is comparable over all of its tasks only)",
                        outcome.id, outcome.set));
      }
      pairs.push_back({other->second, &outcome});
    }
    if (pairs.empty()) continue;
    sets.push_back(compare_set(pairs, name));
    all.insert(all.end(), pairs.begin(), pairs.end());
  }
  if (sets.empty()) return wrong("the two evaluations have no task in common");
  if (sets.size() > 1) sets.push_back(compare_set(all, kAll));
  return sets;
}

Json figures(const Evaluation& evaluation, const std::vector<SetComparison>& sets) {
  Json named(Json::Object{});
  const std::vector<SetScore> all = scores(evaluation);
  for (const SetScore& score : all) named.set(score.set + ".score", score.share());
  if (!all.empty()) {
    named.set("score", all.back().share())
        .set("errors", all.back().errors)
        .set("usage_faults", all.back().usage_faults);
  }
  for (const SetComparison& one : sets) {
    named.set(one.set + ".drop", one.a - one.b).set(one.set + ".same", one.same_share());
  }
  if (sets.empty()) return named;
  named.set("drop", sets.back().a - sets.back().b)
      .set("p", sets.back().p)
      .set("same", sets.back().same_share());
  return named;
}

}  // namespace pelton::eval
