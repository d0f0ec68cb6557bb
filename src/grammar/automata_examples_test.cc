// The worked examples of this room's comments on automata, expressions and tries, each as its
// comment has it: whoever changes an algorithm changes its example.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/byte_nfa.h"
#include "grammar/byte_trie.h"
#include "grammar/char_loops.h"
#include "grammar/decimal.h"
#include "grammar/json_tables.h"
#include "grammar/letters.h"
#include "grammar/list_interner.h"
#include "grammar/numeric_bounds.h"
#include "grammar/regex.h"
#include "grammar/regex_program.h"
#include "grammar/rules.h"
#include "grammar/schema_languages.h"
#include "grammar/token_trie.h"
#include "grammar/trie_merge.h"

namespace pelton::grammar {
namespace {

ByteDfa any_of(const std::vector<std::string>& texts) {
  return ByteDfa::any_of(texts, DfaLimits()).value();
}

ByteDfa whole(std::string_view pattern) {
  return compile_regex(pattern, {.match = RegexOptions::Match::kWhole}).value();
}

// ---- automata

TEST(ByteDfa, ClassesAndStatesExample) {
  const ByteDfa dfa = any_of({"tap", "top"});
  EXPECT_EQ(dfa.class_of('x'), 0);
  EXPECT_EQ(dfa.class_of('a'), 1);
  EXPECT_EQ(dfa.class_of('o'), 1);
  EXPECT_EQ(dfa.class_of('p'), 2);
  EXPECT_EQ(dfa.class_of('t'), 3);
  EXPECT_EQ(dfa.states(), 5u);
  EXPECT_EQ(dfa.walk(dfa.start(), "t"), 2u);
  EXPECT_EQ(dfa.walk(dfa.start(), "ta"), 3u);
  EXPECT_EQ(dfa.walk(dfa.start(), "to"), 3u);
  EXPECT_EQ(dfa.walk(dfa.start(), "tap"), 4u);
  EXPECT_EQ(dfa.walk(dfa.start(), "p"), kDeadState);
}

TEST(ByteDfa, ProductExample) {
  const ByteDfa a = any_of({"a", "ab"});
  const ByteDfa b = any_of({"ab", "b"});
  EXPECT_EQ(intersection(a, b, DfaLimits()).value(), ByteDfa::literal("ab"));
  EXPECT_EQ(union_of(a, b, DfaLimits()).value(), any_of({"a", "ab", "b"}));
  EXPECT_EQ(difference(a, b, DfaLimits()).value(), ByteDfa::literal("a"));
}

TEST(ByteDfa, StateOfExample) {
  const ByteDfa dfa = whole("x[0-9]*");
  EXPECT_EQ(dfa.state_of(whole("[0-9]*")), dfa.walk(dfa.start(), "x"));
  EXPECT_EQ(dfa.state_of(whole("[0-8]*")), std::nullopt);
}

TEST(ByteNfa, SubsetsExample) {
  ByteNfa nfa;
  for (int i = 0; i < 5; ++i) nfa.add_state();
  nfa.add_range(0, 'a', 'a', 1);
  nfa.add_range(0, 'a', 'a', 2);
  nfa.add_range(2, 'b', 'b', 3);
  nfa.add_empty_step(1, 4);
  nfa.add_empty_step(3, 4);
  const ByteDfa dfa = nfa.determinised(0, 4, DfaLimits()).value();
  EXPECT_EQ(dfa, any_of({"a", "ab"}));
  EXPECT_EQ(dfa.states(), 4u);
}

TEST(DfaTable, MinimisedExample) {
  DfaTable table = DfaTable::with_letters(2);
  for (int i = 0; i < 5; ++i) table.add_state();
  table.start = 1;
  table.at(1, 0) = 2;
  table.at(1, 1) = 3;
  table.at(2, 1) = 4;
  table.at(3, 1) = 5;
  table.accepting[4] = table.accepting[5] = 1;
  const DfaTable least = minimised(table);
  EXPECT_EQ(least.state_count(), 4u);
  EXPECT_EQ(least.start, 1u);
  EXPECT_EQ(least.next, (std::vector<DfaState>{0, 0, 2, 2, 0, 3, 0, 0}));
  EXPECT_EQ(least.accepting, (std::vector<uint8_t>{0, 0, 0, 1}));
}

TEST(DfaTable, AlikeStatesExample) {
  const ByteDfa dfa = whole("a{1000}");
  uint64_t work_left = 1'000'000;
  const std::vector<uint32_t> classes = alike_states(dfa.table(), 2, work_left, nullptr);
  const auto class_after = [&](int letters) {
    return classes[dfa.walk(dfa.start(), std::string(static_cast<size_t>(letters), 'a'))];
  };
  EXPECT_EQ(std::set<uint32_t>(classes.begin(), classes.end()).size(), 5u);
  EXPECT_EQ(class_after(0), class_after(997));
  EXPECT_NE(class_after(997), class_after(998));
  EXPECT_NE(class_after(998), class_after(999));
  EXPECT_NE(class_after(999), class_after(1000));
}

TEST(ListInterner, NumbersExample) {
  ListInterner lists;
  const std::vector<uint64_t> list = {3, 5};
  EXPECT_EQ(lists.number_of(list), 0u);
  EXPECT_EQ(lists.number_of({}), 1u);
  EXPECT_EQ(lists.number_of(list), 0u);
}

TEST(CharLoops, LoopsExample) {
  const ByteDfa word = whole("[a-z0-9]*");
  EXPECT_EQ(loops_of(word, word.start()), kLowerKind | kDigitKind);
  const ByteDfa text = ByteDfa::any_utf8();
  EXPECT_EQ(loops_of(text, text.start()), 0xff);
  const ByteDfa half = whole("[a-y]*");
  EXPECT_EQ(loops_of(half, half.start()), 0);
}

// ---- characters, expressions

TEST(CodePointSet, RangesExample) {
  CodePointSet set;
  set.add({'d', 'f'});
  set.add({'a', 'c'});
  set.add({'e', 'h'});
  EXPECT_EQ(set, (CodePointSet{{'a', 'h'}}));
  EXPECT_EQ(set.complement(), (CodePointSet{{0, 0x60}, {'i', kLastCodePoint}}));
}

TEST(LetterClasses, ClassesExample) {
  const CodePointSet sets[] = {{{'a', 'z'}},
                               {{'a', 'a'}, {'e', 'e'}, {'i', 'i'}, {'o', 'o'}, {'u', 'u'}}};
  const auto letters = Letters::of_sets(sets, 1000).value();
  EXPECT_EQ(letters.count(), 3u);
  EXPECT_EQ(letters.runs()[0].letter, 0u);
  EXPECT_EQ(letters.runs()[1].first, uint32_t{'a'});
  EXPECT_EQ(letters.runs()[1].letter, 1u);
  EXPECT_EQ(letters.runs()[2].first, uint32_t{'b'});
  EXPECT_EQ(letters.runs()[2].letter, 2u);
  const auto of = [&](uint32_t set) {
    return std::vector<uint32_t>(letters.of_set(set).begin(), letters.of_set(set).end());
  };
  EXPECT_EQ(of(0), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(of(1), (std::vector<uint32_t>{1}));
}

TEST(LetterClasses, ToBytesExample) {
  const ByteDfa dfa = whole("[à-ÿ]");
  EXPECT_EQ(dfa.states(), 4u);
  const DfaState inside = dfa.walk(dfa.start(), "\xC3");
  EXPECT_EQ(dfa.next(inside, 0x9F), kDeadState);
  EXPECT_TRUE(dfa.accepts(dfa.next(inside, 0xA0)));
  EXPECT_EQ(dfa.next(dfa.start(), 0xC4), kDeadState);
}

TEST(RegexSyntax, TreeExample) {
  using Kind = RegexNode::Kind;
  const RegexTree tree = parse_regex("ab{2,}", RegexDialect::kEcma262).value();
  const RegexNode& root = tree.nodes[tree.root];
  ASSERT_EQ(root.kind, Kind::kSequence);
  const RegexNode& a = tree.nodes[root.child];
  ASSERT_EQ(a.kind, Kind::kSet);
  EXPECT_EQ(tree.sets[a.set], (CodePointSet{{'a', 'a'}}));
  const RegexNode& repeat = tree.nodes[a.sibling];
  ASSERT_EQ(repeat.kind, Kind::kRepeat);
  EXPECT_EQ(repeat.least, 2u);
  EXPECT_EQ(repeat.most, kEndless);
  EXPECT_EQ(repeat.sibling, UINT32_MAX);
  EXPECT_EQ(tree.sets[tree.nodes[repeat.child].set], (CodePointSet{{'b', 'b'}}));
}

TEST(RegexProgram, StepsExample) {
  using Do = RegexStep::Kind;
  const RegexTree tree = parse_regex("a(?:b|c)*", RegexDialect::kEcma262).value();
  const RegexProgram program = regex_program(tree, tree.root, RegexReach::kWhole).value();
  ASSERT_EQ(program.steps.size(), 6u);
  EXPECT_EQ(program.start, 5u);
  EXPECT_EQ(program.steps[0].kind, Do::kEnd);
  const auto is_fork = [&](size_t at, uint32_t to, uint32_t other) {
    const RegexStep& step = program.steps[at];
    return step.kind == Do::kFork && step.to == to && step.other == other;
  };
  const auto reads = [&](size_t at, uint32_t letter, uint32_t to) {
    const RegexStep& step = program.steps[at];
    return step.kind == Do::kLetters && tree.sets[step.arg].contains(letter) && step.to == to;
  };
  EXPECT_TRUE(is_fork(1, 4, 0));
  EXPECT_TRUE(reads(2, 'c', 1));
  EXPECT_TRUE(reads(3, 'b', 1));
  EXPECT_TRUE(is_fork(4, 3, 2));
  EXPECT_TRUE(reads(5, 'a', 1));
}

TEST(RegexAutomaton, DemandsExample) {
  const ByteDfa dfa = whole("(?!ab)[ab]{2}");
  EXPECT_EQ(dfa, any_of({"aa", "ba", "bb"}));
  EXPECT_EQ(dfa.states(), 5u);
}

// ---- numbers

TEST(Decimal, DigitsExample) {
  const Decimal one = decimal_of(Json::parse("-12.50").value());
  EXPECT_TRUE(one.negative);
  EXPECT_EQ(one.digits, "125");
  EXPECT_EQ(one.point, 2);
  const Decimal small = decimal_of(Json::parse("4e-3").value());
  EXPECT_EQ(small.digits, "4");
  EXPECT_EQ(small.point, -2);
  EXPECT_EQ(small.text(10), "0.004");
}

TEST(NumericBounds, PlacesExample) {
  NumericBounds bounds;
  bounds.minimum = "10";
  bounds.maximum = "25.5";
  const ByteDfa dfa = numbers_between(bounds).value();
  for (const char* text : {"10", "25", "25.5", "25.50", "25.499"}) {
    EXPECT_TRUE(dfa.accepts(text)) << text;
  }
  for (const char* text : {"9", "100", "25.6", "25.501", "-12"}) {
    EXPECT_FALSE(dfa.accepts(text)) << text;
  }
  EXPECT_EQ(dfa.walk(dfa.start(), "25.6"), kDeadState);
}

TEST(SchemaLanguages, MultiplesExample) {
  const Language quarters = multiples_of(Json::parse("0.25").value()).value();
  for (const char* text : {"1.5", "1.50", "1.500", "-2", "0", "0.75"}) {
    EXPECT_TRUE(quarters->accepts(text)) << text;
  }
  for (const char* text : {"1.3", "1.51", "1.505"}) EXPECT_FALSE(quarters->accepts(text)) << text;
}

TEST(NumberDfa, CountsExample) {
  const NumberDfa numbers(whole("[1-9][0-9]?"));
  EXPECT_EQ(numbers.values_at_least[numbers.dfa.start()], 90u);
  EXPECT_EQ(numbers.count_values(1000), 99u);
}

// ---- a vocabulary as trees

TEST(ByteTrie, NodesExample) {
  const ByteTrie trie(std::vector<ByteTrie::Text>{{"ab", 3}, {"b", 9}, {"a", 7}});
  ASSERT_EQ(trie.node_count(), 4u);
  const auto is = [&](uint32_t node, char byte, uint16_t depth, uint32_t end, uint32_t tokens) {
    const ByteTrie::Node& at = trie.nodes()[node];
    return at.byte == static_cast<uint8_t>(byte) && at.depth == depth && at.subtree_end == end &&
           at.token_begin == tokens;
  };
  EXPECT_TRUE(is(0, '\0', 0, 4, 0));
  EXPECT_TRUE(is(1, 'a', 1, 3, 0));
  EXPECT_TRUE(is(2, 'b', 2, 3, 1));
  EXPECT_TRUE(is(3, 'b', 1, 4, 2));
  const std::span<const TokenId> below = trie.tokens_below(1);
  EXPECT_EQ(std::vector<TokenId>(below.begin(), below.end()), (std::vector<TokenId>{7, 3}));
}

TEST(TokenTrie, BelowExample) {
  const std::vector<std::string_view> texts = {"ab", "a1", "é", "c", "c\""};
  const TokenTrie trie(texts);
  const auto node_of = [&](std::string_view text) {
    uint32_t at = 0;
    for (const char byte : text) {
      uint32_t child = at + 1;
      while (trie.all().nodes()[child].byte != static_cast<uint8_t>(byte)) {
        child = trie.all().nodes()[child].subtree_end;
      }
      at = child;
    }
    return at;
  };
  EXPECT_EQ(trie.below(node_of("a")).kinds, kLowerKind | kDigitKind);
  EXPECT_EQ(trie.below(node_of("a")).chars_max, 2);
  EXPECT_EQ(trie.below(node_of("c")).kinds, 0);
  EXPECT_EQ(trie.below(node_of("\xC3")).kinds, kWideKind);
  EXPECT_EQ(trie.below(node_of("\xC3")).chars_max, 1);
  EXPECT_EQ(trie.below(node_of("é")).kinds, 0);
}

TEST(TrieMerge, AliasesExample) {
  const ByteTrie trie(std::vector<ByteTrie::Text>{{"the", 1}, {"cat", 2}, {"at", 3}});
  RuleNetwork rules;
  rules.states.push_back({.bytes = {{'a', 'z', 0}}});
  const ByteAliases aliases = aliases_of(rules);
  EXPECT_EQ(alias_count(aliases), 2);
  EXPECT_EQ(aliases['t'], 'a');
  EXPECT_EQ(aliases['T'], 0);
  WorkBudget budget;
  const TrieRest rest = {.trie = &trie};
  const ByteTrie merged = merge_rests(std::span(&rest, 1), aliases, {}, budget);
  ASSERT_EQ(merged.node_count(), 4u);
  const auto tokens = [&](uint32_t node) {
    const std::span<const TokenId> of = merged.tokens_of(node);
    std::set<TokenId> set(of.begin(), of.end());
    return set;
  };
  EXPECT_EQ(tokens(1), (std::set<TokenId>{}));
  EXPECT_EQ(tokens(2), (std::set<TokenId>{3}));
  EXPECT_EQ(tokens(3), (std::set<TokenId>{1, 2}));
  const uint64_t dropped = 1u << 3;
  const ByteTrie fewer = merge_rests(std::span(&rest, 1), aliases, std::span(&dropped, 1), budget);
  EXPECT_EQ(fewer.node_count(), 4u);
  EXPECT_TRUE(fewer.tokens_of(2).empty());
}

// ---- counts and tables over automata

TEST(StringDfa, CharactersToEndExample) {
  const StringDfa text(any_of({"ab", "é"}));
  const DfaState start = text.table.start;
  EXPECT_EQ(text.chars_to_end[start], 1u);
  EXPECT_EQ(text.chars_to_end[text.next(start, 'a')], 1u);
  EXPECT_EQ(text.chars_to_end[text.next(start, 0xC3)], 0u);
  EXPECT_EQ(text.chars_to_end_max, 1u);
}

TEST(TextCounts, ByLengthExample) {
  const StringDfa text(whole("[ab]{1,2}"));
  const TextCounts counts(text);
  EXPECT_EQ(counts.at_least(text.table.start, 0, 0), 0u);
  EXPECT_EQ(counts.at_least(text.table.start, 1, 0), 2u);
  EXPECT_EQ(counts.at_least(text.table.start, kNoBound, 0), 6u);
  EXPECT_FALSE(counts.has_enough());
  EXPECT_TRUE(TextCounts(StringDfa(whole("[ab]*"))).has_enough());
}

TEST(ArraySpec, CountStateExample) {
  ArraySpec array;
  array.counters = {{.min = 1}, {.min = 0, .max = 2}};
  EXPECT_EQ(array.count_states(), 6u);
  EXPECT_EQ(array.count_state(3 | uint64_t{1} << 16, 0), 3u);
}

TEST(KeyTrie, NodesExample) {
  ObjectSpec object;
  for (const char* key : {"id", "ids", "to"}) object.properties.push_back({.key = key});
  build_key_trie(object);
  const auto node = [](char byte, uint32_t child_begin, uint16_t child_count, uint32_t key_begin,
                       uint32_t key_end, uint32_t key) {
    return KeyTrieNode{child_begin, child_count, static_cast<uint8_t>(byte),
                       key_begin,   key_end,     key};
  };
  const std::vector<KeyTrieNode> expected = {
      node('\0', 1, 2, 0, 3, kNoValue), node('i', 3, 1, 0, 2, kNoValue),
      node('t', 4, 1, 2, 3, kNoValue),  node('d', 5, 1, 0, 2, 0),
      node('o', 6, 0, 2, 3, 2),         node('s', 6, 0, 1, 2, 1)};
  EXPECT_EQ(object.trie, expected);
}

}  // namespace
}  // namespace pelton::grammar
