// What came of an evaluation, as a value: who was asked what, and an outcome for each task. Read
// from and written to files; compared with another over the same tasks. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/statistics.h"
#include "eval/task.h"

namespace pelton::eval {

struct Outcome {
  std::string set;
  std::string id;
  bool is_right = false;
  std::string error;  // why there is no answer; empty: there is one
  std::string finish_reason;
  std::string answer;  // what was judged: the text, or the calls as JSON
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::string usage_fault;  // why the two cannot be what was sent; empty: they can
  std::string task = {};    // task_digest() of what was asked; empty: an older file does not say
};

// How the model was asked: what makes two evaluations the same experiment, or not.
struct Setting {
  std::string model;
  Json sampling;      // members that went into each request: temperature, seed, max_tokens ...
  std::string tasks;  // tasks_digest()
  // Of the server, as it says: chat_template, weights, kv_dtype, kernels. None: it does not say.
  Json server = {};
};

struct Evaluation {
  Setting setting;
  std::vector<Outcome> outcomes;  // in the order of the tasks
};

// The beginning of a SHA-256 over set, id, request and expectation.
std::string task_digest(const Task& task);
// SHA-256 over all of them, in order.
std::string tasks_digest(const std::vector<Task>& tasks);
// Over all of a setting: what an evaluation that is taken up again must agree in.
std::string setting_digest(const Setting& setting);

Json outcome_json(const Outcome& outcome);
// Errors: kInvalidArgument.
Result<Outcome> parse_outcome(const Json& json);

// The result file: an object with the setting, the scores and all outcomes; the same bytes for the
// same evaluation.
std::string result_text(const Evaluation& evaluation);
// Errors: kInvalidArgument, which names `file`.
Result<Evaluation> parse_result(std::string_view text, const std::string& file);

struct SetScore {
  std::string set;
  int64_t tasks = 0;
  int64_t right = 0;
  int64_t errors = 0;
  int64_t usage_faults = 0;  // answers whose tokens were counted as they cannot be
  Interval interval;         // of right / tasks

  double share() const {
    return tasks == 0 ? 0 : static_cast<double>(right) / static_cast<double>(tasks);
  }
};
// One for each set, in the order of the tasks; with several, one of all at the end, "all".
std::vector<SetScore> scores(const Evaluation& evaluation);

// Two over the same tasks, `b` against `a`.
struct SetComparison {
  std::string set;
  int64_t tasks = 0;  // that both have
  int64_t only_a = 0;
  int64_t only_b = 0;
  double a = 0;  // shares of right answers
  double b = 0;
  Interval difference;  // of b - a
  double p = 1;         // mcnemar_p()
  // Of those that both have answered: the same, word for word, and how long they were.
  int64_t answered = 0;
  int64_t same = 0;
  double tokens_a = 0;  // mean
  double tokens_b = 0;
  Interval tokens_difference;  // of the mean of b - a
  double tokens_p = 1;         // of the sign test: b longer as often as a

  double same_share() const {
    return answered == 0 ? 0 : static_cast<double>(same) / static_cast<double>(answered);
  }
};
// Errors: kInvalidArgument where they have no task in common, or another one under the same name.
Result<std::vector<SetComparison>> compare(const Evaluation& a, const Evaluation& b);

// What a comparison is made with.
struct Against {
  std::string name;
  // In what the two were asked or served differently: "temperature 0, now 1".
  std::vector<std::string> differences = {};
};
std::vector<std::string> setting_differences(const Setting& a, const Setting& b);

// Tables for people, within so many columns (0: as many as it takes).
std::string scores_text(const Evaluation& evaluation, int columns);
std::string comparison_text(const std::vector<SetComparison>& sets, const Against& a,
                            std::string_view b, int columns);
// A page that needs nothing else: scores, the comparison if there is one, answers that were wrong.
std::string result_page(const Evaluation& evaluation, const std::vector<SetComparison>& sets,
                        const Against& against);

// An object of numbers, for --fail-if: score, errors, usage_faults, NAME.score of each set; with a
// comparison drop (a - b of all), NAME.drop, p, and same (share of equal answers), NAME.same.
Json figures(const Evaluation& evaluation, const std::vector<SetComparison>& sets);

}  // namespace pelton::eval
