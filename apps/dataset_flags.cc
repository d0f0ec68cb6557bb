// Which prompts a load test sends.
#include <algorithm>

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

Result<std::vector<workload::Conversation>> recorded_dataset(const cli::Arguments& arguments,
                                                             const workload::Vocabulary& vocabulary,
                                                             const DatasetTimes& times) {
  const std::string& kind = arguments.text("--dataset-name");
  const std::string& path = arguments.text("--dataset-path");
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
  if (kind == "trace") {
    // A trace is as long as it is, unless a number was asked for.
    const bool all = arguments.origin("--num-prompts") == "default";
    return workload::trace_conversations(text, path,
                                         {.count = all ? 0 : arguments.integer("--num-prompts"),
                                          .speed = times.trace_speed,
                                          .seed = seed},
                                         vocabulary);
  }
  workload::RecordedOptions options{.count = arguments.integer("--num-prompts"),
                                    .turns_max = times.turns.count,
                                    .think_s = times.turns.think_s,
                                    .seed = seed};
  const char* own = kind == "sharegpt" ? "--sharegpt-output-len" : "--custom-output-len";
  if (arguments.has("--output-len")) {
    options.output_tokens = integer(arguments, "--output-len");
  } else if (arguments.has(own)) {
    options.output_tokens = integer(arguments, own);
  }
  if (kind == "sharegpt") {
    return workload::sharegpt_conversations(text, path, options, vocabulary);
  }
  return workload::custom_conversations(text, path, options, vocabulary);
}

}  // namespace

bool is_invented(const cli::Arguments& arguments) {
  const std::string& kind = arguments.text("--dataset-name");
  return kind != "sharegpt" && kind != "custom";
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
  constexpr double kLengthMax = 10'000'000;
  const auto of = [](std::vector<std::string> kinds, Flag flag) {
    flag.only_with = {{"--dataset-name", std::move(kinds)}};
    return flag;
  };
  const auto instead_of = [](std::vector<cli::Circumstance> others, Flag flag) {
    flag.not_with.insert(flag.not_with.end(), others.begin(), others.end());
    return flag;
  };
  const auto tokens = [](const char* name, const char* help, const char* fallback, double least) {
    return count_flag(name, "N", help, fallback, least, kLengthMax);
  };
  Flag kind = text_flag("--dataset-name", "KIND", "which prompts", "random");
  kind.choices = {"random", "sharegpt", "custom", "trace", "prefix_repetition"};
  Flag preset = text_flag("--preset", "NAME", "lengths of random prompts, by name");
  preset.choices = {"prefill-heavy", "decode-heavy", "conversation"};
  const std::vector<std::string> invented = {"random", "prefix_repetition"};
  const std::vector<std::string> all_but_trace = {"random", "prefix_repetition", "sharegpt",
                                                  "custom"};
  const std::vector<cli::Circumstance> no_answers = {{"--backend", {"openai-embeddings"}}};
  const cli::Circumstance by_name{"--preset"};
  return {
      std::move(kind),
      of({"sharegpt", "custom", "trace"},
         text_flag("--dataset-path", "FILE", "of sharegpt, custom (JSON lines) and trace")),
      count_flag("--num-prompts", "N", "conversations; a trace is taken whole by default", "1000",
                 1, 1e7),
      count_flag("--seed", "S", "of prompts and arrivals", "0", 0, 9e15),
      instead_of({by_name},
                 of(invented, tokens("--input-len",
                                     "prompt tokens, instead of the data set's own flag", "", 1))),
      instead_of(
          {by_name, no_answers[0]},
          of(all_but_trace,
             tokens("--output-len", "answer tokens, instead of the data set's own flag", "", 1))),
      of({"random"}, std::move(preset)),
      instead_of({by_name, {"--input-len"}},
                 of({"random"}, tokens("--random-input-len", "prompt tokens", "1024", 1))),
      instead_of({by_name, {"--output-len"}, no_answers[0]},
                 of({"random"}, tokens("--random-output-len", "answer tokens", "128", 1))),
      instead_of({by_name}, of({"random"},
                               number_flag("--random-range-ratio", "R",
                                           "lengths vary by this share both ways", "0", 0, 0.999))),
      instead_of({by_name},
                 of({"random"}, tokens("--random-prefix-len",
                                       "tokens at the beginning that all share", "0", 0))),
      of({"prefix_repetition"},
         tokens("--prefix-repetition-prefix-len", "shared tokens", "256", 0)),
      instead_of({{"--input-len"}},
                 of({"prefix_repetition"},
                    tokens("--prefix-repetition-suffix-len", "tokens of one's own", "256", 1))),
      of({"prefix_repetition"},
         count_flag("--prefix-repetition-num-prefixes", "N", "different prefixes", "10", 1, 1e6)),
      instead_of({{"--output-len"}, no_answers[0]},
                 of({"prefix_repetition"},
                    tokens("--prefix-repetition-output-len", "answer tokens", "128", 1))),
      instead_of({{"--output-len"}},
                 of({"sharegpt"}, tokens("--sharegpt-output-len",
                                         "answer tokens; default those of the file", "", 1))),
      instead_of({{"--output-len"}},
                 of({"custom"}, tokens("--custom-output-len",
                                       "answer tokens; default those of the file", "", 1))),
  };
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
