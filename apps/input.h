// What the user points a verb at: model arguments, files of text, files of token ids, standard
// input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cli/command_line.h"
#include "tokenizer/tokenizer.h"

namespace pelton::apps {

// An input file that is not the model: one that is missing fails the run (1), it is not "no model"
// (4).
// "-" is standard input.
Result<std::string> read_input(const std::string& file, size_t bytes_max = size_t{1} << 31);
// That a file is not there, as an input's error.
Error as_input_error(Error error, std::string field);

// A JSON array of token ids. `origin` names it in errors.
Result<std::vector<TokenId>> parse_ids(std::string_view text, const std::string& origin);

// A JSON array, or {"prompt": [...], "continuation": [...]}.
struct IdsFile {
  std::vector<TokenId> prompt;
  std::vector<TokenId> continuation;

  std::vector<TokenId> all() const;
};
Result<IdsFile> read_ids_file(const std::string& file);

// One array of token ids, an array of such arrays, or {"sequences": [[...], ...]}: a text each.
Result<std::vector<std::vector<TokenId>>> read_sequences_file(const std::string& file);

// The tokenizer of a model argument, which may also be a tokenizer's own file.
Result<tokenizer::Tokenizer> load_tokenizer(const std::string& model);

// --current-date's form, where it is given.
Result<void> check_date(const cli::Arguments& arguments);

// What a table on standard output may take; 0: no terminal, and nobody said.
int output_columns();

// A report in words: nothing in it, whoever's words they are, steers a terminal.
Result<void> write_text(std::string_view text);

// A sentence beside the result, on standard error; an empty one is none.
void write_note(const std::string& text);

// Writes to standard output, to the byte; a reader that went away or a full disk is an error.
Result<void> write_output(std::string_view text);

}  // namespace pelton::apps
