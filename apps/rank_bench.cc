#include "apps/rank_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/engine_contender.h"
#include "base/json_writer.h"
#include "report/percentile.h"

namespace pelton::apps {
namespace {

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return report::percentile(values, 50);
}

struct Turns {
  std::vector<double> prefill;  // tokens a second
  std::vector<double> decode;
};

double ratio_of(const std::vector<double>& these, const std::vector<double>& those) {
  std::vector<double> ratios;
  for (size_t i = 0; i < these.size(); ++i) ratios.push_back(these[i] / those[i]);
  return middle(ratios);
}

parallel::Exchange::Counts counts_of(const EngineContender& contender) {
  return contender.ranks().front().counts;
}

// Of the leader, between two of its counts.
void add_exchanges(const parallel::Exchange::Counts& before,
                   const parallel::Exchange::Counts& after, double seconds, RankReport& report) {
  report.copying_share = static_cast<double>(after.copy_ns - before.copy_ns) * 1e-9 / seconds;
  report.waiting_share = static_cast<double>(after.wait_ns - before.wait_ns) * 1e-9 / seconds;
  report.exchanges_per_run = static_cast<double>(after.exchanges - before.exchanges) / report.runs;
}

}  // namespace

Result<RankReport> measure_ranks(const checkpoint::Checkpoint& checkpoint,
                                 executor::LocalExecutor::Options executor,
                                 const DecodeBench::Options& shape, int runs) {
  executor.sequences_max = shape.batch_size;
  executor.prefix_cache = false;
  executor.context_tokens = shape.input_len + shape.output_len;
  executor.memory_utilization = std::nullopt;
  const auto requests = random_requests(shape, checkpoint.config().vocab_size);
  executor::LocalExecutor::Options alone = executor;
  alone.ranks = {};
  alone.threads = executor.threads * executor.ranks.count;  // 0: all there are
  TRY_ASSIGN(const auto one, EngineContender::make(checkpoint, alone));
  TRY_ASSIGN(const EngineContender::Outcome expected, one->answer(requests));  // warms up, too
  TRY_ASSIGN(const auto several, EngineContender::make(checkpoint, executor));
  TRY(several->answer(requests));
  const parallel::Exchange::Counts before = counts_of(*several);
  double seconds = 0;
  Turns of_one;
  Turns of_ranks;
  const auto prompt_tokens = static_cast<double>(shape.batch_size) * shape.input_len;
  for (int run = 0; run < runs; ++run) {
    for (const bool by_ranks : {run % 2 == 0, run % 2 != 0}) {
      TRY_ASSIGN(const EngineContender::Outcome outcome,
                 (by_ranks ? several : one)->answer(requests));
      if (outcome.answers != expected.answers) {
        return Error{ErrorCode::kInternal,
                     "an answer of several ranks is another one than one process'", ""};
      }
      Turns& turns = by_ranks ? of_ranks : of_one;
      turns.prefill.push_back(prompt_tokens / outcome.prefill_s);
      turns.decode.push_back(outcome.tok_s);
      if (by_ranks) seconds += outcome.prefill_s + outcome.decode_s;
    }
  }
  RankReport report{.ranks = executor.ranks.count,
                    .transport = std::string(several->ranks().front().transport),
                    .deals_experts = executor.ranks.deals_experts,
                    .kernels = std::string(several->kernels_name()),
                    .threads = several->threads(),
                    .one_threads = one->threads(),
                    .batch_size = shape.batch_size,
                    .input_len = shape.input_len,
                    .output_len = shape.output_len,
                    .runs = runs,
                    .prefill_tok_s = middle(of_ranks.prefill),
                    .decode_tok_s = middle(of_ranks.decode),
                    .one_prefill_tok_s = middle(of_one.prefill),
                    .one_decode_tok_s = middle(of_one.decode),
                    .prefill_ratio = ratio_of(of_ranks.prefill, of_one.prefill),
                    .decode_ratio = ratio_of(of_ranks.decode, of_one.decode)};
  add_exchanges(before, counts_of(*several), seconds, report);
  return report;
}

std::string to_text(const RankReport& report) {
  return fmt::format(
      "{} sequences of {} + {} tokens, {} turns, kernels {}: the same answers\n"
      "{:<26} {:>14} {:>14}\n"
      "{:<26} {:>14.2f} {:>14.2f}\n"
      "{:<26} {:>14.2f} {:>14.2f}\n"
      "{:<26} {:>14.3f} {:>14.3f}\n"
      "exchanges of the leader    {:.0f} a turn, {:.2f} % of the time without waiting, {:.2f} % "
      "waiting for others\n",
      report.batch_size, report.input_len, report.output_len, report.runs, report.kernels, "",
      "prefill tok/s", "decode tok/s", fmt::format("1 process, {} threads", report.one_threads),
      report.one_prefill_tok_s, report.one_decode_tok_s,
      fmt::format("{} ranks by {}, {} threads", report.ranks, report.transport, report.threads),
      report.prefill_tok_s, report.decode_tok_s, "ratio, the turns' median", report.prefill_ratio,
      report.decode_ratio, report.exchanges_per_run, report.copying_share * 100,
      report.waiting_share * 100);
}

std::string to_json(const RankReport& report) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object();
  w.key("ranks").integer(report.ranks).key("transport").string(report.transport);
  w.key("expert_parallel").boolean(report.deals_experts);
  w.key("kernels").string(report.kernels).key("threads").integer(report.threads);
  w.key("one_process_threads").integer(report.one_threads);
  w.key("batch_size").integer(report.batch_size).key("input_len").integer(report.input_len);
  w.key("output_len").integer(report.output_len).key("runs").integer(report.runs);
  w.key("prefill_tok_s").number(report.prefill_tok_s);
  w.key("decode_tok_s").number(report.decode_tok_s);
  w.key("one_process_prefill_tok_s").number(report.one_prefill_tok_s);
  w.key("one_process_decode_tok_s").number(report.one_decode_tok_s);
  w.key("prefill_ratio").number(report.prefill_ratio);
  w.key("decode_ratio").number(report.decode_ratio);
  w.key("exchange_copying_share").number(report.copying_share);
  w.key("exchange_waiting_share").number(report.waiting_share);
  w.key("exchanges_per_run").number(report.exchanges_per_run);
  w.end_object();
  return out + "\n";
}

}  // namespace pelton::apps
