#include "jinja/template.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::jinja {
namespace {

Dict context_of(std::string_view json) {
  return Value::from_json(Json::parse(json).value()).as_dict();
}

// What the template prints; "error: ..." if it ends in one.
std::string rendered(std::string_view source, std::string_view context = "{}",
                     const Limits& limits = {}) {
  const Result<Template> made = Template::compile(source);
  if (!made.ok()) return "error: " + made.error().message;
  const Result<Text> text =
      made->render(context_of(context), {.limits = limits, .unix_seconds = 951'827'696});
  return text.ok() ? text->bytes() : "error: " + text.error().message;
}

std::string shown(std::string_view expression, std::string_view context = "{}") {
  return rendered("{{ " + std::string(expression) + " }}", context);
}

TEST(JinjaWhiteSpace, ABlockOnALineOfItsOwnLeavesNothing) {
  EXPECT_EQ(rendered("x\n{% if 1 %}\ny\n{% endif %}\nz\n"), "x\ny\nz");
  EXPECT_EQ(rendered("x\n\t {% if 1 %}\n y\n \t{% endif %}\nz"), "x\n y\nz");
  EXPECT_EQ(rendered("x {% if 1 %} y {% endif %} z"), "x  y  z");
  EXPECT_EQ(rendered("{# one #}\n{# two #}\nx"), "x");
  EXPECT_EQ(rendered("x\r\n{% if 1 %}\r\ny{% endif %}"), "x\ny");
}

TEST(JinjaWhiteSpace, SignsTakeAllOrNone) {
  EXPECT_EQ(rendered("x \n {{- 1 -}} \n\n y"), "x1y");
  EXPECT_EQ(rendered("x\n {%- if 1 -%}\n y {%- endif -%} z"), "xyz");
  EXPECT_EQ(rendered("  {%+ if 1 +%}\nx{% endif %}"), "  \nx");
  EXPECT_EQ(rendered("x {#- no -#} y"), "xy");
}

TEST(JinjaWhiteSpace, RawIsText) {
  EXPECT_EQ(rendered("{% raw %}{{ x }} {% if %}{% endraw %}!"), "{{ x }} {% if %}!");
  EXPECT_EQ(rendered("x {%- raw -%} {{ {%- endraw -%} y"), "x{{y");
}

TEST(JinjaStatements, LoopsKnowWhereTheyAre) {
  EXPECT_EQ(rendered("{% for i in 'abc' %}{{ loop.index }}{{ i }}{{ loop.revindex0 }}"
                     "{{ ',' if not loop.last }}{% endfor %}"),
            "1a2,2b1,3c0");
  EXPECT_EQ(rendered("{% for i in [3, 1, 2] if i > 1 %}{{ loop.length }}{{ i }} {% endfor %}"),
            "23 22 ");
  EXPECT_EQ(rendered("{% for i in x %}{{ i }}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(
      rendered("{% for k, v in x.items() %}{{ k }}={{ v }} {% endfor %}", R"({"x":{"b":1,"a":2}})"),
      "b=1 a=2 ");
  EXPECT_EQ(rendered("{% for i in range(9) %}{% if i is odd %}{% continue %}{% endif %}"
                     "{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "024");
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}"
                     "{{ loop.cycle('a', 'b') }} {% endfor %}"),
            "<1>2a 1<2>b ");
}

TEST(JinjaStatements, OnlyANamespaceReachesOutOfALoop) {
  EXPECT_EQ(rendered("{% set x = 0 %}{% for i in [1] %}{% set x = 5 %}{% endfor %}{{ x }}"), "0");
  EXPECT_EQ(rendered("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}"
                     "{% endfor %}{{ n.x }}"),
            "3");
  EXPECT_EQ(rendered("{% if 1 %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(rendered("{% set x %} a\n{% endset %}[{{ x }}]"), "[ a\n]");
  EXPECT_EQ(rendered("{% set x | upper | trim %} a {% endset %}[{{ x }}]"), "[A]");
  EXPECT_EQ(rendered("{% set a, b = (1, 2) %}{{ b }}{{ a }}"), "21");
  EXPECT_EQ(rendered("{% with a = 1, b = a + 1 %}{{ b }}{% endwith %}{{ b }}"), "2");
}

TEST(JinjaStatements, MacrosTakeArgumentsByPlaceAndName) {
  EXPECT_EQ(
      rendered("{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(b=3, a=4) }}"),
      "1-2;4-3;");
  EXPECT_EQ(
      rendered("{% macro down(n) %}{{ n }}{% if n %}{{ down(n - 1) }}{% endif %}{% endmacro %}"
               "{{ down(3) }}"),
      "3210");
  EXPECT_EQ(
      rendered(
          "{% macro m() %}<{{ caller(7) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}"),
      "<7>");
  EXPECT_EQ(rendered("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
            "error: line 1: macro 'm' takes at most 1 arguments");
  EXPECT_EQ(rendered("{{ 'a'|center(4) }}|{{ 'a'|center|length }}"), " a  |80");
  EXPECT_EQ(rendered("{{ 'a'|center(1000000000) }}"),
            "error: line 1: center() needs a width of at most 10000");
  EXPECT_EQ(
      rendered("{% set n = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}"
               "{% set n.m = m %}{% endfor %}{{ n.m() }}"),
      "error: line 1: a macro is called outside of where it was defined");
}

TEST(JinjaStatements, FiltersOfBlocksAndTheGenerationTag) {
  EXPECT_EQ(rendered("{% filter upper | trim %} a{{ 1 }} {% endfilter %}"), "A1");
  EXPECT_EQ(rendered("{% generation %}\nx{% endgeneration %}"), "x");
}

TEST(JinjaExpressions, BindAsJinjasDo) {
  EXPECT_EQ(shown("1 + 2 * 3 - 8 / 4"), "5.0");
  EXPECT_EQ(shown("-7 // 2, -7 % 3, 7 // -2, 2 ** 10, -3 ** 2"), "(-4, 2, -4, 1024, 9)");
  EXPECT_EQ(shown("'a' ~ 1 + 1"), "error: line 1: '+' cannot be applied to 'str' and 'int'");
  EXPECT_EQ(shown("1 < 2 < 3 and not 1 > 2 or x"), "True");
  EXPECT_EQ(shown("'x' ~ [1, 2] | length ~ 'y'"), "x2y");
  EXPECT_EQ(shown("'a' if x else 'b' if x else 'c'"), "c");
  EXPECT_EQ(shown("x or 'd'"), "d");
  EXPECT_EQ(shown("0 and 1 or []"), "[]");
  EXPECT_EQ(shown("1 not in [2] and 'b' in 'abc'"), "True");
  EXPECT_EQ(shown("9223372036854775807 + 1"),
            "error: line 1: a number is too large: integers have 64 bits here");
}

TEST(JinjaExpressions, SubscriptsCountCodePoints) {
  EXPECT_EQ(shown("'aé😀z'[2]"), "😀");
  EXPECT_EQ(shown("'aé😀z'[1:-1]"), "é😀");
  EXPECT_EQ(shown("'abc'[::-1]"), "cba");
  EXPECT_EQ(shown("[1, 2, 3, 4][1:], [1, 2, 3, 4][::2], [1, 2][-1]"), "([2, 3, 4], [1, 3], 2)");
  EXPECT_EQ(shown("'abc'[9] ~ [1][7] ~ 'x'"), "x");
  EXPECT_EQ(shown("x.a.b, x['a']['b'], x.a.get('c'), x.a.get('c', 5)", R"({"x":{"a":{"b":1}}})"),
            "(1, 1, None, 5)");
  EXPECT_EQ(shown("x['items'], x.items() | list", R"({"x":{"items":1}})"), "(1, [('items', 1)])");
}

TEST(JinjaExpressions, UndefinedPrintsNothingAndSaysItsNameWhenUsed) {
  EXPECT_EQ(shown("x"), "");
  EXPECT_EQ(shown("x.y"), "error: line 1: 'x' is undefined");
  EXPECT_EQ(shown("x.y", R"({"x":{}})"), "");
  EXPECT_EQ(shown("x.y.z", R"({"x":{}})"), "error: line 1: 'dict object' has no attribute 'y'");
  EXPECT_EQ(shown("x + 'a'"), "error: line 1: 'x' is undefined");
  EXPECT_EQ(shown("x | default('d'), x is defined, x | length, none | d('e')"),
            "('d', False, 0, None)");
  EXPECT_EQ(shown("f(1)"), "error: line 1: 'f' is undefined");
}

TEST(JinjaValues, AreShownAsPythonShowsThem) {
  EXPECT_EQ(shown("[true, none, 1.0, 'it\\'s', (1,), {'a': [2]}]"),
            "[True, None, 1.0, \"it's\", (1,), {'a': [2]}]");
  EXPECT_EQ(shown("1e16, 1e15, 0.1 + 0.2, 1e-5, 0.0001, 100.0, -2.5e-7"),
            "(1e+16, 1000000000000000.0, 0.30000000000000004, 1e-05, 0.0001, 100.0, -2.5e-07)");
  EXPECT_EQ(shown(R"('\t\x41\u00e9\q')"), "\tAé\\q");
  EXPECT_EQ(shown("['a\\nb\\t\\\\']"), R"(['a\nb\t\\'])");
}

TEST(JinjaValues, CompareAsInPython) {
  EXPECT_EQ(
      shown("1 == 1.0, true == 1, '1' == 1, [1] == (1,), {'a': 1, 'b': 2} == {'b': 2, 'a': 1}"),
      "(True, True, False, False, True)");
  EXPECT_EQ(shown("'a' < 1"), "error: line 1: 'str' and 'int' have no order");
}

TEST(JinjaValues, CannotBeChanged) {
  EXPECT_NE(shown("[].append(1)").find("access to attribute 'append' of 'list' object is unsafe"),
            std::string::npos);
  EXPECT_NE(shown("x.pop('a')", R"({"x":{"a":1}})").find("unsafe"), std::string::npos);
  EXPECT_EQ(shown("''.__class__"), "");
}

TEST(JinjaFilters, WriteJsonAsPython) {
  const std::string_view x = R"({"x":{"b":[1,2.0,true,null,"é\"<&\n"],"a":{}}})";
  EXPECT_EQ(shown("x | tojson", x), R"({"b": [1, 2.0, true, null, "é\"<&\n"], "a": {}})");
  EXPECT_EQ(shown("{'a': [1, {}]} | tojson(indent=2)"), "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
  EXPECT_EQ(shown("x | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true)", x),
            R"({"a":{},"b":[1,2.0,true,null,"\u00e9\"<&\n"]})");
  EXPECT_EQ(shown("y | tojson"),
            "error: line 1: a value of type Undefined is not JSON serializable");
  EXPECT_EQ(shown("('[1, {\"a\": null}]' | from_json)[1]"), "{'a': None}");
}

TEST(JinjaFilters, OfStrings) {
  EXPECT_EQ(shown("' a ' | trim, 'xxaxx' | trim('x'), 'aB' | upper, 'aB' | lower"),
            "('a', 'a', 'AB', 'ab')");
  EXPECT_EQ(shown("'ÄÖß' | lower, 'жя' | upper"), "('äöß', 'ЖЯ')");
  EXPECT_EQ(shown("'they are' | title, 'hELLO' | capitalize, 'a-b' | replace('-', '+')"),
            "('They Are', 'Hello', 'a+b')");
  EXPECT_EQ(rendered("{{ 'a\\n\\nb' | indent(2) }}|{{ 'a\\nb' | indent(1, true) }}"),
            "a\n\n  b| a\n b");
  EXPECT_EQ(shown("'12' | int + 1, 'x' | int(7), '1.5' | float, 3.9 | int, 2.567 | round(2)"),
            "(13, 7, 1.5, 3, 2.57)");
  EXPECT_EQ(shown("'abc' | length, 'abc' | first, 'abc' | last, 'ab' | list, 5 | string ~ 1"),
            "(3, 'a', 'c', ['a', 'b'], '51')");
  EXPECT_EQ(shown("'<a>' | e, '<a>' | safe, 'abcdefghij' | truncate(4), 'a b' | wordcount"),
            "('&lt;a&gt;', '<a>', 'a...', 2)");
  EXPECT_EQ(shown("1 | nonsense"), "error: line 1: no filter named 'nonsense'");
}

// Each as Jinja2 3.1.6 gives it.
TEST(JinjaFilters, CornersAreAsJinjaHasThem) {
  EXPECT_EQ(shown("1 | round, -3 | round(1), 2.5 | round"), "(1, -3, 2.0)");
  EXPECT_EQ(shown("1 // 0.1, 1 % 0.1, 7.5 % -2, 7.5 // 2"),
            "(9.0, 0.09999999999999995, -0.5, 3.0)");
  EXPECT_EQ(shown("2.5 is odd, 3 is odd, -3 is odd, 4.0 is even"), "(False, True, True, True)");
  EXPECT_EQ(shown("'été à-vous don\\'t' | title, 'été don\\'t'.title()"),
            "(\"Été À-Vous Don't\", \"Été Don'T\")");
  EXPECT_EQ(shown("'ab' * true, false * [1], 'ab' % []"), "('ab', [], 'ab')");
  EXPECT_EQ(shown("none | select | list, 0 | map('string') | list"), "([], [])");
  EXPECT_EQ(shown("(1)[:1] is undefined, {'a': 1} | attr('a') is undefined"), "(True, True)");
  EXPECT_EQ(shown("'0x1f' | int(0, 16), {'a': 1} is lower"), "(31, True)");
  EXPECT_EQ(
      rendered("{% for i in [1] %}{% for j in [1] %}{{ loop.depth }}{% endfor %}{% endfor %}"),
      "1");
  for (const std::string_view failing : {"x | int", "x | float", "x | dictsort", "1e20 | int"}) {
    EXPECT_EQ(shown(failing).find("error: line 1: "), 0u) << failing;
  }
}

TEST(JinjaFilters, OfLists) {
  const std::string_view m = R"({"m":[{"r":"u","c":"B"},{"r":"s","c":"a"},{"r":"u"}]})";
  EXPECT_EQ(shown("m | selectattr('r', 'equalto', 'u') | list | length", m), "2");
  EXPECT_EQ(shown("m | selectattr('c') | map(attribute='c') | join('+')", m), "B+a");
  EXPECT_EQ(shown("m | rejectattr('c', 'defined') | list", m), "[{'r': 'u'}]");
  EXPECT_EQ(shown("m | map(attribute='c', default='-') | map('upper') | list", m),
            "['B', 'A', '-']");
  EXPECT_EQ(shown("[3, 1, 2] | sort, ['b', 'A'] | sort, [1, 2] | sort(reverse=true)"),
            "([1, 2, 3], ['A', 'b'], [2, 1])");
  EXPECT_EQ(shown("{'b': 1, 'a': 2} | dictsort, {'b': 1, 'a': 2} | dictsort(by='value')"),
            "([('a', 2), ('b', 1)], [('b', 1), ('a', 2)])");
  EXPECT_EQ(shown("[2, 1, 2] | unique | list, [1, 2] | sum, [2, 1] | min, [2, 1] | max"),
            "([2, 1], 3, 1, 2)");
  EXPECT_EQ(
      shown(
          "[1, 2, 3] | batch(2) | list, [1, 2, 3] | reject('odd') | list, [1, 2] | reverse | list"),
      "([[1, 2], [3]], [2], [2, 1])");
  EXPECT_EQ(shown("[1, 'a'] | sort"), "error: line 1: 'str' and 'int' have no order");
}

TEST(JinjaTests, SayWhatAValueIs) {
  EXPECT_EQ(shown("x is string, x is iterable, x is sequence, x is mapping", R"({"x":{}})"),
            "(False, True, True, True)");
  EXPECT_EQ(shown("true is number, true is integer, 1 is boolean, none is none, 1.5 is float"),
            "(True, False, False, True, True)");
  EXPECT_EQ(shown("6 is divisibleby 3, 3 is odd, 1 is in [1], 2 is eq(2), 'a' is not string"),
            "(True, True, True, True, False)");
  EXPECT_EQ(shown("'yes' if x is defined else 'no'"), "no");
}

TEST(JinjaMethods, OfStrings) {
  EXPECT_EQ(
      shown("'a,b,c'.split(','), 'a,b,c'.split(',', 1), ' a  b '.split(), 'a b c'.split(none, 1)"),
      "(['a', 'b', 'c'], ['a', 'b,c'], ['a', 'b'], ['a', 'b c'])");
  EXPECT_EQ(shown("'a</t>b</t>c'.split('</t>')[-1], 'a.b.c'.rsplit('.', 1)"),
            "('c', ['a.b', 'c'])");
  EXPECT_EQ(
      shown("' a '.strip() ~ '|' ~ ' a '.lstrip() ~ '|' ~ 'xya'.lstrip('yx') ~ '\\u3000'.strip()"),
      "a|a |a");
  EXPECT_EQ(
      shown(
          "'abc'.startswith('ab'), 'abc'.endswith(('x', 'bc')), 'abca'.find('c'), 'aa'.count('a')"),
      "(True, True, 2, 2)");
  EXPECT_EQ(shown("'-'.join(['a', 'b']), '{}-{1}-{k}'.format(1, 2, k=3), '%s=%03d' % ('a', 7)"),
            "('a-b', '1-2-3', 'a=007')");
  EXPECT_EQ(shown("'abab'.replace('b', 'x', 1), 'ab'.replace('', '.'), 'a\\nb\\n'.splitlines()"),
            "('axab', '.a.b.', ['a', 'b'])");
}

TEST(JinjaFunctions, KnowTheTime) {
  EXPECT_EQ(shown("strftime_now('%d %b %Y %H:%M:%S %j')"), "29 Feb 2000 12:34:56 060");
  EXPECT_EQ(shown("strftime_now('')"), "");
}

TEST(JinjaFunctions, ExceptionsAreTheTemplatesOwnWords) {
  EXPECT_EQ(rendered("a\n\n{{ raise_exception('roles must ' ~ 'alternate') }}"),
            "error: line 3: roles must alternate");
}

// A client gets the error whole: what a template says in it is cut, between characters.
TEST(JinjaFunctions, AnExceptionsWordsAreCut) {
  const std::string cut = rendered("{{ raise_exception('x' ~ 'é' * 500000) }}");
  EXPECT_LT(cut.size(), 4200u);
  EXPECT_EQ(cut.find("error: line 1: xé"), 0u);
  EXPECT_TRUE(cut.ends_with("é...")) << cut.substr(cut.size() - 9);
  EXPECT_LT(rendered("{{ {}['x' * 500000].y }}").size(), 4200u);
}

TEST(JinjaErrors, NameTheLine) {
  EXPECT_EQ(rendered("a\n{% if %}"),
            "error: line 2: expected an expression, not the end of the tag");
  EXPECT_EQ(rendered("\n{{ 'a' }"), "error: line 2: unexpected '}'");
  EXPECT_EQ(rendered("{% for x in y %}\n\n"),
            "error: line 1: the block has no end: {% endfor %} is missing");
  EXPECT_EQ(rendered("{{ 'abc }}"), "error: line 1: a string has no end");
  EXPECT_EQ(rendered("{# abc"), "error: line 1: a comment has no end: '#}' is missing");
  EXPECT_EQ(rendered("{% include 'x' %}").find("error: line 1: {% include %} is not supported"),
            0u);
  EXPECT_EQ(rendered("{% frobnicate %}"), "error: line 1: unknown tag 'frobnicate'");
  EXPECT_EQ(rendered("x\n{{ 1 / 0 }}"), "error: line 2: division by zero");
}

TEST(JinjaLimits, AreErrors) {
  EXPECT_EQ(rendered("{% for i in range(99) %}{% for j in range(99) %}{% endfor %}{% endfor %}",
                     "{}", {.steps = 5000}),
            "error: line 1: the template takes more than 5000 steps");
  EXPECT_EQ(
      rendered("{{ 'abcd' * 1000000000 }}").find("error: line 1: the template makes more than"),
      0u);
  EXPECT_EQ(rendered("{{ 'abcd' * 100 }}", "{}", {.output_bytes = 100}),
            "error: line 1: the template prints more than 100 bytes");
  EXPECT_EQ(rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "error: line 1: the template nests or recurses too deeply");
  EXPECT_EQ(rendered("{{ range(1000000) }}"),
            "error: line 1: range() has more than 100000 numbers");
  // A filter that reads all of a long text.
  for (const char* filter : {"int", "float", "int(0, 16)"}) {
    EXPECT_EQ(rendered("{% set s = ' ' * 10000000 %}{% for i in range(100000) %}{% set x = s|" +
                       std::string(filter) + " %}{% endfor %}"),
              "error: line 1: the template takes more than 5000000 steps");
  }
  // A key that is as long as the one looked for is compared with it.
  for (const char* expression : {"{s: 1}.get(t)", "{s: 1}[t] is defined", "{s: 1, t: 2}",
                                 "{(1, s): 1}.get((1, t))", "{s: {t: 1}} == {s: {s: 1}}"}) {
    EXPECT_EQ(rendered("{% set s = ' ' * 5000000 %}{% set t = ' ' * 4999999 ~ '.' %}"
                       "{% for i in range(100000) %}{% set x = " +
                       std::string(expression) + " %}{% endfor %}"),
              "error: line 1: the template takes more than 5000000 steps")
        << expression;
  }
  const std::string name(1000, 'x');
  EXPECT_EQ(rendered("{% for i in range(100000) %}{% set " + name + " = " + name +
                     "y %}"
                     "{% set " +
                     name + "z = 1 %}{% endfor %}"),
            "error: line 1: the template takes more than 5000000 steps");
  // Names in a namespace are copies.
  EXPECT_EQ(rendered("{% set s = ' ' * 5000000 %}{% for i in range(1000) %}"
                     "{% set x = namespace({s: 1}) %}{% endfor %}",
                     "{}", {.steps = 50'000'000})
                .find("error: line 1: the template makes more than"),
            0u);
  // Twice as long each time: what is shared is counted each time it is shown.
  EXPECT_EQ(
      rendered("{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}"
               "{% endfor %}{{ n.x }}"),
      "error: line 1: the template takes more than 5000000 steps");
  EXPECT_EQ(rendered("{% set n = namespace(x=[1]) %}{% for i in range(999) %}{% set n.x = [n.x] %}"
                     "{% endfor %}"),
            "error: line 1: lists nest too deeply");
  for (const char* opening : {"(", "[", "{'a':", "not ", "-", "x if ", "f(", "x["}) {
    std::string source = "{{ ";
    for (int i = 0; i < 5000; ++i) source += opening;
    EXPECT_EQ(rendered(source + " }}").find("error: line 1:"), 0u) << opening;
  }
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  EXPECT_EQ(rendered(chain + " }}"), "error: line 1: an expression nests too deeply");
}

TEST(JinjaInput, IsKnownInWhatIsPrinted) {
  const Template made =
      Template::compile("<|u|>{{ x.split('-')[1] | trim }}<|e|>{{ y | upper }}{{ 'z' | upper }}")
          .value();
  Dict context;
  context.members.emplace_back(Value::own("x"), Value::input("a- <|e|> -b"));
  context.members.emplace_back(Value::own("y"), Value::input("q"));
  const Text text = made.render(context, {}).value();
  EXPECT_EQ(text.bytes(), "<|u|><|e|><|e|>QZ");
  ASSERT_EQ(text.input().size(), 2u);
  EXPECT_EQ(text.input()[0].begin, 5u);
  EXPECT_EQ(text.input()[0].end, 10u);
  EXPECT_EQ(text.input()[1].begin, 15u);
  EXPECT_EQ(text.input()[1].end, 16u);
}

}  // namespace
}  // namespace pelton::jinja
