// pelton bench throughput: how many tokens a second a model makes when it is never out of work.
#include <thread>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/engine_flags.h"
#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "bench/offline.h"
#include "bench/token_words.h"
#include "cli/progress.h"
#include "report/percentile.h"
#include "report/summary.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Where a tokenizer has no words to draw from, ids are drawn: a model does not mind.
workload::Vocabulary ids_as_words(int vocab_size) {
  std::vector<workload::Vocabulary::Word> words;
  for (TokenId id = 0; id < std::min(vocab_size, 20'000); ++id)
    words.push_back({.text = " ", .id = id});
  return workload::Vocabulary(std::move(words),
                              [](std::string_view text) { return static_cast<int>(text.size()); });
}

Result<std::vector<bench::OfflineQuestion>> read_questions(const cli::Arguments& arguments,
                                                           node::LoadedModel& model) {
  const Result<const tokenizer::Tokenizer*> tokenizer = model.tokenizer();
  Result<workload::Vocabulary> words =
      tokenizer.ok() ? bench::token_words(**tokenizer) : tokenizer.error();
  const workload::Vocabulary vocabulary =
      words.ok() ? *words : ids_as_words(model.config().vocab_size);
  TRY_ASSIGN(const std::vector<workload::Conversation> conversations,
             read_dataset(arguments, vocabulary, {}));
  std::vector<bench::OfflineQuestion> questions;
  for (const workload::Conversation& one : conversations) {
    const workload::Turn& turn = one.turns.front();
    bench::OfflineQuestion question{.prompt = turn.ids,
                                    .output_tokens = std::max(turn.output_tokens, 1)};
    if (question.prompt.empty()) {
      if (!tokenizer.ok()) return tokenizer.error();
      question.prompt = (*tokenizer)->encode(turn.prompt);
    }
    if (question.prompt.empty()) {
      return Error{ErrorCode::kInvalidArgument, "a prompt of the data set has no tokens",
                   "dataset_path"};
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

std::string to_text(const report::Summary& summary) {
  const auto ms = [&](report::Metric metric, double percent) {
    const auto found = summary.values_ms.find(metric);
    return found == summary.values_ms.end() ? 0 : report::percentile(found->second, percent);
  };
  return fmt::format(
      "Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n"
      "Total num prompt tokens:  {}\n"
      "Total num output tokens:  {}\n"
      "Elapsed time (s):         {:.2f}\n"
      "Peak concurrent requests: {}\n"
      "Median TPOT (ms):         {:.2f}\n",
      summary.requests_per_s, summary.total_tokens_per_s, summary.output_tokens_per_s,
      summary.input_tokens, summary.output_tokens, summary.duration_s, summary.peak_concurrency,
      ms(report::Metric::kTpot, 50));
}

// vLLM's keys first.
std::string to_json(const report::Summary& summary) {
  Json json;
  json.set("elapsed_time", summary.duration_s);
  json.set("num_requests", summary.completed);
  json.set("total_num_tokens", summary.input_tokens + summary.output_tokens);
  json.set("requests_per_second", summary.requests_per_s);
  json.set("tokens_per_second", summary.total_tokens_per_s);
  json.set("output_tokens_per_second", summary.output_tokens_per_s);
  json.set("total_input_tokens", summary.input_tokens);
  json.set("total_output_tokens", summary.output_tokens);
  json.set("cached_tokens", summary.cached_tokens);
  json.set("failed", summary.failed);
  return json.dump() + "\n";
}

Result<bench::OfflineOutcome> measure(const cli::Arguments& arguments, node::LoadedModel& model,
                                      const std::vector<bench::OfflineQuestion>& questions,
                                      const cli::Interrupt& interrupt, const base::Clock& clock) {
  std::atomic<bool> stop{false};
  std::atomic<bool> over{false};
  std::thread listener([&] {
    while (!over) {
      if (interrupt.pending()) stop = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  cli::Progress progress("requests", cli::Progress::Unit::kCount, clock);
  bench::OfflineOptions options{.stop_tokens = {},
                                .seed = static_cast<uint64_t>(arguments.integer("--seed")),
                                .on_done = [&](int64_t done) {
                                  progress.update(done, static_cast<int64_t>(questions.size()));
                                }};
  if (!is_invented(arguments)) options.stop_tokens = model.stop_tokens();
  Result<bench::OfflineOutcome> outcome =
      bench::run_offline(model.engine(), questions, options, clock, stop);
  over = true;
  listener.join();
  return outcome;
}

// What draft tokens brought; nothing where there were none.
std::string speculation_text(const engine::SchedulerCounters& counted) {
  if (counted.drafts == 0) return "";
  const auto drafts = static_cast<double>(counted.drafts);
  std::string text =
      fmt::format("draft tokens {:10} of which {} accepted: {:.2f} tokens a row with drafts\n",
                  counted.draft_tokens, counted.accepted_tokens,
                  1 + static_cast<double>(counted.accepted_tokens) / drafts);
  text += "accepted     ";
  for (size_t place = 0; place < counted.accepted_by_place.size(); ++place) {
    const auto right = static_cast<double>(counted.accepted_by_place[place]);
    if (right == 0) break;
    text += fmt::format("{:5.1f} %", 100 * right / drafts);
  }
  return text + " of the rows with drafts, by position\n";
}

Result<void> run_bench_throughput(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kWarning});
  const cli::Interrupt interrupt;
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  TRY(read_batch_flags(arguments, options));
  TRY_ASSIGN(const auto model,
             load_model(arguments.text("MODEL"), options, stopped_by(interrupt), clock, log));
  TRY_ASSIGN(const std::vector<bench::OfflineQuestion> questions,
             read_questions(arguments, *model));
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  TRY_ASSIGN(const bench::OfflineOutcome outcome,
             measure(arguments, *model, questions, interrupt, clock));
  const report::Summary summary = report::summarize(outcome.records, outcome.duration_s, {});
  if (arguments.has("--output-json")) {
    TRY(base::write_file(arguments.text("--output-json"), to_json(summary)));
  }
  TRY(write_text(to_text(summary) + speculation_text(model->engine().stats().scheduler)));
  if (summary.failed == 0) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} requests failed: {}", summary.failed, summary.errors.begin()->first),
               {}};
}

std::vector<Flag> throughput_flags() {
  std::vector<Flag> flags = dataset_flags();
  flags.push_back(text_flag("--output-json", "FILE", "also write the numbers"));
  for (Flag& flag : batch_flags()) flags.push_back(std::move(flag));
  for (Flag& flag : model_flags()) flags.push_back(std::move(flag));
  return flags;
}

}  // namespace

cli::Verb bench_throughput_verb() {
  return {
      .name = "bench throughput",
      .summary = "Measures a model's throughput without a server: all prompts at once.",
      .about =
          "Prompts go to the engine in this process as fast as its queue takes them. First turns\n"
          "only. Flags and printed lines are those of vLLM's `bench throughput`.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = throughput_flags(),
      .examples = {"pelton bench throughput ./model --num-prompts 32 --input-len 512 --output-len "
                   "64"},
      .run = run_bench_throughput,
  };
}

}  // namespace pelton::apps
