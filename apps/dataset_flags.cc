// Which prompts a load test sends.
#include <algorithm>

#include "apps/input.h"
#include "apps/load_flags.h"
#include "base/file.h"
#include "workload/recorded.h"
#include "workload/synthetic.h"

namespace pelton::apps {
namespace {

using cli::Flag;

int integer(const cli::Arguments& arguments, std::string_view name) {
  return static_cast<int>(arguments.integer(name));
}

// --input-len and --output-len stand for the data set's own flags.
int length(const cli::Arguments& arguments, std::string_view general, std::string_view own) {
  return integer(arguments, arguments.has(general) ? general : own);
}

Result<std::vector<workload::Conversation>> random_dataset(const cli::Arguments& arguments,
                                                           const workload::Vocabulary& vocabulary,
                                                           const DatasetTimes& times) {
  workload::RandomLengths lengths;
  if (arguments.has("--preset")) {
    TRY_ASSIGN(lengths, workload::preset_lengths(arguments.text("--preset")));
  } else {
    lengths = {.input_tokens = length(arguments, "--input-len", "--random-input-len"),
               .output_tokens = length(arguments, "--output-len", "--random-output-len"),
               .range_ratio = arguments.number("--random-range-ratio"),
               .prefix_tokens = integer(arguments, "--random-prefix-len")};
  }
  return workload::random_conversations(lengths, times.turns, arguments.integer("--num-prompts"),
                                        vocabulary,
                                        static_cast<uint64_t>(arguments.integer("--seed")));
}

Result<std::vector<workload::Conversation>> sonnet_dataset(std::string_view text,
                                                           const std::string& path,
                                                           const cli::Arguments& arguments,
                                                           const workload::Vocabulary& vocabulary) {
  return workload::sonnet_conversations(
      text, path,
      {.input_tokens = length(arguments, "--input-len", "--sonnet-input-len"),
       .output_tokens = length(arguments, "--output-len", "--sonnet-output-len"),
       .prefix_tokens = integer(arguments, "--sonnet-prefix-len")},
      arguments.integer("--num-prompts"), static_cast<uint64_t>(arguments.integer("--seed")),
      vocabulary);
}

Result<std::vector<workload::Conversation>> recorded_dataset(const cli::Arguments& arguments,
                                                             const workload::Vocabulary& vocabulary,
                                                             const DatasetTimes& times) {
  const std::string& kind = arguments.text("--dataset-name");
  const std::string& path = arguments.text("--dataset-path");
  if (path.empty() && kind == "sonnet") return sonnet_dataset("", "", arguments, vocabulary);
  if (path.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--dataset-name " + kind + " needs --dataset-path FILE", "dataset_path"};
  }
  Result<base::MappedFile> file = base::MappedFile::open(path);
  // An input that is missing fails the run; "no model" would be another exit code.
  if (!file) return Error{ErrorCode::kIo, file.error().message, "dataset_path"};
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  const auto seed = static_cast<uint64_t>(arguments.integer("--seed"));
  if (kind == "sonnet") return sonnet_dataset(text, path, arguments, vocabulary);
  if (kind == "burstgpt") {
    return workload::burstgpt_conversations(text, path, arguments.integer("--num-prompts"), seed,
                                            vocabulary);
  }
  if (kind == "trace") {
    // A trace is as long as it is, unless a number was asked for.
    const bool all = arguments.origin("--num-prompts") == "default";
    TRY_ASSIGN(workload::Trace trace,
               workload::trace_conversations(text, path,
                                             {.count = all ? 0 : arguments.integer("--num-prompts"),
                                              .speed = times.trace_speed,
                                              .seed = seed},
                                             vocabulary));
    write_note(workload::trace_note(path, trace));
    return std::move(trace.conversations);
  }
  workload::RecordedOptions options{.count = arguments.integer("--num-prompts"),
                                    .turns_max = times.turns.count,
                                    .think_s = times.turns.think_s,
                                    .seed = seed};
  const std::string own = "--" + kind + "-output-len";
  if (arguments.has("--output-len")) {
    options.output_tokens = integer(arguments, "--output-len");
  } else if (arguments.has(own)) {
    options.output_tokens = integer(arguments, own);
  }
  if (kind == "sharegpt") {
    return workload::sharegpt_conversations(text, path, options, vocabulary);
  }
  if (kind == "hf") return workload::hub_rows_conversations(text, path, options, vocabulary);
  return workload::custom_conversations(text, path, options, vocabulary);
}

// Of some kinds of data sets only.
Flag of_kinds(std::vector<std::string> kinds, Flag flag) {
  flag.only_with = {{"--dataset-name", std::move(kinds)}};
  return flag;
}

Flag in_place_of(const std::vector<cli::Circumstance>& others, Flag flag) {
  flag.not_with.insert(flag.not_with.end(), others.begin(), others.end());
  return flag;
}

Flag token_flag(const char* name, const char* help, const char* fallback, double least) {
  constexpr double kLengthMax = 10'000'000;
  return count_flag(name, "N", help, fallback, least, kLengthMax);
}

// As vLLM's benchmark has them.
std::vector<Flag> benchmark_set_flags() {
  return {
      in_place_of(
          {{"--input-len"}},
          of_kinds({"sonnet"}, token_flag("--sonnet-input-len", "prompt tokens, about", "550", 1))),
      of_kinds({"sonnet"},
               token_flag("--sonnet-prefix-len", "of them, those that all share", "200", 0)),
      in_place_of(
          {{"--output-len"}, {"--backend", {"openai-embeddings", "vllm-rerank"}}},
          of_kinds({"sonnet"}, token_flag("--sonnet-output-len", "answer tokens", "150", 1))),
      in_place_of(
          {{"--output-len"}},
          of_kinds({"hf"}, token_flag("--hf-output-len",
                                      "answer tokens; default as many as the model likes", "", 1))),
  };
}

}  // namespace

bool is_invented(const cli::Arguments& arguments) {
  const std::string& kind = arguments.text("--dataset-name");
  return kind != "sharegpt" && kind != "custom" && kind != "hf";
}

DatasetTimes read_dataset_times(const cli::Arguments& arguments) {
  return {.turns = {.count = integer(arguments, "--turns"),
                    .think_s = arguments.number("--think-time")},
          .trace_speed = arguments.number("--trace-speed")};
}

Result<std::vector<workload::Conversation>> read_dataset(const cli::Arguments& arguments,
                                                         const workload::Vocabulary& vocabulary,
                                                         const DatasetTimes& times) {
  const std::string& kind = arguments.text("--dataset-name");
  if (kind == "random") return random_dataset(arguments, vocabulary, times);
  if (kind != "prefix_repetition") return recorded_dataset(arguments, vocabulary, times);
  return workload::prefix_repetition(
      {.prefix_tokens = integer(arguments, "--prefix-repetition-prefix-len"),
       .suffix_tokens = length(arguments, "--input-len", "--prefix-repetition-suffix-len"),
       .prefix_count = integer(arguments, "--prefix-repetition-num-prefixes"),
       .output_tokens = length(arguments, "--output-len", "--prefix-repetition-output-len")},
      arguments.integer("--num-prompts"), vocabulary,
      static_cast<uint64_t>(arguments.integer("--seed")));
}

std::vector<Flag> dataset_flags() {
  Flag kind = text_flag("--dataset-name", "KIND", "which prompts", "random");
  kind.choices = {"random", "sharegpt",          "custom",  "trace", "hf",
                  "sonnet", "prefix_repetition", "burstgpt"};
  Flag preset = text_flag("--preset", "NAME", "lengths of random prompts, by name");
  preset.choices = {"prefill-heavy", "decode-heavy", "conversation"};
  const std::vector<std::string> invented = {"random", "prefix_repetition", "sonnet"};
  const std::vector<std::string> all_but_trace = {
      "random", "prefix_repetition", "sharegpt", "custom", "sonnet", "hf"};
  const std::vector<cli::Circumstance> no_answers = {
      {"--backend", {"openai-embeddings", "vllm-rerank"}}};
  const cli::Circumstance by_name{"--preset"};
  std::vector<Flag> flags = {
      std::move(kind),
      of_kinds(
          {"sharegpt", "custom", "trace", "sonnet", "burstgpt", "hf"},
          text_flag(
              "--dataset-path", "FILE",
              "of sharegpt, custom (JSON lines), trace, burstgpt (CSV), hf (rows of a data set "
              "of the hub, as JSON) and sonnet (lines; without it random words)")),
      count_flag("--num-prompts", "N", "conversations; a trace is taken whole by default", "1000",
                 1, 1e7),
      count_flag("--seed", "S", "of prompts and arrivals", "0", 0, 9e15),
      in_place_of({by_name},
                  of_kinds(invented,
                           token_flag("--input-len",
                                      "prompt tokens, instead of the data set's own flag", "", 1))),
      in_place_of({by_name, no_answers[0]},
                  of_kinds(all_but_trace,
                           token_flag("--output-len",
                                      "answer tokens, instead of the data set's own flag", "", 1))),
      of_kinds({"random"}, std::move(preset)),
      in_place_of(
          {by_name, {"--input-len"}},
          of_kinds({"random"}, token_flag("--random-input-len", "prompt tokens", "1024", 1))),
      in_place_of(
          {by_name, {"--output-len"}, no_answers[0]},
          of_kinds({"random"}, token_flag("--random-output-len", "answer tokens", "128", 1))),
      in_place_of(
          {by_name},
          of_kinds({"random"}, number_flag("--random-range-ratio", "R",
                                           "lengths vary by this share both ways", "0", 0, 0.999))),
      in_place_of(
          {by_name},
          of_kinds({"random"}, token_flag("--random-prefix-len",
                                          "tokens at the beginning that all share", "0", 0))),
      of_kinds({"prefix_repetition"},
               token_flag("--prefix-repetition-prefix-len", "shared tokens", "256", 0)),
      in_place_of({{"--input-len"}},
                  of_kinds({"prefix_repetition"}, token_flag("--prefix-repetition-suffix-len",
                                                             "tokens of one's own", "256", 1))),
      of_kinds({"prefix_repetition"}, count_flag("--prefix-repetition-num-prefixes", "N",
                                                 "different prefixes", "10", 1, 1e6)),
      in_place_of({{"--output-len"}, no_answers[0]},
                  of_kinds({"prefix_repetition"}, token_flag("--prefix-repetition-output-len",
                                                             "answer tokens", "128", 1))),
      in_place_of(
          {{"--output-len"}},
          of_kinds({"sharegpt"}, token_flag("--sharegpt-output-len",
                                            "answer tokens; default those of the file", "", 1))),
      in_place_of(
          {{"--output-len"}},
          of_kinds({"custom"}, token_flag("--custom-output-len",
                                          "answer tokens; default those of the file", "", 1))),
  };
  for (Flag& flag : benchmark_set_flags()) flags.push_back(std::move(flag));
  return flags;
}

std::vector<Flag> dataset_time_flags() {
  Flag speed = number_flag("--trace-speed", "X", "times faster than the trace was", "1", 1e-6, 1e6);
  speed.only_with = {{"--dataset-name", {"trace"}}};
  Flag turns = count_flag("--turns", "N", "turns to a conversation", "1", 1, 1000);
  turns.only_with = {{"--dataset-name", {"random", "sharegpt"}}};
  Flag think =
      number_flag("--think-time", "SECONDS", "mean pause before a later turn", "0", 0, 3600);
  think.only_with = {{"--turns"}};
  return {std::move(speed), std::move(turns), std::move(think)};
}

}  // namespace pelton::apps
