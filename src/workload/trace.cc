#include <algorithm>
#include <charconv>
#include <cmath>
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

struct Came {
  double at_s = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<int64_t> blocks;
  int block_tokens = kBlockTokens;
};

Error bad(const std::string& where, std::string why) {
  return Error{ErrorCode::kInvalidArgument, where + ": " + std::move(why), "dataset_path"};
}

Result<void> check(const Came& came, const std::string& where) {
  if (!std::isfinite(came.at_s) || came.at_s < 0) return bad(where, "the time is no time");
  if (came.input_tokens < 0 || came.input_tokens > kLengthMax || came.output_tokens < 0 ||
      came.output_tokens > kLengthMax) {
    return bad(where, fmt::format("lengths must be from 0 to {}", kLengthMax));
  }
  return {};
}

Result<Came> parse_json_line(std::string_view line, const std::string& where) {
  Result<Json> json = Json::parse(line);
  if (!json) return bad(where, json.error().message);
  const std::optional<double> ms = json->number("timestamp");
  const std::optional<int64_t> input = json->integer("input_length");
  const std::optional<int64_t> output = json->integer("output_length");
  if (!ms || !input || !output) {
    return bad(where, "needs the numbers \"timestamp\", \"input_length\" and \"output_length\"");
  }
  Came came{.at_s = *ms / 1000, .input_tokens = *input, .output_tokens = *output, .blocks = {}};
  if (json->find("block_tokens") != nullptr) {
    const std::optional<int64_t> tokens = json->integer("block_tokens");
    if (!tokens || *tokens < 1 || *tokens > kBlockTokensMax) {
      return bad(where, fmt::format("\"block_tokens\" must be from 1 to {}", kBlockTokensMax));
    }
    came.block_tokens = static_cast<int>(*tokens);
  }
  if (const Json* ids = json->find("hash_ids"); ids != nullptr && ids->is_array()) {
    for (const Json& id : ids->as_array()) {
      if (!id.is_integer()) return bad(where, "\"hash_ids\" must be whole numbers");
      came.blocks.push_back(id.as_integer());
    }
  }
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

Result<Came> parse_csv_line(std::string_view line, const Columns& columns,
                            const std::string& where) {
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
  if (!at || !input || !output) return bad(where, "lacks a number");
  return Came{.at_s = *at,
              .input_tokens = static_cast<int64_t>(*input),
              .output_tokens = static_cast<int64_t>(*output),
              .blocks = {}};
}

Result<std::vector<Came>> parse(std::string_view text, const std::string& name,
                                const TraceOptions& options) {
  const int64_t count_max = options.count;
  std::vector<Came> all;
  Lines lines(text);
  std::optional<Columns> columns;
  int64_t tokens = 0;
  while (count_max == 0 || static_cast<int64_t>(all.size()) < count_max) {
    const auto line = lines.next();
    if (!line) break;
    const std::string where = fmt::format("{}:{}", name, lines.number());
    if (!line->starts_with('{') && !columns) {
      TRY_ASSIGN(columns, parse_header(*line, where));
      continue;
    }
    TRY_ASSIGN(Came came,
               columns ? parse_csv_line(*line, *columns, where) : parse_json_line(*line, where));
    TRY(check(came, where));
    tokens += came.input_tokens;
    if (tokens > options.tokens_max) {
      return bad(where, fmt::format("this and the requests before it have more than {} tokens; "
                                    "--num-prompts takes fewer",
                                    options.tokens_max));
    }
    all.push_back(std::move(came));
  }
  if (all.empty()) return bad(name, "has no requests");
  return all;
}

Turn make_turn(const Came& came, uint64_t number, const Vocabulary& vocabulary, uint64_t seed) {
  Vocabulary::Text text;
  // Logs have requests of no tokens; nobody can ask for those.
  int left = static_cast<int>(std::max<int64_t>(came.input_tokens, 1));
  const int whole = left;
  for (const int64_t block : came.blocks) {
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
          .output_tokens = static_cast<int>(std::max<int64_t>(came.output_tokens, 1)),
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
    const std::string where = fmt::format("{}:{}", name, lines.number());
    TRY_ASSIGN(Came came, parse_csv_line(*line, columns, where));
    TRY(check(came, where));
    if (!is_answered(*line, columns, came)) continue;
    // A reservoir (Vitter's algorithm R): each usable one is kept with the same chance.
    ++usable;
    if (static_cast<int64_t>(kept.size()) < count) {
      kept.push_back(std::move(came));
    } else if (const int64_t place = draws.integer(0, usable - 1); place < count) {
      kept[static_cast<size_t>(place)] = std::move(came);
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
    conversations[i].turns.push_back(make_turn(came, i, vocabulary, seed));
  }
  return conversations;
}

Result<std::vector<Conversation>> trace_conversations(std::string_view text,
                                                      const std::string& name,
                                                      const TraceOptions& options,
                                                      const Vocabulary& vocabulary) {
  if (!(options.speed > 0 && options.speed <= 1e9)) {
    return Error{ErrorCode::kInvalidArgument, "'trace_speed' must be above 0", "trace_speed"};
  }
  TRY_ASSIGN(std::vector<Came> all, parse(text, name, options));
  std::stable_sort(all.begin(), all.end(),
                   [](const Came& a, const Came& b) { return a.at_s < b.at_s; });
  std::vector<Conversation> conversations(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    conversations[i].at_s = (all[i].at_s - all.front().at_s) / options.speed;
    conversations[i].turns.push_back(make_turn(all[i], i, vocabulary, options.seed));
  }
  return conversations;
}

}  // namespace pelton::workload
