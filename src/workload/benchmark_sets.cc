// Data sets that benchmarks of other servers name: poems, and rows of the hub's sets.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "workload/recorded.h"
#include "workload/text_items.h"

namespace pelton::workload {
namespace {

constexpr uint64_t kVerseStream = 0x7665;
constexpr uint64_t kPromptStream = 0x706F;
constexpr int kVerses = 500;
constexpr int kVerseWords = 8;
constexpr int64_t kCountMax = 10'000'000;

Error bad(const std::string& where, std::string why) {
  return Error{ErrorCode::kInvalidArgument, where + ": " + std::move(why), "dataset_path"};
}

Result<void> check_count(int64_t count) {
  if (count >= 0 && count <= kCountMax) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("'num_prompts' is 0 to {}", kCountMax),
               "num_prompts"};
}

struct Verse {
  std::string text;
  int tokens = 0;
};

std::vector<Verse> verses_of(std::string_view text, const Vocabulary& vocabulary, uint64_t seed) {
  std::vector<Verse> verses;
  Lines lines(text);
  while (const auto line = lines.next()) verses.push_back({.text = std::string(*line) + "\n"});
  Draws draws(seed, kVerseStream);
  while (text.empty() && std::ssize(verses) < kVerses) {
    Vocabulary::Text made;
    vocabulary.append(made, kVerseWords, draws);
    verses.push_back({.text = made.text + "\n"});
  }
  for (Verse& verse : verses) verse.tokens = std::max(vocabulary.count(verse.text), 1);
  return verses;
}

// What the user of a row says first; empty: it has none of the columns.
std::string first_words(const Json& row) {
  if (const Json* said = row.find("conversations"); said != nullptr && said->is_array()) {
    for (const Json& one : said->as_array()) {
      const std::string from = one.is_object() ? one.string("from").value_or("human") : "";
      if (from == "human" || from == "user") return one.string("value").value_or("");
    }
  }
  if (const Json* turns = row.find("turns"); turns != nullptr && turns->is_array()) {
    const Json::Array& all = turns->as_array();
    if (!all.empty() && all.front().is_string()) return all.front().as_string();
  }
  for (const char* column : {"prompt", "question", "problem", "instruction", "text"}) {
    const std::string words = row.string(column).value_or("");
    if (words.empty()) continue;
    const std::string input = row.string("input").value_or("");
    return column == std::string_view("instruction") && !input.empty() ? words + "\n" + input
                                                                       : words;
  }
  return "";
}

Result<Conversation> row_conversation(std::string_view text, const std::string& where,
                                      const RecordedOptions& options,
                                      const Vocabulary& vocabulary) {
  const Result<Json> row = Json::parse(text);
  if (!row) return bad(where, row.error().message);
  if (!row->is_object()) return bad(where, "is no row: a JSON object is");
  Turn turn{.prompt = {}, .ids = {}, .messages_json = {}};
  turn.output_tokens = options.output_tokens;
  const Json* const messages = row->find("messages");
  if (messages != nullptr && messages->is_array() && !messages->as_array().empty()) {
    turn.messages_json = messages->dump();
  } else {
    turn.prompt = first_words(*row);
    if (turn.prompt.empty()) {
      return bad(
          where,
          "has none of the columns messages, conversations, turns, prompt, question, problem, "
          "instruction and text");
    }
    turn.prompt_tokens = vocabulary.count(turn.prompt);
  }
  Conversation conversation;
  conversation.turns.push_back(std::move(turn));
  return conversation;
}

}  // namespace

Result<std::vector<Conversation>> sonnet_conversations(std::string_view text,
                                                       const std::string& name,
                                                       const SonnetLengths& lengths, int64_t count,
                                                       uint64_t seed,
                                                       const Vocabulary& vocabulary) {
  TRY(check_count(count));
  if (lengths.prefix_tokens > lengths.input_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'sonnet_prefix_len' is {}, more than 'sonnet_input_len', which is {}",
                             lengths.prefix_tokens, lengths.input_tokens),
                 "sonnet_prefix_len"};
  }
  if (count * lengths.input_tokens > kDatasetTokensMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} prompts of {} tokens are more than {} tokens", count,
                             lengths.input_tokens, kDatasetTokensMax),
                 "num_prompts"};
  }
  const std::vector<Verse> verses = verses_of(text, vocabulary, seed);
  if (verses.empty()) return bad(name, "has no lines");
  const std::string task = "Pick as many lines as you can from these poem lines:\n";
  const int task_tokens = vocabulary.count(task);
  std::vector<Conversation> conversations(static_cast<size_t>(count));
  for (size_t i = 0; i < conversations.size(); ++i) {
    Draws draws(seed, kPromptStream + (static_cast<uint64_t>(i) << 16));
    std::string prompt = task;
    int tokens = task_tokens;
    for (size_t line = 0; tokens < lengths.input_tokens; ++line) {
      const auto last = static_cast<int64_t>(verses.size()) - 1;
      const size_t place = tokens < lengths.prefix_tokens
                               ? line % verses.size()
                               : static_cast<size_t>(draws.integer(0, last));
      prompt += verses[place].text;
      tokens += verses[place].tokens;
    }
    const int prompt_tokens = vocabulary.count(prompt);
    conversations[i].turns.push_back({.prompt = std::move(prompt),
                                      .ids = {},
                                      .prompt_tokens = prompt_tokens,
                                      .output_tokens = lengths.output_tokens,
                                      .messages_json = {}});
  }
  return conversations;
}

Result<std::vector<Conversation>> hub_rows_conversations(std::string_view text,
                                                         const std::string& name,
                                                         const RecordedOptions& options,
                                                         const Vocabulary& vocabulary) {
  TRY(check_count(options.count));
  std::vector<Conversation> kept;
  ArrayItems items(text);
  Lines lines(text);
  for (int64_t number = 1; std::ssize(kept) < options.count; ++number) {
    const auto row = items.is_array() ? items.next() : lines.next();
    if (!row) break;
    TRY_ASSIGN(
        Conversation conversation,
        row_conversation(*row, fmt::format("{}: row {}", name, number), options, vocabulary));
    kept.push_back(std::move(conversation));
  }
  if (kept.empty() && options.count > 0) return bad(name, "has no rows");
  const size_t had = kept.size();
  while (std::ssize(kept) < options.count) kept.push_back(kept[kept.size() % had]);
  return kept;
}

}  // namespace pelton::workload
