// Evaluations for people: tables in the terminal, and a page.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/terminal_text.h"
#include "eval/evaluation.h"
#include "report/html_page.h"
#include "report/plot.h"

namespace pelton::eval {
namespace {

constexpr size_t kWrongShown = 200;
constexpr size_t kAnswerShown = 2000;

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

std::string cut(std::string_view text) {
  return text.size() <= kAnswerShown ? std::string(text)
                                     : std::string(text.substr(0, kAnswerShown)) + " ...";
}

// The last row is of all.
int64_t usage_faults(const std::vector<SetScore>& all) {
  return all.empty() ? 0 : all.back().usage_faults;
}

// What a server said of its tokens that cannot be; empty: nothing.
std::string usage_text(const Evaluation& evaluation) {
  const std::vector<SetScore> all = scores(evaluation);
  if (usage_faults(all) == 0) return {};
  const auto first = std::ranges::find_if(
      evaluation.outcomes, [](const Outcome& one) { return !one.usage_fault.empty(); });
  return fmt::format(
      "The server's usage cannot be true in {} of {} answers, first in {} {}: {}. Their texts are "
      "judged all the same; their tokens are kept as they were said.",
      usage_faults(all), all.back().tasks, first->set, first->id, first->usage_fault);
}

std::string scores_table(const Evaluation& evaluation) {
  std::string html =
      "<div "
      "class=\"scroll\"><table><tr><th>set</th><th>tasks</th><th>right</th><th>share</th><th>95 % "
      "interval</th>"
      "<th>no answer</th>";
  const std::vector<SetScore> all = scores(evaluation);
  const bool has_faults = usage_faults(all) > 0;
  html += has_faults ? "<th>usage that cannot be</th></tr>\n" : "</tr>\n";
  for (const SetScore& score : all) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} to {}</td><td>{}</td>",
        report::html_escape(score.set), score.tasks, score.right, percent(score.share()),
        percent(score.interval.low), percent(score.interval.high), score.errors);
    html += has_faults ? fmt::format("<td>{}</td></tr>\n", score.usage_faults) : "</tr>\n";
  }
  return html + "</table></div>\n";
}

// What makes a comparison one of more than the models; empty: nothing.
std::string differences_text(const Against& against) {
  if (against.differences.empty()) return {};
  return fmt::format("The two were not asked or served alike: {}.",
                     fmt::join(against.differences, "; "));
}

std::string comparison_table(const std::vector<SetComparison>& sets, const Against& against) {
  std::string html = fmt::format(
      "<h2>Against {}</h2>\n<div "
      "class=\"scroll\"><table><tr><th>set</th><th>tasks</th><th>before</th><th>now</th>"
      "<th>change</th><th>95 % interval</th><th>only before right</th><th>only now right</th>"
      "<th>p (McNemar)</th><th>same answer</th><th>tokens before</th><th>tokens now</th>"
      "<th>change, 95 % interval</th><th>p (sign test)</th></tr>\n",
      report::html_escape(against.name));
  for (const SetComparison& one : sets) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:+.1f}</td><td>{:+.1f} to "
        "{:+.1f}</td>"
        "<td>{}</td><td>{}</td><td>{:.3g}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td>"
        "<td>{:+.1f} to {:+.1f}</td><td>{:.3g}</td></tr>\n",
        report::html_escape(one.set), one.tasks, percent(one.a), percent(one.b),
        (one.b - one.a) * 100, one.difference.low * 100, one.difference.high * 100, one.only_a,
        one.only_b, one.p, percent(one.same_share()), one.tokens_a, one.tokens_b,
        one.tokens_difference.low, one.tokens_difference.high, one.tokens_p);
  }
  html += "</table></div>\n";
  const std::string differences = differences_text(against);
  if (!differences.empty()) html += fmt::format("<p>{}</p>\n", report::html_escape(differences));
  return html;
}

std::string wrong_answers(const Evaluation& evaluation) {
  std::string html = "<h2>Not right</h2>\n";
  size_t shown = 0;
  for (const Outcome& outcome : evaluation.outcomes) {
    if (outcome.is_right) continue;
    if (++shown > kWrongShown) break;
    html += fmt::format(
        "<details><summary>{} {}</summary><pre>{}</pre></details>\n",
        report::html_escape(outcome.set), report::html_escape(outcome.id),
        report::html_escape(
            cut(outcome.error.empty() ? outcome.answer : "no answer: " + outcome.error)));
  }
  if (shown == 0) html += "<p>None.</p>\n";
  if (shown > kWrongShown) html += fmt::format("<p>The first {} are shown.</p>\n", kWrongShown);
  return html;
}

}  // namespace

std::string scores_text(const Evaluation& evaluation, int columns) {
  base::TextTable table{
      .headers = {"set", "tasks", "right", "share", "95 % interval", "no answer"}};
  for (const SetScore& row : scores(evaluation)) {
    table.rows.push_back({base::one_line(row.set), std::to_string(row.tasks),
                          std::to_string(row.right), percent(row.share()),
                          percent(row.interval.low) + " to " + percent(row.interval.high),
                          std::to_string(row.errors)});
  }
  const std::string usage = usage_text(evaluation);
  return base::text_table(table, columns, 0) +
         (usage.empty() ? "" : base::wrapped_text(base::one_line(usage), columns, 0));
}

std::string comparison_text(const std::vector<SetComparison>& sets, const Against& a,
                            std::string_view b, int columns) {
  base::TextTable table{.headers = {"set", "tasks", "before", "now", "change", "95 % interval",
                                    "p (McNemar)", "same answer", "tokens", "p (sign)"}};
  for (const SetComparison& row : sets) {
    table.rows.push_back(
        {base::one_line(row.set), std::to_string(row.tasks), percent(row.a), percent(row.b),
         fmt::format("{:+.1f}", (row.b - row.a) * 100),
         fmt::format("{:+.1f} to {:+.1f}", row.difference.low * 100, row.difference.high * 100),
         fmt::format("{:.3g}", row.p), percent(row.same_share()),
         fmt::format("{:.1f}, now {:.1f}", row.tokens_a, row.tokens_b),
         fmt::format("{:.3g}", row.tokens_p)});
  }
  const std::string differences = differences_text(a);
  return fmt::format("before: {}; now: {}\n", base::one_line(a.name), base::one_line(b)) +
         base::text_table(table, columns, 0) +
         (differences.empty() ? "" : base::wrapped_text(base::one_line(differences), columns, 0));
}

std::string result_page(const Evaluation& evaluation, const std::vector<SetComparison>& sets,
                        const Against& against) {
  std::string html = report::page_begin("Evaluation of " + evaluation.setting.model);
  html += fmt::format("<p>Asked with <code>{}</code>.</p>\n",
                      report::html_escape(evaluation.setting.sampling.dump()));
  if (evaluation.setting.server.is_object()) {
    html += fmt::format("<p>Of a server with <code>{}</code>.</p>\n",
                        report::html_escape(evaluation.setting.server.dump()));
  }
  html += scores_table(evaluation);
  const std::string usage = usage_text(evaluation);
  if (!usage.empty()) html += fmt::format("<p>{}</p>\n", report::html_escape(usage));
  if (!sets.empty()) html += comparison_table(sets, against);
  return html + wrong_answers(evaluation) + "</main></body></html>\n";
}

}  // namespace pelton::eval
