#include "chat/dialect_grammar.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"

namespace pelton::chat {
namespace {

using grammar::TokenTrie;
using Exit = TurnGrammar::Exit;
using Segment = TurnGrammar::Segment;
using Begin = TurnRules::Begin;

// The first marker of these in a text, that is a token.
struct MarkerAt {
  size_t begin = std::string_view::npos;
  size_t size = 0;
  TokenId token = -1;
};

MarkerAt first_marker(std::string_view text, const CallSyntax& syntax,
                      const tokenizer::Tokenizer& tokenizer) {
  MarkerAt first;
  for (const std::string_view marker : syntax.markers) {
    const size_t at = text.find(marker);
    if (at == std::string_view::npos || at >= first.begin) continue;
    const std::optional<TokenId> token = token_of(tokenizer, marker);
    if (token) first = {at, marker.size(), *token};
  }
  return first;
}

// Markers that are tokens as those, the rest as ordinary text.
std::vector<TokenId> encoded(std::string_view text, const CallSyntax& syntax,
                             const tokenizer::Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    const MarkerAt marker = first_marker(text, syntax, tokenizer);
    tokenizer.encode(text.substr(0, marker.begin), tokens);
    if (marker.token < 0) break;
    tokens.push_back(marker.token);
    text.remove_prefix(marker.begin + marker.size);
  }
  return tokens;
}

// What of a call stands before its arguments, without what the prompt has written.
struct BeforeArguments {
  std::vector<TokenId> row;  // up to the last marker
  std::string text;          // behind it
};

BeforeArguments before_arguments(const CallSyntax& syntax, const tokenizer::Tokenizer& tokenizer,
                                 std::string_view name, Begin begin) {
  std::string all;
  if (begin == Begin::kTurn) all += syntax.before_name;
  if (begin != Begin::kFirstCall) {
    all += name;
    all += syntax.before_arguments;
  }
  size_t row_end = 0;
  std::string_view left = all;
  for (MarkerAt marker = first_marker(left, syntax, tokenizer); marker.token >= 0;
       marker = first_marker(left, syntax, tokenizer)) {
    left.remove_prefix(marker.begin + marker.size);
    row_end = all.size() - left.size();
  }
  return {.row = encoded(std::string_view(all).substr(0, row_end), syntax, tokenizer),
          .text = all.substr(row_end)};
}

class GrammarBuilder {
 public:
  GrammarBuilder(const TurnRules& rules, const DialectGrammarParts& of,
                 std::shared_ptr<const TokenTrie> trie)
      : rules_(rules), of_(of), syntax_(*of.dialect.calls) {
    parts_.trie = std::move(trie);
  }

  Result<std::shared_ptr<const TurnGrammar>> build() {
    if (!rules_.functions.empty() && syntax_.read == nullptr) {
      return Error{
          ErrorCode::kUnsupported,
          "calls cannot be made to follow a schema here: nothing says how this model writes "
          "them; --tool-call-parser can",
          "tools"};
    }
    if (of_.dialect.stops.empty()) {
      return Error{ErrorCode::kUnsupported,
                   "an answer cannot be made to follow a schema here: the model's files name no "
                   "token that ends a turn",
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
  std::vector<Exit> ends() const {
    std::vector<Exit> exits;
    for (const TokenId stop : of_.dialect.stops) exits.push_back({stop, {}});
    return exits;
  }
  // Segments in which only these tokens may come, one after the other, and then any of `behind`.
  std::vector<int> add_row(std::span<const TokenId> tokens, std::vector<int> behind) {
    for (size_t i = tokens.size(); i > 0; --i) {
      behind = {add_exits({{tokens[i - 1], std::move(behind)}})};
    }
    return behind;
  }

  // Of all functions, from where the prompt ends.
  void add_calls() {
    if (rules_.functions.empty()) return;
    const int over = add_exits(ends());
    const MarkerAt closing = first_marker(syntax_.behind, syntax_, of_.tokenizer);
    std::vector<TokenId> row;
    if (closing.token >= 0) {
      row = encoded(syntax_.behind.substr(closing.begin), syntax_, of_.tokenizer);
    }
    std::vector<Exit> exits = ends();
    if (!row.empty()) exits = {{row[0], add_row(std::span(row).subspan(1), {over})}};
    // Functions whose calls begin with the same tokens share them.
    std::map<std::vector<TokenId>, std::vector<int>> by_row;
    for (const TurnRules::Function& function : rules_.functions) {
      const BeforeArguments before =
          before_arguments(syntax_, of_.tokenizer, function.name, rules_.begin);
      by_row[before.row].push_back(add_text(function.arguments, exits));
    }
    for (auto& [tokens, arguments] : by_row) {
      const std::vector<int> begins = add_row(tokens, std::move(arguments));
      calls_.insert(calls_.end(), begins.begin(), begins.end());
    }
    // A call that was asked for is one; otherwise more may follow.
    const bool may_repeat = rules_.begin == Begin::kTurn && opening_marker().begin == 0;
    if (!may_repeat || syntax_.between.empty()) return;
    const std::vector<TokenId> between = encoded(syntax_.between, syntax_, of_.tokenizer);
    std::vector<int> next = add_row(std::span(between).subspan(1), calls_);
    segments_[static_cast<size_t>(over)].exits.push_back({between[0], std::move(next)});
  }

  MarkerAt opening_marker() const {
    return first_marker(syntax_.before_name, syntax_, of_.tokenizer);
  }

  void add_turn() {
    std::vector<int> answers = calls_;
    std::vector<Exit> exits = ends();
    // "I will look that up first.": a free answer ends where a call's marker comes. Without a
    // marker its grammar distinguishes a call from an answer.
    if (!rules_.answer && opening_marker().begin == 0) {
      for (const int call : calls_) {
        exits.push_back(segments_[static_cast<size_t>(call)].exits[0]);
      }
    }
    answers.push_back(add_text(rules_.answer, merged(std::move(exits))));
    parts_.starts = answers;
    add_reasoning(answers);
  }

  // Exits by the same token lead to all that they lead to.
  static std::vector<Exit> merged(std::vector<Exit> exits) {
    std::vector<Exit> out;
    for (Exit& exit : exits) {
      const auto same = std::find_if(out.begin(), out.end(),
                                     [&](const Exit& other) { return other.token == exit.token; });
      if (same == out.end()) {
        out.push_back(std::move(exit));
      } else {
        same->to.insert(same->to.end(), exit.to.begin(), exit.to.end());
      }
    }
    return out;
  }

  void add_reasoning(const std::vector<int>& answers) {
    const ReasoningSyntax& reasoning = of_.dialect.reasoning;
    if (!reasoning.marks()) return;
    const std::optional<TokenId> begin = token_of(of_.tokenizer, reasoning.begin);
    const std::optional<TokenId> end = token_of(of_.tokenizer, reasoning.end);
    if (!begin || !end) return;
    // With or without the blank line that models write there, of one token or of two.
    std::vector<TokenId> blank;
    if (const std::optional<TokenId> one = token_of(of_.tokenizer, "\n\n")) {
      blank = {*one};
    } else {
      blank = of_.tokenizer.encode("\n\n");
    }
    std::vector<int> behind = answers;
    if (of_.tokenizer.decode(blank) == "\n\n") {
      for (const int row : add_row(blank, answers)) behind.push_back(row);
    }
    const int thought = add_text(nullptr, {{*end, behind}});
    parts_.starts.push_back(add_exits({{*begin, {thought}}}));
  }

  const TurnRules& rules_;
  const DialectGrammarParts& of_;
  const CallSyntax& syntax_;
  TurnGrammar::Parts parts_;
  std::vector<Segment>& segments_ = parts_.segments;
  std::vector<int> calls_;
};

}  // namespace

Result<std::shared_ptr<const TurnGrammar>> dialect_grammar(const TurnRules& rules,
                                                           const DialectGrammarParts& parts,
                                                           std::shared_ptr<const TokenTrie> trie) {
  return GrammarBuilder(rules, parts, std::move(trie)).build();
}

std::vector<TokenId> forced_call_opening(const CallSyntax& syntax, std::string_view function_name,
                                         const tokenizer::Tokenizer& tokenizer) {
  std::string text(syntax.before_name);
  if (!function_name.empty()) {
    text += function_name;
    text += syntax.before_arguments;
  }
  return encoded(text, syntax, tokenizer);
}

CallFrame dialect_call_frame(const CallSyntax& syntax, const tokenizer::Tokenizer& tokenizer,
                             std::string_view function_name, Begin begin) {
  const MarkerAt closing = first_marker(syntax.behind, syntax, tokenizer);
  return {.before = before_arguments(syntax, tokenizer, function_name, begin).text,
          .after = std::string(syntax.behind.substr(0, closing.begin))};
}

}  // namespace pelton::chat
