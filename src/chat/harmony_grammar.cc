#include "chat/harmony_grammar.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/harmony_message.h"
#include "grammar/ebnf.h"

namespace pelton::chat {
namespace {

using grammar::TokenGrammar;
using grammar::TokenTrie;
using Exit = TurnGrammar::Exit;
using Segment = TurnGrammar::Segment;

class NetworkBuilder {
 public:
  NetworkBuilder(const TurnRules& rules, const HarmonyTokens& tokens,
                 std::shared_ptr<const TokenTrie> trie)
      : rules_(rules), tokens_(tokens) {
    parts_.trie = std::move(trie);
  }

  Result<std::shared_ptr<const TurnGrammar>> build() {
    for (const TokenId token : {tokens_.start, tokens_.message, tokens_.channel, tokens_.constrain,
                                tokens_.end, tokens_.call, tokens_.return_}) {
      CHECK(token >= 0 && token < grammar::kExitTokenMax, "a control token that is none");
      parts_.vocab_size = std::max(parts_.vocab_size, token + 1);
    }
    TRY_ASSIGN(json_word_, words({"json"}));
    TRY_ASSIGN(after_channel_, words({"commentary", "commentary "}));
    TRY_ASSIGN(typed_channel_, words({"commentary json"}));
    TRY(add_calls());
    switch (rules_.begin) {
      case TurnRules::Begin::kTurn:
        TRY(add_turn());
        break;
      case TurnRules::Begin::kAnyCall:
        TRY(add_named_calls());
        break;
      case TurnRules::Begin::kFirstCall:
        CHECK(!calls_.empty(), "a call of no function");
        parts_.starts = {calls_[0].arguments};
        break;
    }
    return std::make_shared<const TurnGrammar>(std::move(parts_));
  }

 private:
  using Words = std::shared_ptr<const TokenGrammar>;
  // The segments of one function's call, from the channel on.
  struct Call {
    int channel = 0;    // "commentary", behind the recipient
    int typed = 0;      // or "commentary json"
    int type = 0;       // "json", behind <|constrain|>
    int arguments = 0;  // behind <|message|>
  };

  Result<Words> words(std::vector<std::string> texts) {
    TRY_ASSIGN(auto choice, grammar::compile_choice(texts));
    return TokenGrammar::of_words(std::move(choice), parts_.trie);
  }

  int add(Segment segment) {
    parts_.segments.push_back(std::move(segment));
    return static_cast<int>(parts_.segments.size()) - 1;
  }
  int add_words(Words words, std::vector<Exit> exits) {
    return add({Segment::Text::kGrammar, std::move(words), std::move(exits)});
  }
  int add_text(std::shared_ptr<const TokenGrammar> grammar, std::vector<Exit> exits) {
    if (grammar) return add_words(std::move(grammar), std::move(exits));
    return add({Segment::Text::kFree, nullptr, std::move(exits)});
  }

  // <|message|>, or <|constrain|>json<|message|>.
  std::vector<Exit> to_arguments(const Call& call) const {
    return {{tokens_.message, {call.arguments}}, {tokens_.constrain, {call.type}}};
  }

  // What stands behind a recipient.
  Exit to_channel(const Call& call) const { return {tokens_.channel, {call.channel, call.typed}}; }

  Result<void> add_calls() {
    for (const TurnRules::Function& function : rules_.functions) {
      Call& call = calls_.emplace_back();
      call.arguments = add_text(function.arguments, {{tokens_.call, {}}});
      call.type = add_words(json_word_, {{tokens_.message, {call.arguments}}});
      call.channel = add_words(after_channel_, to_arguments(call));
      call.typed = add_words(typed_channel_, {{tokens_.message, {call.arguments}}});
    }
    return {};
  }

  // Behind "<|start|>assistant to=functions".
  Result<void> add_named_calls() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      TRY_ASSIGN(Words name, words({"." + rules_.functions[i].name}));
      parts_.starts.push_back(add_words(std::move(name), {to_channel(calls_[i])}));
    }
    return {};
  }

  // Behind "<|start|>assistant": a channel or a recipient.
  Result<void> add_turn() {
    std::vector<int> channels;    // what may stand behind <|channel|>
    std::vector<int> beginnings;  // what may stand behind "<|start|>assistant"

    const int final_text = add_text(rules_.answer, {{tokens_.return_, {}}});
    TRY_ASSIGN(Words final_words, words({std::string(kFinal), std::string(kFinal) + " "}));
    const int final_type = add_words(json_word_, {{tokens_.message, {final_text}}});
    std::vector<Exit> to_final = {{tokens_.message, {final_text}}};
    if (rules_.answer) to_final.push_back({tokens_.constrain, {final_type}});
    channels.push_back(add_words(std::move(final_words), std::move(to_final)));

    // A next message begins as this one did, with the author's name before it.
    const int next_author = add({});
    const int thought = add({Segment::Text::kFree, nullptr, {{tokens_.end, {next_author}}}});
    // Then <|start|> comes.
    std::vector<std::string> free_channels = {std::string(kAnalysis)};
    if (!calls_.empty()) free_channels.emplace_back(kCommentary);  // "I will look that up first"
    TRY_ASSIGN(Words free_words, words(std::move(free_channels)));
    channels.push_back(add_words(std::move(free_words), {{tokens_.message, {thought}}}));

    for (size_t i = 0; i < calls_.size(); ++i) {
      const std::string recipient = " to=functions." + rules_.functions[i].name;
      const std::string behind_channel = std::string(kCommentary) + recipient;
      TRY_ASSIGN(Words channel_first, words({behind_channel, behind_channel + " "}));
      channels.push_back(add_words(std::move(channel_first), to_arguments(calls_[i])));
      TRY_ASSIGN(Words with_type, words({behind_channel + " json"}));
      channels.push_back(
          add_words(std::move(with_type), {{tokens_.message, {calls_[i].arguments}}}));
    }
    TRY(add_builtin_calls(channels));
    beginnings.push_back(add({Segment::Text::kNone, nullptr, {{tokens_.channel, channels}}}));
    for (size_t i = 0; i < calls_.size(); ++i) {
      TRY_ASSIGN(Words to, words({" to=functions." + rules_.functions[i].name}));
      beginnings.push_back(add_words(std::move(to), {to_channel(calls_[i])}));
    }
    TRY(add_authors(next_author, channels));
    parts_.starts = std::move(beginnings);
    return {};
  }

  // "analysis to=browser.search code", as the model was trained to write them.
  Result<void> add_builtin_calls(std::vector<int>& channels) {
    std::vector<std::string> headers;
    const auto add_recipient = [&](std::string_view recipient) {
      for (const std::string_view channel : {kAnalysis, kCommentary}) {
        const std::string header = fmt::format("{} to={}", channel, recipient);
        headers.insert(headers.end(), {header, header + " ", header + " code"});
      }
    };
    for (const BuiltinTool tool : rules_.builtin_tools) {
      if (tool == BuiltinTool::kPython) add_recipient("python");
      if (tool != BuiltinTool::kBrowser) continue;
      for (const FunctionTool& function : browser_namespace().functions) {
        add_recipient("browser." + function.name);
      }
    }
    if (headers.empty()) return {};
    const int text = add({Segment::Text::kFree, nullptr, {{tokens_.call, {}}}});
    TRY_ASSIGN(Words header_words, words(std::move(headers)));
    channels.push_back(add_words(std::move(header_words), {{tokens_.message, {text}}}));
    return {};
  }

  // <|start|> "assistant", and on as at the turn's beginning.
  Result<void> add_authors(int next_author, const std::vector<int>& channels) {
    std::vector<int> authors;
    TRY_ASSIGN(Words name, words({std::string(role_name(Role::kAssistant))}));
    authors.push_back(add_words(std::move(name), {{tokens_.channel, channels}}));
    for (size_t i = 0; i < calls_.size(); ++i) {
      TRY_ASSIGN(Words to, words({"assistant to=functions." + rules_.functions[i].name}));
      authors.push_back(add_words(std::move(to), {to_channel(calls_[i])}));
    }
    parts_.segments[static_cast<size_t>(next_author)].exits = {{tokens_.start, authors}};
    return {};
  }

  const TurnRules& rules_;
  const HarmonyTokens& tokens_;
  TurnGrammar::Parts parts_;
  std::vector<Call> calls_;
  Words json_word_;
  Words after_channel_;
  Words typed_channel_;
};

}  // namespace

Result<std::shared_ptr<const TurnGrammar>> harmony_network(
    const TurnRules& rules, const HarmonyTokens& tokens,
    std::shared_ptr<const grammar::TokenTrie> trie) {
  return NetworkBuilder(rules, tokens, std::move(trie)).build();
}

}  // namespace pelton::chat
