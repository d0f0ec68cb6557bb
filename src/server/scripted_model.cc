#include "server/scripted_model.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/random.h"
#include "chat/format_of.h"
#include "server/fault_injection.h"

namespace pelton::server {
namespace {

constexpr int64_t kContextDefault = 8192;
constexpr int64_t kContextMax = 1 << 20;
constexpr int64_t kStepMsMax = 60'000;
constexpr int64_t kTimesMax = 100'000;
constexpr int64_t kSeatsDefault = 8;
constexpr int64_t kSeatsMax = 16'384;
constexpr int64_t kCachedTokensMax = int64_t{1} << 26;  // context * slots
constexpr int64_t kFailEveryMax = int64_t{1} << 40;
constexpr int64_t kBlocksMax = kCachedTokensMax / 16;
constexpr size_t kAnswerTokensMax = 1'000'000;

constexpr size_t kCountedItemsMax = 100'000;
constexpr size_t kIdDigitsMax = 18;
constexpr int64_t kHangLookNs = 5'000'000;
constexpr int kCountsMax = 4;  // numbers that may follow an id

// Tokens, or so many items as the prompt asks for.
struct Piece {
  std::string text;  // while the script is read
  std::vector<TokenId> tokens;
  int counted = 0;       // 1: by the first number after the id
  bool checked = false;  // letters, and not the id with numbers
};

struct Rule {
  std::string when;
  std::vector<Piece> pieces;
};

// The digits at `at`, which then stands behind them and one space.
std::string_view take_number(std::string_view text, size_t& at) {
  const size_t begin = std::min(at, text.size());
  size_t end = begin;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  at = end < text.size() && text[end] == ' ' ? end + 1 : end;
  return text.substr(begin, end - begin);
}

uint64_t number_of(std::string_view digits) {
  uint64_t number = 0;
  for (const char digit : digits) number = number * 10 + static_cast<uint64_t>(digit - '0');
  return number;
}

// Which rule answers which prompt. Engine thread only.
class Script {
 public:
  Script(std::vector<Rule> rules, std::string abort_on, const tokenizer::Tokenizer& tokenizer,
         const FaultInjection* faults)
      : rules_(std::move(rules)),
        abort_on_(std::move(abort_on)),
        faults_(faults),
        tokenizer_(tokenizer),
        wrong_(tokenizer.encode("!").front()) {}

  TokenId next_token(const engine::ModelledExecutor::Seen& seen) {
    const auto prompt_count = static_cast<size_t>(seen.prompt_count);
    if (slots_.size() <= static_cast<size_t>(seen.slot)) {
      slots_.resize(static_cast<size_t>(seen.slot) + 1);
    }
    Scheduled& scheduled = slots_[static_cast<size_t>(seen.slot)];
    if (scheduled.arrival != seen.arrival) {
      scheduled.arrival = seen.arrival;
      answer_to(seen.tokens.first(prompt_count), seen.sampling.seed, scheduled);
    }
    const std::span<const TokenId> written = seen.tokens.subspan(prompt_count);
    const std::vector<TokenId>& answer = scheduled.answer;
    if (scheduled.counted && written.size() <= answer.size() &&
        !std::equal(written.begin(), written.end(), answer.begin())) {
      return wrong_;
    }
    return answer[std::min(written.size(), answer.size() - 1)];
  }

 private:
  // Who sits there, and what answers them: looked up once.
  struct Scheduled {
    int64_t arrival = -1;
    std::vector<TokenId> answer;
    bool counted = false;
  };

  static void abort_on(const std::string& word, const std::string& text) {
    if (!word.empty() && text.find(word) != std::string::npos) std::abort();
  }

  // The first rule has "when": "" and so always stands somewhere.
  void answer_to(std::span<const TokenId> prompt, uint64_t seed, Scheduled& scheduled) const {
    const std::string text = tokenizer_.decode(prompt);
    abort_on(abort_on_, text);
    if (faults_ != nullptr) abort_on(faults_->now().abort_on, text);
    const Rule* best = &rules_.front();
    size_t best_end = 0;
    for (const Rule& rule : rules_) {
      const size_t at = text.rfind(rule.when);
      if (rule.when.empty() || at == std::string::npos || at + rule.when.size() < best_end)
        continue;
      best = &rule;
      best_end = at + rule.when.size();
    }
    scheduled.answer.clear();
    scheduled.counted = false;
    for (const Piece& piece : best->pieces) {
      scheduled.answer.insert(scheduled.answer.end(), piece.tokens.begin(), piece.tokens.end());
      if (piece.counted == 0) continue;
      scheduled.counted = true;
      append_counted(std::string_view(text).substr(best_end), piece, seed, scheduled.answer);
    }
  }

  // `text` begins with the id.
  void append_counted(std::string_view text, const Piece& piece, uint64_t seed,
                      std::vector<TokenId>& answer) const {
    size_t at = 0;
    const std::string_view id = take_number(text, at);
    std::string_view digits;
    for (int i = 0; i < piece.counted; ++i) digits = take_number(text, at);
    if (id.size() > kIdDigitsMax || digits.size() > kIdDigitsMax) return;
    const uint64_t letters = base::random_bits(seed, number_of(id));
    for (size_t i = 0; i < std::min<uint64_t>(number_of(digits), kCountedItemsMax); ++i) {
      const std::string item =
          piece.checked
              ? std::string(1, static_cast<char>('a' + base::random_bits(letters, i) % 26))
              : fmt::format("{}{}{} ", id, static_cast<char>('a' + piece.counted - 1), i);
      const std::vector<TokenId> tokens = tokenizer_.encode(item);
      answer.insert(answer.end(), tokens.begin(), tokens.end());
    }
  }

  const std::vector<Rule> rules_;
  const std::string abort_on_;
  const FaultInjection* const faults_;
  const tokenizer::Tokenizer& tokenizer_;
  const TokenId wrong_;
  std::vector<Scheduled> slots_;
};

Error bad_script(const std::string& file_name, std::string_view field, std::string_view what) {
  return Error{ErrorCode::kBadConfig, fmt::format("{}: '{}' {}", file_name, field, what),
               std::string(field)};
}

Result<Piece> read_piece(const Json& json, const std::string& path, const std::string& file_name) {
  if (json.is_string()) return Piece{.text = json.as_string(), .tokens = {}, .counted = 0};
  const std::optional<std::string> text = json.string("text");
  const int64_t times = json.integer("times").value_or(1);
  const bool checked = json.find("checked") != nullptr;
  const int64_t counted = json.integer(checked ? "checked" : "counted").value_or(0);
  if (!text && counted >= 1 && counted <= kCountsMax) {
    return Piece{
        .text = {}, .tokens = {}, .counted = static_cast<int>(counted), .checked = checked};
  }
  if (!text || times < 0 || times > kTimesMax) {
    return bad_script(file_name, path,
                      fmt::format("must be a string, {{\"text\": …, \"times\": 0 to {}}}, "
                                  "{{\"counted\": 1 to {}}} or {{\"checked\": 1 to {}}}",
                                  kTimesMax, kCountsMax, kCountsMax));
  }
  Piece piece;
  for (int64_t i = 0; i < times; ++i) piece.text += *text;
  return piece;
}

// Texts beside each other are one: they become tokens together.
Result<std::vector<Piece>> read_answer(const Json* then, const std::string& path,
                                       const std::string& file_name) {
  if (then == nullptr) return bad_script(file_name, path, "is missing");
  std::vector<Piece> pieces;
  if (!then->is_array()) {
    TRY_ASSIGN(Piece piece, read_piece(*then, path, file_name));
    pieces.push_back(std::move(piece));
    return pieces;
  }
  for (size_t i = 0; i < then->as_array().size(); ++i) {
    TRY_ASSIGN(Piece piece,
               read_piece(then->as_array()[i], fmt::format("{}[{}]", path, i), file_name));
    const bool joins = !pieces.empty() && pieces.back().counted == 0 && piece.counted == 0;
    if (joins) {
      pieces.back().text += piece.text;
    } else {
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

// Texts to tokens, and an end where there is none.
Result<void> close_answer(std::vector<Piece>& pieces, const std::string& path,
                          const std::string& file_name, const tokenizer::Tokenizer& tokenizer,
                          const std::vector<TokenId>& stops) {
  size_t tokens = 0;
  for (Piece& piece : pieces) {
    piece.tokens = tokenizer.encode_with_special(piece.text);
    tokens += piece.tokens.size();
  }
  const bool closed =
      !pieces.empty() && !pieces.back().tokens.empty() &&
      std::find(stops.begin(), stops.end(), pieces.back().tokens.back()) != stops.end();
  if (!closed) pieces.push_back({.text = {}, .tokens = {stops.front()}, .counted = 0});
  if (tokens < kAnswerTokensMax) return {};
  return bad_script(file_name, path, fmt::format("has more than {} tokens", kAnswerTokensMax));
}

Result<std::vector<Rule>> read_rules(const Json& json, const std::string& file_name,
                                     const tokenizer::Tokenizer& tokenizer) {
  TRY_ASSIGN(const auto format, chat::format_of(tokenizer));
  const std::vector<TokenId> stops = format->stop_tokens({});
  const Json* items = json.find("rules");
  if (items == nullptr || !items->is_array() || items->as_array().empty()) {
    return bad_script(file_name, "rules", "must be an array of at least one rule");
  }
  std::vector<Rule> rules;
  for (size_t i = 0; i < items->as_array().size(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = fmt::format("rules[{}]", i);
    const std::optional<std::string> when = item.string("when");
    if (!when) return bad_script(file_name, path + ".when", "must be a string");
    TRY_ASSIGN(std::vector<Piece> pieces,
               read_answer(item.find("then"), path + ".then", file_name));
    TRY(close_answer(pieces, path + ".then", file_name, tokenizer, stops));
    Rule rule{.when = *when, .pieces = std::move(pieces)};
    rules.push_back(std::move(rule));
  }
  // The one that answers what no other does comes first.
  const auto fallback =
      std::find_if(rules.begin(), rules.end(), [](const Rule& rule) { return rule.when.empty(); });
  if (fallback == rules.end()) {
    return bad_script(file_name, "rules", "needs one rule with \"when\": \"\"");
  }
  std::iter_swap(rules.begin(), fallback);
  return rules;
}

Result<void> expect_known_keys(const Json& json, const std::string& file_name) {
  constexpr std::array<std::string_view, 13> kKeys = {"rules",       "context",
                                                      "slots",       "blocks",
                                                      "host_blocks", "fail_every",
                                                      "checks",      "abort_on",
                                                      "step_ms",     "us_per_prefill_token",
                                                      "us_per_row",  "us_per_context_token",
                                                      "clock_scale"};
  if (!json.is_object()) return bad_script(file_name, "the script", "must be an object");
  for (const Json::Member& member : json.as_object()) {
    if (std::ranges::find(kKeys, member.key) == kKeys.end()) {
      return bad_script(file_name, member.key, "is no key of a script");
    }
  }
  return {};
}

Result<int64_t> read_integer(const Json& json, const char* key, int64_t fallback, int64_t max,
                             const std::string& file_name) {
  if (json.find(key) == nullptr) return fallback;
  const std::optional<int64_t> value = json.integer(key);
  if (!value || *value < 0 || *value > max) {
    return bad_script(file_name, key, fmt::format("must be an integer from 0 to {}", max));
  }
  return *value;
}

// What a step takes, in microseconds.
struct StepCost {
  double step_us = 0;
  double prefill_token_us = 0;
  double row_us = 0;
  double context_token_us = 0;
  double scale = 1;

  int64_t step_ns(const engine::StepPlan& plan) const {
    double us = step_us;
    for (const engine::ScheduledRow& row : plan.sequences) {
      us += row_us + context_token_us * static_cast<double>(row.start);
      if (row.token_count() > 1) us += prefill_token_us * static_cast<double>(row.token_count());
    }
    return static_cast<int64_t>(us * scale * 1e3);
  }
};

Result<StepCost> read_step_cost(const Json& json, const std::string& file_name) {
  StepCost cost;
  const auto read = [&](const char* key, double factor, double most, double& into) -> Result<void> {
    if (json.find(key) == nullptr) return {};
    const std::optional<double> value = json.number(key);
    if (!value || *value < 0 || *value > most) {
      return bad_script(file_name, key, fmt::format("must be a number from 0 to {}", most));
    }
    into = *value * factor;
    return {};
  };
  constexpr double kUsMax = 1e6;
  TRY(read("step_ms", 1e3, kStepMsMax, cost.step_us));
  TRY(read("us_per_prefill_token", 1, kUsMax, cost.prefill_token_us));
  TRY(read("us_per_row", 1, kUsMax, cost.row_us));
  TRY(read("us_per_context_token", 1, kUsMax, cost.context_token_us));
  TRY(read("clock_scale", 1, 1e3, cost.scale));
  return cost;
}

// A step of a worker that is to hang lasts until it is to hang no more.
engine::ModelledExecutor::Timing timing_of(const StepCost& cost, const base::Clock& clock,
                                           const FaultInjection* faults) {
  const auto sleep = [](int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); };
  if (faults == nullptr) {
    return {.clock = &clock,
            .step_ns = [cost](const engine::StepPlan& plan) { return cost.step_ns(plan); },
            .pass = sleep};
  }
  return {.clock = &clock,
          .step_ns =
              [cost, faults](const engine::StepPlan& plan) {
                const Faults now = faults->now();
                if (now.hang) return kHangLookNs;  // `pass` is called, and stays
                return static_cast<int64_t>(static_cast<double>(cost.step_ns(plan)) * now.slow);
              },
          .pass =
              [faults, sleep](int64_t ns) {
                sleep(ns);
                while (faults->now().hang) sleep(kHangLookNs);
              }};
}

}  // namespace

Result<engine::ModelledExecutor::Options> scripted_executor(std::string_view text,
                                                            const std::string& file_name,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            const base::Clock& clock,
                                                            const FaultInjection* faults) {
  Result<Json> parsed = Json::parse(text);
  if (!parsed.ok()) {
    return Error{ErrorCode::kBadConfig, file_name + ": " + parsed.error().message, ""};
  }
  const Json& json = *parsed;
  TRY(expect_known_keys(json, file_name));
  TRY_ASSIGN(std::vector<Rule> rules, read_rules(json, file_name, tokenizer));
  TRY_ASSIGN(int64_t context,
             read_integer(json, "context", kContextDefault, kContextMax, file_name));
  context = std::max<int64_t>(context, 16);
  TRY_ASSIGN(int64_t slots, read_integer(json, "slots", kSeatsDefault, kSeatsMax, file_name));
  slots = std::max<int64_t>(slots, 1);
  TRY_ASSIGN(const int64_t blocks, read_integer(json, "blocks", 0, kBlocksMax, file_name));
  TRY_ASSIGN(const int64_t host_blocks,
             read_integer(json, "host_blocks", 0, kBlocksMax, file_name));
  TRY_ASSIGN(const int64_t fail_every,
             read_integer(json, "fail_every", 0, kFailEveryMax, file_name));
  if (context * slots > kCachedTokensMax) {
    return bad_script(file_name, "slots",
                      fmt::format("times 'context' must be at most {}", kCachedTokensMax));
  }

  engine::ModelledExecutor::Options options;
  // Usually it is another's server that is being tried.
  options.checks = json.boolean("checks").value_or(false);
  options.capacity.sequences_max = static_cast<int>(slots);
  options.capacity.batch_tokens_max = static_cast<int>(std::max<int64_t>(512, 2 * slots));
  options.capacity.pooled_sequences_max = 16;
  options.capacity.embedding_size = 64;
  options.capacity.context_tokens_max = static_cast<int>(context);
  options.capacity.vocab_size = tokenizer.vocab_size();
  // Room for every slot to be full at once, so that a script never waits for blocks; or less.
  const int room = blocks > 0 ? static_cast<int>(blocks)
                              : static_cast<int>(context / options.capacity.block_tokens + 1) *
                                    options.capacity.sequences_max;
  const int host_room = static_cast<int>(host_blocks);
  options.capacity.groups = {{{.name = "full"}, {room, host_room}},
                             {{.name = "window", .sliding_window = 128}, {room, host_room}}};
  const auto script = std::make_shared<Script>(
      std::move(rules), json.string("abort_on").value_or(""), tokenizer, faults);
  options.next_token = [script](const engine::ModelledExecutor::Seen& seen) {
    return script->next_token(seen);
  };
  if (fail_every > 0) {
    options.fail_step = [fail_every](const engine::StepPlan& plan) -> std::optional<Error> {
      if (plan.step % fail_every != fail_every - 1) return std::nullopt;
      return Error{ErrorCode::kInternal, "this step was to fail", ""};
    };
  }
  TRY_ASSIGN(const StepCost cost, read_step_cost(json, file_name));
  if (faults != nullptr ||
      cost.step_us + cost.prefill_token_us + cost.row_us + cost.context_token_us > 0) {
    options.timing = timing_of(cost, clock, faults);
  }
  return options;
}

}  // namespace pelton::server
