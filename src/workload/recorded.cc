#include "workload/recorded.h"

#include <algorithm>
#include <climits>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "workload/text_items.h"

namespace pelton::workload {
namespace {

constexpr uint64_t kChoiceStream = 0x6368;
constexpr int64_t kCountMax = 10'000'000;

Error bad(const std::string& name, std::string why) {
  return Error{ErrorCode::kInvalidArgument, name + ": " + std::move(why), "dataset_path"};
}

Result<void> check(const RecordedOptions& options) {
  if (options.count >= 0 && options.count <= kCountMax) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("'num_prompts' is 0 to {}", kCountMax),
               "num_prompts"};
}

// What vLLM's benchmark takes of ShareGPT: neither stubs nor what a small context would refuse.
bool usual_lengths(int prompt, int answer, bool answer_given) {
  return prompt >= 4 && (answer >= 4 || answer_given) && prompt <= 1024 && prompt + answer <= 2048;
}

bool is_user(const std::string& from) {
  return from == "human" || from == "user";
}

// Empty where the conversation is not of use.
Conversation sharegpt_conversation(const Json& item, const RecordedOptions& options,
                                   const Vocabulary& vocabulary) {
  Conversation conversation;
  const Json* said = item.find("conversations");
  if (said == nullptr || !said->is_array()) return conversation;
  const Json::Array& list = said->as_array();
  for (size_t i = 0; i + 1 < list.size(); i += 2) {
    if (static_cast<int>(conversation.turns.size()) == options.turns_max) break;
    std::optional<std::string> prompt = list[i].string("value");
    const std::optional<std::string> answer = list[i + 1].string("value");
    if (!prompt || !answer) break;
    // Files name the speakers or do not; where they do, the user begins.
    if (const auto from = list[i].string("from"); from && !is_user(*from)) break;
    Turn turn{.prompt = std::move(*prompt), .ids = {}, .messages_json = {}};
    turn.prompt_tokens = vocabulary.count(turn.prompt);
    turn.output_tokens =
        options.output_tokens > 0 ? options.output_tokens : vocabulary.count(*answer);
    if (i > 0) turn.think_s = options.think_s;
    if (i == 0 &&
        !usual_lengths(turn.prompt_tokens, turn.output_tokens, options.output_tokens > 0)) {
      break;
    }
    if (turn.prompt.empty() || turn.output_tokens < 1) break;
    conversation.turns.push_back(std::move(turn));
  }
  return conversation;
}

// A file shorter than what is wanted is begun again.
std::vector<Conversation> repeated(std::vector<Conversation> kept, int64_t count) {
  const size_t had = kept.size();
  const auto wanted = static_cast<size_t>(count);
  for (size_t i = had; i < wanted; ++i) kept.push_back(kept[i % had]);
  if (kept.size() > wanted) kept.resize(wanted);
  return kept;
}

Result<Conversation> custom_conversation(const Json& json, const std::string& where,
                                         const RecordedOptions& options,
                                         const Vocabulary& vocabulary) {
  Turn turn{.prompt = {}, .ids = {}, .messages_json = {}};
  const std::optional<std::string> prompt = json.string("prompt");
  const Json* messages = json.find("messages");
  if (prompt && !prompt->empty()) {
    turn.prompt = *prompt;
    turn.prompt_tokens = vocabulary.count(*prompt);
  } else if (messages != nullptr && messages->is_array() && !messages->as_array().empty()) {
    turn.messages_json = messages->dump();
  } else {
    return bad(where, "needs a \"prompt\", a text that is not empty, or \"messages\"");
  }
  turn.output_tokens = options.output_tokens;
  if (json.find("output_tokens") != nullptr && options.output_tokens == 0) {
    const std::optional<int64_t> tokens = json.integer("output_tokens");
    if (!tokens || *tokens < 1 || *tokens > 10'000'000) {
      return bad(where, "\"output_tokens\" must be from 1 to 10000000");
    }
    turn.output_tokens = static_cast<int>(*tokens);
  }
  Conversation conversation;
  conversation.turns.push_back(std::move(turn));
  return conversation;
}

}  // namespace

Result<std::vector<Conversation>> sharegpt_conversations(std::string_view text,
                                                         const std::string& name,
                                                         const RecordedOptions& options,
                                                         const Vocabulary& vocabulary) {
  TRY(check(options));
  ArrayItems items(text);
  if (!items.is_array()) return bad(name, "is no JSON array of conversations");
  Draws draws(options.seed, kChoiceStream);
  std::vector<Conversation> kept;
  int64_t usable = 0;
  for (int64_t number = 0; const auto item = items.next(); ++number) {
    Result<Json> json = Json::parse(*item);
    if (!json) return bad(name, fmt::format("element {}: {}", number, json.error().message));
    Conversation conversation = sharegpt_conversation(*json, options, vocabulary);
    if (conversation.turns.empty()) continue;
    // A reservoir (Vitter's algorithm R): each usable one is kept with the same chance.
    ++usable;
    if (static_cast<int64_t>(kept.size()) < options.count) {
      kept.push_back(std::move(conversation));
      continue;
    }
    const int64_t place = draws.integer(0, usable - 1);
    if (place < options.count) kept[static_cast<size_t>(place)] = std::move(conversation);
  }
  if (!items.closed()) return bad(name, "ends amid its array");
  if (usable == 0) return bad(name, "holds no conversation of usual length");
  return repeated(std::move(kept), options.count);
}

Result<std::vector<Conversation>> custom_conversations(std::string_view text,
                                                       const std::string& name,
                                                       const RecordedOptions& options,
                                                       const Vocabulary& vocabulary) {
  TRY(check(options));
  Lines lines(text);
  std::vector<Conversation> kept;
  while (static_cast<int64_t>(kept.size()) < options.count) {
    const auto line = lines.next();
    if (!line) break;
    const std::string where = fmt::format("{}:{}", name, lines.number());
    Result<Json> json = Json::parse(*line);
    if (!json) return bad(where, json.error().message);
    TRY_ASSIGN(Conversation conversation, custom_conversation(*json, where, options, vocabulary));
    kept.push_back(std::move(conversation));
  }
  if (kept.empty() && options.count > 0) return bad(name, "has no lines");
  return repeated(std::move(kept), options.count);
}

}  // namespace pelton::workload
