// A guide over made-up tokens, for tests of real models that know no text. Tests only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/ebnf.h"
#include "grammar/grammar_state.h"
#include "grammar/json_schema.h"

namespace pelton::executor {

// Over the bytes, and over more tokens of two to three letters if the vocabulary is larger.
inline grammar::GrammarState guide_of(const std::shared_ptr<const grammar::Grammar>& rules,
                                      int vocabulary) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
  for (int i = 256; i < vocabulary; ++i) {
    std::string text;
    for (int rest = i; rest > 0; rest /= 28) text += "abcdefghijklmnopqrstuvwxyz()"[rest % 28];
    texts.push_back(std::move(text));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  using Segment = grammar::GrammarFsm::Segment;
  grammar::GrammarFsm::Parts parts;
  parts.trie = std::make_shared<const grammar::TokenTrie>(views);
  auto grammar = grammar::TokenGrammar::make(rules, parts.trie);
  parts.segments.push_back({Segment::Text::kGrammar, grammar.value(), {}});
  parts.starts = {0};
  return grammar::GrammarState(std::make_shared<const grammar::GrammarFsm>(std::move(parts)));
}

inline grammar::GrammarState guide_of(std::string_view ebnf, int vocabulary) {
  return guide_of(grammar::compile_ebnf(ebnf).value(), vocabulary);
}

// An object as a tool is called with: names that leave no choice, numbers, one of two texts.
inline grammar::GrammarState schema_guide(int vocabulary) {
  const Json schema = Json::parse(R"({"type":"object","properties":{
      "name":{"enum":["forecast","convert"]},"count":{"type":"integer","maximum":999},
      "tags":{"type":"array","items":{"type":"string","maxLength":6},"maxItems":3}},
      "required":["name","count","tags"],"additionalProperties":false})")
                          .value();
  return guide_of(grammar::compile_json_schema(schema, {}).value(), vocabulary);
}

// Words over made-up tokens of one to three letters: vowels and consonants by turns, in brackets,
// and one long word that its first letter decides.
inline grammar::GrammarState make_guide(int vocabulary) {
  return guide_of("root ::= ([aeiou] [b-df-hj-np-tv-z] | \"(\" root \")\" | \"qabacadabacaba\")+",
                  vocabulary);
}

}  // namespace pelton::executor
