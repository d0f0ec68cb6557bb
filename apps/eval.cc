// pelton eval: how much of what it is asked a model gets right, and whether another is worse.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/own_server.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/split.h"
#include "base/terminal_text.h"
#include "bench/probe.h"
#include "checkpoint/checkpoint.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "eval/evaluator.h"
#include "eval/generated_tasks.h"
#include "eval/sandbox.h"
#include "eval/task_file.h"
#include "net/http_client.h"
#include "node/kept_measurement.h"
#include "report/condition.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kResultBytesMax = size_t{1} << 30;
constexpr const char* kAgainstJournal = ".against.partial";

// Sets by name, or files of tasks; of each at most --limit.
Result<std::vector<eval::Task>> read_tasks(const cli::Arguments& arguments) {
  const auto seed = static_cast<uint64_t>(arguments.integer("--seed"));
  const auto count = static_cast<int>(arguments.integer("--num-tasks"));
  std::vector<eval::Task> tasks;
  std::vector<std::string> names;
  bool has_file = false;
  bool has_made = false;
  for (const std::string_view part : base::split_skipping_empty(arguments.text("--tasks"), ',')) {
    const std::string name(part);
    const std::vector<std::string_view> made = eval::generated_sets();
    std::vector<eval::Task> set;
    std::string set_name = name;
    if (std::ranges::find(made, name) != made.end()) {
      has_made = true;
      TRY_ASSIGN(set, eval::generate_tasks(name, seed, count));
    } else if (name.find_first_of("./") == std::string::npos) {
      return eval::generate_tasks(name, seed, 0).error();  // with the names that there are
    } else {
      has_file = true;
      set_name = std::filesystem::path(name).stem().string();
      const Result<std::string> text = base::read_file(name, eval::kTaskFileMax);
      if (!text.ok()) return Error{ErrorCode::kIo, text.error().message, "tasks"};
      TRY_ASSIGN(set, eval::parse_tasks(*text, set_name));
      if (arguments.has("--limit")) {
        set.resize(std::min(set.size(), static_cast<size_t>(arguments.integer("--limit"))));
      }
    }
    if (std::ranges::find(names, set_name) != names.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--tasks has two sets of the name '{}'", set_name), "tasks"};
    }
    names.push_back(set_name);
    std::ranges::move(set, std::back_inserter(tasks));
  }
  if (tasks.empty()) return Error{ErrorCode::kInvalidArgument, "--tasks names no set", "tasks"};
  if (arguments.has("--limit") && !has_file) {
    return Error{ErrorCode::kInvalidArgument,
                 "--limit is for files of tasks, and --tasks names none; --num-tasks says how many "
                 "are generated",
                 "limit"};
  }
  if (arguments.source("--num-tasks") > cli::Arguments::Source::kDefault && !has_made) {
    return Error{
        ErrorCode::kInvalidArgument,
        "--num-tasks is for sets that are generated, and --tasks names none; --limit takes "
        "the first tasks of each file",
        "num-tasks"};
  }
  return tasks;
}

// What a model writes is run only where that was asked for, and where it can do no harm.
Result<void> check_programs(const cli::Arguments& arguments, const std::vector<eval::Task>& tasks) {
  const auto program = std::ranges::find_if(tasks, [](const eval::Task& task) {
    return std::holds_alternative<eval::ExpectProgram>(task.expected);
  });
  if (program == tasks.end()) {
    if (!arguments.has("--run-code")) return {};
    return Error{ErrorCode::kInvalidArgument,
                 "--run-code has no effect: --tasks names no set whose answers are programs",
                 "run-code"};
  }
  if (!arguments.has("--run-code")) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the answers to '{}' are programs, which are judged by running them: "
                             "--run-code allows that, in a sandbox",
                             program->set),
                 "run-code"};
  }
  return eval::check_sandbox();
}

Result<Json> read_sampling(const cli::Arguments& arguments) {
  Json sampling;
  sampling.set("temperature", arguments.number("--temperature"))
      .set("seed", arguments.integer("--seed"))
      .set("max_completion_tokens", arguments.integer("--max-tokens"));
  if (!arguments.has("--extra-body")) return sampling;
  const Result<Json> extra = Json::parse(arguments.text("--extra-body"));
  if (!extra.ok() || !extra->is_object()) {
    return Error{ErrorCode::kInvalidArgument, "--extra-body wants a JSON object", "extra-body"};
  }
  for (const Json::Member& member : extra->as_object()) sampling.set(member.key, member.value);
  return sampling;
}

// A name that --fail-if may use of these sets.
bool is_figure(std::string_view key, const std::vector<eval::Task>& tasks) {
  constexpr std::string_view kPlain[] = {"score", "errors", "usage_faults", "drop", "p", "same"};
  if (std::ranges::find(kPlain, key) != std::end(kPlain)) return true;
  const size_t point = key.rfind('.');
  if (point == std::string_view::npos) return false;
  const std::string_view set = key.substr(0, point);
  const std::string_view what = key.substr(point + 1);
  if (what != "score" && what != "drop" && what != "same") return false;
  const bool is_all = set == "all" && tasks.front().set != tasks.back().set;
  return is_all || std::ranges::find(tasks, set, &eval::Task::set) != tasks.end();
}

Result<std::vector<report::Condition>> read_conditions_on_figures(
    const cli::Arguments& arguments, const std::vector<eval::Task>& tasks) {
  std::vector<report::Condition> conditions;
  for (const std::string& text : arguments.list("--fail-if")) {
    TRY_ASSIGN(report::Condition condition,
               report::parse_condition(
                   text, [&](std::string_view key) { return is_figure(key, tasks); }, "drop>0.01"));
    const bool compares = condition.key == "drop" || condition.key == "p" ||
                          condition.key == "same" || condition.key.ends_with(".drop") ||
                          condition.key.ends_with(".same");
    if (compares && !arguments.has("--against")) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--fail-if {} compares; --against says with what", text), "fail-if"};
    }
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

Result<void> check(const std::vector<report::Condition>& conditions, const Json& figures) {
  std::string held;
  for (const report::Condition& condition : conditions) {
    TRY_ASSIGN(const bool holds, report::holds(condition, figures));
    if (!holds) continue;
    held += fmt::format("{}{} (it is {:.4g})", held.empty() ? "" : ", ", condition.text,
                        figures.number(condition.key).value_or(0));
  }
  if (held.empty()) return {};
  return Error{ErrorCode::kUnavailable, "--fail-if " + held, {}};
}

bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

// One of the two that are compared. A key goes to nobody else than whom it is for.
struct Asked {
  std::string url;
  std::string model;                   // empty: the first listed
  const char* key_variable = nullptr;  // null: a server of our own
  const char* journal = ".partial";    // behind --out
  const char* what = "asking";
};

Result<bench::Target> read_target(const Asked& asked) {
  bench::TargetOptions options{.backend = "openai-chat",
                               .base_url = asked.url,
                               .endpoint = {},
                               .model = asked.model,
                               .headers = {}};
  const char* key = asked.key_variable == nullptr ? nullptr : std::getenv(asked.key_variable);
  if (key != nullptr && *key != '\0') {
    options.headers.emplace_back("Authorization", fmt::format("Bearer {}", key));
  }
  return bench::make_target(options);
}

// What a Pelton says that it computes with. None where a server says nothing of the kind.
Json server_facts(const bench::Target& target, const std::string& url, const std::string& model) {
  constexpr std::string_view kFacts[] = {"chat_template", "weights", "kv_dtype", "kernels"};
  std::string base = url.substr(0, url.find_last_not_of('/') + 1);
  if (base.ends_with("/v1")) base.resize(base.size() - 3);
  Result<net::HttpCall> call = net::make_http_call("GET", base + "/server_info");
  if (!call.ok()) return {};
  call->headers = target.call.headers;
  call->whole_time_max = std::chrono::seconds(10);
  const Result<net::HttpResponse> response = net::http_fetch(*std::move(call));
  if (!response.ok() || response->status != 200) return {};
  const Result<Json> info = Json::parse(response->body);
  if (!info.ok() || !info->is_object()) return {};
  const Json* runtime = info->find("runtime");
  if (const Json* models = info->find("models"); models != nullptr && models->is_array()) {
    for (const Json& one : models->as_array()) {
      const Json* named = one.find("model");
      if (named != nullptr && named->string("id") == model) runtime = one.find("runtime");
    }
  }
  if (runtime == nullptr) return {};
  Json facts;
  for (const std::string_view name : kFacts) {
    const std::optional<std::string> fact = runtime->string(name);
    if (fact) facts.set(std::string(name), *fact);
  }
  return facts;
}

Result<eval::Evaluation> ask(const cli::Arguments& arguments, const std::vector<eval::Task>& tasks,
                             const Asked& asked, const cli::Interrupt& interrupt) {
  const base::SystemClock clock;
  TRY_ASSIGN(const bench::Target target, read_target(asked));
  eval::Setting setting{.model = target.model, .sampling = {}, .tasks = eval::tasks_digest(tasks)};
  TRY_ASSIGN(setting.sampling, read_sampling(arguments));
  if (setting.model.empty()) {
    const std::atomic<bool> never = false;
    TRY_ASSIGN(setting.model, bench::first_model(target, clock, {.stop = never}));
  }
  setting.server = server_facts(target, asked.url, setting.model);
  eval::EvaluatorOptions options{.call = target.call};
  options.concurrency = static_cast<int>(arguments.integer("--max-concurrency"));
  options.answer_time_max = std::chrono::seconds(arguments.integer("--answer-seconds"));
  if (arguments.has("--out")) options.journal = arguments.text("--out") + asked.journal;
  options.stopped = [&] { return interrupt.pending(); };
  cli::Progress progress(asked.what, cli::Progress::Unit::kCount, clock);
  options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  return eval::evaluate(tasks, setting, options);
}

Result<eval::Evaluation> read_result(const std::string& file) {
  const Result<std::string> text = base::read_file(file, kResultBytesMax);
  if (!text.ok()) return Error{ErrorCode::kIo, text.error().message, "against"};
  return eval::parse_result(*text, file);
}

// A server that nothing could be asked of has no score.
Result<void> check_answered(const eval::Evaluation& evaluation) {
  const auto answered = std::ranges::find_if(
      evaluation.outcomes, [](const eval::Outcome& one) { return one.error.empty(); });
  if (answered != evaluation.outcomes.end() || evaluation.outcomes.empty()) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("no task was answered; the first: {}",
                           base::one_line(evaluation.outcomes.front().error)),
               {}};
}

Result<void> keep(const cli::Arguments& arguments, const eval::Evaluation& evaluation,
                  const std::vector<eval::SetComparison>& sets, const eval::Against& against) {
  if (arguments.has("--out")) {
    const std::string& file = arguments.text("--out");
    TRY(base::write_file(file, eval::result_text(evaluation)));
    std::error_code ignored;
    std::filesystem::remove(file + ".partial", ignored);
    std::filesystem::remove(file + kAgainstJournal, ignored);
  }
  if (!arguments.has("--html")) return {};
  return base::write_file(arguments.text("--html"), eval::result_page(evaluation, sets, against));
}

// "weights-int8" of --serve-flag=--weights --serve-flag=int8 (or =--weights=int8); empty where the
// server's flags name no format, or two.
std::string served_format(const std::vector<std::string>& flags) {
  constexpr std::pair<std::string_view, std::string_view> kFlags[] = {{"--weights", "weights-"},
                                                                      {"--kv-cache-dtype", "kv-"}};
  std::string format;
  for (size_t i = 0; i < flags.size(); ++i) {
    for (const auto& [flag, name] : kFlags) {
      if (!flags[i].starts_with(flag)) continue;
      const std::string_view rest = std::string_view(flags[i]).substr(flag.size());
      const bool is_joined = rest.starts_with("=");
      if (!rest.empty() && !is_joined) continue;
      if (!format.empty()) return {};
      format = name;
      format += is_joined ? rest.substr(1) : i + 1 < flags.size() ? flags[i + 1] : "";
    }
  }
  return format;
}

// What one of this model's formats costs in right answers is known from now on: serve says so. Of
// the same tasks, asked of the same files as they are shipped.
Result<void> keep_scores(const cli::Arguments& arguments, const eval::Evaluation& evaluation,
                         const eval::Evaluation& against, const eval::SetComparison& all) {
  constexpr int64_t kTasksLeast = 100;  // of fewer nothing is concluded
  const std::string format = served_format(arguments.list("--serve-flag"));
  const std::string& model = arguments.text("MODEL");
  std::error_code unknown;
  if (format.empty() || all.tasks < kTasksLeast ||
      against.setting.tasks != evaluation.setting.tasks ||
      against.setting.sampling != evaluation.setting.sampling ||
      !std::filesystem::exists(model, unknown)) {
    return {};
  }
  // The other one, as it said itself: the same prompts, the same format of what is not compared.
  const Json& now = evaluation.setting.server;
  const Json& before = against.setting.server;
  if (!now.is_object() || !before.is_object()) return {};
  const char* const compared = format.starts_with("kv-") ? "kv_dtype" : "weights";
  const char* const other = format.starts_with("kv-") ? "weights" : "kv_dtype";
  const bool is_pair = now.string(compared) != before.string(compared) &&
                       now.string(other) == before.string(other) &&
                       now.string("chat_template") == before.string("chat_template");
  if (!is_pair) return {};
  TRY_ASSIGN(const checkpoint::Checkpoint source, checkpoint::Checkpoint::open(model));
  return node::keep_task_scores(
      node::measurements_folder(), source, format,
      {.count = all.tasks, .score = all.a, .other_score = all.b, .p = all.p});
}

Result<void> run_eval(const cli::Arguments& arguments) {
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const std::vector<eval::Task> tasks, read_tasks(arguments));
  TRY_ASSIGN(const std::vector<report::Condition> conditions,
             read_conditions_on_figures(arguments, tasks));
  TRY(check_programs(arguments, tasks));
  std::optional<eval::Evaluation> against;
  const std::string& other = arguments.text("--against");
  if (arguments.has("--against") && !is_url(other)) {
    TRY_ASSIGN(against, read_result(other));
    if (arguments.has("--against-model")) {
      return Error{ErrorCode::kInvalidArgument,
                   "--against-model is for --against URL: a result has its model", "against-model"};
    }
  }
  std::optional<OwnServer> server;
  std::string url = arguments.text("--base-url");
  if (arguments.has("MODEL")) {
    TRY_ASSIGN(OwnServer started, OwnServer::start(arguments.text("MODEL"),
                                                   arguments.list("--serve-flag"), interrupt));
    server.emplace(std::move(started));
    url = server->url();
  }
  if (url.empty()) {
    return Error{ErrorCode::kInvalidArgument, "give a MODEL, or a server's --base-url", {}};
  }
  TRY_ASSIGN(const eval::Evaluation evaluation,
             ask(arguments, tasks,
                 {.url = url,
                  .model = arguments.text("--model"),
                  .key_variable = server ? nullptr : "OPENAI_API_KEY"},
                 interrupt));
  if (is_url(other)) {
    TRY_ASSIGN(against, ask(arguments, tasks,
                            {.url = other,
                             .model = arguments.text("--against-model"),
                             .key_variable = "OPENAI_API_KEY_AGAINST",
                             .journal = kAgainstJournal,
                             .what = "asking the other"},
                            interrupt));
  }
  std::vector<eval::SetComparison> sets;
  eval::Against named{.name = other};
  if (against) {
    TRY_ASSIGN(sets, eval::compare(*against, evaluation));
    named.differences = eval::setting_differences(against->setting, evaluation.setting);
  }
  TRY(keep(arguments, evaluation, sets, named));
  if (against && arguments.has("MODEL")) {
    TRY(keep_scores(arguments, evaluation, *against, sets.back()));
  }
  TRY(write_text(eval::scores_text(evaluation, output_columns())));
  if (against) {
    TRY(write_text("\n" +
                   eval::comparison_text(sets, named, evaluation.setting.model, output_columns())));
    TRY(check_answered(*against));
  }
  TRY(check_answered(evaluation));
  return check(conditions, eval::figures(evaluation, sets));
}

Flag against_model_flag() {
  Flag flag = text_flag("--against-model", "NAME",
                        "what requests to --against URL call it; default the first listed");
  flag.only_with = {{"--against"}};
  return flag;
}

std::string about() {
  std::string text =
      "Asks a server's /v1/chat/completions, or one of its own for MODEL, and prints how many\n"
      "answers are right, with 95 % intervals. Sets that are made here, by --seed:\n";
  for (const std::string_view name : eval::generated_sets()) {
    text += fmt::format("  {:<11} {}\n", name, eval::describe_set(name));
  }
  return text +
         "FILE.jsonl: tasks of yours, or published sets in the shape of GSM8K, MMLU, ARC, IFEval,\n"
         "BFCL, HumanEval or MBPP (docs/evaluation.md). Recorded requests, as bodies of chat\n"
         "completions or lines of a batch's file, are asked again: right is an answer of the form\n"
         "that was asked for; --against says how many are the same. An evaluation with --out that\n"
         "was interrupted goes on where it was. $OPENAI_API_KEY is sent to --base-url as the key,\n"
         "$OPENAI_API_KEY_AGAINST to --against.";
}

}  // namespace

cli::Verb eval_verb() {
  Flag serve_flag = text_flag("--serve-flag", "WORD",
                              "a further word for the server of MODEL, as --serve-flag=--weights "
                              "--serve-flag=int8");
  serve_flag.many = true;
  serve_flag.not_with = {{"--base-url"}};
  Flag fail_if = text_flag("--fail-if", "COND",
                           "end with 1 if this holds, as drop>0.01 or json.score<0.9; may be "
                           "repeated");
  fail_if.many = true;
  return {
      .name = "eval",
      .summary = "Asks a model tasks with known answers, and says how many it gets right.",
      .about = about(),
      .positionals = {{.name = "MODEL",
                       .help = "a model folder, a .gguf file or a hub id; served here meanwhile",
                       .required = false}},
      .flags = {text_flag("--base-url", "URL", "ask this server instead"),
                text_flag("--model", "NAME", "what requests call it; default the first listed"),
                text_flag("--tasks", "LIST", "sets and files, with commas between them",
                          "arithmetic,json,tools,retrieval,korean,french"),
                count_flag("--num-tasks", "N", "of each set that is made here", "50", 1, 100000),
                count_flag("--limit", "N", "of each file: its first tasks", "", 1, 1e9),
                count_flag("--seed", "N", "of the sets made here, and of sampling", "1", 0, 1e15),
                number_flag("--temperature", "T", "0: greedy", "0", 0, 2),
                count_flag("--max-tokens", "N", "of an answer, its reasoning included", "2048", 1,
                           1e6),
                text_flag("--extra-body", "JSON", "further members of each request"),
                count_flag("--max-concurrency", "N", "tasks asked at once", "8", 1, 1024),
                count_flag("--answer-seconds", "S",
                           "how long one answer may take, from its request to its last byte", "600",
                           1, 86'400),
                text_flag("--against", "RESULT",
                          "compare with this result, or with the server at this URL, task by task"),
                against_model_flag(),
                {.name = "--run-code",
                 .help = "run answers that are Python programs, in a sandbox without network, to "
                         "see whether they pass their tests",
                 .kind = Flag::Kind::kSwitch},
                text_flag("--out", "RESULT", "keep the result in this file"),
                text_flag("--html", "FILE", "write a page with scores and wrong answers"),
                std::move(fail_if),
                std::move(serve_flag)},
      .exclusive = {{"MODEL", "--base-url"}},
      .examples = {"pelton eval models/pelton-box --tasks arithmetic,tools --num-tasks 20",
                   "pelton eval --base-url http://127.0.0.1:8000 --tasks ./gsm8k.jsonl --limit 200 "
                   "--out before.json",
                   "pelton eval --base-url http://127.0.0.1:8000 --against http://127.0.0.1:8001 "
                   "--tasks ./recorded.jsonl",
                   "pelton eval --base-url http://127.0.0.1:8000 --tasks ./humaneval.jsonl "
                   "--run-code",
                   "pelton eval ./model --serve-flag=--weights --serve-flag=int8 --against "
                   "before.json --fail-if 'drop>0.01'"},
      .run = run_eval,
  };
}

}  // namespace pelton::apps
