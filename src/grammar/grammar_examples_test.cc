// The worked examples of this room's comments on schemas, rules, the machine and masks, each as its
// comment has it: whoever changes an algorithm changes its example.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/compile_budget.h"
#include "grammar/ebnf.h"
#include "grammar/ebnf_network.h"
#include "grammar/free_text.h"
#include "grammar/grammar_state.h"
#include "grammar/machine.h"
#include "grammar/schema_graph.h"
#include "grammar/schema_terms.h"
#include "grammar/schema_uri.h"
#include "grammar/structural_tag.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

// ---- tables of a JSON schema

std::unique_ptr<JsonTables> tables_of(std::string_view schema) {
  return json_tables_of(Json::parse(schema).value(), {}).value();
}

struct Expanded {
  explicit Expanded(std::string_view schema) : terms(graph, budget) {
    root = graph.read(Json::parse(schema).value(), budget).value();
  }
  std::vector<Term> holding(TypeBits type) { return terms.expand({holds(root)}, type).value(); }
  std::vector<Term> failing(TypeBits type) { return terms.expand({fails(root)}, type).value(); }

  CompileBudget budget{1'000'000, 48 << 20, nullptr};
  SchemaGraph graph;
  SchemaTerms terms;
  NodeId root = 0;
};

TEST(SchemaTerms, AlternativesExample) {
  Expanded schema(
      R"({"type":"string","anyOf":[{"minLength":3},{"maxLength":1}],"not":{"const":"x"}})");
  const std::vector<Term> terms = schema.holding(kStringType);
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].chars_min, 3u);
  EXPECT_EQ(terms[1].chars_max, 1u);
  for (const Term& term : terms) {
    ASSERT_EQ(term.not_texts.size(), 1u);
    EXPECT_TRUE(term.not_texts[0]->accepts("x"));
  }
  EXPECT_TRUE(schema.holding(kNumberType).empty());
  EXPECT_EQ(schema.root, 2u);
}

TEST(SchemaTerms, OneOfExample) {
  const auto negations = [](std::string_view schema) {
    std::vector<size_t> counts;
    for (const Term& term : Expanded(schema).holding(kStringType)) {
      counts.push_back(term.not_texts.size());
    }
    return counts;
  };
  EXPECT_EQ(negations(R"({"type":"string","oneOf":[{"pattern":"^a"},{"pattern":"^b"}]})"),
            (std::vector<size_t>{0, 0}));
  EXPECT_EQ(negations(R"({"type":"string","oneOf":[{"pattern":"^a"},{"pattern":"b$"}]})"),
            (std::vector<size_t>{1, 1}));
}

TEST(SchemaTerms, NegationExample) {
  Expanded schema(R"({"type":"object","required":["a"],"properties":{"b":{"type":"integer"}}})");
  const std::vector<Term> terms = schema.failing(kObjectType);
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_TRUE(terms[0].required.empty());
  EXPECT_EQ(schema.terms.member_literals(terms[0], "a"), Literals{holds(kFalseSchema)});
  EXPECT_EQ(terms[1].required, std::set<std::string>{"b"});
  EXPECT_EQ(schema.failing(kStringType).size(), 1u);
}

TEST(SchemaTables, RecursionExample) {
  const auto tables = tables_of(
      R"({"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false})");
  ASSERT_EQ(tables->objects.size(), 1u);
  EXPECT_EQ(tables->values[tables->root].objects, std::vector<uint32_t>{0});
  ASSERT_EQ(tables->objects[0].properties.size(), 1u);
  EXPECT_EQ(tables->objects[0].properties[0].choices,
            (Choices{{.value = tables->root, .counts = 0}}));
  EXPECT_EQ(tables->objects[0].others, nullptr);
}

TEST(SchemaTables, OtherKeysExample) {
  const auto tables = tables_of(R"({"type":"object","patternProperties":{"^a":{"type":"null"}},
      "additionalProperties":{"type":"boolean"}})");
  const OtherKeys& others = *tables->objects[tables->values[tables->root].objects[0]].others;
  ASSERT_EQ(others.classes.size(), 2u);
  const auto value_of = [&](std::string_view key) -> const ValueSpec& {
    DfaState state = others.dfa->table.start;
    for (const char byte : key) state = others.dfa->next(state, static_cast<uint8_t>(byte));
    return tables->values[others.classes[static_cast<size_t>(others.dfa->label[state])][0].value];
  };
  EXPECT_TRUE(value_of("").true_);
  EXPECT_TRUE(value_of("ba").true_);
  EXPECT_TRUE(value_of("ab").null_);
  EXPECT_EQ(others.dfa->label[others.dfa->table.start], 0);
}

TEST(SchemaTables, FewKeysExample) {
  const auto tables = tables_of(R"({"type":"object","propertyNames":{"enum":["x","y"]}})");
  const ObjectSpec& object = tables->objects[tables->values[tables->root].objects[0]];
  ASSERT_EQ(object.properties.size(), 2u);
  EXPECT_EQ(object.properties[1].key, "y");
  EXPECT_EQ(object.others, nullptr);
}

TEST(SchemaTables, ContainsExample) {
  const auto tables = tables_of(R"({"type":"array","maxItems":2,
      "allOf":[{"contains":{"const":1}},{"contains":{"const":2}}]})");
  const ArraySpec& array = tables->arrays[tables->values[tables->root].arrays[0]];
  EXPECT_EQ(array.count_states(), 4u);
  EXPECT_EQ(array.items_needed, (std::vector<uint16_t>{2, 1, 1, 0}));
}

TEST(SchemaTables, SharedPlacesExample) {
  const auto places = [](std::string_view third) {
    const std::string schema =
        R"({"type":"array","uniqueItems":true,"minItems":3,"prefixItems":[{"enum":[1,2]},)"
        R"({"enum":[1,3]},{"enum":)" +
        std::string(third) + "}]}";
    return compiled(schema);
  };
  EXPECT_EQ(places("[2,3]").error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(places("[2,3,4]").ok());
  EXPECT_TRUE(places("[4]").ok());
}

TEST(SchemaTables, PossibleExample) {
  EXPECT_EQ(compiled(R"({"type":"object","required":["next"],"properties":{"next":{"$ref":"#"}}})")
                .error()
                .code,
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(compiled(R"({"type":"object","required":["next"],
      "properties":{"next":{"anyOf":[{"type":"null"},{"$ref":"#"}]}}})")
                  .ok());
}

TEST(SchemaUri, ResolvedExample) {
  EXPECT_EQ(resolved_uri("http://a/b/c", "../d#x"), "http://a/d#x");
  EXPECT_EQ(resolved_uri("http://a/b/c", "#x"), "http://a/b/c#x");
  EXPECT_EQ(pointer_step("a~1b~0"), "a/b~");
}

// ---- rules, and the machine

TEST(EbnfSyntax, TreeExample) {
  const EbnfTree tree = parse_gbnf("root ::= \"a\" [0-9]*").value();
  const EbnfNode& root = tree.nodes[tree.rules[tree.start].body];
  ASSERT_EQ(root.kind, EbnfNode::Kind::kSequence);
  ASSERT_EQ(root.children.size(), 2u);
  EXPECT_EQ(tree.nodes[root.children[0]].text, "a");
  const EbnfNode& repeat = tree.nodes[root.children[1]];
  ASSERT_EQ(repeat.kind, EbnfNode::Kind::kRepeat);
  EXPECT_EQ(repeat.least, 0u);
  EXPECT_EQ(repeat.most, kUnlimited);
  const EbnfNode& digit = tree.nodes[repeat.children[0]];
  ASSERT_EQ(digit.kind, EbnfNode::Kind::kSet);
  EXPECT_EQ(tree.sets[digit.index], (CodePointSet{{'0', '9'}}));
}

TEST(EbnfNetwork, StatesExample) {
  const EbnfResult result =
      ebnf_network(parse_gbnf("root ::= \"a\" root \"b\" | \"c\"").value(), nullptr).value();
  ASSERT_FALSE(result.regular);
  const RuleNetwork& rules = result.rules;
  EXPECT_EQ(rules.rule_starts, (std::vector<uint32_t>{0, 4}));
  ASSERT_EQ(rules.states.size(), 8u);
  for (const uint32_t first : {0u, 4u}) {
    const RuleNetwork::State* const at = &rules.states[first];
    ASSERT_EQ(at[0].bytes.size(), 2u);
    EXPECT_EQ(at[0].bytes[0].low, 'a');
    EXPECT_EQ(at[0].bytes[0].to, first + 1);
    EXPECT_EQ(at[0].bytes[1].low, 'c');
    EXPECT_EQ(at[0].bytes[1].to, first + 2);
    ASSERT_EQ(at[1].calls.size(), 1u);
    EXPECT_EQ(at[1].calls[0].rule, 1u);
    EXPECT_EQ(at[1].calls[0].to, first + 3);
    EXPECT_TRUE(at[2].accepting);
    ASSERT_EQ(at[3].bytes.size(), 1u);
    EXPECT_EQ(at[3].bytes[0].low, 'b');
    EXPECT_EQ(at[3].bytes[0].to, first + 2);
  }
  EXPECT_TRUE(
      ebnf_network(parse_gbnf("root ::= \"a\" root | \"b\" x\nx ::= [0-9]").value(), nullptr)
          .value()
          .rules.dfas.empty());
}

TEST(EbnfNetwork, OwnLeftRecursionExample) {
  const Matcher sums = matcher_of(compile_ebnf("root ::= root \"+\" [0-9] | [0-9]").value());
  EXPECT_TRUE(passes(sums, "1+2+3"));
  EXPECT_FALSE(passes(sums, "+2"));
  EXPECT_TRUE(ebnf_network(parse_gbnf("root ::= root \"+\" [0-9] | [0-9]").value(), nullptr)
                  .value()
                  .regular);
}

TEST(LarkSyntax, IgnoredExample) {
  const Matcher matcher =
      matcher_of(compile_ebnf("start: A B\nA: \"x\" \"y\"\nB: \"z\"\n%ignore \" \"").value());
  EXPECT_TRUE(passes(matcher, "  xy z "));
  EXPECT_FALSE(passes(matcher, "x yz"));
}

// A machine that has read a text.
struct Reader {
  Reader(std::shared_ptr<const Grammar> of, std::string_view text)
      : grammar(std::move(of)), machine(*grammar, budget) {
    machine.start();
    tops.assign(machine.tops().begin(), machine.tops().end());
    for (const char byte : text) {
      std::vector<uint32_t> next;
      machine.step(tops, static_cast<uint8_t>(byte), next, 0);
      tops = std::move(next);
    }
  }
  // The kinds from a top that has one parent each down to the root.
  std::vector<FrameKind> way_down(uint32_t top) const {
    std::vector<FrameKind> kinds = {machine.frame(top).kind};
    while (kinds.back() != FrameKind::kRoot) {
      top = machine.frame(top).parent;
      if ((top & kManyParents) != 0) break;
      kinds.push_back(machine.frame(top).kind);
    }
    return kinds;
  }
  WorkBudget budget = WorkBudget::unlimited();
  std::shared_ptr<const Grammar> grammar;
  Machine machine;
  std::vector<uint32_t> tops;
};

TEST(Machine, FramesExample) {
  const Reader reader(compiled(R"({"type":"object","additionalProperties":false,"properties":
      {"a":{"type":"array","items":{"type":"integer"}}}})")
                          .value(),
                      R"({"a":[7,1)");
  ASSERT_EQ(reader.tops.size(), 1u);
  EXPECT_EQ(reader.way_down(reader.tops[0]),
            (std::vector<FrameKind>{FrameKind::kNumber, FrameKind::kArray, FrameKind::kObject,
                                    FrameKind::kRoot}));
  const Frame& array = reader.machine.frame(reader.machine.frame(reader.tops[0]).parent);
  EXPECT_EQ(array.count, 1u);
}

TEST(Machine, JoinedWaysExample) {
  const Reader reader(compiled(R"({"$defs":{"n":{"type":"integer"}},"anyOf":[
      {"type":"array","items":{"$ref":"#/$defs/n"}},
      {"type":"array","items":{"$ref":"#/$defs/n"},"minItems":2}]})")
                          .value(),
                      "[1");
  ASSERT_EQ(reader.tops.size(), 1u);
  const Frame number = reader.machine.frame(reader.tops[0]);
  EXPECT_EQ(number.kind, FrameKind::kNumber);
  EXPECT_NE(number.parent & kManyParents, 0u);
}

TEST(Machine, CallsExample) {
  const auto grammar = compile_ebnf("root ::= \"a\" root \"b\" | \"c\"").value();
  const Reader open(grammar, "a");
  ASSERT_EQ(open.tops.size(), 1u);
  EXPECT_EQ(open.machine.frame(open.tops[0]).spec, 4u);
  EXPECT_EQ(open.way_down(open.tops[0]),
            (std::vector<FrameKind>{FrameKind::kRule, FrameKind::kCall, FrameKind::kRoot}));
  EXPECT_EQ(open.machine.frame(open.machine.frame(open.tops[0]).parent).spec, 3u);
  const Reader closed(grammar, "ac");
  ASSERT_EQ(closed.tops.size(), 1u);
  EXPECT_EQ(closed.machine.frame(closed.tops[0]).spec, 3u);
  EXPECT_EQ(closed.way_down(closed.tops[0]),
            (std::vector<FrameKind>{FrameKind::kRule, FrameKind::kRoot}));
}

TEST(Machine, AmbiguousCallsExample) {
  const auto grammar = compile_ebnf("root ::= \"i\" root | \"i\" root \"e\" root | \"x\"").value();
  for (const size_t depth : {3, 50}) {
    const Reader reader(grammar, std::string(depth, 'i') + "x");
    std::multiset<FrameKind> kinds;
    int with_many_parents = 0;
    for (const uint32_t top : reader.tops) {
      kinds.insert(reader.machine.frame(top).kind);
      with_many_parents += (reader.machine.frame(top).parent & kManyParents) != 0 ? 1 : 0;
    }
    EXPECT_EQ(kinds,
              (std::multiset<FrameKind>{FrameKind::kRule, FrameKind::kRule, FrameKind::kDone}));
    EXPECT_EQ(with_many_parents, 1);
    const Position position = reader.machine.position(reader.tops);
    ASSERT_FALSE(position.links.empty());
    EXPECT_EQ(position.links[0], depth - 1);
  }
}

TEST(Machine, EscapesExample) {
  const Matcher one = matcher_of(compiled(R"({"type":"string","maxLength":1})").value());
  EXPECT_TRUE(passes(one, "\"\\ud83d\\ude00\""));
  EXPECT_TRUE(passes(one, "\"\\u00e9\""));
  EXPECT_FALSE(passes(one, "\"\\ud83d\""));
  const Matcher line = matcher_of(compiled(R"({"enum":["a","\n"]})").value());
  EXPECT_TRUE(passes(line, R"("\n")"));
  EXPECT_TRUE(passes(line, R"("\u000a")"));
  EXPECT_FALSE(passes(line, R"("\u0061")"));
}

TEST(Machine, EqualNumbersExample) {
  const Matcher list = matcher_of(
      compiled(R"({"type":"array","items":{"type":"number"},"uniqueItems":true})").value());
  for (const char* text : {"[1.5,1.50]", "[1,1.0]", "[0,-0]"}) {
    EXPECT_FALSE(passes(list, text)) << text;
  }
  for (const char* text : {"[1.5,1.05]", "[1,-1]", "[1,10]"})
    EXPECT_TRUE(passes(list, text)) << text;
}

TEST(Machine, RoomForRequiredExample) {
  const Matcher object =
      matcher_of(compiled(R"({"type":"object","required":["a"],"maxProperties":2})").value());
  Matcher has_b = object;
  ASSERT_TRUE(has_b.accept_bytes("{\"b\":1,\""));
  EXPECT_FALSE(Matcher(has_b).accept_bytes("c"));
  EXPECT_TRUE(Matcher(has_b).accept_bytes("a\""));
}

// ---- masks, segments

TokenId token_of(std::string_view text) {
  for (TokenId token = 0; token < test_trie()->vocab_size(); ++token) {
    if (test_trie()->bytes(token) == text) return token;
  }
  return -1;
}

bool is_in_mask(const Matcher& matcher, std::string_view text) {
  std::vector<uint64_t> mask(matcher.grammar().trie().mask_words());
  matcher.fill_mask(mask);
  return may_be(mask, token_of(text));
}

TEST(MaskFiller, RestsExample) {
  Matcher list = matcher_of(compiled(R"({"type":"array","items":{"type":"integer"}})").value());
  Matcher object = matcher_of(
      compiled(R"({"type":"object","additionalProperties":{"type":"integer"}})").value());
  ASSERT_TRUE(list.accept_bytes("[1"));
  ASSERT_TRUE(object.accept_bytes("{\"a\":1"));
  for (const Matcher& matcher : {list, object}) EXPECT_TRUE(is_in_mask(matcher, "12"));
  EXPECT_TRUE(is_in_mask(list, "2]"));
  EXPECT_FALSE(is_in_mask(list, "3}"));
  EXPECT_FALSE(is_in_mask(object, "2]"));
  EXPECT_TRUE(is_in_mask(object, "3}"));
}

TEST(Matcher, ForcedExample) {
  const Json schema = Json::parse(R"({"type":"object","required":["name"],
      "properties":{"name":{"type":"string"}},"additionalProperties":false})")
                          .value();
  const auto forced = [&](SchemaOptions::Whitespace whitespace) {
    return matcher_of(compile_json_schema(schema, {.whitespace = whitespace}).value())
        .forced(100)
        .bytes;
  };
  EXPECT_EQ(forced(SchemaOptions::Whitespace::kNone), "{\"name\":\"");
  EXPECT_EQ(forced(SchemaOptions::Whitespace::kFlexible), "{");
}

TEST(FreeText, UntilExample) {
  const std::vector<std::string> ends = {"aa"};
  const ByteDfa until = text_until({.ends = ends, .marks = ends, .never = {}}, DfaLimits()).value();
  EXPECT_TRUE(until.accepts("baa"));
  EXPECT_FALSE(until.accepts("ba"));
  EXPECT_FALSE(until.accepts("baaa"));
  const ByteDfa without = text_without(ends, DfaLimits()).value();
  EXPECT_TRUE(without.accepts("aba"));
  EXPECT_FALSE(without.accepts("baab"));
}

TEST(StructuralTag, TriggersExample) {
  const Json tag = Json::parse(R"({"triggers":["<f"],
      "structures":[{"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}]})")
                       .value();
  const Matcher matcher = matcher_of(compile_structural_tag(tag, {}).value());
  EXPECT_TRUE(passes(matcher, "hi <f>12</f> bye"));
  EXPECT_TRUE(passes(matcher, "a < f"));
  EXPECT_FALSE(passes(matcher, "a <f b"));
}

TEST(WorkBudget, SavedWorkExample) {
  WorkBudget first({.done_max = 500, .total_max = 400});
  first.spend(300);
  WorkBudget second({.done_max = 500, .total_max = 400});
  second.save(300);
  for (WorkBudget* const budget : {&first, &second}) {
    EXPECT_FALSE(budget->exhausted());
    budget->spend(101);
    EXPECT_TRUE(budget->exceeds_total());
  }
  EXPECT_EQ(first.done(), 401);
  EXPECT_EQ(second.done(), 101);
}

}  // namespace
}  // namespace pelton::grammar
