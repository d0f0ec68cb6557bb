// Grammars that can read one text in many ways: what following them costs is counted and bounded,
// and what they allow is what trying each token says. Rows D1 and D7 of what was found from
// outside. A failing seed is printed; PELTON_SEED=N replays it, PELTON_SEEDS=N runs more of them.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/ebnf.h"
#include "grammar/grammar_state.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

const char* const kAmbiguous[] = {
    // D1
    "root ::= w \"ZZQ!\"\nw ::= [a-z ] | [a-z ] w [a-z ] | [a-z ] w w",
    // D7
    "root ::= s{200,400}\ns ::= \"a\" s \"a\" | \"a\" s | s2\n"
    "s2 ::= [a-z]* | \"b\" s \"b\" | \"(\" root \")\"",
    "root ::= w\nw ::= [a-z] | w w",
    "root ::= e\ne ::= e \" \" e | e e e | [a-z]+",
    "root ::= (a | b | c)*\na ::= [a-m ]+\nb ::= [g-z ]+ b?\nc ::= a b a | b a c?",
    "root ::= x x x x x x x x\nx ::= y*\ny ::= z? z? z? | \"a\" x \"b\"\nz ::= [a-z]* | \" \" x",
    "root ::= (p p)* | q\np ::= [a-z] [a-z]{0,9} p? | \"(\" root \")\"\nq ::= \"a\" root [0-9] | "
    "\"a\"",
};

// A few thousand words, as byte pairs are: most of lower case, some with a mark in them.
std::shared_ptr<const TokenTrie> wordy_trie() {
  static const std::shared_ptr<const TokenTrie> kTrie = [] {
    static std::vector<std::string> texts;
    std::mt19937_64 random(1);
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    while (texts.size() < 20'000) {
      std::string text;
      for (int length = 2 + static_cast<int>(random() % 7); length > 0; --length) {
        text += " abcdefghijklmnopqrstuvwxyz"[random() % 27];
      }
      if (random() % 8 == 0) text += "ZQ!(,\"1)"[random() % 8];
      texts.push_back(text);
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const TokenTrie>(views);
  }();
  return kTrie;
}

std::vector<TokenId> tokens_in(const std::vector<uint64_t>& mask, int vocab_size) {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < vocab_size; ++token) {
    if (may_be(mask, token)) tokens.push_back(token);
  }
  return tokens;
}

// Before masks looked at what distinguishes tokens alone, one of these took 30 million steps.
TEST(Ambiguity, D1_MasksOfAmbiguousGrammarsAreCheap) {
  for (const char* const text : {kAmbiguous[0], kAmbiguous[2]}) {
    SCOPED_TRACE(text);
    const auto made = TokenGrammar::make(compile_ebnf(text).value(), wordy_trie());
    ASSERT_TRUE(made.ok()) << made.error().message;
    Matcher matcher(*made);
    std::mt19937_64 random(3);
    std::vector<uint64_t> mask(wordy_trie()->mask_words());
    for (int i = 0; i < 40; ++i) {
      WorkBudget mask_work, token_work;
      matcher.fill_mask(mask, mask_work);
      ASSERT_FALSE(mask_work.exhausted());
      ASSERT_LT(mask_work.done(), 2'000'000) << "token " << i;
      std::vector<TokenId> allowed = tokens_in(mask, wordy_trie()->vocab_size());
      std::erase_if(allowed, [&](TokenId token) {  // those that go on
        const std::string_view bytes = wordy_trie()->bytes(token);
        return bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != bytes.npos;
      });
      ASSERT_GT(allowed.size(), 5'000u);
      ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()], token_work));
      ASSERT_LT(token_work.done(), 2'000'000) << "token " << i;
    }
  }
}

// Whatever is asked, and whatever it would cost: no more is done than was granted, but for what
// lies between two looks at the count.
TEST(Ambiguity, D1_NoMoreWorkIsDoneThanGranted) {
  constexpr int64_t kGranted = 20'000;
  constexpr int64_t kBetweenLooks = 40'000;
  for (const char* const text : kAmbiguous) {
    SCOPED_TRACE(text);
    const auto made = TokenGrammar::make(compile_ebnf(text).value(), wordy_trie());
    if (!made.ok()) continue;
    Matcher matcher(*made);
    std::mt19937_64 random(5);
    std::vector<uint64_t> mask(wordy_trie()->mask_words());
    bool exhausted = false;
    for (int i = 0; i < 60; ++i) {
      WorkBudget of_mask({.done_max = kGranted}), of_token({.done_max = kGranted});
      WorkBudget of_forced({.done_max = kGranted});
      matcher.fill_mask(mask, of_mask);
      (void)matcher.forced(256, of_forced);
      const TokenId token = static_cast<TokenId>('a' + random() % 26);
      (void)Matcher(matcher).accept(token, of_token);
      for (const WorkBudget* budget : {&of_mask, &of_token, &of_forced}) {
        ASSERT_LT(budget->done(), kGranted + kBetweenLooks);
        ASSERT_EQ(budget->exhausted(), budget->done() > kGranted);
        exhausted = exhausted || budget->exhausted();
      }
      WorkBudget enough;
      if (!matcher.accept(token, enough)) break;
    }
    EXPECT_TRUE(exhausted || text == kAmbiguous[0] || text == kAmbiguous[2]);
  }
}

// Work that was given up leaves no half of it in the caches.
TEST(Ambiguity, D1_GivingUpChangesNoMask) {
  for (const char* const text : kAmbiguous) {
    SCOPED_TRACE(text);
    const auto plain = TokenGrammar::make(compile_ebnf(text).value(), wordy_trie());
    const auto given_up = TokenGrammar::make(compile_ebnf(text).value(), wordy_trie());
    if (!plain.ok()) continue;
    Matcher one(*plain), other(*given_up);
    std::vector<uint64_t> expected(wordy_trie()->mask_words()), mask = expected;
    std::mt19937_64 random(7);
    for (int i = 0; i < 12; ++i) {
      for (const int64_t granted : {100, 5'000, 60'000}) {
        WorkBudget little({.done_max = granted});
        other.fill_mask(mask, little);
      }
      WorkBudget enough, also_enough;
      one.fill_mask(expected, enough);
      other.fill_mask(mask, also_enough);
      if (enough.exhausted()) break;
      ASSERT_EQ(mask, expected) << "token " << i;
      const std::vector<TokenId> allowed = tokens_in(mask, wordy_trie()->vocab_size());
      if (allowed.empty()) break;
      const TokenId token = allowed[random() % allowed.size()];
      if (!one.accept(token)) break;
      ASSERT_TRUE(other.accept(token));
    }
  }
}

// Whether a request exceeds the limit is its own doing: masks that others have paid for count too.
TEST(Ambiguity, D1_TheLimitDoesNotDependOnCaches) {
  const auto made = TokenGrammar::make(compile_ebnf(kAmbiguous[4]).value(), wordy_trie()).value();
  const Matcher matcher(made);
  std::vector<uint64_t> mask(wordy_trie()->mask_words());
  WorkBudget first;
  matcher.fill_mask(mask, first);  // from what make() has cached
  ASSERT_FALSE(first.exhausted());
  WorkBudget second({.total_max = 100'000});
  matcher.fill_mask(mask, second);
  EXPECT_LT(second.done(), 100'000);
  EXPECT_TRUE(second.exceeds_total());
}

// What cannot be followed from its beginning on is refused before anything is generated: here each
// optional letter may be any of the next thousands.
TEST(Ambiguity, D7_WhatIsTooAmbiguousAtOnceIsRefused) {
  std::string text = "root ::= r0\n";
  for (int rule = 0; rule < 40; ++rule) {
    const std::string next = "r" + std::to_string(rule + 1);
    text += "r" + std::to_string(rule) + " ::= (" + next + "? \"x\"?){0,60} \"y\"?\n";
  }
  text += "r40 ::= ([a-z] root)?\n";
  const auto grammar = compile_ebnf(text);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  const auto made = TokenGrammar::make(*grammar, wordy_trie());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(made.error().message.find("too ambiguous"), std::string::npos);
}

// Rules over a few letters that call each other every way there is.
std::string random_grammar(std::mt19937_64& random) {
  const auto roll = [&](uint64_t below) { return random() % below; };
  const uint64_t rules = 2 + roll(4);
  const auto item = [&](auto& self, int depth) -> std::string {
    std::string text;
    switch (roll(depth > 0 ? 7 : 5)) {
      case 0:
        text = std::string("\"") + "abc("[roll(4)] + "\"";
        break;
      case 1:
        text = "[a-" + std::string(1, "bcz"[roll(3)]) + "]";
        break;
      case 2:
        text = "[a-z ]";
        break;
      case 3:
      case 4:
        text = "r" + std::to_string(roll(rules));
        break;
      default:
        text = "(" + self(self, depth - 1) + " " + self(self, depth - 1) + " | " +
               self(self, depth - 1) + ")";
    }
    switch (roll(8)) {
      case 0:
        return text + "*";
      case 1:
        return text + "?";
      case 2:
        return text + "+";
      case 3:
        return text + "{" + std::to_string(roll(3)) + "," + std::to_string(3 + roll(30)) + "}";
      default:
        return text;
    }
  };
  // A rule begins with a letter or with a later rule: so none is its own beginning.
  std::string grammar = "root ::= r0\n";
  for (uint64_t rule = 0; rule < rules; ++rule) {
    grammar += "r" + std::to_string(rule) + " ::= \"a\"";
    for (uint64_t n = 1 + roll(3); n > 0; --n) {
      const bool by_rule = rule + 1 < rules && roll(2) == 0;
      grammar += by_rule ? " | r" + std::to_string(rule + 1 + roll(rules - rule - 1)) : " | [a-z]";
      for (uint64_t i = roll(4); i > 0; --i) grammar += " " + item(item, 2);
    }
    grammar += "\n";
  }
  return grammar;
}

// Every token by itself says what the mask says, no mask is empty before the text is complete, and
// nothing is done beyond the budget.
TEST(Ambiguity, D7_RandomGrammars) {
  const char* const given = std::getenv("PELTON_SEED");
  const char* const more = std::getenv("PELTON_SEEDS");
  const uint64_t first =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}() % 1'000'000;
  const uint64_t count = given != nullptr  ? 1
                         : more != nullptr ? std::strtoull(more, nullptr, 10)
                                           : 60;
  int walked = 0, refused = 0, given_up = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    const std::string text = random_grammar(random);
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed) + "\n" + text);
    const auto grammar = compile_ebnf(text);
    if (!grammar.ok() && ++refused > 0) continue;
    const auto made = TokenGrammar::make(*grammar, test_trie());
    if (!made.ok() && ++refused > 0) continue;
    Matcher matcher(*made);
    std::vector<uint64_t> mask(test_trie()->mask_words());
    for (int i = 0; i < 25; ++i) {
      WorkBudget budget({.done_max = 2'000'000}), of_token({.done_max = 2'000'000});
      matcher.fill_mask(mask, budget);
      if (budget.exhausted() && ++given_up > 0) break;
      const std::vector<TokenId> allowed = tokens_in(mask, test_trie()->vocab_size());
      ASSERT_TRUE(!allowed.empty() || matcher.can_end());
      for (int tries = 0; tries < 60; ++tries) {
        const auto token = static_cast<TokenId>(random() % 330);
        if (token >= test_trie()->vocab_size()) continue;
        WorkBudget of_try({.done_max = 200'000});
        const bool accepts = Matcher(matcher).accept(token, of_try);
        if (of_try.exhausted()) break;
        ASSERT_EQ(accepts, may_be(mask, token)) << "token " << test_trie()->bytes(token);
      }
      if (allowed.empty()) break;
      const bool accepted = matcher.accept(allowed[random() % allowed.size()], of_token);
      if (of_token.exhausted() && ++given_up > 0) break;
      ASSERT_TRUE(accepted);
    }
    ++walked;
  }
  EXPECT_GT(walked, refused);
  RecordProperty("given_up", given_up);
}

}  // namespace
}  // namespace pelton::grammar
