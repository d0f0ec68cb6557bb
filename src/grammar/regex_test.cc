#include "grammar/regex.h"

#include <chrono>
#include <random>
#include <regex>

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace pelton::grammar {
namespace {

ByteDfa compiled(std::string_view pattern) {
  Result<ByteDfa> dfa = compile_regex(pattern, {});
  EXPECT_TRUE(dfa.ok()) << pattern << ": " << (dfa.ok() ? "" : dfa.error().message);
  return dfa.ok() ? std::move(dfa).value() : ByteDfa();
}

void expect(std::string_view pattern, std::vector<std::string> yes, std::vector<std::string> no) {
  const ByteDfa dfa = compiled(pattern);
  for (const std::string& text : yes) EXPECT_TRUE(dfa.accepts(text)) << pattern << " | " << text;
  for (const std::string& text : no) EXPECT_FALSE(dfa.accepts(text)) << pattern << " | " << text;
}

Error refusal(std::string_view pattern, RegexOptions options = {}) {
  const Result<ByteDfa> dfa = compile_regex(pattern, options);
  EXPECT_FALSE(dfa.ok()) << pattern.substr(0, 100);
  return dfa.ok() ? Error{} : dfa.error();
}

TEST(Regex, SearchesUnlessAnchored) {
  expect("b", {"b", "abc", "bbb"}, {"", "ac"});
  expect("^b", {"b", "bc"}, {"ab", ""});
  expect("b$", {"b", "ab"}, {"ba", ""});
  expect("^b$", {"b"}, {"bb", "", "b\n"});
  expect("^a|b$", {"ax", "xb", "a"}, {"xa", "bx"});
  expect("", {"", "x"}, {});
  expect("a^", {}, {"a", ""});
  expect("(^|,)foo(,|$)", {"foo", "a,foo", "foo,b", "a,foo,b"}, {"afoo", "foob", "xfoo,b"});
  EXPECT_EQ(compiled("x*"), ByteDfa::any_utf8());
  EXPECT_TRUE(compiled("$a").is_empty());
  EXPECT_EQ(compile_regex("a|bc", {.match = RegexOptions::Match::kWhole}).value(),
            compiled("^(a|bc)$"));
}

TEST(Regex, RepeatsGroupsAndAlternatives) {
  expect("^(ab)+$", {"ab", "abab"}, {"", "aba"});
  expect("^a{2,3}$", {"aa", "aaa"}, {"a", "aaaa"});
  expect("^a{2}$", {"aa"}, {"a", "aaa"});
  expect("^a{2,}?$", {"aa", "aaaaa"}, {"a"});
  expect("^a{0}b$", {"b"}, {"ab"});
  expect("^(?:a|b)*?c??$", {"", "abba", "c", "abc"}, {"cc"});
  expect("^(?<year>[0-9]{4})$", {"1999"}, {"199"});
  expect("^(|a)b$", {"b", "ab"}, {"a"});
  expect("^((a*)*)*$", {"", "aaa"}, {"b"});
  expect("^(()*){5}x$", {"x"}, {""});
  // What is no repeat is itself.
  expect("^{a}$", {"{a}"}, {"a"});
  expect("^a{,3}$", {"a{,3}"}, {"aa"});
  expect("^x]$", {"x]"}, {});
}

TEST(Regex, ClassesAndEscapes) {
  expect("^[a-c-]$", {"a", "b", "-"}, {"d"});
  expect("^[^a-c]$", {"d", "\n", "é", "😀"}, {"a", ""});
  expect("^[\\d-x]$", {"5", "-", "x"}, {"a"});
  expect("^[\\]\\\\^]$", {"]", "\\", "^"}, {"a"});
  expect("^[]$", {}, {"", "a"});
  expect("^[^]$", {"a", "\n", "€"}, {"", "ab"});
  expect("^\\d\\D\\w\\W\\s\\S$", {"1a_- x"}, {"aa_- x", "1aé- x"});
  expect("^\\s$", {" ", "\t", "\n", "\xC2\xA0", "\xEF\xBB\xBF", "\xE3\x80\x80"},
         {"x", "\xE2\x80\x8B"});
  expect("^\\x41\\u0042\\u{43}\\cA\\0$", {std::string("ABC\x01\0", 5)}, {"ABC"});
  expect("^\\ud83d\\ude00$", {"😀"}, {"x"});
  expect("^[\\u{1F600}-\\u{1F610}]$", {"😀", "😐"}, {"😑"});
  expect("^\\/\\-\\_\\@\\:$", {"/-_@:"}, {});
  expect("^.$", {"a", "é", "😀", "\v"}, {"\n", "\r", "\xE2\x80\xA8", "ab"});
  expect("^\\p{Lu}\\P{Lu}$", {"Àé", "Aa"}, {"aa"});
  expect("^\\p{L}+$", {"straße", "東京", "ÀÈ"}, {"a1", ""});
  expect("^\\p{Letter}\\p{digit}\\p{Script=Greek}\\p{sc=Cyrl}\\p{Alphabetic}$", {"a7ωдa"},
         {"a7ωωa"});
  expect("^[\\p{Zs}x]$", {" ", "\xC2\xA0", "x"}, {"y"});
  // A half of a surrogate pair is in no text.
  expect("^\\ud83d$", {}, {"\xED\xA0\xBD", "😀"});
}

TEST(Regex, Assertions) {
  expect("^(?!foo)", {"", "fo", "bar"}, {"foo", "foobar"});
  expect("^(?=.*[A-Z])(?=.*\\d).{4,}$", {"abC1", "1Cab"}, {"abc1", "C1a"});
  expect("^((?!no).)*$", {"", "n", "yes"}, {"no", "a no b"});
  expect("^a(?=b)b$", {"ab"}, {"a"});
  expect("a(?!b)", {"a", "ac", "aba"}, {"ab", "abab"});
  expect("^(?:(?=a)a|(?=b)b)+$", {"ab", "ba"}, {"", "c"});
  expect("^(?!.*(?!b)a)", {"", "b"}, {"a", "ba"});
  expect("(?!^)a", {"ba", "aa"}, {"a", "ab"});
  expect("^(?!(?:.*\\.){2})", {"a.b"}, {"a.b.c"});
  expect("\\bfoo\\b", {"foo", "a foo b", "-foo-"}, {"xfoo", "foo_", "foo1"});
  expect("\\Boo", {"foo"}, {"oo", " oo"});
  expect("^\\b$", {}, {"", "a"});
  expect("^(\\w+\\b ?)+$", {"ab cd"}, {"", " "});
  expect("(?<=a)b", {"ab", "cab"}, {"b", "cb"});
  expect("(?<!a)b", {"b", "cb", "abb"}, {"ab", "a"});
  expect("^\\w+(?<!-id)$", {"foo"}, {"foo-id"});
  expect("^[\\w-]+(?<!-id)$", {"foo", "foo-i"}, {"foo-id"});
  expect("(?<=^x)y", {"xy"}, {"xxy"});
}

TEST(Regex, RefusalsNameThePlace) {  // JS-04, JS-16
  EXPECT_EQ(refusal("(").message, "regular expression, byte 0: a ( that is not closed");
  EXPECT_EQ(refusal("ab)").message, "regular expression, byte 2: a ) that closes nothing");
  EXPECT_NE(refusal("[z-a]").message.find("byte 2: a range that is out of order"),
            std::string::npos);
  EXPECT_NE(refusal("\\p{Nope}").message.find("'Nope'"), std::string::npos);
  for (const char* broken :
       {"(",       "[z-a]",       "\\p{Nope}", "[",  "a**", "*",     "a{3,2}",  "\\",
        "(?<1>a)", "\\u{110000}", "\\xZ",      "^*", "\\q", "[\\1]", "a{2}{3}", "(?=a)*",
        "\xFF",    "\\00",        "(?<a",      "[a", "[a-", "a++",   "{2}"}) {
    EXPECT_EQ(refusal(broken).code, ErrorCode::kInvalidArgument) << broken;
  }
  for (const char* other : {"(a)\\1", "\\k<a>", "(?i)a", "(?>a)", "[[:alpha:]]", "(?<=(?=a))",
                            "(?=(?<=a))", "(?<=a$)"}) {
    EXPECT_EQ(refusal(other).code, ErrorCode::kUnsupported) << other;
  }
  EXPECT_EQ(refusal("\\A").code, ErrorCode::kInvalidArgument);
  const RegexOptions engines = {.dialect = RegexDialect::kEngines};
  EXPECT_TRUE(compile_regex("\\Aab(?P<n>c)\\Z", engines).value().accepts("abc"));
}

// Bombs: JS-14, JS-15, JS-18. Each is an automaton or an Error, soon.
TEST(Regex, BombsEndSoon) {
  expect("(a+)+$", {"aaa", "b a"}, {"b"});
  expect("^(.*)*x$", {"x", "aax"}, {"y"});
  const std::string nested_groups = std::string(30'000, '(') + "a" + std::string(30'000, ')');
  const std::string megabyte(1 << 20, 'a');
  const std::string powers = "^(((((((a{9}){9}){9}){9}){9}){9}){9})$";
  const std::string nothings = "^((((((((){999}){999}){999}){999}){999}){999}){999})$";
  std::string exponential = "(?:a|b)*a(?:a|b){40}c";
  std::string demands = "^(";
  for (char c = 'a'; c <= 'z'; ++c) demands += std::string("(?=.*") + c + ".{20}" + c + ")";
  demands += ".)*$";
  std::string classes = "[";
  for (uint32_t c = 0x4E00; c < 0x9000; c += 2) base::append_utf8(classes, c);
  classes = classes.substr(0, 65'000 / 3 * 3 + 1);
  while (!base::is_valid_utf8(classes)) classes.pop_back();
  for (const std::string& bomb :
       {nested_groups, megabyte, std::string("a{1000}{1000}"), std::string("(a{1000}){1000}"),
        powers, nothings, exponential, demands, std::string("a{0,100000}{0,100000}"),
        std::string("(a{0,100000}){0,100000}"), std::string("a{1000001}"),
        std::string("a{99999999999999999999}"), std::string("(.{1,1000}x){1,1000}")}) {
    const auto start = std::chrono::steady_clock::now();
    const ErrorCode code = refusal(bomb).code;
    EXPECT_TRUE(code == ErrorCode::kDoesNotFit || code == ErrorCode::kInvalidArgument);
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took, std::chrono::seconds(5)) << bomb.substr(0, 60);  // 1 s where nobody else runs
  }
  EXPECT_TRUE(compiled(classes + "]").accepts("x一"));
}

// Random patterns of what std::regex knows too, on random texts: it backtracks, we do not.
class RandomPattern {
 public:
  explicit RandomPattern(std::mt19937& random) : random_(random) {}

  std::string alternatives(int depth) {
    std::string out = sequence(depth);
    while (random_() % 4 == 0) out += "|" + sequence(depth);
    return out;
  }

 private:
  std::string sequence(int depth) {
    std::string out;
    for (size_t n = inside_repeat_ ? 1 + random_() % 3 : random_() % 4; n > 0; --n) {
      out += term(depth);
    }
    return out;
  }
  std::string term(int depth) {
    static constexpr const char* kAssertions[] = {"^", "$", "\\b", "\\B"};
    static constexpr const char* kTimes[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"};
    // Within an assertion std::regex takes its place for the text's start, so it is asked only $
    // there.
    // std::regex may take for ever over repeats of what can be empty, or repeats within repeats.
    if (inside_repeat_ && (depth == 0 || random_() % 2 == 0)) return atom();
    if (!inside_repeat_ && random_() % 8 == 0)
      return inside_assertion_ ? "$" : kAssertions[random_() % 4];
    if (!inside_repeat_ && depth > 0 && random_() % 10 == 0) {
      const bool outer = std::exchange(inside_assertion_, true);
      const std::string inside = alternatives(depth - 1);
      inside_assertion_ = outer;
      return (random_() % 2 == 0 ? "(?=" : "(?!") + inside + ")";
    }
    const bool repeats = !inside_repeat_ && random_() % 3 == 0;
    const std::string times = repeats ? kTimes[random_() % 8] : "";
    if (depth == 0 || random_() % 3 != 0) return atom() + times;
    const bool outer = std::exchange(inside_repeat_, inside_repeat_ || repeats);
    const std::string inside = alternatives(depth - 1);
    inside_repeat_ = outer;
    return (random_() % 2 == 0 ? "(" : "(?:") + inside + ")" + times;
  }
  std::string atom() {
    static constexpr const char* kAtoms[] = {"a",    "b",   "-",   ".",   "[ab]",
                                             "[^a]", "\\w", "\\W", "\\d", "[a-c1]"};
    return kAtoms[random_() % 10];
  }
  std::mt19937& random_;
  bool inside_assertion_ = false;
  bool inside_repeat_ = false;
};

TEST(Regex, AgreesWithABacktrackingMatcher) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 60'000 : 2'000;
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string pattern = RandomPattern(random).alternatives(3);
    const Result<ByteDfa> dfa = compile_regex(pattern, {});
    if (!dfa.ok()) {  // a few are too large
      ASSERT_NE(dfa.error().message.find("more than"), std::string::npos)
          << pattern << ": " << dfa.error().message;
      continue;
    }
    const std::regex theirs(pattern);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += "aab-1_"[random() % 6];
      ASSERT_EQ(dfa->accepts(text), std::regex_search(text, theirs)) << pattern << " | " << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, rounds * 20 * 99 / 100);
}

}  // namespace
}  // namespace pelton::grammar
