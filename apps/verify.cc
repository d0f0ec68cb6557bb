// pelton verify: is this model whole, and does it compute what it should?
#include <cmath>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/describe.h"
#include "checkpoint/file_hashes.h"
#include "checkpoint/weight_check.h"
#include "cli/human_size.h"
#include "cli/progress.h"
#include "kernels/kernels.h"
#include "models/self_check.h"
#include "node/sample_text.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Two kinds of kernels differ by rounding: a few parts in a million for sane weights, some hundred
// for models with massive activations. Above this something else is wrong.
constexpr double kErrorMax = 1e-3;
// Packed for activations of 8 bits, they differ by what those lose.
constexpr double kInt8ErrorMax = 1e-1;

struct Findings {
  std::vector<checkpoint::FileHash> hashes;
  std::vector<checkpoint::WeightFault> faults;
  std::optional<models::SelfCheck> run;
  std::string kernels;
  size_t run_tokens = 0;
  bool real_text = false;
  std::vector<std::string> damage;  // one sentence each
};

Result<void> check_files(const checkpoint::Checkpoint& checkpoint, const base::Clock& clock,
                         Findings& findings) {
  cli::Progress progress("hashing", cli::Progress::Unit::kBytes, clock);
  TRY_ASSIGN(findings.hashes,
             checkpoint::check_file_hashes(
                 checkpoint, [&](int64_t done, int64_t total) { progress.update(done, total); }));
  for (const checkpoint::FileHash& hash : findings.hashes) {
    if (!hash.damaged()) continue;
    findings.damage.push_back(fmt::format("{}: SHA-256 is {}, but {} says {}", hash.path,
                                          hash.found, hash.origin, hash.expected));
  }
  return {};
}

void check_numbers(const checkpoint::Checkpoint& checkpoint, base::ThreadPool& pool,
                   const base::Clock& clock, Findings& findings) {
  cli::Progress progress("reading", cli::Progress::Unit::kBytes, clock);
  findings.faults = checkpoint::check_weights(
      checkpoint, pool, [&](int64_t done, int64_t total) { progress.update(done, total); });
  for (const checkpoint::WeightFault& fault : findings.faults) {
    findings.damage.push_back(fmt::format("tensor {}: {} at {} place{}, the first is {}",
                                          fault.tensor, fault.what, fault.count,
                                          fault.count == 1 ? "" : "s", fault.first));
  }
}

Result<void> check_run(const checkpoint::Checkpoint& checkpoint, size_t token_count,
                       base::ThreadPool& pool, const base::Clock& clock, Findings& findings) {
  TRY_ASSIGN(const node::SampleTokens sample, node::sample_tokens(checkpoint, token_count));
  const std::vector<TokenId>& tokens = sample.tokens;
  findings.real_text = sample.real_text;
  TRY_ASSIGN(const auto reference, kernels::make_kernels(kernels::KernelChoice::kReference, pool));
  TRY_ASSIGN(const auto fast, kernels::make_kernels(kernels::KernelChoice::kAuto, pool));
  findings.kernels = fast->name();
  findings.run_tokens = tokens.size();
  cli::Progress progress("computing", cli::Progress::Unit::kCount, clock);
  TRY_ASSIGN(findings.run, models::self_check(
                               checkpoint, *reference, *fast, tokens,
                               [&](int64_t done, int64_t total) { progress.update(done, total); }));
  const models::BlockDifference& worst = findings.run->blocks[findings.run->worst];
  const double limit = checkpoint.activation_bits() == 8 ? kInt8ErrorMax : kErrorMax;
  if (!(worst.error_median <= limit)) {
    findings.damage.push_back(
        fmt::format("reference and {} kernels differ by {:.1e} after {} (limit {:.0e})",
                    findings.kernels, worst.error_median, worst.name, limit));
  }
  return {};
}

std::string as_text(const checkpoint::Checkpoint& checkpoint, const Findings& findings) {
  std::string out;
  const auto line = [&](std::string_view label, const std::string& text) {
    out += fmt::format("{:<18}{}\n", label, text);
  };
  line("model", fmt::format("{} ({}), {} layers, {} experts", checkpoint.folder(),
                            checkpoint::layout_name(checkpoint.layout()),
                            checkpoint.config().layer_count(), checkpoint.config().expert_count));
  line("tensors",
       fmt::format("{}: names, types and shapes are right", checkpoint.tensors().size()));
  for (const checkpoint::FileHash& hash : findings.hashes) {
    line("hash", hash.expected.empty()
                     ? fmt::format("{}: nothing to compare with", hash.path)
                     : fmt::format("{}: {} {}", hash.path,
                                   hash.damaged() ? "DIFFERS from" : "as in", hash.origin));
  }
  line("numbers", findings.faults.empty()
                      ? "all finite, all scales valid"
                      : fmt::format("{} tensors are DAMAGED", findings.faults.size()));
  if (findings.run) {
    const models::SelfCheck& run = *findings.run;
    const models::BlockDifference& worst = run.blocks[run.worst];
    line("self-consistency",
         fmt::format("reference against {} on {} tokens: worst after {}, {:.1e} (most {:.1e}); the "
                     "same best token at {:.1f} % of positions",
                     findings.kernels, findings.run_tokens, worst.name, worst.error_median,
                     worst.error_max, 100 * run.agreement));
    if (findings.real_text) {
      line("real text", fmt::format("{:.3f} nats per token, perplexity {:.4g}", run.nats_per_token,
                                    std::exp(run.nats_per_token)));
    }
  }
  line("verdict", findings.damage.empty() ? "sound" : "DAMAGED");
  for (const std::string& damage : findings.damage) out += "  " + damage + "\n";
  return out;
}

Json as_json(const checkpoint::Checkpoint& checkpoint, const Findings& findings) {
  Json json;
  json.set("model", checkpoint::describe_json(checkpoint));
  Json::Array files;
  for (const checkpoint::FileHash& hash : findings.hashes) {
    Json file;
    file.set("path", hash.path).set("bytes", hash.bytes);
    file.set("expected_sha256", hash.expected.empty() ? Json() : Json(hash.expected));
    file.set("found_sha256", hash.found.empty() ? Json() : Json(hash.found));
    files.push_back(file.set("damaged", hash.damaged()));
  }
  json.set("files", std::move(files));
  Json::Array faults;
  for (const checkpoint::WeightFault& fault : findings.faults) {
    Json one;
    one.set("tensor", fault.tensor).set("what", fault.what).set("count", fault.count);
    faults.push_back(one.set("first", fault.first));
  }
  json.set("faults", std::move(faults));
  if (findings.run) {
    // JSON has no infinity.
    const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
    Json::Array blocks;
    for (const models::BlockDifference& block : findings.run->blocks) {
      Json one;
      one.set("block", block.name).set("error_median", number(block.error_median));
      one.set("error_max", number(block.error_max));
      blocks.push_back(one.set("rms", number(block.rms)));
    }
    Json run;
    run.set("kernels", findings.kernels).set("tokens", static_cast<int64_t>(findings.run_tokens));
    run.set("real_text", findings.real_text);
    run.set("worst", findings.run->blocks[findings.run->worst].name);
    run.set("agreement", findings.run->agreement);
    run.set("nats_per_token", number(findings.run->nats_per_token));
    json.set("self_check", run.set("blocks", std::move(blocks)));
  }
  Json::Array damage;
  for (const std::string& sentence : findings.damage) damage.push_back(sentence);
  return json.set("damage", std::move(damage)).set("sound", findings.damage.empty());
}

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string model, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(model));
  const base::SystemClock clock;
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  Findings findings;
  if (!arguments.has("--no-hashes")) TRY(check_files(checkpoint, clock, findings));
  check_numbers(checkpoint, pool, clock, findings);
  if (const auto tokens = arguments.integer("--tokens"); tokens > 0) {
    TRY(check_run(checkpoint, static_cast<size_t>(tokens), pool, clock, findings));
  }
  TRY(write_output(arguments.has("--json") ? as_json(checkpoint, findings).dump() + "\n"
                                           : as_text(checkpoint, findings)));
  if (findings.damage.empty()) return {};
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: is damaged: {}{}", model, findings.damage[0],
                           findings.damage.size() == 1
                               ? ""
                               : fmt::format(" (and {} more)", findings.damage.size() - 1))};
}

}  // namespace

cli::Verb verify_verb() {
  return {
      .name = "verify",
      .summary = "Checks a model's files, numbers and arithmetic.",
      .about =
          "Names, types and shapes of all tensors; SHA-256 of the files where the Hugging Face\n"
          "cache or the published list says what it should be; no NaN, infinity or invalid scale;\n"
          "then a text through the plain reference and the fast kernels, compared after each "
          "block.\n"
          "Ends with 4 if anything is damaged.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {{.name = "--tokens",
                 .value = "N",
                 .help = "length of the text that is computed; 0 computes nothing",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "32",
                 .most = 512},
                {.name = "--no-hashes",
                 .help = "do not hash the files",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--json",
                 .help = "one JSON object, with every block's difference",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--threads",
                 .value = "T",
                 .help = "0: one for each usable processor",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0",
                 .most = 1024}},
      .examples = {"pelton verify openai/gpt-oss-20b", "pelton verify ./model.gguf --json"},
      .run = run,
  };
}

}  // namespace pelton::apps
