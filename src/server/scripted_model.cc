#include "server/scripted_model.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"

namespace pelton::server {
namespace {

constexpr int64_t kContextDefault = 8192;
constexpr int64_t kContextMax = 1 << 20;
constexpr int64_t kStepMsMax = 60'000;
constexpr int64_t kTimesMax = 100'000;
constexpr int64_t kSeatsDefault = 8;
constexpr int64_t kSeatsMax = 4096;
constexpr int64_t kCachedTokensMax = int64_t{1} << 26;  // context * seats
constexpr size_t kAnswerTokensMax = 1'000'000;

struct Rule {
  std::string when;
  std::vector<TokenId> answer;
};

// Which rule answers which prompt. Engine thread only.
class Script {
 public:
  Script(std::vector<Rule> rules, const tokenizer::Tokenizer& tokenizer)
      : rules_(std::move(rules)), tokenizer_(tokenizer) {}

  TokenId next_token(const engine::ModelledExecutor::Seen& seen) {
    const auto prompt_count = static_cast<size_t>(seen.prompt_count);
    if (seats_.size() <= static_cast<size_t>(seen.seat)) {
      seats_.resize(static_cast<size_t>(seen.seat) + 1);
    }
    Seated& seated = seats_[static_cast<size_t>(seen.seat)];
    if (seated.answer == nullptr || seated.arrival != seen.arrival) {
      seated = {.arrival = seen.arrival, .answer = &answer_to(seen.full.first(prompt_count))};
    }
    const size_t at = seen.full.size() - prompt_count;
    return (*seated.answer)[std::min(at, seated.answer->size() - 1)];
  }

 private:
  // The first rule has "when": "" and so always stands somewhere.
  const std::vector<TokenId>& answer_to(std::span<const TokenId> prompt) const {
    const std::string text = tokenizer_.decode(prompt);
    const Rule* best = &rules_.front();
    size_t best_end = 0;
    for (const Rule& rule : rules_) {
      const size_t at = text.rfind(rule.when);
      if (rule.when.empty() || at == std::string::npos || at + rule.when.size() < best_end)
        continue;
      best = &rule;
      best_end = at + rule.when.size();
    }
    return best->answer;
  }

  // Who sits there, and what answers them: looked up once.
  struct Seated {
    int64_t arrival = 0;
    const std::vector<TokenId>* answer = nullptr;
  };

  const std::vector<Rule> rules_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<Seated> seats_;
};

Error bad_script(const std::string& file_name, std::string_view field, std::string_view what) {
  return Error{ErrorCode::kBadConfig, fmt::format("{}: '{}' {}", file_name, field, what),
               std::string(field)};
}

Result<std::string> read_piece(const Json& piece, const std::string& path,
                               const std::string& file_name) {
  if (piece.is_string()) return piece.as_string();
  const std::optional<std::string> text = piece.string("text");
  const int64_t times = piece.integer("times").value_or(1);
  if (!text || times < 0 || times > kTimesMax) {
    return bad_script(
        file_name, path,
        fmt::format("must be a string or {{\"text\": …, \"times\": 0 to {}}}", kTimesMax));
  }
  std::string repeated;
  for (int64_t i = 0; i < times; ++i) repeated += *text;
  return repeated;
}

Result<std::string> read_answer(const Json* then, const std::string& path,
                                const std::string& file_name) {
  if (then == nullptr) return bad_script(file_name, path, "is missing");
  if (!then->is_array()) return read_piece(*then, path, file_name);
  std::string text;
  for (size_t i = 0; i < then->as_array().size(); ++i) {
    TRY_ASSIGN(const std::string piece,
               read_piece(then->as_array()[i], fmt::format("{}[{}]", path, i), file_name));
    text += piece;
  }
  return text;
}

Result<std::vector<Rule>> read_rules(const Json& json, const std::string& file_name,
                                     const tokenizer::Tokenizer& tokenizer) {
  TRY_ASSIGN(const chat::HarmonyTokens harmony, chat::HarmonyTokens::find(tokenizer));
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
    TRY_ASSIGN(const std::string text, read_answer(item.find("then"), path + ".then", file_name));
    Rule rule{.when = *when, .answer = tokenizer.encode_with_special(text)};
    const std::vector<TokenId> stops = harmony.stop_tokens();
    const bool closed = !rule.answer.empty() &&
                        std::find(stops.begin(), stops.end(), rule.answer.back()) != stops.end();
    if (!closed) rule.answer.push_back(harmony.return_);
    if (rule.answer.size() > kAnswerTokensMax) {
      return bad_script(file_name, path + ".then",
                        fmt::format("has more than {} tokens", kAnswerTokensMax));
    }
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

Result<int64_t> read_integer(const Json& json, const char* key, int64_t fallback, int64_t max,
                             const std::string& file_name) {
  if (json.find(key) == nullptr) return fallback;
  const std::optional<int64_t> value = json.integer(key);
  if (!value || *value < 0 || *value > max) {
    return bad_script(file_name, key, fmt::format("must be an integer from 0 to {}", max));
  }
  return *value;
}

}  // namespace

Result<engine::ModelledExecutor::Options> scripted_executor(std::string_view text,
                                                            const std::string& file_name,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            const base::Clock& clock) {
  Result<Json> parsed = Json::parse(text);
  if (!parsed.ok()) {
    return Error{ErrorCode::kBadConfig, file_name + ": " + parsed.error().message, ""};
  }
  const Json& json = *parsed;
  TRY_ASSIGN(std::vector<Rule> rules, read_rules(json, file_name, tokenizer));
  TRY_ASSIGN(const int64_t step_ms, read_integer(json, "step_ms", 0, kStepMsMax, file_name));
  TRY_ASSIGN(int64_t context,
             read_integer(json, "context", kContextDefault, kContextMax, file_name));
  context = std::max<int64_t>(context, 16);
  TRY_ASSIGN(int64_t seats, read_integer(json, "seats", kSeatsDefault, kSeatsMax, file_name));
  seats = std::max<int64_t>(seats, 1);
  if (context * seats > kCachedTokensMax) {
    return bad_script(file_name, "seats",
                      fmt::format("times 'context' must be at most {}", kCachedTokensMax));
  }

  engine::ModelledExecutor::Options options;
  options.checks = false;  // it is another's server that is being tried
  options.capacity.sequences_max = static_cast<int>(seats);
  options.capacity.batch_tokens_max = static_cast<int>(std::max<int64_t>(512, 2 * seats));
  options.capacity.pooled_sequences_max = 16;
  options.capacity.embedding_size = 64;
  options.capacity.context_tokens_max = static_cast<int>(context);
  // Room for every seat to be full at once: a script never waits for blocks.
  const int blocks = static_cast<int>(context / options.capacity.block_tokens + 1) *
                     options.capacity.sequences_max;
  options.capacity.full_block_count = blocks;
  options.capacity.window_block_count = blocks;
  const auto script = std::make_shared<Script>(std::move(rules), tokenizer);
  options.next_token = [script](const engine::ModelledExecutor::Seen& seen) {
    return script->next_token(seen);
  };
  if (step_ms > 0) {
    options.timing = {
        .clock = &clock,
        .step_ns = [step_ms](const engine::StepPlan&) { return step_ms * 1'000'000; },
        .pass = [](int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }};
  }
  return options;
}

}  // namespace pelton::server
