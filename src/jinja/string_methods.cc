#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/methods.h"
#include "jinja/python_format.h"

namespace pelton::jinja {
namespace {

Result<const Text*> string_argument(std::string_view method, const Value& value) {
  if (value.is_string()) return &value.as_text();
  return failure(fmt::format("{}() needs a string, not '{}'", method, value.type_name()));
}

Result<int64_t> integer_argument(std::string_view method, const Value* value, int64_t absent) {
  if (value == nullptr) return absent;
  if (value->is_integer() || value->is_bool()) return value->as_integer();
  return failure(fmt::format("{}() needs an integer, not '{}'", method, value->type_name()));
}

Result<Value> list_of(Runtime& runtime, std::vector<Text> texts) {
  TRY(runtime.allocate_items(texts.size()));
  std::vector<Value> items;
  for (Text& text : texts) items.emplace_back(std::move(text));
  return Value::list(std::move(items));
}

template <Side side>
Result<Value> strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("strip", arguments, {"chars"}, 0));
  const Text* taken_off = nullptr;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    TRY_ASSIGN(taken_off, string_argument("strip", *bound[0]));
  }
  TRY_ASSIGN(Text out, stripped(runtime, self.as_text(), taken_off, side));
  return Value(std::move(out));
}

Result<std::vector<Text>> split_at_space(Runtime& runtime, const Text& text, int64_t count) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  size_t at = leading_space(bytes);
  while (at < bytes.size()) {
    size_t end = at;
    if (static_cast<int64_t>(parts.size()) == count) {
      end = bytes.size() - trailing_space(bytes);
    } else {
      while (end < bytes.size() && leading_space(bytes.substr(end)) == 0) {
        end += std::max<size_t>(base::utf8_step(bytes.substr(end)).bytes, 1);
      }
    }
    TRY(runtime.allocate_objects(2));
    parts.push_back(text.slice(at, end - at));
    at = end + leading_space(bytes.substr(end));
  }
  return parts;
}

Result<Value> split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("split", arguments, {"sep", "maxsplit"}, 0));
  TRY_ASSIGN(int64_t count, integer_argument("split", bound[1], -1));
  const Text& text = self.as_text();
  TRY(runtime.allocate(text));
  if (bound[0] == nullptr || bound[0]->is_none()) {
    TRY_ASSIGN(std::vector<Text> words, split_at_space(runtime, text, count));
    return list_of(runtime, std::move(words));
  }
  TRY_ASSIGN(const Text* separator, string_argument("split", *bound[0]));
  if (separator->empty()) return failure("split(): empty separator");
  std::vector<Text> parts;
  size_t begin = 0;
  for (; count != 0; --count) {
    const size_t end = find_text(text.bytes(), separator->bytes(), begin);
    if (end == std::string::npos) break;
    TRY(runtime.allocate_objects(2));
    parts.push_back(text.slice(begin, end - begin));
    begin = end + separator->size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return list_of(runtime, std::move(parts));
}

Result<Value> rsplit(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("rsplit", arguments, {"sep", "maxsplit"}, 1));
  TRY_ASSIGN(const Text* separator, string_argument("rsplit", *bound[0]));
  TRY_ASSIGN(int64_t count, integer_argument("rsplit", bound[1], -1));
  if (separator->empty()) return failure("rsplit(): empty separator");
  const Text& text = self.as_text();
  TRY(runtime.allocate(text));
  TRY(runtime.charge(self.weight() * bound[0]->weight()));
  std::vector<Text> parts;
  size_t end = text.size();
  for (; count != 0 && end >= separator->size(); --count) {
    const size_t begin = text.bytes().rfind(separator->bytes(), end - separator->size());
    if (begin == std::string::npos) break;
    TRY(runtime.allocate_objects(2));
    parts.push_back(text.slice(begin + separator->size(), end - begin - separator->size()));
    end = begin;
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return list_of(runtime, std::move(parts));
}

Result<Value> splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("splitlines", arguments, {}, 0));
  TRY(runtime.allocate(self.as_text()));
  const std::string& bytes = self.as_string();
  const auto ends =
      std::count_if(bytes.begin(), bytes.end(), [](char c) { return c == '\n' || c == '\r'; });
  TRY(runtime.allocate_objects(2 * (static_cast<size_t>(ends) + 1)));
  return list_of(runtime, lines_of(self.as_text()));
}

enum class End { kFront, kBack };

template <End end>
Result<Value> has_end(Runtime& runtime, const Value& self, const Arguments& arguments) {
  constexpr std::string_view kName = end == End::kFront ? "startswith" : "endswith";
  TRY_ASSIGN(const auto bound, bind(kName, arguments, {"part"}, 1));
  std::vector<Value> any = {*bound[0]};
  if (bound[0]->is_tuple()) any = bound[0]->as_list().items;
  TRY(runtime.charge(bound[0]->weight()));
  const std::string_view text = self.as_string();
  for (const Value& part : any) {
    TRY_ASSIGN(const Text* wanted, string_argument(kName, part));
    const bool found =
        end == End::kFront ? text.starts_with(wanted->bytes()) : text.ends_with(wanted->bytes());
    if (found) return Value(true);
  }
  return Value(false);
}

template <End end>
Result<Value> remove_end(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("remove", arguments, {"part"}, 1));
  TRY_ASSIGN(const Text* part, string_argument("remove", *bound[0]));
  const Text& text = self.as_text();
  TRY(runtime.allocate(text));
  const std::string_view bytes = text.bytes();
  if (end == End::kFront && bytes.starts_with(part->bytes())) {
    return Value(text.slice(part->size(), text.size()));
  }
  if (end == End::kBack && bytes.ends_with(part->bytes())) {
    return Value(text.slice(0, text.size() - part->size()));
  }
  return self;
}

Result<Value> replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("replace", arguments, {"old", "new", "count"}, 2));
  TRY_ASSIGN(const Text* old, string_argument("replace", *bound[0]));
  TRY_ASSIGN(const Text* with, string_argument("replace", *bound[1]));
  TRY_ASSIGN(const int64_t count, integer_argument("replace", bound[2], -1));
  return replaced(runtime, self.as_text(), *old, *with, count);
}

template <LetterCase letter_case>
Result<Value> change_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("upper", arguments, {}, 0));
  TRY(runtime.allocate(self.as_text()));
  return Value(self.as_text().transformed(to_case(self.as_string(), letter_case)));
}

Result<Value> title(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("title", arguments, {}, 0));
  TRY(runtime.allocate(self.as_text()));
  return Value(self.as_text().transformed(title_case(self.as_string())));
}

Result<Value> capitalize(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("capitalize", arguments, {}, 0));
  TRY(runtime.allocate(3 * self.as_text().size()));
  return Value(self.as_text().transformed(capitalized(self.as_string())));
}

template <End end>
Result<Value> find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("find", arguments, {"part"}, 1));
  TRY_ASSIGN(const Text* part, string_argument("find", *bound[0]));
  TRY(runtime.charge(self.weight() * (end == End::kFront ? 1 : bound[0]->weight())));
  const std::string& text = self.as_string();
  const size_t at =
      end == End::kFront ? find_text(text, part->bytes(), 0) : text.rfind(part->bytes());
  if (at == std::string::npos) return Value(int64_t{-1});
  return Value::count(code_point_count(std::string_view(text).substr(0, at)));
}

Result<Value> count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("count", arguments, {"part"}, 1));
  TRY_ASSIGN(const Text* part, string_argument("count", *bound[0]));
  TRY(runtime.charge(self.weight()));
  const std::string& text = self.as_string();
  if (part->empty()) return Value::count(code_point_count(text) + 1);
  size_t found = 0;
  for (size_t at = find_text(text, part->bytes(), 0); at != std::string::npos;
       at = find_text(text, part->bytes(), at + part->size())) {
    ++found;
  }
  return Value::count(found);
}

Result<Value> join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("join", arguments, {"items"}, 1));
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, *bound[0]));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    TRY_ASSIGN(const Text* item, string_argument("join", items[i]));
    TRY(runtime.allocate(3 * (item->size() + self.as_text().size())));
    TRY(runtime.allocate(*item));
    TRY(runtime.allocate(self.as_text()));
    if (i > 0) out.append(self.as_text());
    out.append(*item);
  }
  return Value(std::move(out));
}

Result<Value> format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(runtime.allocate(self.as_text()));
  TRY(runtime.allocate(2 * self.as_text().size()));
  TRY_ASSIGN(Text text, brace_format(runtime, self.as_text(), arguments));
  return Value(std::move(text));
}

using Is = bool (*)(char);

// What lies beyond ASCII counts as a letter.
template <Is is>
Result<Value> all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("is", arguments, {}, 0));
  TRY(runtime.charge(self.weight()));
  const std::string& text = self.as_string();
  return Value(!text.empty() && std::all_of(text.begin(), text.end(), is));
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}
bool is_letter_or_digit(char c) {
  return is_letter(c) || is_digit(c);
}
bool is_blank(char c) {
  return is_space(static_cast<unsigned char>(c));
}

constexpr NamedMethod kMethods[] = {
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"strip", strip<Side::kBoth>},
    {"lstrip", strip<Side::kLeft>},
    {"rstrip", strip<Side::kRight>},
    {"startswith", has_end<End::kFront>},
    {"endswith", has_end<End::kBack>},
    {"removeprefix", remove_end<End::kFront>},
    {"removesuffix", remove_end<End::kBack>},
    {"replace", replace},
    {"upper", change_case<LetterCase::kUpper>},
    {"lower", change_case<LetterCase::kLower>},
    {"title", title},
    {"capitalize", capitalize},
    {"find", find<End::kFront>},
    {"rfind", find<End::kBack>},
    {"count", count},
    {"join", join},
    {"format", format},
    {"isdigit", all_are<is_digit>},
    {"isalpha", all_are<is_letter>},
    {"isalnum", all_are<is_letter_or_digit>},
    {"isspace", all_are<is_blank>},
};

}  // namespace

Method find_string_method(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                         [&](const NamedMethod& m) { return m.name == name; });
  return found == std::end(kMethods) ? nullptr : found->method;
}

Result<Value> replaced(Runtime& runtime, const Text& text, const Text& old, const Text& with,
                       int64_t count) {
  Text out;
  size_t begin = 0;
  size_t from = 0;
  const std::string& bytes = text.bytes();
  TRY(runtime.allocate(text));
  TRY(runtime.allocate(2 * bytes.size()));
  for (; count != 0; --count) {
    const size_t at = find_text(bytes, old.bytes(), from);
    if (at == std::string::npos) break;
    TRY(runtime.allocate(3 * (with.size() + (with.input().size() + 1) * sizeof(Text::Range))));
    out.append(text.slice(begin, at - begin));
    out.append(with);
    begin = at + old.size();
    // Nothing is found before each character, and at the end.
    from = begin;
    if (old.empty()) {
      if (at >= bytes.size()) break;
      from = at + code_point_offset(std::string_view(bytes).substr(at), 1);
    }
  }
  out.append(text.slice(begin, bytes.size()));
  return Value(std::move(out));
}

Result<Text> stripped(Runtime& runtime, const Text& text, const Text* taken_off, Side side) {
  TRY(runtime.allocate(text));
  if (taken_off != nullptr) TRY(runtime.charge(text.size() * (taken_off->size() / 64)));
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  const auto is_taken = [&](std::string_view character) {
    return !character.empty() && taken_off->bytes().find(character) != std::string::npos;
  };
  if (taken_off == nullptr) {
    if (side != Side::kRight) begin = leading_space(bytes);
    if (side != Side::kLeft) end -= trailing_space(bytes.substr(begin));
    return text.slice(begin, end - begin);
  }
  while (side != Side::kRight && begin < end) {
    const size_t size = code_point_offset(bytes.substr(begin), 1);
    if (!is_taken(bytes.substr(begin, size))) break;
    begin += size;
  }
  while (side != Side::kLeft && end > begin) {
    size_t at = end - 1;
    while (at > begin && (static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) --at;
    if (!is_taken(bytes.substr(at, end - at))) break;
    end = at;
  }
  return text.slice(begin, end - begin);
}

std::string cased(std::string_view text, base::FunctionRef<bool(std::string_view before)> begins) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::max<size_t>(code_point_offset(text.substr(at), 1), 1);
    out += to_case(text.substr(at, size),
                   begins(text.substr(0, at)) ? LetterCase::kUpper : LetterCase::kLower);
    at += size;
  }
  return out;
}

std::string title_case(std::string_view text) {
  return cased(text,
               [](std::string_view before) { return before.empty() || !is_letter(before.back()); });
}

std::string capitalized(std::string_view text) {
  const size_t first = code_point_offset(text, 1);
  return to_case(text.substr(0, first), LetterCase::kUpper) +
         to_case(text.substr(first), LetterCase::kLower);
}

std::vector<Text> lines_of(const Text& text) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find_first_of("\r\n", begin), bytes.size());
    lines.push_back(text.slice(begin, end - begin));
    const bool is_pair = std::string_view(bytes).substr(end, 2) == "\r\n";
    begin = end + (is_pair ? 2 : 1);
  }
  return lines;
}

}  // namespace pelton::jinja
