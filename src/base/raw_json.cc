#include "base/raw_json.h"

#include <algorithm>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::base {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

size_t after_spaces(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

size_t after_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

size_t after_value(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = after_string(text, at);
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at;
      continue;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      --depth;
      ++at;
    } else if (depth == 0 && (c == ',' || is_space(c))) {
      return at;
    } else {
      ++at;
      continue;
    }
    if (depth == 0) return at;
  }
  return at;
}

std::string_view slice(std::string_view text, size_t begin, size_t end) {
  end = std::min(end, text.size());
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

std::string text_of(std::string_view literal) {
  const Result<Json> json = Json::parse(literal);
  return json.ok() && json->is_string() ? json->as_string() : std::string();
}

}  // namespace

std::optional<std::string_view> raw_member(std::string_view object, std::string_view key) {
  size_t at = after_spaces(object, 0);
  if (at >= object.size() || object[at] != '{') return std::nullopt;
  at = after_spaces(object, at + 1);
  while (at < object.size() && object[at] == '"') {
    const size_t end = after_string(object, at);
    const std::string name = text_of(slice(object, at, end));
    at = after_spaces(object, after_spaces(object, end) + 1);
    const size_t value_end = after_value(object, at);
    if (name == key) return slice(object, at, value_end);
    at = after_spaces(object, value_end);
    if (at < object.size() && object[at] == ',') at = after_spaces(object, at + 1);
  }
  return std::nullopt;
}

std::vector<std::string_view> raw_items(std::string_view array) {
  std::vector<std::string_view> items;
  size_t at = after_spaces(array, 0);
  if (at >= array.size() || array[at] != '[') return items;
  at = after_spaces(array, at + 1);
  while (at < array.size() && array[at] != ']') {
    const size_t end = after_value(array, at);
    items.push_back(slice(array, at, end));
    at = after_spaces(array, end);
    if (at < array.size() && array[at] == ',') at = after_spaces(array, at + 1);
  }
  return items;
}

std::string compact_json(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      const size_t end = after_string(text, at);
      append_json_string(result, text_of(slice(text, at, end)));
      at = end;
    } else {
      if (!is_space(text[at])) result += text[at];
      ++at;
    }
  }
  return result;
}

}  // namespace pelton::base
