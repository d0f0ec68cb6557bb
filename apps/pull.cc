// pelton pull: a model from a hub into the Hugging Face cache.
#include "hub/pull.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/model_fetch.h"
#include "apps/packing.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/split.h"
#include "cli/human_size.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// "a,b" -> a, b
std::vector<std::string> globs(std::string_view text) {
  const auto parts = base::split_skipping_empty(text, ',');
  return {parts.begin(), parts.end()};
}

Result<hub::PullOptions> pull_options(const cli::Arguments& arguments) {
  TRY_ASSIGN(hub::PullOptions options,
             hub_pull_options(arguments.text("MODEL"), arguments.text("--endpoint")));
  options.revision = arguments.text("--revision");
  options.include = globs(arguments.text("--include"));
  options.exclude = globs(arguments.text("--exclude"));
  options.transfers.connections = static_cast<int>(arguments.integer("--connections"));
  return options;
}

Result<hub::PullReport> pull_with_progress(hub::PullOptions options, const base::Clock& clock) {
  const cli::Interrupt interrupt;
  cli::Progress progress(options.model, cli::Progress::Unit::kBytes, clock);
  options.retry.on_retry = retry_lines(clock, [&progress](const std::string& line) {
    progress.clear();
    fmt::print(stderr, "{}\n", line);
  });
  return hub::pull(options, clock, [&](const hub::PullProgress& now) {
    if (now.bytes_total > 0) progress.update(now.bytes_done, now.bytes_total);
    return !interrupt.pending();
  });
}

cli::Flag packed_only(Flag flag) {
  flag.only_with = {{"--pack"}};
  return flag;
}

Result<void> run_pull(const cli::Arguments& arguments) {
  TRY_ASSIGN(const hub::PullOptions options, pull_options(arguments));
  // Not found out when all has been fetched.
  std::error_code ignored;
  if (arguments.has("--pack") && std::filesystem::exists(arguments.text("--pack"), ignored)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--pack: {} is there already; name a new folder, or remove it",
                             arguments.text("--pack")),
                 "pack"};
  }
  const base::SystemClock clock;
  const int64_t start_ns = clock.now_ns();
  Result<hub::PullReport> report = pull_with_progress(options, clock);
  if (!report.ok() && report.error().code == ErrorCode::kCancelled) {
    return Error{ErrorCode::kCancelled,
                 "interrupted; what has come is kept, the same command continues"};
  }
  TRY(report);
  const double seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
  fmt::print(stderr, "{}: {} files fetched ({} in {}), {} were there\n", options.model,
             report->files_fetched, cli::format_bytes(static_cast<double>(report->bytes_fetched)),
             cli::format_duration(seconds), report->files_kept);
  for (const std::string& file : report->unchecked) {
    fmt::print(stderr, "{}: the hub gives no hash of it, so it was not checked\n", file);
  }
  if (!arguments.has("--pack")) return write_output(report->folder + "\n");
  const std::string& out = arguments.text("--pack");
  node::PackFolderOptions packing;
  TRY_ASSIGN(packing.weights, models::parse_weight_choice(arguments.text("--weights")));
  TRY(pack_model_into(report->folder, out, packing, 0, false));
  return write_output(out + "\n");
}

}  // namespace

cli::Verb pull_verb() {
  return {
      .name = "pull",
      .summary = "Fetches a model from the Hugging Face hub into its cache.",
      .about =
          "Many byte ranges at a time; continues what was interrupted, fetches nothing twice, and\n"
          "checks every hash that the hub gives. Prints the model's folder. HF_TOKEN,\n"
          "HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_CACHE and HF_HOME mean what they\n"
          "mean to the hub's own tools; proxies come from https_proxy and no_proxy.",
      .positionals = {{"MODEL",
                       "a hub id, as openai/gpt-oss-20b, or a short name, as gpt-oss-20b"}},
      .flags = {{.name = "--revision",
                 .value = "NAME",
                 .help = "branch, tag or commit",
                 .default_text = "main"},
                {.name = "--include",
                 .value = "GLOBS",
                 .help = "only these files, as '*.json,original/*'; default: the weights, "
                         "configuration and tokenizer at the top"},
                {.name = "--exclude", .value = "GLOBS", .help = "not these files"},
                {.name = "--connections",
                 .value = "N",
                 .help = "byte ranges at a time",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "8",
                 .least = 1,
                 .most = 64},
                {.name = "--endpoint", .value = "URL", .help = "another hub, or a mirror"},
                {.name = "--pack",
                 .value = "OUT",
                 .help =
                     "then pack the model into this folder, as pelton pack does, and print that",
                 .may_be_empty = false},
                packed_only(packed_weights_flag())},
      .examples = {"pelton pull openai/gpt-oss-20b",
                   "pelton pull openai/gpt-oss-20b --include 'original/*,tokenizer.json'",
                   "pelton pull openai/gpt-oss-20b --pack ./packed --weights int8",
                   "HF_TOKEN=hf_... pelton pull my/private-model --revision v2"},
      .run = run_pull,
  };
}

}  // namespace pelton::apps
