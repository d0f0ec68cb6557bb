#include "workload/synthetic.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace pelton::workload {
namespace {

// Streams of draws, so that one choice does not move another.
constexpr uint64_t kPrefixStream = 0x7072;
constexpr uint64_t kLengthStream = 0x6C65;
constexpr uint64_t kThinkStream = 0x7468;
constexpr uint64_t kOrderStream = 0x6F72;
constexpr uint64_t kTextStream = 0x74657874;  // plus the text's number

constexpr int kTokensMax = 10'000'000;  // of one prompt

Error bad(const std::string& field, std::string why) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, why), field};
}

Result<void> check_tokens(const std::string& field, int64_t tokens, int64_t least) {
  if (tokens >= least && tokens <= kTokensMax) return {};
  return bad(field, fmt::format("must be from {} to {}, not {}", least, kTokensMax, tokens));
}

Result<void> check_total(double tokens_each, int64_t count) {
  const double tokens = tokens_each * static_cast<double>(count);
  if (count >= 0 && tokens <= static_cast<double>(kDatasetTokensMax)) return {};
  return bad("num_prompts", fmt::format("times their lengths is {:.0f} tokens, more than the {} "
                                        "that a data set may hold",
                                        tokens, kDatasetTokensMax));
}

int draw_length(int tokens, double ratio, int least, Draws& draws) {
  if (ratio == 0) return tokens;
  const auto low = static_cast<int64_t>(std::floor(tokens * (1 - ratio)));
  const auto high = static_cast<int64_t>(std::ceil(tokens * (1 + ratio)));
  return static_cast<int>(std::max<int64_t>(draws.integer(low, high), least));
}

Turn make_turn(Vocabulary::Text text, int prompt_tokens, int output_tokens) {
  // " the wheel" begins a prompt as it stands: trimmed, its first word could be another token.
  return {.prompt = std::move(text.text),
          .ids = std::move(text.ids),
          .prompt_tokens = prompt_tokens,
          .output_tokens = output_tokens,
          .messages_json = {}};
}

}  // namespace

Result<std::vector<Conversation>> random_conversations(const RandomLengths& lengths,
                                                       const Turns& turns, int64_t count,
                                                       const Vocabulary& vocabulary,
                                                       uint64_t seed) {
  TRY(check_tokens("random_input_len", lengths.input_tokens, 1));
  TRY(check_tokens("random_output_len", lengths.output_tokens, 1));
  TRY(check_tokens("random_prefix_len", lengths.prefix_tokens, 0));
  if (!(lengths.range_ratio >= 0 && lengths.range_ratio < 1)) {
    return bad("random_range_ratio", "must be at least 0 and below 1");
  }
  if (turns.count < 1 || turns.count > 1000) return bad("turns", "must be from 1 to 1000");
  if (!(turns.think_s >= 0 && turns.think_s <= 3600)) return bad("think_time", "is 0 to 3600 s");
  TRY(check_total(
      (lengths.prefix_tokens + lengths.input_tokens * (1 + lengths.range_ratio)) * turns.count,
      count));

  Vocabulary::Text prefix;
  Draws prefix_draws(seed, kPrefixStream);
  vocabulary.append(prefix, lengths.prefix_tokens, prefix_draws);
  Draws length_draws(seed, kLengthStream);
  Draws think_draws(seed, kThinkStream);
  std::vector<Conversation> conversations(static_cast<size_t>(count));
  uint64_t number = 0;
  for (Conversation& conversation : conversations) {
    for (int t = 0; t < turns.count; ++t) {
      const int input = draw_length(lengths.input_tokens, lengths.range_ratio, 1, length_draws);
      const int output = draw_length(lengths.output_tokens, lengths.range_ratio, 1, length_draws);
      Vocabulary::Text text = t == 0 ? prefix : Vocabulary::Text{};
      Draws draws(seed, kTextStream + number++);
      vocabulary.append(text, input, draws);
      const int whole = input + (t == 0 ? lengths.prefix_tokens : 0);
      conversation.turns.push_back(make_turn(std::move(text), whole, output));
      if (t > 0) conversation.turns.back().think_s = think_draws.gamma(1, turns.think_s);
    }
  }
  return conversations;
}

Result<std::vector<Conversation>> prefix_repetition(const PrefixRepetition& options, int64_t count,
                                                    const Vocabulary& vocabulary, uint64_t seed) {
  TRY(check_tokens("prefix_repetition_prefix_len", options.prefix_tokens, 0));
  TRY(check_tokens("prefix_repetition_suffix_len", options.suffix_tokens, 1));
  TRY(check_tokens("prefix_repetition_output_len", options.output_tokens, 1));
  if (options.prefix_count < 1 || options.prefix_count > 1'000'000) {
    return bad("prefix_repetition_num_prefixes", "must be from 1 to 1000000");
  }
  TRY(check_total(double(options.prefix_tokens) + options.suffix_tokens, count));
  std::vector<Conversation> conversations(static_cast<size_t>(count));
  const auto prefixes = static_cast<size_t>(options.prefix_count);
  for (size_t i = 0; i < conversations.size(); ++i) {
    Vocabulary::Text text;
    // A prefix is drawn anew each time, from its own stream: it comes out the same.
    Draws prefix_draws(seed, kPrefixStream + (i % prefixes));
    vocabulary.append(text, options.prefix_tokens, prefix_draws);
    Draws draws(seed, kTextStream + i);
    vocabulary.append(text, options.suffix_tokens, draws);
    conversations[i].turns.push_back(make_turn(
        std::move(text), options.prefix_tokens + options.suffix_tokens, options.output_tokens));
  }
  Draws order(seed, kOrderStream);
  for (size_t i = conversations.size(); i > 1; --i) {
    const auto other = static_cast<size_t>(order.integer(0, static_cast<int64_t>(i) - 1));
    std::swap(conversations[i - 1], conversations[other]);
  }
  return conversations;
}

Result<RandomLengths> preset_lengths(const std::string& name) {
  if (name == "prefill-heavy") return RandomLengths{.input_tokens = 2048, .output_tokens = 128};
  if (name == "decode-heavy") return RandomLengths{.input_tokens = 128, .output_tokens = 2048};
  if (name == "conversation") {
    return RandomLengths{.input_tokens = 512, .output_tokens = 256, .range_ratio = 0.5};
  }
  return bad("preset",
             fmt::format("is prefill-heavy, decode-heavy or conversation, not '{}'", name));
}

}  // namespace pelton::workload
