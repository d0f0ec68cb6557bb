// pelton tokenize: text to token ids and back.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/json_writer.h"
#include "tokenizer/tokenizer.h"

namespace pelton::apps {
namespace {

using cli::Flag;

Result<std::string> input_text(const cli::Arguments& arguments) {
  if (arguments.has("--text")) return arguments.text("--text");
  return read_input(arguments.has("--file") ? arguments.text("--file") : "-");
}

std::string as_json_array(const std::vector<TokenId>& ids) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_array();
  for (const TokenId id : ids) writer.integer(id);
  writer.end_array();
  out += '\n';
  return out;
}

// One token a line: its id and its bytes as a JSON string.
std::string as_table(const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) {
    out += fmt::format("{:>7}  ", id);
    base::append_json_string(out, tokenizer.bytes(id));
    out += '\n';
  }
  return out;
}

Result<void> run_tokenize(const cli::Arguments& arguments) {
  TRY_ASSIGN(const tokenizer::Tokenizer tokenizer, load_tokenizer(arguments.text("MODEL")));
  TRY_ASSIGN(const std::string text, input_text(arguments));
  if (arguments.has("--decode")) {
    TRY_ASSIGN(const std::vector<TokenId> ids, parse_ids(text, "the ids to decode"));
    return write_output(tokenizer.decode(ids));
  }
  const std::vector<TokenId> ids =
      arguments.has("--special") ? tokenizer.encode_with_special(text) : tokenizer.encode(text);
  return write_output(arguments.has("--ids") ? as_json_array(ids) : as_table(tokenizer, ids));
}

}  // namespace

cli::Verb tokenize_verb() {
  return {
      .name = "tokenize",
      .summary = "Turns text into token ids, or ids into text.",
      .about =
          "Reads --text, --file or standard input. Text that looks like a control token becomes\n"
          "plain tokens, unless --special is given.",
      .positionals =
          {{"MODEL", "a model folder, a hub id or a tokenizer's file (.json, .model, .tiktoken)"}},
      .flags =
          {
              {.name = "--text", .value = "TEXT", .help = "the text itself"},
              {.name = "--file",
               .value = "FILE",
               .help = "a file with the text; - is standard input"},
              {.name = "--ids",
               .help = "print one JSON array of ids instead of a token a line",
               .kind = Flag::Kind::kSwitch,
               .not_with = {{"--decode"}}},
              {.name = "--special",
               .help = "read the texts of control tokens as control tokens",
               .kind = Flag::Kind::kSwitch,
               .not_with = {{"--decode"}}},
              {.name = "--decode",
               .help = "the input is a JSON array of ids; print their text",
               .kind = Flag::Kind::kSwitch},
          },
      .exclusive = {{"--text", "--file"}},
      .examples = {"pelton tokenize openai/gpt-oss-20b --text 'Hello, wheel.' --ids",
                   "pelton tokenize tokenizer.json --file book.txt --ids > ids.json",
                   "pelton tokenize tokenizer.json --decode --file ids.json"},
      .run = run_tokenize,
  };
}

}  // namespace pelton::apps
