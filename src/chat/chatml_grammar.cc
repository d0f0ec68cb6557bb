#include "chat/chatml_grammar.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pelton::chat {
namespace {

using grammar::TokenTrie;
using Exit = TurnGrammar::Exit;
using Segment = TurnGrammar::Segment;
using Begin = TurnRules::Begin;

class GrammarBuilder {
 public:
  GrammarBuilder(const TurnRules& rules, const ChatMlTokens& tokens,
                 std::shared_ptr<const TokenTrie> trie)
      : rules_(rules), tokens_(tokens) {
    parts_.trie = std::move(trie);
  }

  Result<std::shared_ptr<const TurnGrammar>> build() {
    const bool may_call = tokens_.tool_call && tokens_.tool_call_end;
    if (!rules_.functions.empty() && !may_call) {
      return Error{ErrorCode::kUnsupported,
                   "calls cannot be made to follow a schema here: the model's vocabulary has no "
                   "tokens for <tool_call> and </tool_call>",
                   "tools"};
    }
    add_calls();
    if (rules_.begin == Begin::kTurn) {
      add_turn();
    } else {
      parts_.starts = calls_;
    }
    for (const Segment& segment : segments_) {
      for (const Exit& exit : segment.exits) {
        CHECK(exit.token >= 0 && exit.token < grammar::kExitTokenMax, "an exit that is no token");
        parts_.vocab_size = std::max(parts_.vocab_size, exit.token + 1);
      }
    }
    return std::make_shared<const TurnGrammar>(std::move(parts_));
  }

 private:
  int add(Segment segment) {
    segments_.push_back(std::move(segment));
    return static_cast<int>(segments_.size()) - 1;
  }
  int add_exits(std::vector<Exit> exits) {
    return add({Segment::Text::kNone, nullptr, std::move(exits)});
  }
  int add_text(std::shared_ptr<const grammar::TokenGrammar> grammar, std::vector<Exit> exits) {
    const auto kind = grammar ? Segment::Text::kGrammar : Segment::Text::kFree;
    return add({kind, std::move(grammar), std::move(exits)});
  }
  Exit over() const { return {tokens_.end, {}}; }

  void add_calls() {
    if (rules_.functions.empty()) return;
    const int behind = add_exits({over()});
    for (const TurnRules::Function& function : rules_.functions) {
      calls_.push_back(add_text(function.arguments, {{*tokens_.tool_call_end, {behind}}}));
    }
    // A call that was asked for is one; otherwise more may follow, on a line of their own.
    if (rules_.begin != Begin::kTurn || !tokens_.newline) return;
    const int next = add_exits({{*tokens_.tool_call, calls_}});
    segments_[static_cast<size_t>(behind)].exits.push_back({*tokens_.newline, {next}});
  }

  void add_turn() {
    std::vector<int> answers;
    std::vector<Exit> exits = {over()};
    if (!calls_.empty()) {
      answers.push_back(add_exits({{*tokens_.tool_call, calls_}}));
      // "I will look that up first."
      if (!rules_.answer) exits.push_back({*tokens_.tool_call, calls_});
    }
    answers.push_back(add_text(rules_.answer, std::move(exits)));
    parts_.starts = answers;
    if (!tokens_.think || !tokens_.think_end) return;
    std::vector<int> behind_thought = answers;
    if (tokens_.blank_line) behind_thought.push_back(add_exits({{*tokens_.blank_line, answers}}));
    const int thought = add_text(nullptr, {{*tokens_.think_end, behind_thought}});
    parts_.starts.push_back(add_exits({{*tokens_.think, {thought}}}));
  }

  const TurnRules& rules_;
  const ChatMlTokens& tokens_;
  TurnGrammar::Parts parts_;
  std::vector<Segment>& segments_ = parts_.segments;
  std::vector<int> calls_;
};

constexpr std::string_view kBeforeName = "\n{\"name\": \"";
constexpr std::string_view kBeforeArguments = "\", \"arguments\": ";

}  // namespace

Result<std::shared_ptr<const TurnGrammar>> chatml_grammar(
    const TurnRules& rules, const ChatMlTokens& tokens,
    std::shared_ptr<const grammar::TokenTrie> trie) {
  return GrammarBuilder(rules, tokens, std::move(trie)).build();
}

std::string chatml_call_opening(std::string_view function_name) {
  std::string opening(kBeforeName);
  if (function_name.empty()) return opening;
  opening += function_name;
  opening += kBeforeArguments;
  return opening;
}

CallFrame chatml_call_frame(std::string_view function_name, TurnRules::Begin begin) {
  CallFrame frame{.before = {}, .after = "}\n"};
  if (begin == Begin::kTurn) frame.before += kBeforeName;
  if (begin != Begin::kFirstCall) {
    frame.before += function_name;
    frame.before += kBeforeArguments;
  }
  return frame;
}

}  // namespace pelton::chat
