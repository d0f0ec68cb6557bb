// unicode_property() of code_point_set.h: names, as ECMA-262's tables and Unicode's aliases have
// them.
#include <algorithm>
#include <array>

#include "grammar/code_point_set.h"
#include "grammar/unicode_property_tables.h"

namespace pelton::grammar {
namespace {

// In the order of the generated table's values.
constexpr std::string_view kCategories[] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};

struct CategoryName {
  std::string_view name;
  std::string_view categories;  // two letters each, joined by blanks
};

constexpr CategoryName kCategoryNames[] = {
    {"L", "Lu Ll Lt Lm Lo"},
    {"Letter", "Lu Ll Lt Lm Lo"},
    {"LC", "Lu Ll Lt"},
    {"Cased_Letter", "Lu Ll Lt"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"M", "Mn Mc Me"},
    {"Mark", "Mn Mc Me"},
    {"Combining_Mark", "Mn Mc Me"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"N", "Nd Nl No"},
    {"Number", "Nd Nl No"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"P", "Pc Pd Ps Pe Pi Pf Po"},
    {"Punctuation", "Pc Pd Ps Pe Pi Pf Po"},
    {"punct", "Pc Pd Ps Pe Pi Pf Po"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"S", "Sm Sc Sk So"},
    {"Symbol", "Sm Sc Sk So"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Z", "Zs Zl Zp"},
    {"Separator", "Zs Zl Zp"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"C", "Cc Cf Co Cn"},
    {"Other", "Cc Cf Co Cn"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Format", "Cf"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
};

struct ShortName {
  std::string_view short_name, name;
};

constexpr ShortName kBinaryShortNames[] = {{"Alpha", "Alphabetic"},
                                           {"Lower", "Lowercase"},
                                           {"Upper", "Uppercase"},
                                           {"space", "White_Space"},
                                           {"IDS", "ID_Start"},
                                           {"IDC", "ID_Continue"},
                                           {"Ideo", "Ideographic"},
                                           {"EPres", "Emoji_Presentation"},
                                           {"Hex", "Hex_Digit"},
                                           {"Dia", "Diacritic"},
                                           {"ExtPict", "Extended_Pictographic"},
                                           {"DI", "Default_Ignorable_Code_Point"}};

// The runs whose value `wanted` holds.
template <typename Wanted>
CodePointSet of_runs(const uint32_t* runs, size_t count, Wanted wanted) {
  CodePointSet set;
  for (size_t i = 0; i < count; ++i) {
    if (!wanted(runs[i] & 0xFF)) continue;
    set.add({runs[i] >> 8, i + 1 < count ? (runs[i + 1] >> 8) - 1 : kLastCodePoint});
  }
  return set;
}

std::optional<CodePointSet> general_category(std::string_view name) {
  std::string_view wanted = name.size() == 2 ? name : std::string_view();
  for (const CategoryName& known : kCategoryNames) {
    if (known.name == name) wanted = known.categories;
  }
  std::array<bool, 256> values{};
  bool any = false;
  for (size_t i = 0; i < std::size(kCategories); ++i) {
    for (size_t at = 0; at + 2 <= wanted.size(); at += 3) {
      if (wanted.substr(at, 2) == kCategories[i]) any = values[i] = true;
    }
  }
  if (!any) return std::nullopt;
  return of_runs(kCategoryRuns, kCategoryRunsCount, [&](uint32_t value) { return values[value]; });
}

std::optional<CodePointSet> script(std::string_view name) {
  for (size_t i = 0; i < kScriptNamesCount; ++i) {
    if (name != kScriptNames[i].long_name && name != kScriptNames[i].short_name) continue;
    return of_runs(kScriptRuns, kScriptRunsCount, [i](uint32_t value) { return value == i; });
  }
  return std::nullopt;
}

std::optional<CodePointSet> binary_property(std::string_view name) {
  for (const ShortName& known : kBinaryShortNames) {
    if (known.short_name == name) name = known.name;
  }
  for (size_t i = 0; i < kBinaryPropertiesCount; ++i) {
    if (name != kBinaryProperties[i].name) continue;
    CodePointSet set;
    for (size_t at = kBinaryProperties[i].begin; at < kBinaryProperties[i].end; at += 2) {
      set.add({kBinaryRanges[at], kBinaryRanges[at + 1]});
    }
    return set;
  }
  if (name == "Any") return CodePointSet::all();
  if (name == "ASCII") return CodePointSet{{0, 0x7F}};
  if (name == "ASCII_Hex_Digit" || name == "AHex") {
    return CodePointSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  }
  if (name == "Assigned") return general_category("Cn")->complement();
  return std::nullopt;
}

}  // namespace

std::optional<CodePointSet> unicode_property(std::string_view name) {
  const size_t equals = name.find('=');
  if (equals != std::string_view::npos) {
    const std::string_view property = name.substr(0, equals);
    const std::string_view value = name.substr(equals + 1);
    if (property == "General_Category" || property == "gc") return general_category(value);
    if (property == "Script" || property == "sc") return script(value);
    return std::nullopt;
  }
  for (const auto look_up : {general_category, binary_property, script}) {
    if (std::optional<CodePointSet> set = look_up(name)) return set;
  }
  return std::nullopt;
}

}  // namespace pelton::grammar
