// pelton bench prefix: what a prompt costs the second time, when it shares its beginning with a
// finished one.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/stream_reader.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

namespace pelton::apps {
namespace {

using cli::Flag;

struct Question {
  double seconds = 0;  // to the first token
  int computed = 0;    // tokens of the prompt
};

// Medians over the runs, by what was shared.
struct Row {
  int shared = 0;
  Question cold;
  Question warm;

  double ratio() const { return cold.seconds / warm.seconds; }
};

std::vector<TokenId> random_tokens(uint64_t seed, int count, int vocab) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = base::random_bits(seed, static_cast<uint64_t>(i));
    tokens.push_back(static_cast<TokenId>(bits % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

Result<Question> ask(engine::Engine& engine, const std::vector<TokenId>& prompt,
                     const cli::Interrupt& interrupt, const base::Clock& clock) {
  request::GenerationRequest request{.id = "bench", .prompt = prompt};
  request.sampling.temperature = 0.0f;
  request.stop.max_new_tokens = 1;
  const int64_t start_ns = clock.now_ns();
  TRY_ASSIGN(engine::TokenStream stream, engine.submit(std::move(request)));
  StreamReader reader(std::move(stream), interrupt);
  Question question;
  for (;;) {
    const std::optional<engine::TokenStream::Batch> batch = reader.next();
    if (!batch) return Error{ErrorCode::kCancelled, "interrupted"};
    if (!batch->tokens.empty() && question.seconds == 0) {
      question.seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
    }
    if (!batch->end) continue;
    if (batch->end->error) return *batch->end->error;
    question.computed = batch->end->prompt_tokens - batch->end->cached_tokens;
    return question;
  }
}

Question median(std::vector<Question> questions) {
  std::sort(questions.begin(), questions.end(),
            [](const Question& a, const Question& b) { return a.seconds < b.seconds; });
  return questions[questions.size() / 2];
}

Result<std::vector<int>> parse_shared(const std::string& text, int input_len) {
  std::vector<int> shared;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int count = 0;
    const auto [end, failure] = std::from_chars(text.data() + at, text.data() + comma, count);
    if (failure != std::errc{} || end != text.data() + comma || count < 0 || count > input_len) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--shared wants numbers from 0 to --input-len {}, as 7680,8160; not "
                               "'{}'",
                               input_len, text),
                   "shared"};
    }
    shared.push_back(count);
    at = comma + 1;
  }
  return shared;
}

// In each run a new prompt, and then for each of `shared` another one that begins like it.
Result<std::vector<Row>> measure(node::LoadedModel& model, const std::vector<int>& shared,
                                 int input_len, int runs, const cli::Interrupt& interrupt,
                                 const base::Clock& clock) {
  const int vocab = model.config().vocab_size;
  std::vector<Question> cold;
  std::vector<std::vector<Question>> warm(shared.size());
  uint64_t seed = 1;
  for (int run = 0; run < runs; ++run) {
    const std::vector<TokenId> first = random_tokens(seed++, input_len, vocab);
    TRY_ASSIGN(const Question whole, ask(model.engine(), first, interrupt, clock));
    cold.push_back(whole);
    for (size_t i = 0; i < shared.size(); ++i) {
      std::vector<TokenId> second = random_tokens(seed++, input_len, vocab);
      std::copy_n(first.begin(), shared[i], second.begin());
      TRY_ASSIGN(const Question again, ask(model.engine(), second, interrupt, clock));
      warm[i].push_back(again);
    }
  }
  std::vector<Row> rows;
  for (size_t i = 0; i < shared.size(); ++i) {
    rows.push_back({.shared = shared[i], .cold = median(cold), .warm = median(warm[i])});
  }
  return rows;
}

std::string to_json(const std::vector<Row>& rows, int input_len, int runs) {
  Json json;
  json.set("input_len", input_len).set("runs", runs);
  json.set("ttft_cold_s", rows.front().cold.seconds);
  Json::Array list;
  for (const Row& row : rows) {
    Json one;
    one.set("shared", row.shared).set("computed", row.warm.computed);
    one.set("ttft_s", row.warm.seconds).set("ratio", row.ratio());
    list.push_back(std::move(one));
  }
  json.set("rows", std::move(list));
  return json.dump() + "\n";
}

std::string to_text(const std::vector<Row>& rows, int input_len) {
  std::string text = fmt::format("a prompt of {} tokens: first token after {:.3f} s\n", input_len,
                                 rows.front().cold.seconds);
  for (const Row& row : rows) {
    text += fmt::format("sharing its first {:>6}: {:>6} computed, {:.3f} s, {:.1f} times less\n",
                        row.shared, row.warm.computed, row.warm.seconds, row.ratio());
  }
  return text;
}

// As asked, or 8K and no longer than what the engine holds beside the one token of an answer.
Result<int> prompt_length(const cli::Arguments& arguments, int context) {
  constexpr int kUsual = 8192;
  if (!arguments.has("--input-len")) return std::min(kUsual, context - 1);
  const int64_t asked = arguments.integer("--input-len");
  if (asked < context) return static_cast<int>(asked);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--input-len {} and the answer's token are more than the context of {} "
                           "tokens",
                           asked, context),
               "input-len"};
}

// Nearly all of it, and all but two blocks.
std::string usual_shares(int input_len) {
  return fmt::format("{},{}", input_len / 16 * 15, std::max(input_len - 32, 0));
}

Result<void> run_bench_prefix(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kWarning});
  const cli::Interrupt interrupt;
  const int runs = static_cast<int>(arguments.integer("--runs"));
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  options.executor.sequences_max = 1;
  TRY_ASSIGN(const auto model,
             load_model(arguments.text("MODEL"), options, stopped_by(interrupt), clock, log));
  TRY_ASSIGN(const int input_len,
             prompt_length(arguments, model->engine().capacity().context_tokens_max));
  const std::string shares =
      arguments.has("--shared") ? arguments.text("--shared") : usual_shares(input_len);
  TRY_ASSIGN(const std::vector<int> shared, parse_shared(shares, input_len));
  // Warms files, caches and clocks; not counted.
  TRY(ask(model->engine(), random_tokens(0, std::min(input_len, 512), model->config().vocab_size),
          interrupt, clock));
  TRY_ASSIGN(const std::vector<Row> rows,
             measure(*model, shared, input_len, runs, interrupt, clock));
  if (arguments.has("--json")) {
    const std::string json = to_json(rows, input_len, runs);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(rows, input_len));
}

}  // namespace

cli::Verb bench_prefix_verb() {
  cli::Verb verb{
      .name = "bench prefix",
      .summary = "Measures what the prefix cache saves of the time to the first token.",
      .about =
          "Random tokens, through the engine, one request at a time: a new prompt, then others "
          "that\n"
          "share its beginning. Prints the medians of --runs and how many prompt tokens were\n"
          "computed.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {{.name = "--input-len",
                 .value = "N",
                 .help = "tokens of each prompt; default 8K, or what the context holds",
                 .kind = Flag::Kind::kSize,
                 .least = 2,
                 .most = 1 << 20},
                {.name = "--shared",
                 .value = "N,N",
                 .help = "tokens at its beginning that a prompt shares with the first; default "
                         "fifteen sixteenths, and all but 32"},
                {.name = "--runs",
                 .value = "R",
                 .help = "measured runs",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "3",
                 .least = 1,
                 .most = 1000},
                {.name = "--json", .value = "FILE", .help = "also write the numbers; - is stdout"}},
      .examples = {"pelton bench prefix ./model",
                   "pelton bench prefix ./model --input-len 2K --shared 1024,2000 --json -"},
      .run = run_bench_prefix,
  };
  for (Flag& flag : model_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
