// pelton grammar: compiles a schema, a regular expression or a grammar, says whether it does so and
// how long it takes, and walks instances through it token by token.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "base/raw_json.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_trial.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "tokenizer/tokenizer.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using grammar::GrammarTrial;
using grammar::MaskTiming;

// The vocabulary, and how the user wants to hear about it.
struct Bench {
  tokenizer::Tokenizer tokenizer;
  std::shared_ptr<const grammar::TokenTrie> trie;
  grammar::SchemaOptions options;
  MaskTiming timing = MaskTiming::kNo;
};

struct Instance {
  std::string text;
  std::optional<bool> valid;
};

std::string line_of(const std::string& file, const Bench& bench, const GrammarTrial& trial,
                    const std::vector<Instance>& instances) {
  std::vector<grammar::TriedInstance> tried;
  for (const Instance& instance : instances) {
    if (!trial.grammar.ok()) break;
    tried.push_back({.walk = grammar::walk_instance(
                         *trial.grammar, bench.tokenizer.encode(instance.text), bench.timing),
                     .valid = instance.valid});
  }
  return grammar::trial_line(file, trial, tried, bench.timing);
}

GrammarTrial compile_schema(const Bench& bench, const Json& schema) {
  return grammar::try_compile([&] { return grammar::compile_json_schema(schema, bench.options); },
                              bench.trie);
}

// A file {"schema": ..., "tests": [{"data": ..., "valid": ...}]}.
Result<std::string> batch_line(const Bench& bench, const std::filesystem::path& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path.string()));
  TRY_ASSIGN(const Json json, Json::parse(text));
  const Json* schema = json.find("schema");
  if (schema == nullptr) return Error{ErrorCode::kInvalidArgument, "the file has no `schema`"};
  std::vector<Instance> instances;
  for (const std::string_view test :
       base::raw_items(base::raw_member(text, "tests").value_or("[]"))) {
    const std::optional<std::string_view> data = base::raw_member(test, "data");
    if (!data) continue;
    Instance& instance = instances.emplace_back();
    instance.text = base::compact_json(*data);
    if (const auto valid = base::raw_member(test, "valid"); valid)
      instance.valid = *valid == "true";
  }
  return line_of(path.filename().string(), bench, compile_schema(bench, *schema), instances);
}

Result<void> run_batch(const Bench& bench, const std::string& folder) {
  std::error_code failed;
  std::vector<std::filesystem::path> files;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (at->path().extension() == ".json") files.push_back(at->path());
  }
  if (failed) {
    return Error{ErrorCode::kNotFound, "cannot read the folder: " + failed.message(), folder};
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const Result<std::string> line = batch_line(bench, file);
    TRY(write_output(
        line.ok() ? *line : grammar::trial_error_line(file.filename().string(), line.error())));
  }
  return {};
}

Result<GrammarTrial> compile_one(const Bench& bench, const cli::Arguments& arguments) {
  if (arguments.has("--regex")) {
    return grammar::try_compile(
        [&]() -> Result<std::shared_ptr<const grammar::Grammar>> {
          TRY_ASSIGN(grammar::ByteDfa dfa,
                     grammar::compile_regex(arguments.text("--regex"),
                                            {.match = grammar::RegexOptions::Match::kWhole,
                                             .dialect = grammar::RegexDialect::kEngines}));
          return grammar::Grammar::from_dfa(std::move(dfa));
        },
        bench.trie);
  }
  if (arguments.has("--ebnf")) {
    TRY_ASSIGN(const std::string rules, read_input(arguments.text("--ebnf")));
    return grammar::try_compile([&] { return grammar::compile_ebnf(rules); }, bench.trie);
  }
  TRY_ASSIGN(const std::string text, read_input(arguments.text("--schema")));
  TRY_ASSIGN(const Json schema, Json::parse(text));
  return compile_schema(bench, schema);
}

Result<void> run_grammar(const cli::Arguments& arguments) {
  const std::string sources[] = {"--schema", "--regex", "--ebnf", "--batch"};
  if (std::none_of(std::begin(sources), std::end(sources),
                   [&](const std::string& source) { return arguments.has(source); })) {
    return Error{ErrorCode::kInvalidArgument, "give one of --schema, --regex, --ebnf and --batch"};
  }
  TRY_ASSIGN(tokenizer::Tokenizer tokenizer, load_tokenizer(arguments.text("--tokenizer")));
  std::shared_ptr<const grammar::TokenTrie> trie = grammar::TokenTrie::of(tokenizer);
  Bench bench = {.tokenizer = std::move(tokenizer),
                 .trie = std::move(trie),
                 .options = {},
                 .timing = arguments.has("--timing") ? MaskTiming::kYes : MaskTiming::kNo};
  if (arguments.has("--compact")) {
    bench.options.whitespace = grammar::SchemaOptions::Whitespace::kNone;
  }
  if (arguments.has("--batch")) return run_batch(bench, arguments.text("--batch"));

  std::vector<Instance> instances;
  for (const std::string& file : arguments.list("--instance")) {
    TRY_ASSIGN(std::string text, read_input(file));
    if (arguments.has("--schema")) text = base::compact_json(text);
    instances.push_back({.text = std::move(text), .valid = {}});
  }
  TRY_ASSIGN(const GrammarTrial trial, compile_one(bench, arguments));
  const std::string name = arguments.has("--schema") ? arguments.text("--schema")
                           : arguments.has("--ebnf") ? arguments.text("--ebnf")
                                                     : arguments.text("--regex");
  return write_output(line_of(name, bench, trial, instances));
}

}  // namespace

cli::Verb grammar_verb() {
  return {
      .name = "grammar",
      .summary =
          "Compiles a schema, a regular expression or a grammar and tries instances against it.",
      .about =
          "Prints a JSON line: whether it was accepted or refused (with the JSON pointer of what\n"
          "is not supported), how long compiling took, and for each instance whether the masks\n"
          "let it through, and at which token they cut it off.",
      .positionals = {},
      .flags =
          {
              {.name = "--schema", .value = "FILE", .help = "a JSON schema; - is standard input"},
              {.name = "--regex", .value = "REGEX", .help = "a regular expression"},
              {.name = "--ebnf",
               .value = "FILE",
               .help = "a grammar in GBNF or Lark's EBNF; - is standard input"},
              {.name = "--batch",
               .value = "FOLDER",
               .help = "files {\"schema\": ..., \"tests\": [{\"data\": ..., \"valid\": ...}]}"},
              {.name = "--instance",
               .value = "FILE",
               .help = "a text to try; may be given again",
               .many = true,
               .not_with = {{"--batch"}}},
              {.name = "--tokenizer",
               .value = "FILE",
               .help = "a model folder, a hub id or a tokenizer's file (.json, .model, .tiktoken)",
               .required = true},
              {.name = "--compact",
               .help = "no whitespace between the tokens of JSON",
               .kind = Flag::Kind::kSwitch,
               .only_with = {{"--schema"}, {"--batch"}}},
              {.name = "--timing",
               .help = "say how long each mask took, in microseconds of CPU time",
               .kind = Flag::Kind::kSwitch,
               .only_with = {{"--instance"}, {"--batch"}}},
          },
      .exclusive = {{"--schema", "--regex", "--ebnf", "--batch"}},
      .examples = {"pelton grammar --schema s.json --instance a.json --tokenizer tokenizer.json",
                   "pelton grammar --batch data --timing --tokenizer o200k_base.tiktoken"},
      .run = run_grammar,
  };
}

}  // namespace pelton::apps
