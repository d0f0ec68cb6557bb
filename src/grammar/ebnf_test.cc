#include "grammar/ebnf.h"

#include <chrono>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {
namespace {

// Every byte is a token: what the machine accepts, and nothing of vocabularies.
std::shared_ptr<const TokenTrie> byte_tokens() {
  static const std::shared_ptr<const TokenTrie> trie = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const TokenTrie>(views);
  }();
  return trie;
}

class Language {
 public:
  explicit Language(std::string_view text) {
    Result<std::shared_ptr<const Grammar>> grammar = compile_ebnf(text);
    EXPECT_TRUE(grammar.ok()) << text << "\n" << (grammar.ok() ? "" : grammar.error().message);
    if (grammar.ok()) grammar_ = TokenGrammar::make(*grammar, byte_tokens()).value();
  }
  bool accepts(std::string_view text) const {
    if (!grammar_) return false;
    Matcher matcher(grammar_);
    return matcher.accept_bytes(text) && matcher.can_end();
  }

 private:
  std::shared_ptr<const TokenGrammar> grammar_;
};

void expect(std::string_view grammar, std::vector<std::string> yes, std::vector<std::string> no) {
  const Language language(grammar);
  for (const std::string& text : yes)
    EXPECT_TRUE(language.accepts(text)) << grammar << " | " << text;
  for (const std::string& text : no)
    EXPECT_FALSE(language.accepts(text)) << grammar << " | " << text;
}

Error refusal(std::string_view grammar) {
  const Result<std::shared_ptr<const Grammar>> compiled = compile_ebnf(grammar);
  EXPECT_FALSE(compiled.ok()) << grammar.substr(0, 200);
  return compiled.ok() ? Error{} : compiled.error();
}

TEST(Ebnf, GbnfRegular) {
  expect("root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno"});
  expect("root ::= [a-z]+ (\", \" [^0-9\\n])* # words\n", {"a", "abc, x, é"}, {"", "a, 1", "A"});
  expect("root ::= a b?\na ::= \"x\"{2,3}\nb ::= \"\\n\" \"\\x41\" \"\\u00e9\" .",
         {"xx", "xxx", "xx\nAé\n"}, {"x", "xxxx", "xx\nAé"});
  expect("root ::=\n  \"a\"\n  | \"b\" |\n  \"c\"\nother ::= \"d\"", {"a", "b", "c"}, {"d"});
  expect("root ::= (\"a\" |\n  \"b\")\n", {"a", "b"}, {});
  expect("root ::= [\\]\\-a^-]", {"]", "-", "a", "^"}, {"b", "\\"});
  expect("root ::= \"\" | (\"\"*)*", {""}, {"x"});  // JS-19
}

TEST(Ebnf, GbnfRecursive) {
  expect("root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", ")(", "(()"});
  expect("root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", {"[]", "[[],[[]]]"},
         {"[,]", "[]]"});
  expect("root ::= \"a\" root \"b\" | \"ab\"", {"ab", "aabb", "aaabbb"}, {"aab", "abb", ""});
  // Palindromes: all ways at once.
  expect("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\" | \"b\" | \"\"",
         {"", "a", "abba", "ababa"}, {"ab", "aab"});
  expect("root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\"",
         {"1", "1+2+3", "(1+2)+3"}, {"+1", "1+", "(1"});
  // Empty rules in front do not hide what comes.
  expect("root ::= e e \"x\" root? \"y\"\ne ::= \"\" | \" \" e", {"xy", "  xxyy", " x xyy"},
         {"x", "xyy"});
}

constexpr const char* kJsonGbnf = R"gbnf(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)gbnf";

TEST(Ebnf, GbnfJson) {
  expect(kJsonGbnf,
         {R"({})", R"({"a": [1, -2.5e3, true, {"b": null}], "\u00e9\n": "é"})", "{ }\n   "},
         {R"({)", R"({"a"})", R"([])", R"({"a": 01})", "{\"a\": \"\n\"}"});
}

constexpr const char* kLarkCalculator = R"lark(
// From Lark's tutorial, nearly.
?start: sum
?sum: product
    | sum "+" product   -> add
    | sum "-" product   -> sub
?product: atom
    | product "*" atom  -> mul
?atom: NUMBER           -> number
     | "-" atom         -> neg
     | NAME "(" [sum ("," sum)*] ")"
     | "(" sum ")"
NAME: /[a-z_]\w*/
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)lark";

TEST(Ebnf, Lark) {
  expect("start: \"a\" \"b\"~2..3 | \"c\"i", {"abb", "abbb", "c", "C"}, {"ab", "abbbb", "c "});
  expect(
      "start: A (\",\" A)*\nA.2: \"x\"..\"z\" | /[0-9]{2}/ | HEX\nHEX: \"#\" DIGIT+\nDIGIT: "
      "\"0\"..\"9\"",
      {"x", "y,12,#7"}, {"a", "1", "#"});
  expect(kLarkCalculator, {"1+2*3", " 1 + f( 2, -x(3.5 ) ) ", "(1)", "a()"},
         {"", "1+", "1 2", "(1", "1 5"});
  expect("start: [\"a\"] \"b\"\n%ignore \" \"", {"ab", "b", " a  b "}, {"a"});
  expect("start: \"{\" start? \"}\"", {"{}", "{{}}"}, {"{", "{}}"});
  expect("start: x\nx: \"1\" | \"2\"\n\n  | \"3\"\ny: \"4\"", {"1", "3"}, {"4"});
  expect("start: W\n%import common (WORD, INT)\nW: WORD INT", {"ab1"}, {"ab", "1"});
}

TEST(Ebnf, RefusalsNameThePlace) {  // JS-17, JS-18, JS-20
  EXPECT_EQ(refusal("root ::= a\nb ::= \"x\"").message, "line 1, column 10: no rule is called 'a'");
  EXPECT_EQ(refusal("root ::= \"x\"\nb ::= c").message, "line 2, column 7: no rule is called 'c'");
  EXPECT_NE(refusal("root ::= root").message.find("'root' has no end"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"a\" root").message.find("'root' has no end"), std::string::npos);
  EXPECT_NE(
      refusal("root ::= a \"x\" | \"y\"\na ::= b\nb ::= a | root").message.find("left recursion"),
      std::string::npos);
  EXPECT_NE(refusal("root ::= (root \"x\")? \"y\"").message.find("left recursion"),
            std::string::npos);
  EXPECT_NE(
      refusal("root ::= e root \"x\" | \"y\"\ne ::= \"\" | \" \"").message.find("left recursion"),
      std::string::npos);
  EXPECT_NE(refusal("root ::= \"x\" a\na ::= \"\" | b\nb ::= a \"\" a | \"\"")
                .message.find("left recursion"),
            std::string::npos);
  EXPECT_EQ(refusal("x ::= \"a\"").message, "the grammar has no rule 'root'");
  EXPECT_EQ(refusal("").code, ErrorCode::kInvalidArgument);
  for (const char* broken : {"root",
                             "root ::=\nroot ::=",
                             "root ::= (",
                             "root ::= \"a",
                             "root ::= [a",
                             "root ::= [z-a]",
                             "root ::= \"\\q\"",
                             "root ::= \"\\xZZ\"",
                             "root ::= a b ::= c",
                             "root ::= \"a\"{3,2}",
                             "root ::= *",
                             "root ::= \"a\"{",
                             "root ::= )",
                             "root ::= \"\\ud800\"",
                             "start \"a\"",
                             "start: a",
                             "start: /(/",
                             "start: \"a\"..\"\"",
                             "start: X\nX: start",
                             "start: (\"a\"",
                             "start: \"a\"~3..2",
                             "%import common.NOPE\nstart: \"a\"",
                             "start: NAME",
                             "start: -> x y z:",
                             "root ::= \"x\xFF\""}) {
    EXPECT_EQ(refusal(broken).code, ErrorCode::kInvalidArgument) << broken;
  }
  EXPECT_EQ(refusal(std::string("root ::= \"a\0\"", 13)).code, ErrorCode::kInvalidArgument);
  for (const char* other : {"root ::= <think>", "start: <think>", "start: /a/i",
                            "%declare X\nstart: X", "start{x}: x", "start: %json {}"}) {
    EXPECT_EQ(refusal(other).code, ErrorCode::kUnsupported) << other;
  }
}

TEST(Ebnf, BombsEndSoon) {
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) {
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" +
                std::to_string(i + 1) + "\n";
  }
  doubling += "r40 ::= [0-9]";
  EXPECT_TRUE(compile_ebnf(doubling).ok());  // a network of calls is no larger than its text

  std::string chain = "root ::= r0 \"x\"\n";
  for (int i = 0; i < 3000; ++i) {
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\" | \"y\" root\n";
  }
  chain += "r3000 ::= \"z\"";
  std::string rules;
  for (int i = 0; rules.size() < 127 << 10; ++i) rules += "r" + std::to_string(i) + "::=\"\"\n";
  const std::string bombs[] = {
      "root ::= " + std::string(30'000, '(') + "\"a\"" + std::string(30'000, ')'),
      "root ::= \"a\"" + std::string(1000, '*'),
      "root ::= " + std::string(1 << 20, 'a'),
      "root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000}",
      "root ::= (((((\"\"{1000000}){1000000}){1000000}){1000000}){1000000}) root? \"x\"",
      "root ::= (\"a\" | \"b\")* \"a\" (\"a\" | \"b\"){40} root? \"c\"",
      chain,
      rules,
  };
  for (const std::string& bomb : bombs) {
    const auto began = std::chrono::steady_clock::now();
    const ErrorCode code = refusal(bomb).code;
    EXPECT_TRUE(code == ErrorCode::kDoesNotFit || code == ErrorCode::kInvalidArgument)
        << bomb.substr(0, 60);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5))
        << bomb.substr(0, 60);  // 1 s where nobody else runs
  }
}

// A text that may be read in exponentially many ways costs little more than one that may not.
TEST(Ebnf, AmbiguousGrammarsAreFollowedWhole) {
  struct Case {
    std::string grammar;
    std::string unit;   // repeated, it is a text of the grammar
    std::string wrong;  // after it no byte is right
  };
  const std::vector<Case> cases = {
      {"root ::= \"(\" root  | e* e\ne ::= \"\"| \" \" \" \" e", "  ", "x"},
      {"root ::= \"a\" root? root? root?", "a", "b"},
      {"root ::= x+\nx ::= y+\ny ::= z+ | \"\"\nz ::= \"a\" | \"a\" z | \"a\" y", "a", "b"},
      {"root ::= s*\ns ::= \"(\" s* \")\" | \"(\" s? \")\" s?", "(()())", "]"},
  };
  for (const Case& each : cases) {
    const auto grammar =
        TokenGrammar::make(compile_ebnf(each.grammar).value(), byte_tokens()).value();
    Matcher matcher(grammar);
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(matcher.accept_bytes(each.unit)) << each.grammar << " " << i;
      ASSERT_TRUE(matcher.can_end()) << each.grammar << " " << i;
    }
    EXPECT_FALSE(matcher.accept_bytes(each.wrong)) << each.grammar;
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10)) << each.grammar;
  }
}

TEST(Ebnf, Choice) {
  const std::vector<std::string> texts = {"red", "green", "", "greenish"};
  const auto grammar = TokenGrammar::make(compile_choice(texts).value(), byte_tokens()).value();
  for (const std::string& text : texts) {
    Matcher matcher(grammar);
    EXPECT_TRUE(matcher.accept_bytes(text) && matcher.can_end()) << text;
  }
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.accept_bytes("gray"));
  EXPECT_EQ(compile_choice({}).error().code, ErrorCode::kInvalidArgument);
}

// Random grammars without left recursion against a matcher that tries all ways (memoised by rule
// and place).
class RandomGrammar {
 public:
  explicit RandomGrammar(std::mt19937& random) {
    const int rules = 1 + static_cast<int>(random() % 4);
    for (int r = 0; r < rules; ++r) {
      std::vector<std::vector<std::string>> branches(1 + random() % 3);
      for (auto& branch : branches) {
        // No recursion on the left: first a letter, or rules that come later.
        const auto later = static_cast<unsigned>(rules - r - 1);
        for (size_t n = later == 0 ? 0 : random() % 3; n > 0; --n) {
          branch.push_back("r" + std::to_string(static_cast<unsigned>(r) + 1 + random() % later));
        }
        branch.push_back(std::string(1, "ab"[random() % 2]));
        for (size_t n = random() % 4; n > 0; --n) {
          branch.push_back(random() % 2 == 0
                               ? std::string(1, "ab"[random() % 2])
                               : "r" + std::to_string(random() % static_cast<unsigned>(rules)));
        }
        if (random() % 8 == 0) branch.pop_back();
      }
      if (random() % 3 == 0) branches.emplace_back();
      branches.push_back({"b"});
      rules_.push_back(std::move(branches));
    }
  }
  std::string gbnf() const {
    std::string out = "root ::= r0\n";
    for (size_t r = 0; r < rules_.size(); ++r) {
      out += "r" + std::to_string(r) + " ::= ";
      for (size_t b = 0; b < rules_[r].size(); ++b) {
        if (b > 0) out += "| ";
        if (rules_[r][b].empty()) out += "\"\" ";
        for (const std::string& part : rules_[r][b])
          out += part[0] == 'r' ? part + " " : "\"" + part + "\" ";
      }
      out += "\n";
    }
    return out;
  }
  bool accepts(const std::string& text) const {
    known_.clear();
    return ends("r0", text, 0).count(text.size()) > 0;
  }

 private:
  std::set<size_t> ends(const std::string& part, const std::string& text, size_t from) const {
    if (part[0] != 'r') {
      if (text.compare(from, 1, part) == 0 && from < text.size()) return {from + 1};
      return {};
    }
    const auto known = known_.find({part, from});
    if (known != known_.end()) return known->second;
    std::set<size_t> out;
    for (const auto& branch : rules_[static_cast<size_t>(part[1] - '0')]) {
      std::set<size_t> at = {from};
      for (const std::string& each : branch) {
        std::set<size_t> next;
        for (const size_t place : at) next.merge(ends(each, text, place));
        at = std::move(next);
      }
      out.merge(at);
    }
    return known_[{part, from}] = out;
  }
  std::vector<std::vector<std::vector<std::string>>> rules_;
  mutable std::map<std::pair<std::string, size_t>, std::set<size_t>> known_;
};

TEST(Ebnf, AgreesWithATryingMatcher) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 300;
  for (int round = 0; round < rounds; ++round) {
    const RandomGrammar grammar(random);
    const Language language(grammar.gbnf());
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n) text += "ab"[random() % 2];
      ASSERT_EQ(language.accepts(text), grammar.accepts(text)) << grammar.gbnf() << text;
    }
  }
}

}  // namespace
}  // namespace pelton::grammar
