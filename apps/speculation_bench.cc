#include "apps/speculation_bench.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "apps/engine_contender.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "report/percentile.h"

namespace pelton::apps {
namespace {

using Tokens = EngineContender::Tokens;
using Outcome = EngineContender::Outcome;
using Contender = EngineContender;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return report::percentile(values, 50);
}

// As speculative::Oracle reads them.
Result<void> write_answers(const std::string& file,
                           const std::vector<request::GenerationRequest>& requests,
                           const std::vector<Tokens>& answers) {
  std::string text;
  for (size_t i = 0; i < requests.size(); ++i) {
    text += fmt::format("{{\"prompt\":[{}],\"seed\":{},\"output\":[{}]}}\n",
                        fmt::join(requests[i].prompt, ","), requests[i].sampling.seed,
                        fmt::join(answers[i], ","));
  }
  return base::write_file(file, text);
}

// The executor with guesses; an oracle is given `known`.
Result<std::unique_ptr<Contender>> make_guessing(
    const checkpoint::Checkpoint& checkpoint, executor::LocalExecutor::Options options,
    const std::vector<request::GenerationRequest>& requests, const std::vector<Tokens>& known) {
  using Method = speculative::Config::Method;
  const bool needs_answers =
      options.speculation.method == Method::kOracle && options.speculation.answers.empty();
  if (!needs_answers) return Contender::make(checkpoint, options);
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("pelton_answers_{}.jsonl", getpid()))
          .string();
  TRY(write_answers(file, requests, known));
  options.speculation.answers = file;
  auto made = Contender::make(checkpoint, options);
  std::filesystem::remove(file);
  return made;
}

}  // namespace

Result<SpeculationReport> measure_speculation(const checkpoint::Checkpoint& checkpoint,
                                              executor::LocalExecutor::Options executor,
                                              const DecodeBench::Options& shape, int runs) {
  executor.sequences_max = shape.batch_size;
  executor.prefix_cache = false;
  executor.context_tokens = shape.input_len + shape.output_len;
  executor.memory_utilization = std::nullopt;
  const auto requests = random_requests(shape, checkpoint.config().vocab_size);
  executor::LocalExecutor::Options plain_options = executor;
  plain_options.speculation = {};
  TRY_ASSIGN(const auto plain, Contender::make(checkpoint, plain_options));
  TRY_ASSIGN(const Outcome expected, plain->answer(requests));  // warms up, too
  TRY_ASSIGN(const auto guessing, make_guessing(checkpoint, executor, requests, expected.answers));
  TRY(guessing->answer(requests));
  std::vector<double> without;
  std::vector<double> with;
  for (int run = 0; run < runs; ++run) {
    for (const bool guesses : {false, true}) {
      TRY_ASSIGN(const Outcome outcome, (guesses ? guessing : plain)->answer(requests));
      if (outcome.answers != expected.answers) {
        return Error{ErrorCode::kInternal, "an answer is another one with guesses than without",
                     ""};
      }
      (guesses ? with : without).push_back(outcome.tok_s);
    }
  }
  const engine::EngineStats stats = guessing->stats();
  const auto drafts = static_cast<double>(stats.scheduler.drafts);
  SpeculationReport report{.method = std::string(name_of(executor.speculation.method)),
                           .plain_tok_s = median(without),
                           .tok_s = median(with),
                           .step_ms = stats.drafts.step_ns * 1e-6,
                           .draft_ms = stats.drafts.draft_ns * 1e-6,
                           .runs = runs};
  const engine::SchedulerCounters& counted = stats.scheduler;
  const auto rows = static_cast<double>(std::max<int64_t>(counted.decode_rows, 1));
  report.tokens_per_step = 1 + static_cast<double>(counted.accepted_tokens) / rows;
  report.drafting_share = static_cast<double>(counted.draft_ns) /
                          static_cast<double>(std::max<int64_t>(counted.decode_ns, 1));
  report.forecast_gain = stats.drafts.gain_so_far;
  for (const int64_t accepted : counted.accepted_by_place) {
    if (accepted == 0) break;
    report.accepted_by_place.push_back(static_cast<double>(accepted) / drafts);
  }
  if (drafts > 0) {
    report.tokens_per_row = 1 + static_cast<double>(stats.scheduler.accepted_tokens) / drafts;
    report.drafted_per_row = static_cast<double>(stats.scheduler.draft_tokens) / drafts;
  }
  return report;
}

std::string to_text(const SpeculationReport& report) {
  std::string right;
  for (const double share : report.accepted_by_place)
    right += fmt::format(" {:.1f} %", share * 100);
  // Not seen, or with "adaptive": false, where nobody forecasts.
  const auto known = [](double value) {
    return value > 0 ? fmt::format("{:10.3f}", value) : fmt::format("{:>10}", "-");
  };
  return fmt::format(
      "without      {:10.2f} tokens/s\n"
      "{:<12} {:10.2f} tokens/s, {:.3f} times as many\n"
      "steps        {:10.2f} tokens each of a sequence\n"
      "rows         {:10.2f} tokens each with drafts, {:.2f} draft tokens\n"
      "accepted    {} of the rows with drafts, by position\n"
      "time         {} ms a step of one row, {:.3f} ms of drafting, {:.1f} % of the steps\n"
      "forecast     {} times as many tokens, by step times and acceptance\n",
      report.plain_tok_s, report.method, report.tok_s, report.gain(), report.tokens_per_step,
      report.tokens_per_row, report.drafted_per_row, right.empty() ? " 0 %" : right,
      known(report.step_ms), report.draft_ms, report.drafting_share * 100,
      known(report.forecast_gain));
}

std::string to_json(const SpeculationReport& report) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object();
  w.key("method").string(report.method);
  w.key("decode_tok_s_without").number(report.plain_tok_s);
  w.key("decode_tok_s").number(report.tok_s);
  w.key("gain").number(report.gain());
  w.key("tokens_per_row").number(report.tokens_per_row);
  w.key("drafted_per_row").number(report.drafted_per_row);
  w.key("tokens_per_step").number(report.tokens_per_step);
  w.key("accepted_by_place").begin_array();
  for (const double share : report.accepted_by_place) w.number(share);
  w.end_array();
  w.key("drafting_share").number(report.drafting_share);
  // Not finite, which is written as null: not known.
  const auto known = [](double value) { return value > 0 ? value : std::nan(""); };
  w.key("forecast_gain").number(known(report.forecast_gain));
  w.key("step_ms").number(known(report.step_ms));
  w.key("draft_ms").number(report.draft_ms);
  w.key("runs").integer(report.runs);
  w.end_object();
  return out + "\n";
}

}  // namespace pelton::apps
