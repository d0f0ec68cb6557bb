#include "grammar/schema_languages.h"

#include <algorithm>
#include <array>
#include <map>

#include "grammar/decimal.h"
#include "grammar/formats.h"
#include "grammar/numeric_bounds.h"
#include "grammar/regex.h"

namespace pelton::grammar {
namespace {

constexpr uint32_t kDot = 10;
constexpr uint32_t kMinus = 11;
constexpr uint32_t kOther = 12;
constexpr uint32_t kLetters = 13;
constexpr size_t kDigitsMax = 400;
constexpr uint64_t kModuloMax = 20'000;

ByteDfa::ByteClasses number_letters() {
  ByteDfa::ByteClasses classes;
  classes.fill(kOther);
  for (uint8_t digit = 0; digit < 10; ++digit) classes[static_cast<size_t>('0' + digit)] = digit;
  classes['.'] = kDot;
  classes['-'] = kMinus;
  return classes;
}

Language made(ByteDfa dfa) {
  return std::make_shared<const ByteDfa>(std::move(dfa));
}

Language of_regex(std::string_view pattern) {
  Result<ByteDfa> dfa = compile_regex(pattern, {.match = RegexOptions::Match::kWhole});
  CHECK(dfa.ok(), dfa.error().message);
  return made(std::move(*dfa));
}

ByteDfa automaton(DfaTable table) {
  return ByteDfa(number_letters(), table);
}

// An integer's digits, then nothing or .000.
void add_integer(DfaTable& table, const std::string& text, DfaState tail) {
  DfaState state = table.start;
  for (const char c : text) {
    const uint32_t letter = c == '-' ? kMinus : static_cast<uint32_t>(c - '0');
    if (table.at(state, letter) == kDeadState) {
      const DfaState added = table.add_state();
      table.at(state, letter) = added;
    }
    state = table.at(state, letter);
  }
  table.accepting[state] = 1;
  table.at(state, kDot) = tail;
}

ByteDfa one_fraction(const std::string& text) {
  DfaTable table = DfaTable::with_letters(kLetters);
  table.start = table.add_state();
  DfaState state = table.start;
  for (const char c : text) {
    const uint32_t letter = c == '-' ? kMinus : c == '.' ? kDot : static_cast<uint32_t>(c - '0');
    const DfaState added = table.add_state();
    table.at(state, letter) = added;
    state = added;
  }
  table.accepting[state] = 1;
  table.at(state, 0) = state;
  return automaton(std::move(table));
}

}  // namespace

const Language& any_text() {
  static const Language kAny = made(ByteDfa::any_utf8());
  return kAny;
}

const Language& all_numbers() {
  static const Language kAll = of_regex("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+\\-]?[0-9]+)?");
  return kAll;
}

const Language& plain_numbers() {
  static const Language kPlain = of_regex("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?");
  return kPlain;
}

const Language& integers() {
  static const Language kIntegers = of_regex("-?(?:0|[1-9][0-9]*)(?:\\.0+)?");
  return kIntegers;
}

const Language& whole_numbers() {
  static const Language kWhole = of_regex("-?(?:0|[1-9][0-9]*)");
  return kWhole;
}

namespace {

// Whether a set of finite texts has more than so many.
bool has_more(const ByteDfa& texts, uint64_t most) {
  std::vector<uint64_t> ways(texts.states(), 0);
  ways[texts.start()] = 1;
  uint64_t total = 0;
  for (uint64_t length = 0; length <= texts.longest_length().value_or(0); ++length) {
    std::vector<uint64_t> next(texts.states(), 0);
    for (DfaState state = 1; state < texts.states(); ++state) {
      if (ways[state] == 0) continue;
      if (texts.accepts(state)) total += ways[state];
      if (total > most) return true;
      for (const char byte : std::string_view("-.0123456789")) {
        uint64_t& there = next[texts.next(state, static_cast<uint8_t>(byte))];
        there = std::min(most + 1, there + ways[state]);
      }
    }
    ways.swap(next);
  }
  return false;
}

// Of few numbers each has one spelling, without zeros that could be left out, so that none is
// begun again once it is there.
Language fit_for_unique(const Language& numbers) {
  constexpr uint64_t kFew = 10'000;
  static const Language kShortest =
      of_regex("-?[1-9][0-9]{0,399}(?:\\.[0-9]{0,399}[1-9])?|-?0\\.[0-9]{0,399}[1-9]|0");
  const Language distinct = fit_for_doubles(numbers, Doubles::kDistinct);
  const Language* const large[] = {&all_numbers(), &plain_numbers(), &integers(), &whole_numbers()};
  for (const Language* const one : large) {
    if (numbers == *one) return distinct;
  }
  if (distinct != numbers && has_more(*distinct, kFew)) return distinct;
  Result<ByteDfa> shortest = intersection(*numbers, *kShortest, DfaLimits());
  return shortest.ok() ? made(std::move(*shortest)) : distinct;
}

}  // namespace

Language fit_for_doubles(const Language& numbers, Doubles doubles) {
  if (doubles == Doubles::kUnique) return fit_for_unique(numbers);
  static const Language kFinite =
      of_regex("-?(?:0|[1-9][0-9]{0,127})(?:\\.[0-9]{1,128})?(?:[eE][+\\-]?[0-9]{1,2})?");
  static const Language kDistinct =
      of_regex("-?(?:(?:0|[1-9][0-9]{0,14})(?:\\.0)?|(?:0|[1-9][0-9]{0,8})\\.[0-9]{1,6})");
  static const Language kIntegers = of_regex("-?(?:0|[1-9][0-9]{0,127})(?:\\.0{1,16})?");
  static const Language kWhole = of_regex("-?(?:0|[1-9][0-9]{0,127})");
  const Language& limit = doubles == Doubles::kDistinct ? kDistinct : kFinite;
  if (numbers == all_numbers()) return limit;
  if (doubles == Doubles::kFinite && numbers == integers()) return kIntegers;
  if (doubles == Doubles::kFinite && numbers == whole_numbers()) return kWhole;
  if (numbers->longest_length()) return numbers;
  Result<ByteDfa> dfa = intersection(*numbers, *limit, DfaLimits());
  return dfa.ok() ? made(std::move(*dfa)) : numbers;
}

Result<Language> texts_matching(std::string_view pattern, const CompileDeadline* deadline) {
  TRY_ASSIGN(ByteDfa dfa, compile_regex(pattern, {.match = RegexOptions::Match::kSearch,
                                                  .limits = {.deadline = deadline}}));
  return made(std::move(dfa));
}

Result<Language> texts_with_length(uint64_t chars_min, uint64_t chars_max) {
  constexpr uint64_t kLengthMax = 4096;
  if (chars_min > kLengthMax || (chars_max != ~uint64_t{0} && chars_max > kLengthMax)) {
    return Error{ErrorCode::kDoesNotFit, "a length above 4096 here"};
  }
  std::string pattern = "[^]{" + std::to_string(chars_min) + ",";
  if (chars_max != ~uint64_t{0}) pattern += std::to_string(chars_max);
  TRY_ASSIGN(ByteDfa dfa, compile_regex(pattern + "}", {.match = RegexOptions::Match::kWhole}));
  return made(std::move(dfa));
}

std::optional<Result<Language>> texts_of_format(std::string_view format) {
  return language_of_format(format);
}

Result<Language> numbers_within(const NumberBounds& bounds) {
  NumericBounds texts = {.minimum_excluded = bounds.minimum_excluded,
                         .maximum_excluded = bounds.maximum_excluded};
  if (bounds.minimum) texts.minimum = bounds.minimum->dump();
  if (bounds.maximum) texts.maximum = bounds.maximum->dump();
  TRY_ASSIGN(ByteDfa dfa, numbers_between(texts));
  // Which side of zero a number lies on does not depend on its exponent.
  const auto is_zero = [](const std::optional<Json>& bound) {
    return bound && bound->as_number() == 0;
  };
  const bool above = is_zero(bounds.minimum) && !bounds.maximum;
  const bool below = is_zero(bounds.maximum) && !bounds.minimum;
  if (above || below) {
    static const Language kAbove = of_regex("[1-9](?:\\.[0-9]{1,128})?[eE][+\\-]?[0-9]{1,2}");
    static const Language kBelow = of_regex("-[1-9](?:\\.[0-9]{1,128})?[eE][+\\-]?[0-9]{1,2}");
    TRY_ASSIGN(dfa, union_of(dfa, above ? *kAbove : *kBelow, DfaLimits()));
  }
  return made(std::move(dfa));
}

// Reads digits and keeps the rest of the division: number = text * 10^scale / step is whole. Of
// multiples of 0.25, scale 2 and step 25: in 1.5 the rests are 1, 15, and a zero more, 150, leaves
// 0: a multiple. In 1.3 they are 1, 13, and 130 leaves 5: none. Behind `scale` digits of the
// fraction only zeros may follow: 1.500, not 1.505.
Result<Language> multiples_of(const Json& number) {
  const Decimal decimal = decimal_of(number);
  const int64_t scale =
      std::max<int64_t>(0, static_cast<int64_t>(decimal.digits.size()) - decimal.point);
  if (scale > 40 || decimal.point > 18) {
    return Error{ErrorCode::kUnsupported, "multipleOf this number is not supported"};
  }
  uint64_t step = 0;
  for (const char c : decimal.digits) {
    step = step * 10 + static_cast<uint64_t>(c - '0');
    if (step > kModuloMax) break;
  }
  for (int64_t i = static_cast<int64_t>(decimal.digits.size());
       i < decimal.point && step <= kModuloMax; ++i) {
    step *= 10;
  }
  if (step > kModuloMax || step * static_cast<uint64_t>(scale + 2) * kLetters > 1'900'000) {
    return Error{ErrorCode::kUnsupported,
                 "multipleOf is supported for numbers of up to about five digits"};
  }
  DfaTable table = DfaTable::with_letters(kLetters);
  table.start = table.add_state();
  const DfaState minus = table.add_state();
  const DfaState zero = table.add_state();
  const DfaState tail = table.add_state();  // ".", then zeros only
  const DfaState zeros = table.add_state();
  const DfaState first = table.state_count();
  // whole[rest], then fraction digit k: part[k][rest].
  for (uint64_t i = 0; i < step * static_cast<uint64_t>(scale + 1); ++i) table.add_state();
  std::vector<DfaState> dot(step, kDeadState);  // after "." with that rest
  for (uint64_t rest = 0; scale > 0 && rest < step; ++rest) dot[rest] = table.add_state();
  const auto state_of = [&](int64_t digits, uint64_t rest) {
    return first + static_cast<DfaState>(static_cast<uint64_t>(digits) * step + rest);
  };
  const auto is_multiple = [&](int64_t digits, uint64_t rest) {
    for (int64_t i = digits; i < scale; ++i) rest = rest * 10 % step;
    return rest == 0;
  };
  const auto finish = [&](DfaState state, int64_t digits, uint64_t rest) {
    table.accepting[state] = is_multiple(digits, rest) ? 1 : 0;
    if (digits == scale && digits > 0) {
      if (rest == 0) table.at(state, 0) = zeros;
      return;
    }
    if (digits == 0) {
      table.at(state, kDot) = scale > 0 ? dot[rest] : rest == 0 ? tail : kDeadState;
      return;
    }
    for (uint32_t d = 0; d < 10; ++d) {
      table.at(state, d) = state_of(digits + 1, (rest * 10 + d) % step);
    }
  };
  table.at(table.start, kMinus) = minus;
  for (const DfaState from : {table.start, minus}) {
    table.at(from, 0) = zero;
    for (uint32_t d = 1; d < 10; ++d) table.at(from, d) = state_of(0, d % step);
  }
  finish(zero, 0, 0);
  for (uint64_t rest = 0; rest < step; ++rest) {
    for (int64_t digits = 0; digits <= scale; ++digits) {
      finish(state_of(digits, rest), digits, rest);
    }
    for (uint32_t d = 0; d < 10; ++d) {
      table.at(state_of(0, rest), d) = state_of(0, (rest * 10 + d) % step);
      if (scale > 0) table.at(dot[rest], d) = state_of(1, (rest * 10 + d) % step);
    }
  }
  table.at(tail, 0) = zeros;
  table.at(zeros, 0) = zeros;
  table.accepting[zeros] = 1;
  return made(automaton(std::move(table)));
}

Result<Language> numbers_among(std::span<const Json> values) {
  DfaTable table = DfaTable::with_letters(kLetters);
  table.start = table.add_state();
  const DfaState dot = table.add_state();
  const DfaState zeros = table.add_state();
  table.at(dot, 0) = zeros;
  table.at(zeros, 0) = zeros;
  table.accepting[zeros] = 1;
  std::vector<std::string> fractions;
  for (const Json& value : values) {
    const Decimal decimal = decimal_of(value);
    const std::optional<std::string> text = decimal.text(kDigitsMax);
    if (!text) return Error{ErrorCode::kUnsupported, "a number of more than 400 digits"};
    if (decimal.is_integer()) {
      add_integer(table, *text, dot);
      if (decimal.is_zero()) add_integer(table, "-0", dot);
    } else {
      fractions.push_back(*text);
    }
    if (table.state_count() > 100'000 || fractions.size() > 300) {
      return Error{ErrorCode::kDoesNotFit, "too many numbers"};
    }
  }
  ByteDfa all = automaton(std::move(table));
  for (const std::string& text : fractions) {
    TRY_ASSIGN(all, union_of(all, one_fraction(text), DfaLimits()));
  }
  return made(std::move(all));
}

}  // namespace pelton::grammar
