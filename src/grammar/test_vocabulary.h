// A vocabulary small enough to try every token one by one, with the kinds of tokens that make masks
// hard: quotation marks in the middle, ends of several values at once, halves of characters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

inline std::shared_ptr<const TokenTrie> test_trie() {
  static const std::shared_ptr<const TokenTrie> kTrie = [] {
    static std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    const char* const more[] = {
        "{\"",      "\":",      "\": ", "\":\"",    "\",\"", "\",",     "\"}",     "\"}}",
        "\"]",      "\"],",     "}}",   "]}",       "}]",    "},{",     "],[",     "null",
        "true",     "false",    "nul",  "alse",     "12",    "123",     "0.",      ".5",
        "1,",       "2]",       "3}",   "-1",       "e1",    "E+",      "  ",      "\n  ",
        "    ",     ", ",       ": ",   "a",        "ab",    "abc",     "name",    "na",
        "me",       "age",      "id",   "type",     "kind",  "b\":1",   "c\",",    "x",
        "xy",       "foo",      "bar",  "foo\"",    "\"foo", "\"a\"",   "\"a\":",  "\\n",
        "\\u00",    "\\",       "\\\"", "u00e9",    "é",     "éa",      "日本",    "日",
        "\xE6\x97", "\xA5",     "𝄞",    "\xF0\x9D", "a\\",   "\"\"",    "[]",      "{}",
        "[\"",      "[1",       "[[",   "{\"a\":",  "2024",  "-01-",    "@",       ".com",
        "aaaa",     "aaaaaaaa", "bbbb", "\" :",     "\"\n}", "\\ud83d", "\\ude00", "Hello, world",
        "\",\"b",
    };
    for (const char* text : more) texts.push_back(text);
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const TokenTrie>(views);
  }();
  return kTrie;
}

inline Result<std::shared_ptr<const Grammar>> compiled(std::string_view schema) {
  Result<Json> json = Json::parse(schema);
  if (!json.ok()) return json.error();
  return compile_json_schema(*json, {});
}

inline Matcher matcher_of(std::shared_ptr<const Grammar> grammar) {
  return Matcher(TokenGrammar::make(std::move(grammar), test_trie()).value());
}

// Whether the whole text passes, byte by byte.
inline bool passes(const Matcher& start, std::string_view text) {
  Matcher matcher = start;
  return matcher.accept_bytes(text) && matcher.can_end();
}

}  // namespace pelton::grammar
