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

workload::Turns turns_of(const cli::Arguments& arguments) {
  return {.count = integer(arguments, "--turns"), .think_s = arguments.number("--think-time")};
}

Result<std::vector<workload::Conversation>> random_dataset(const cli::Arguments& arguments,
                                                           const workload::Vocabulary& vocabulary) {
  workload::RandomLengths lengths;
  if (arguments.has("--preset")) {
    TRY_ASSIGN(lengths, workload::preset_lengths(arguments.text("--preset")));
  } else {
    lengths = {.input_tokens = length(arguments, "--input-len", "--random-input-len"),
               .output_tokens = length(arguments, "--output-len", "--random-output-len"),
               .range_ratio = arguments.number("--random-range-ratio"),
               .prefix_tokens = integer(arguments, "--random-prefix-len")};
  }
  return workload::random_conversations(lengths, turns_of(arguments),
                                        arguments.integer("--num-prompts"), vocabulary,
                                        static_cast<uint64_t>(arguments.integer("--seed")));
}

Result<std::vector<workload::Conversation>> recorded_dataset(
    const cli::Arguments& arguments, const workload::Vocabulary& vocabulary) {
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
    const bool all = arguments.text("--num-prompts") == "1000";
    return workload::trace_conversations(text, path,
                                         {.count = all ? 0 : arguments.integer("--num-prompts"),
                                          .speed = arguments.number("--trace-speed"),
                                          .seed = seed},
                                         vocabulary);
  }
  workload::RecordedOptions options{.count = arguments.integer("--num-prompts"),
                                    .turns_max = integer(arguments, "--turns"),
                                    .think_s = arguments.number("--think-time"),
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

Result<std::vector<workload::Conversation>> read_dataset(const cli::Arguments& arguments,
                                                         const workload::Vocabulary& vocabulary) {
  const std::string& kind = arguments.text("--dataset-name");
  if (kind == "random") return random_dataset(arguments, vocabulary);
  if (kind != "prefix_repetition") return recorded_dataset(arguments, vocabulary);
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
  Flag kind = text_flag("--dataset-name", "KIND", "which prompts", "random");
  kind.choices = {"random", "sharegpt", "custom", "trace", "prefix_repetition"};
  Flag preset = text_flag("--preset", "NAME", "lengths of random prompts, by name");
  preset.choices = {"prefill-heavy", "decode-heavy", "conversation"};
  return {
      std::move(kind),
      text_flag("--dataset-path", "FILE", "of sharegpt, custom (JSON lines) and trace"),
      count_flag("--num-prompts", "N", "conversations; a trace is taken whole by default", "1000",
                 1, 1e7),
      count_flag("--seed", "S", "of prompts and arrivals", "0", 0, 9e15),
      count_flag("--input-len", "N", "prompt tokens, instead of the data set's own flag", "", 1,
                 kLengthMax),
      count_flag("--output-len", "N", "answer tokens, instead of the data set's own flag", "", 1,
                 kLengthMax),
      std::move(preset),
      count_flag("--random-input-len", "N", "prompt tokens", "1024", 1, kLengthMax),
      count_flag("--random-output-len", "N", "answer tokens", "128", 1, kLengthMax),
      number_flag("--random-range-ratio", "R", "lengths vary by this share both ways", "0", 0,
                  0.999),
      count_flag("--random-prefix-len", "N", "tokens at the beginning that all share", "0", 0,
                 kLengthMax),
      count_flag("--prefix-repetition-prefix-len", "N", "shared tokens", "256", 0, kLengthMax),
      count_flag("--prefix-repetition-suffix-len", "N", "tokens of one's own", "256", 1,
                 kLengthMax),
      count_flag("--prefix-repetition-num-prefixes", "N", "different prefixes", "10", 1, 1e6),
      count_flag("--prefix-repetition-output-len", "N", "answer tokens", "128", 1, kLengthMax),
      count_flag("--sharegpt-output-len", "N", "answer tokens; default those of the file", "", 1,
                 kLengthMax),
      count_flag("--custom-output-len", "N", "answer tokens; default those of the file", "", 1,
                 kLengthMax),
      number_flag("--trace-speed", "X", "times faster than the trace was", "1", 1e-6, 1e6),
      count_flag("--turns", "N", "turns to a conversation (random, sharegpt)", "1", 1, 1000),
      number_flag("--think-time", "SECONDS", "mean pause before a later turn", "0", 0, 3600),
  };
}

}  // namespace pelton::apps
