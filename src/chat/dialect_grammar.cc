#include "chat/dialect_grammar.h"

#include <algorithm>
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
  int add_text(std::shared_ptr<const grammar::TokenGrammar> grammar, std::vector<Exit> exits) {
    const auto kind = grammar ? Segment::Text::kGrammar : Segment::Text::kFree;
    return add({kind, std::move(grammar), std::move(exits)});
  }
  std::vector<Exit> ends() const {
    std::vector<Exit> exits;
    for (const TokenId stop : of_.dialect.stops) exits.push_back({stop, {}});
    return exits;
  }
  // Segments in which only these tokens may come, one after the other, and then `behind`.
  int add_row(const std::vector<TokenId>& tokens, int behind) {
    for (size_t i = tokens.size(); i > 0; --i) {
      behind = add({Segment::Text::kNone, nullptr, {{tokens[i - 1], {behind}}}});
    }
    return behind;
  }

  // Of each function, from where the prompt ends.
  void add_calls() {
    if (rules_.functions.empty()) return;
    const int over = add({Segment::Text::kNone, nullptr, ends()});
    const MarkerAt closing = first_marker(syntax_.behind, syntax_, of_.tokenizer);
    const std::string_view markers =
        syntax_.behind.substr(std::min(closing.begin, syntax_.behind.size()));
    const std::vector<TokenId> row = encoded(markers, syntax_, of_.tokenizer);
    std::vector<Exit> exits = ends();
    if (!row.empty()) {
      const int next = add_row({row.begin() + 1, row.end()}, over);
      exits = {{row[0], {next}}};
    }
    for (const TurnRules::Function& function : rules_.functions) {
      const int arguments = add_text(function.arguments, exits);
      calls_.push_back(add_row(before_arguments(function.name), arguments));
    }
  }

  std::vector<TokenId> before_arguments(const std::string& name) const {
    if (rules_.begin == Begin::kFirstCall) return {};
    std::string text(rules_.begin == Begin::kTurn ? syntax_.before_name : "");
    text += name;
    text += syntax_.before_arguments;
    return encoded(text, syntax_, of_.tokenizer);
  }

  void add_turn() {
    std::vector<int> answers;
    std::vector<Exit> exits = ends();
    for (const int call : calls_) {
      // A call begins with a marker, or is told from an answer by its grammar.
      const Segment& first = segments_[static_cast<size_t>(call)];
      const MarkerAt opening = first_marker(syntax_.before_name, syntax_, of_.tokenizer);
      const bool has_marker = opening.begin == 0 && first.text == Segment::Text::kNone;
      if (!rules_.answer && has_marker) exits.push_back(first.exits[0]);
      answers.push_back(call);
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
    std::vector<int> behind = answers;
    if (const std::optional<TokenId> blank = token_of(of_.tokenizer, "\n\n")) {
      behind.push_back(add({Segment::Text::kNone, nullptr, {{*blank, answers}}}));
    }
    const int thought = add_text(nullptr, {{*end, behind}});
    if (of_.opens_reasoning) {
      parts_.starts = {thought};
    } else {
      parts_.starts.push_back(add({Segment::Text::kNone, nullptr, {{*begin, {thought}}}}));
    }
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

CallFrame dialect_call_frame(const CallSyntax& syntax, const tokenizer::Tokenizer& tokenizer) {
  const MarkerAt closing = first_marker(syntax.behind, syntax, tokenizer);
  return {.before = {}, .after = std::string(syntax.behind.substr(0, closing.begin))};
}

}  // namespace pelton::chat
