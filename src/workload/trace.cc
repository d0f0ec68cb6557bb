#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "workload/recorded.h"
#include "workload/text_items.h"

namespace pelton::workload {
namespace {

constexpr int kBlockTokens = 512;  // of a Mooncake trace's hash_ids, and where a line says nothing
constexpr uint64_t kBlockStream = 0x626C6F63;
constexpr uint64_t kTailStream = 0x7461696C;
constexpr uint64_t kChoiceStream = 0x6275;
constexpr int64_t kLengthMax = 10'000'000;
constexpr int64_t kBlockTokensMax = 1'000'000;
constexpr double kTimeMax_ms = 1e15;  // in the year 33658: nanoseconds, or no time
constexpr double kDay_s = 86'400;
constexpr size_t kLineBytesMax = size_t{16} << 20;

// A line, in few bytes: there may be a million.
struct Came {
  double at_ms = 0;
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  int32_t block_tokens = kBlockTokens;
  uint32_t blocks = 0;        // how many of All::blocks
  uint64_t blocks_begin = 0;  // where they begin there
};

struct All {
  std::vector<Came> came;
  std::vector<int64_t> blocks;  // of all lines, one after the other
  int64_t went_back = 0;        // lines that came before one above them
  int64_t unanswered = 0;       // lines of requests that had no answer, or none of any length
};

Error bad(const std::string& where, std::string why) {
  return Error{ErrorCode::kInvalidArgument, where + ": " + std::move(why), "dataset_path"};
}

Error bad(std::string why) {
  return Error{ErrorCode::kInvalidArgument, std::move(why), "dataset_path"};
}

Result<void> check(double at_ms, int64_t input_tokens, int64_t output_tokens) {
  if (!std::isfinite(at_ms) || at_ms < 0 || at_ms > kTimeMax_ms) {
    return bad(
        fmt::format("the time must be from 0 to {:g} milliseconds, not {:g}", kTimeMax_ms, at_ms));
  }
  if (input_tokens < 0 || input_tokens > kLengthMax || output_tokens < 0 ||
      output_tokens > kLengthMax) {
    return bad(fmt::format("lengths must be from 0 to {}", kLengthMax));
  }
  return {};
}

// Those that no token of the prompt is left for are not kept.
Result<void> read_blocks(const Json& json, Came& came, std::vector<int64_t>& blocks) {
  if (json.find("block_tokens") != nullptr) {
    const std::optional<int64_t> tokens = json.integer("block_tokens");
    if (!tokens || *tokens < 1 || *tokens > kBlockTokensMax) {
      return bad(fmt::format("\"block_tokens\" must be from 1 to {}", kBlockTokensMax));
    }
    came.block_tokens = static_cast<int32_t>(*tokens);
  }
  const Json* const ids = json.find("hash_ids");
  if (ids == nullptr || ids->is_null()) return {};
  if (!ids->is_array()) return bad("\"hash_ids\" must be a list of whole numbers");
  const int32_t most = (came.input_tokens + came.block_tokens - 1) / came.block_tokens;
  came.blocks_begin = blocks.size();
  for (const Json& id : ids->as_array()) {
    if (!id.is_integer()) return bad("\"hash_ids\" must be whole numbers");
    if (std::cmp_greater_equal(blocks.size() - came.blocks_begin, most)) continue;
    blocks.push_back(id.as_integer());
  }
  came.blocks = static_cast<uint32_t>(blocks.size() - came.blocks_begin);
  return {};
}

// `all`: whose blocks it adds to, and whose counts.
Result<Came> parse_json_line(std::string_view line, All& all) {
  Result<Json> json = Json::parse(line);
  if (!json) return bad(json.error().message);
  const std::optional<double> ms = json->number("timestamp");
  const std::optional<int64_t> input = json->integer("input_length");
  const std::optional<int64_t> output = json->integer("output_length");
  if (!ms || !input || !output) {
    return bad("needs the numbers \"timestamp\", \"input_length\" and \"output_length\"");
  }
  TRY(check(*ms, *input, *output));
  Came came{.at_ms = *ms,
            .input_tokens = static_cast<int32_t>(*input),
            .output_tokens = static_cast<int32_t>(*output)};
  TRY(read_blocks(*json, came, all.blocks));
  // Of a gateway's request log; others say nothing of it.
  const bool has_failed = json->string("outcome").value_or("ok") != "ok";
  if (has_failed && *input > 0 && *output > 0) ++all.unanswered;
  return came;
}

std::vector<std::string_view> cells(std::string_view line) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  while (at <= line.size()) {
    const size_t end = std::min(line.find(',', at), line.size());
    std::string_view cell = trimmed(line.substr(at, end - at));
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
      cell = cell.substr(1, cell.size() - 2);
    }
    parts.push_back(cell);
    at = end + 1;
  }
  return parts;
}

// Which cell of a line holds what.
struct Columns {
  size_t at = 0;
  size_t input = 0;
  size_t output = 0;
  size_t model = 0;  // beyond them all: there is none
};

Result<Columns> parse_header(std::string_view line, const std::string& where) {
  const std::vector<std::string_view> names = cells(line);
  const auto find = [&](std::string_view name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const Columns columns{.at = find("Timestamp"),
                        .input = find("Request tokens"),
                        .output = find("Response tokens"),
                        .model = find("Model")};
  if (std::max({columns.at, columns.input, columns.output}) == names.size()) {
    return bad(where,
               "is neither a trace in JSON lines nor CSV with the columns 'Timestamp', "
               "'Request tokens' and 'Response tokens'");
  }
  return columns;
}

Result<Came> parse_csv_line(std::string_view line, const Columns& columns) {
  const std::vector<std::string_view> parts = cells(line);
  const auto number = [&](size_t column) -> std::optional<double> {
    if (column >= parts.size()) return std::nullopt;
    const std::string_view cell = parts[column];
    double value = 0;
    const auto [end, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (failure != std::errc{} || end != cell.data() + cell.size()) return std::nullopt;
    if (!(std::abs(value) < 1e15)) return std::nullopt;
    return value;
  };
  const std::optional<double> at = number(columns.at);
  const std::optional<double> input = number(columns.input);
  const std::optional<double> output = number(columns.output);
  if (!at || !input || !output) return bad("lacks a number");
  const auto input_tokens = static_cast<int64_t>(*input);
  const auto output_tokens = static_cast<int64_t>(*output);
  TRY(check(*at * 1000, input_tokens, output_tokens));
  return Came{.at_ms = *at * 1000,
              .input_tokens = static_cast<int32_t>(input_tokens),
              .output_tokens = static_cast<int32_t>(output_tokens)};
}

// What is wrong is named by the line.
Result<All> parse(std::string_view text, const std::string& name, const TraceOptions& options) {
  All all;
  Lines lines(text);
  std::optional<Columns> columns;
  int64_t tokens = 0;
  double latest_ms = 0;
  const auto here = [&] { return fmt::format("{}:{}", name, lines.number()); };
  while (options.count == 0 || std::ssize(all.came) < options.count) {
    const auto line = lines.next();
    if (!line) break;
    if (line->size() > kLineBytesMax) {
      return bad(here(), fmt::format("the line has more than {} bytes", kLineBytesMax));
    }
    if (!line->starts_with('{') && !columns) {
      TRY_ASSIGN(columns, parse_header(*line, here()));
      continue;
    }
    const Result<Came> came =
        columns ? parse_csv_line(*line, *columns) : parse_json_line(*line, all);
    if (!came.ok()) return bad(here(), came.error().message);
    tokens += came->input_tokens;
    if (tokens > options.tokens_max) {
      return bad(here(), fmt::format("this and the requests before it have more than {} tokens; "
                                     "--num-prompts takes fewer",
                                     options.tokens_max));
    }
    if (std::ssize(all.came) == options.requests_max) {
      return bad(here(), fmt::format("more than {} requests; --num-prompts takes the first ones",
                                     options.requests_max));
    }
    all.went_back += came->at_ms < latest_ms ? 1 : 0;
    all.unanswered += came->input_tokens == 0 || came->output_tokens == 0 ? 1 : 0;
    latest_ms = std::max(latest_ms, came->at_ms);
    all.came.push_back(*came);
  }
  if (all.came.empty()) return bad(name, "has no requests");
  return all;
}

Turn make_turn(const Came& came, std::span<const int64_t> blocks, uint64_t number,
               const Vocabulary& vocabulary, uint64_t seed) {
  Vocabulary::Text text;
  // Logs have requests of no tokens; nobody can ask for those.
  int left = std::max(came.input_tokens, 1);
  const int whole = left;
  for (const int64_t block : blocks) {
    if (left == 0) break;
    Draws draws(seed, kBlockStream ^ static_cast<uint64_t>(block) << 8);
    const int tokens = std::min(left, came.block_tokens);
    vocabulary.append(text, tokens, draws);
    left -= tokens;
  }
  Draws draws(seed, kTailStream + (number << 32));
  vocabulary.append(text, left, draws);
  return {.prompt = std::move(text.text),
          .ids = std::move(text.ids),
          .prompt_tokens = whole,
          .output_tokens = std::max(came.output_tokens, 1),
          .messages_json = {}};
}

// The answered requests of GPT-4, or of all where the file names no models.
bool is_answered(std::string_view line, const Columns& columns, const Came& came) {
  const std::vector<std::string_view> parts = cells(line);
  const bool is_meant = columns.model >= parts.size() || parts[columns.model] == "GPT-4";
  return is_meant && came.output_tokens > 0;
}

Result<void> check_count(int64_t count) {
  constexpr int64_t kCountMax = 10'000'000;
  if (count >= 0 && count <= kCountMax) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("'num_prompts' is 0 to {}", kCountMax),
               "num_prompts"};
}

}  // namespace

Result<std::vector<Conversation>> burstgpt_conversations(std::string_view text,
                                                         const std::string& name, int64_t count,
                                                         uint64_t seed,
                                                         const Vocabulary& vocabulary) {
  TRY(check_count(count));
  Lines lines(text);
  const auto header = lines.next();
  if (!header) return bad(name, "is empty");
  TRY_ASSIGN(const Columns columns, parse_header(*header, fmt::format("{}:1", name)));
  Draws draws(seed, kChoiceStream);
  std::vector<Came> kept;
  int64_t usable = 0;
  while (const auto line = lines.next()) {
    const Result<Came> came = parse_csv_line(*line, columns);
    if (!came.ok()) return bad(fmt::format("{}:{}", name, lines.number()), came.error().message);
    if (!is_answered(*line, columns, *came)) continue;
    // A reservoir (Vitter's algorithm R): each usable one is kept with the same chance.
    ++usable;
    if (static_cast<int64_t>(kept.size()) < count) {
      kept.push_back(*came);
    } else if (const int64_t place = draws.integer(0, usable - 1); place < count) {
      kept[static_cast<size_t>(place)] = *came;
    }
  }
  if (usable == 0) return bad(name, "holds no answered request of GPT-4");
  std::vector<Conversation> conversations(static_cast<size_t>(count));
  int64_t tokens = 0;
  for (size_t i = 0; i < conversations.size(); ++i) {  // a short file is begun again
    const Came& came = kept[i % kept.size()];
    tokens += came.input_tokens;
    if (tokens > kDatasetTokensMax) {
      return bad(name, fmt::format("these requests have more than {} tokens; --num-prompts takes "
                                   "fewer",
                                   kDatasetTokensMax));
    }
    conversations[i].turns.push_back(make_turn(came, {}, i, vocabulary, seed));
  }
  return conversations;
}

Result<Trace> trace_conversations(std::string_view text, const std::string& name,
                                  const TraceOptions& options, const Vocabulary& vocabulary) {
  if (!(options.speed > 0 && options.speed <= 1e9)) {
    return Error{ErrorCode::kInvalidArgument, "'trace_speed' must be above 0", "trace_speed"};
  }
  TRY_ASSIGN(All all, parse(text, name, options));
  std::ranges::stable_sort(all.came, {}, &Came::at_ms);
  const double begin_ms = all.came.front().at_ms;
  const double length_s = (all.came.back().at_ms - begin_ms) / 1000 / options.speed;
  if (length_s > kTraceLengthMax_s) {
    return bad(name,
               fmt::format("its first and last request are {:.4g} days apart, more than {:g}: "
                           "\"timestamp\" is in milliseconds, a CSV's Timestamp in seconds",
                           length_s / kDay_s, kTraceLengthMax_s / kDay_s));
  }
  Trace trace{.conversations = std::vector<Conversation>(all.came.size()),
              .went_back = all.went_back,
              .unanswered = all.unanswered};
  for (size_t i = 0; i < all.came.size(); ++i) {
    const Came& came = all.came[i];
    trace.conversations[i].at_s = (came.at_ms - begin_ms) / 1000 / options.speed;
    trace.conversations[i].turns.push_back(
        make_turn(came, std::span(all.blocks).subspan(came.blocks_begin, came.blocks), i,
                  vocabulary, options.seed));
  }
  return trace;
}

std::string trace_note(const std::string& name, const Trace& trace) {
  std::string note;
  if (trace.went_back > 0) {
    note = fmt::format(
        "{}: {} of its {} requests came before one that stands above them; all are "
        "taken in the order of their times",
        name, trace.went_back, trace.conversations.size());
  }
  if (trace.unanswered == 0) return note;
  return note + fmt::format(
                    "{}{}: {} of its {} requests had no answer (an outcome that is not ok, or no "
                    "tokens); they are asked, and played as answered, with a token at least",
                    note.empty() ? "" : "; ", name, trace.unanswered, trace.conversations.size());
}

}  // namespace pelton::workload
