// pelton perplexity: how well a model predicts a text, and how far the same model in other weights,
// with another KV cache or by other kernels is from it.
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "eval/divergence.h"
#include "eval/score_journal.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "node/kept_measurement.h"
#include "node/packed_folder.h"
#include "report/condition.h"
#include "report/html_page.h"
#include "report/plot.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr int kChunk = 64;  // tokens a step, each with its row of logits
constexpr const char* kKvAsServed = "auto";
constexpr const char* kJournal = ".partial";  // behind --out

// A checkpoint with what computes it.
struct Loaded {
  std::string files;  // which they are (checkpoint/fingerprint.h), and what was made of them
  std::unique_ptr<checkpoint::Checkpoint> checkpoint;
  std::unique_ptr<kernels::Kernels> kernels;
  std::unique_ptr<models::Model> model;
  tensor::DType kv = tensor::DType::kF16;
};

Result<Loaded> load(checkpoint::Checkpoint checkpoint, kernels::KernelChoice choice,
                    std::optional<tensor::DType> kv, base::ThreadPool& pool) {
  Loaded loaded;
  loaded.checkpoint = std::make_unique<checkpoint::Checkpoint>(std::move(checkpoint));
  TRY_ASSIGN(loaded.kernels, kernels::make_kernels(choice, pool));
  TRY_ASSIGN(loaded.model,
             models::load_model(*loaded.checkpoint, *loaded.kernels,
                                {.batch_tokens_max = kChunk, .logit_rows_max = kChunk}));
  loaded.kv = kv.value_or(loaded.kernels->kv_dtype());
  return loaded;
}

bool compares(const cli::Arguments& arguments) {
  return arguments.has("--against") || arguments.has("--against-weights") ||
         arguments.has("--against-kv-cache-dtype") || arguments.has("--against-kernels");
}

// The model in the other form that the flags ask for; empty: they ask for none. `kv` and `choice`:
// of the first form, and of the other one unless its flag says otherwise.
Result<std::optional<Loaded>> load_other(const cli::Arguments& arguments,
                                         const checkpoint::Checkpoint& base,
                                         std::optional<tensor::DType> kv,
                                         kernels::KernelChoice choice, base::ThreadPool& pool,
                                         const cli::Interrupt& interrupt) {
  if (!compares(arguments)) return std::optional<Loaded>();
  if (arguments.has("--against-kv-cache-dtype")) {
    TRY_ASSIGN(kv, tensor::parse_kv_type(arguments.text("--against-kv-cache-dtype")));
  }
  if (arguments.has("--against-kernels")) {
    TRY_ASSIGN(choice, kernels::parse_kernel_choice(arguments.text("--against-kernels")));
  }
  std::string folder = base.folder();
  if (arguments.has("--against")) {
    TRY_ASSIGN(folder, checkpoint::resolve_model(arguments.text("--against")));
  }
  TRY_ASSIGN(checkpoint::Checkpoint other, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(std::string files, checkpoint::fingerprint(other));
  if (arguments.has("--against-weights")) {
    files += ' ' + arguments.text("--against-weights");
    TRY_ASSIGN(const models::WeightChoice weights,
               models::parse_weight_choice(arguments.text("--against-weights")));
    models::PackedModel made;
    TRY_ASSIGN(other,
               node::pack_into_memory(
                   other, {.weights = weights, .activations = {}}, pool,
                   [&](std::string_view, int64_t, int64_t) { return !interrupt.pending(); }, made));
  }
  TRY_ASSIGN(Loaded loaded, load(std::move(other), choice, kv, pool));
  loaded.files = std::move(files);
  return std::optional<Loaded>(std::move(loaded));
}

// Where --out is given: with what an earlier run of the same kept.
Result<std::optional<eval::ScoreJournal>> open_journal(const cli::Arguments& arguments,
                                                       const Loaded& base,
                                                       const std::optional<Loaded>& other,
                                                       const std::vector<TokenId>& tokens,
                                                       const eval::TextScoringOptions& options) {
  if (!arguments.has("--out")) return std::optional<eval::ScoreJournal>();
  const std::string_view text(reinterpret_cast<const char*>(tokens.data()),
                              tokens.size() * sizeof(TokenId));
  std::string of = fmt::format("{} {} {} {} {} ", base.files, base.kernels->name(),
                               static_cast<int>(base.kv), options.window, options.stride);
  if (other) {
    of +=
        fmt::format("{} {} {} ", other->files, other->kernels->name(), static_cast<int>(other->kv));
  }
  TRY_ASSIGN(eval::ScoreJournal journal,
             eval::ScoreJournal::open(arguments.text("--out") + kJournal,
                                      base::sha256(of + base::sha256(text))));
  if (!journal.known().empty()) {
    fmt::print(stderr, "pelton: {} of {} tokens were computed before\n", journal.known().size(),
               tokens.size());
  }
  return std::optional<eval::ScoreJournal>(std::move(journal));
}

std::string words(const eval::TextComparison& found, bool has_other) {
  std::string text =
      fmt::format("{:<22} {}\n{:<22} {:.4f} ({:.5f} nats a token)\n", "tokens", found.base.tokens,
                  "perplexity", found.base.perplexity(), found.base.nats);
  if (!has_other) return text;
  const eval::Divergence& far = found.divergence;
  return text + fmt::format(
                    "{:<22} {:.4f} ({:+.3f} %)\n{:<22} {:.3e} mean, {:.3e} p99, {:.3e} most "
                    "(nats)\n{:<22} {:.3f} %\n",
                    "of the other", found.other.perplexity(),
                    100 * (std::exp(found.other.nats - found.base.nats) - 1), "KL divergence",
                    far.kl_mean, far.kl_p99, far.kl_max, "same likeliest token",
                    100 * far.agreement);
}

Json numbers(const eval::TextComparison& found, bool has_other) {
  Json json;
  json.set("tokens", found.base.tokens)
      .set("perplexity", found.base.perplexity())
      .set("nats_per_token", found.base.nats);
  if (!has_other) return json;
  json.set("other_perplexity", found.other.perplexity())
      .set("other_nats_per_token", found.other.nats)
      .set("kl_mean", found.divergence.kl_mean)
      .set("kl_p99", found.divergence.kl_p99)
      .set("kl_max", found.divergence.kl_max)
      .set("agreement", found.divergence.agreement)
      .set("rise", std::exp(found.other.nats - found.base.nats) - 1);
  return json;
}

// --fail-if: known before an hour is spent, and of two forms only where two are computed.
Result<std::vector<report::Condition>> read_conditions_on(const cli::Arguments& arguments) {
  const Json known = numbers({}, compares(arguments));
  std::vector<report::Condition> conditions;
  for (const std::string& text : arguments.list("--fail-if")) {
    TRY_ASSIGN(report::Condition condition,
               report::parse_condition(
                   text, [&](std::string_view key) { return known.find(key) != nullptr; },
                   compares(arguments) ? "kl_mean>0.01" : "perplexity>9"));
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

// What was compared, and the lines that a terminal gets, as a table.
std::string page(const cli::Arguments& arguments, const std::string& lines) {
  std::string html = report::page_begin("Perplexity of " + arguments.text("MODEL"));
  for (const char* const flag :
       {"--text", "--tokens", "--window", "--stride", "--kernels", "--kv-cache-dtype", "--against",
        "--against-weights", "--against-kv-cache-dtype", "--against-kernels"}) {
    if (!arguments.has(flag)) continue;
    html += fmt::format("<p class=\"sub\">{} <code>{}</code></p>\n", flag + 2,
                        report::html_escape(arguments.text(flag)));
  }
  html += "<div class=\"scroll\"><table>\n";
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    const std::string_view line = std::string_view(lines).substr(begin, end - begin);
    const size_t gap = std::min(line.find("  "), line.size());
    const size_t value = std::min(line.find_first_not_of(' ', gap), line.size());
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", report::html_escape(line.substr(0, gap)),
                    report::html_escape(line.substr(value)));
    begin = end + 1;
  }
  return html + "</table></div>\n</main></body></html>\n";
}

Result<std::vector<TokenId>> read_tokens(const cli::Arguments& arguments,
                                         const checkpoint::Checkpoint& checkpoint,
                                         const std::string& model) {
  std::vector<TokenId> ids;
  if (arguments.has("--tokens")) {
    TRY_ASSIGN(const IdsFile file, read_ids_file(arguments.text("--tokens")));
    ids = file.all();
  } else if (!arguments.has("--text")) {
    return Error{ErrorCode::kInvalidArgument, "give a text with --text, or ids with --tokens", {}};
  } else {
    TRY_ASSIGN(const std::string text, read_input(arguments.text("--text")));
    if (!base::is_valid_utf8(text)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} is no text: its byte {} is not UTF-8", arguments.text("--text"),
                               base::valid_utf8_prefix(text) + 1),
                   "text"};
    }
    TRY_ASSIGN(const tokenizer::Tokenizer tokenizer, load_tokenizer(model));
    ids = tokenizer.encode(text);
  }
  for (const TokenId id : ids) {
    if (id < 0 || id >= checkpoint.config().vocab_size) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("token {} is none of a vocabulary of {}", id, checkpoint.config().vocab_size),
          "tokens"};
    }
  }
  return ids;
}

// What one of this model's formats costs it is known from now on: serve says so. Of the model as it
// is served otherwise: under another --kv-cache-dtype it is something else.
Result<void> keep(const cli::Arguments& arguments, const checkpoint::Checkpoint& source,
                  const eval::TextComparison& found) {
  constexpr int64_t kTokensLeast = 256;  // of fewer nothing is concluded
  if (arguments.has("--against") || arguments.has("--against-kernels")) return {};
  if (found.base.tokens < kTokensLeast) return {};
  if (arguments.text("--kv-cache-dtype") != kKvAsServed) return {};
  const bool is_kv = arguments.has("--against-kv-cache-dtype");
  if (is_kv == arguments.has("--against-weights")) return {};
  const std::string format = is_kv ? "kv-" + arguments.text("--against-kv-cache-dtype")
                                   : "weights-" + arguments.text("--against-weights");
  return node::keep_record(node::measurements_folder(), source,
                           {.format = format,
                            .tokens = found.base.tokens,
                            .perplexity = found.base.perplexity(),
                            .other_perplexity = found.other.perplexity(),
                            .divergence = found.divergence.kl_mean,
                            .agreement = found.divergence.agreement});
}

Result<void> write_results(const cli::Arguments& arguments, const eval::TextComparison& found,
                           bool has_other) {
  const std::string figures = numbers(found, has_other).dump() + "\n";
  const std::string lines = words(found, has_other);
  if (arguments.has("--html")) {
    TRY(base::write_file(arguments.text("--html"), page(arguments, lines)));
  }
  if (arguments.has("--out")) {
    TRY(base::write_file(arguments.text("--out"), figures));
    std::error_code ignored;
    std::filesystem::remove(arguments.text("--out") + kJournal, ignored);
  }
  return arguments.has("--json") ? write_output(figures) : write_text(lines);
}

Result<void> check(const std::vector<report::Condition>& conditions, const Json& figures) {
  for (const report::Condition& condition : conditions) {
    TRY_ASSIGN(const bool holds, report::holds(condition, figures));
    if (!holds) continue;
    return Error{ErrorCode::kUnavailable,
                 fmt::format("--fail-if {} (it is {:.4g})", condition.text,
                             figures.number(condition.key).value_or(0)),
                 {}};
  }
  return {};
}

Result<void> run_perplexity(const cli::Arguments& arguments) {
  const cli::Interrupt interrupt;
  const base::SystemClock clock;
  TRY_ASSIGN(const std::vector<report::Condition> conditions, read_conditions_on(arguments));
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::optional<tensor::DType> kv,
             tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(const std::vector<TokenId> tokens, read_tokens(arguments, checkpoint, folder));
  TRY_ASSIGN(std::string files, checkpoint::fingerprint(checkpoint));
  TRY_ASSIGN(Loaded base, load(std::move(checkpoint), choice, kv, pool));
  base.files = std::move(files);
  TRY_ASSIGN(std::optional<Loaded> other,
             load_other(arguments, *base.checkpoint, kv, choice, pool, interrupt));

  eval::TextScoringOptions options;
  options.window = static_cast<int>(
      std::min<int64_t>(arguments.integer("--window"), base.checkpoint->config().context_max));
  options.stride =
      arguments.has("--stride") ? static_cast<int>(arguments.integer("--stride")) : options.window;
  cli::Progress progress("computing", cli::Progress::Unit::kCount, clock);
  options.go_on = [&](int64_t done, int64_t total) {
    progress.update(done, total);
    return !interrupt.pending();
  };
  TRY_ASSIGN(std::optional<eval::ScoreJournal> journal,
             open_journal(arguments, base, other, tokens, options));
  if (journal) {
    options.known = journal->known();
    options.keep = [&](std::span<const eval::PositionScore> scores) {
      return journal->keep(scores);
    };
  }
  const eval::ScoredModel scored{.model = base.model.get(), .kv = base.kv};
  eval::ScoredModel second;
  if (other) second = {.model = other->model.get(), .kv = other->kv};
  TRY_ASSIGN(const eval::TextComparison found,
             eval::score_text(scored, other ? &second : nullptr, kChunk, tokens, options));
  progress.clear();
  if (other) {
    if (const Result<void> kept = keep(arguments, *base.checkpoint, found); !kept.ok()) {
      fmt::print(stderr, "pelton: this is not kept as a record: {}\n", kept.error().message);
    }
  }
  TRY(write_results(arguments, found, other.has_value()));
  return check(conditions, numbers(found, other.has_value()));
}

}  // namespace

cli::Verb perplexity_verb() {
  Flag fail_if = text_flag("--fail-if", "COND",
                           "end with 1 if this holds of --json's figures, as kl_mean>0.01 or "
                           "rise>0.02; may be repeated");
  fail_if.many = true;
  return {
      .name = "perplexity",
      .summary = "How well a model predicts a text, and what other weights change of that.",
      .about =
          "The text goes through the model as it is (teacher-forced), in windows. With "
          "--against,\n"
          "--against-weights, --against-kv-cache-dtype or --against-kernels it goes through a\n"
          "second form of the same model too: the divergence of its next-token distributions, and\n"
          "how often both have the same likeliest token, say what a quantization costs long "
          "before\n"
          "answers do.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {text_flag("--text", "FILE", "a text; - for standard input"),
                text_flag("--tokens", "IDS.json", "its token ids instead"),
                count_flag("--window", "N", "tokens that are seen at once", "512", 2, 1e7),
                count_flag("--stride", "N", "from one window to the next; default the window", "",
                           1, 1e7),
                text_flag("--against", "MODEL",
                          "another form of it: a packed folder, a .gguf file"),
                text_flag("--against-weights", "W", "it in these weights: auto, int8, shipped"),
                text_flag("--against-kv-cache-dtype", "T",
                          "it with keys and values in this: auto, f16, bf16, int8, fp8"),
                text_flag("--against-kernels", "K",
                          "it by these kernels: auto, reference, avx512, avx2, neon"),
                std::move(fail_if), text_flag("--html", "FILE", "also write a page"),
                text_flag("--out", "FILE",
                          "also write --json's object there; what is computed is kept in "
                          "FILE.partial meanwhile, so that a run that was interrupted goes on"),
                switch_flag("--json", "one JSON object"), kernels_flag(), threads_flag(),
                kv_type_flag()},
      .exclusive = {{"--text", "--tokens"}},
      .examples = {"pelton perplexity ./model --text book.txt",
                   "pelton perplexity ./model --text book.txt --against-weights int8",
                   "pelton perplexity ./model --text book.txt --against ./model-Q4_K_M.gguf "
                   "--fail-if 'kl_mean>0.02'"},
      .run = run_perplexity,
  };
}

}  // namespace pelton::apps
