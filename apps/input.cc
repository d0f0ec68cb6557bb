#include "apps/input.h"

#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/terminal_text.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "cli/terminal.h"
#include "node/model_tokenizer.h"

namespace pelton::apps {
namespace {

constexpr size_t kInputBytesMax = size_t{1} << 31;

Result<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  size_t count;
  while ((count = std::fread(buffer, 1, sizeof buffer, stdin)) > 0) {
    text.append(buffer, count);
    if (text.size() > kInputBytesMax) return Error{ErrorCode::kIo, "standard input is over 2 GiB"};
  }
  if (std::ferror(stdin)) return Error{ErrorCode::kIo, "cannot read standard input"};
  return text;
}

Result<std::vector<TokenId>> to_ids(const Json& json, const std::string& origin) {
  if (!json.is_array()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}: expected an array of token ids, found {}", origin, json.kind_name())};
  }
  std::vector<TokenId> ids;
  ids.reserve(json.as_array().size());
  for (const Json& item : json.as_array()) {
    if (!item.is_integer() || item.as_integer() < 0 ||
        item.as_integer() > std::numeric_limits<TokenId>::max()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: element {} is no token id", origin, ids.size())};
    }
    ids.push_back(static_cast<TokenId>(item.as_integer()));
  }
  return ids;
}

// "2026-02-28", and no 29th in such a year.
bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  int number[3] = {};
  const std::string_view parts[3] = {text.substr(0, 4), text.substr(5, 2), text.substr(8)};
  for (int i = 0; i < 3; ++i) {
    for (const char digit : parts[i]) {
      if (digit < '0' || digit > '9') return false;
      number[i] = 10 * number[i] + (digit - '0');
    }
  }
  return std::chrono::year_month_day(std::chrono::year(number[0]),
                                     std::chrono::month(static_cast<unsigned>(number[1])),
                                     std::chrono::day(static_cast<unsigned>(number[2])))
      .ok();
}

}  // namespace

Result<std::string> read_input(const std::string& file, size_t bytes_max) {
  if (file == "-") return read_standard_input();
  Result<std::string> text = base::read_file(file, bytes_max);
  if (!text) return as_input_error(text.error(), {});
  return text;
}

Error as_input_error(Error error, std::string field) {
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kIo;
  error.field = std::move(field);
  return error;
}

Result<std::vector<TokenId>> parse_ids(std::string_view text, const std::string& origin) {
  Result<Json> json = Json::parse(text);
  if (!json) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", origin, json.error().message)};
  }
  return to_ids(*json, origin);
}

std::vector<TokenId> IdsFile::all() const {
  std::vector<TokenId> ids = prompt;
  ids.insert(ids.end(), continuation.begin(), continuation.end());
  return ids;
}

Result<IdsFile> read_ids_file(const std::string& file) {
  TRY_ASSIGN(const std::string text, read_input(file));
  Result<Json> parsed = Json::parse(text);
  if (!parsed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, parsed.error().message)};
  }
  IdsFile ids;
  const Json* prompt = parsed->find("prompt");
  TRY_ASSIGN(ids.prompt, to_ids(prompt != nullptr ? *prompt : *parsed, file));
  if (const Json* continuation = parsed->find("continuation"); continuation != nullptr) {
    TRY_ASSIGN(ids.continuation, to_ids(*continuation, file));
  }
  if (ids.prompt.empty() && ids.continuation.empty()) {
    return Error{ErrorCode::kInvalidArgument, file + ": no token ids in it"};
  }
  return ids;
}

Result<std::vector<std::vector<TokenId>>> read_sequences_file(const std::string& file) {
  TRY_ASSIGN(const std::string text, read_input(file));
  Result<Json> parsed = Json::parse(text);
  if (!parsed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, parsed.error().message)};
  }
  const Json* named = parsed->is_object() ? parsed->find("sequences") : nullptr;
  const Json& list = named != nullptr ? *named : *parsed;
  if (!list.is_array() || list.as_array().empty()) {
    return Error{ErrorCode::kInvalidArgument, file + ": no token ids in it"};
  }
  std::vector<std::vector<TokenId>> sequences;
  if (!list.as_array()[0].is_array()) {
    TRY_ASSIGN(std::vector<TokenId> one, to_ids(list, file));
    sequences.push_back(std::move(one));
    return sequences;
  }
  for (const Json& item : list.as_array()) {
    TRY_ASSIGN(std::vector<TokenId> ids,
               to_ids(item, fmt::format("{}, sequence {}", file, sequences.size())));
    sequences.push_back(std::move(ids));
  }
  return sequences;
}

Result<tokenizer::Tokenizer> load_tokenizer(const std::string& model) {
  struct stat status {};
  const bool is_file = stat(model.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  if (is_file && !model.ends_with(".gguf")) return node::read_tokenizer_file(model);
  TRY_ASSIGN(const std::string place, checkpoint::resolve_model(model));
  // A tokenizer.json is enough: the weights need not be there.
  const std::string file = place + "/tokenizer.json";
  if (stat(file.c_str(), &status) == 0) return node::read_tokenizer_file(file);
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(place));
  TRY_ASSIGN(std::unique_ptr<tokenizer::Tokenizer> found, node::read_model_tokenizer(checkpoint));
  if (found != nullptr) return std::move(*found);
  return Error{ErrorCode::kNotFound, fmt::format("{}: has no tokenizer.json", place)};
}

Result<void> check_date(const cli::Arguments& arguments) {
  const std::string& date = arguments.text("--current-date");
  if (!arguments.has("--current-date") || is_date(date)) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("--current-date wants a day of the calendar as YYYY-MM-DD, not '{}'", date),
      "current-date"};
}

int output_columns() {
  return cli::Terminal(stdout).text_width(0);
}

Result<void> write_text(std::string_view text) {
  return write_output(base::without_controls(base::replace_invalid_utf8(text)));
}

void write_note(const std::string& text) {
  if (!text.empty()) fmt::print(stderr, "{}\n", base::one_line(text));
}

Result<void> write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  return Error{ErrorCode::kIo, "cannot write to standard output"};
}

}  // namespace pelton::apps
