// pelton grammar: compiles a schema, a regular expression or a grammar, says whether it does so and
// how long it takes, and walks instances through it token by token.
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/raw_json.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/regex.h"
#include "grammar/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using grammar::Matcher;
using grammar::TokenGrammar;

double thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// The vocabulary, and how the user wants to hear about it.
struct Bench {
  tokenizer::Tokenizer tokenizer;
  std::shared_ptr<const grammar::TokenTrie> trie;
  grammar::SchemaOptions options;
  bool timing = false;
};

struct Instance {
  std::string text;
  std::optional<bool> valid;
};

struct Walk {
  bool accepted = false;
  std::optional<size_t> cut_at_token;
  std::vector<double> mask_us;
};

struct Compiled {
  Result<std::shared_ptr<const TokenGrammar>> grammar;
  double us = 0;
};

template <typename F>
Compiled compile(const Bench& bench, F&& make) {
  const double begin = thread_cpu_us();
  Result<std::shared_ptr<const grammar::Grammar>> made = make();
  const double us = thread_cpu_us() - begin;
  if (!made.ok()) return {.grammar = made.error(), .us = us};
  return {.grammar = TokenGrammar::make(std::move(*made), bench.trie), .us = us};
}

Walk walk(const Bench& bench, const std::shared_ptr<const TokenGrammar>& grammar,
          const std::string& text) {
  Walk result;
  Matcher matcher(grammar);
  const std::vector<TokenId> tokens = bench.tokenizer.encode(text);
  std::vector<uint64_t> mask(grammar->trie().mask_words());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double begin = bench.timing ? thread_cpu_us() : 0;
    matcher.fill_mask(mask);
    if (bench.timing) result.mask_us.push_back(thread_cpu_us() - begin);
    const size_t token = static_cast<size_t>(tokens[i]);
    const bool allowed = (mask[token / 64] >> (token % 64) & 1) != 0;
    if (!allowed || !matcher.accept(tokens[i])) {
      result.cut_at_token = i;
      return result;
    }
  }
  result.accepted = matcher.can_end();
  if (!result.accepted) result.cut_at_token = tokens.size();
  return result;
}

std::string line_of(const std::string& file, const Bench& bench, const Compiled& compiled,
                    const std::vector<Instance>& instances) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("file").string(file);
  if (!compiled.grammar.ok()) {
    const Error& error = compiled.grammar.error();
    writer.key("status").string(error.code == ErrorCode::kInternal ? "error" : "refused");
    writer.key("pointer").string(error.field);
    writer.key("message").string(error.message);
    writer.key("compile_us").number(compiled.us);
    writer.key("tests").begin_array().end_array().end_object();
    return out + "\n";
  }
  writer.key("status").string("accepted").key("pointer").null();
  writer.key("compile_us").number(compiled.us).key("tests").begin_array();
  for (const Instance& instance : instances) {
    const Walk result = walk(bench, *compiled.grammar, instance.text);
    writer.begin_object().key("valid");
    if (instance.valid) {
      writer.boolean(*instance.valid);
    } else {
      writer.null();
    }
    writer.key("accepted").boolean(result.accepted).key("cut_at_token");
    if (result.cut_at_token) {
      writer.integer(static_cast<int64_t>(*result.cut_at_token));
    } else {
      writer.null();
    }
    if (bench.timing) {
      writer.key("mask_us").begin_array();
      for (const double us : result.mask_us) writer.raw(fmt::format("{:.2f}", us));
      writer.end_array();
    }
    writer.end_object();
  }
  writer.end_array().end_object();
  return out + "\n";
}

std::string error_line(const std::string& file, const Error& error) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("file").string(file).key("status").string("error");
  writer.key("pointer").string(error.field).key("message").string(error.message);
  writer.key("compile_us").integer(0).key("tests").begin_array().end_array().end_object();
  return out + "\n";
}

// A file {"schema": ..., "tests": [{"data": ..., "valid": ...}]}.
Result<std::string> batch_line(const Bench& bench, const std::filesystem::path& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path.string()));
  TRY_ASSIGN(const Json json, Json::parse(text));
  const Json* schema = json.find("schema");
  if (schema == nullptr) return Error{ErrorCode::kInvalidArgument, "the file has no `schema`"};
  std::vector<Instance> instances;
  for (const std::string_view test : raw_items(raw_member(text, "tests").value_or("[]"))) {
    const std::optional<std::string_view> data = raw_member(test, "data");
    if (!data) continue;
    Instance& instance = instances.emplace_back();
    instance.text = compact_json(*data);
    if (const auto valid = raw_member(test, "valid"); valid) instance.valid = *valid == "true";
  }
  const Compiled compiled =
      compile(bench, [&] { return grammar::compile_json_schema(*schema, bench.options); });
  return line_of(path.filename().string(), bench, compiled, instances);
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
    TRY(write_output(line.ok() ? *line : error_line(file.filename().string(), line.error())));
  }
  return {};
}

Result<Compiled> compile_one(const Bench& bench, const cli::Arguments& arguments) {
  if (arguments.has("--regex")) {
    return compile(bench, [&]() -> Result<std::shared_ptr<const grammar::Grammar>> {
      TRY_ASSIGN(grammar::ByteDfa dfa,
                 grammar::compile_regex(arguments.text("--regex"),
                                        {.match = grammar::RegexOptions::Match::kWhole,
                                         .dialect = grammar::RegexDialect::kEngines}));
      return grammar::Grammar::from_dfa(std::move(dfa));
    });
  }
  if (arguments.has("--ebnf")) {
    TRY_ASSIGN(const std::string rules, read_input(arguments.text("--ebnf")));
    return compile(bench, [&] { return grammar::compile_ebnf(rules); });
  }
  TRY_ASSIGN(const std::string text, read_input(arguments.text("--schema")));
  TRY_ASSIGN(const Json schema, Json::parse(text));
  return compile(bench, [&] { return grammar::compile_json_schema(schema, bench.options); });
}

Result<void> run(const cli::Arguments& arguments) {
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
                 .timing = arguments.has("--timing")};
  if (arguments.has("--compact")) {
    bench.options.whitespace = grammar::SchemaOptions::Whitespace::kNone;
  }
  if (arguments.has("--batch")) return run_batch(bench, arguments.text("--batch"));

  std::vector<Instance> instances;
  for (const std::string& file : arguments.list("--instance")) {
    TRY_ASSIGN(std::string text, read_input(file));
    if (arguments.has("--schema")) text = compact_json(text);
    instances.push_back({.text = std::move(text), .valid = {}});
  }
  TRY_ASSIGN(const Compiled compiled, compile_one(bench, arguments));
  const std::string name = arguments.has("--schema") ? arguments.text("--schema")
                           : arguments.has("--ebnf") ? arguments.text("--ebnf")
                                                     : arguments.text("--regex");
  return write_output(line_of(name, bench, compiled, instances));
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
               .help = "a model folder, a hub id, a tokenizer.json or a .tiktoken file",
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
      .run = run,
  };
}

}  // namespace pelton::apps
