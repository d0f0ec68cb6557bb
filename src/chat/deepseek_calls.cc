// Calls of DeepSeek's models, in both their forms.
#include <algorithm>

#include "base/json.h"
#include "chat/call_syntax.h"
#include "chat/json_extent.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kFence = "```";
constexpr std::string_view kJsonFence = "```json\n";

std::string_view without_space(std::string_view text) {
  text.remove_prefix(skip_json_space(text, 0));
  return text.substr(0, text.find_last_not_of(kJsonSpace) + 1);
}

// Where the arguments stand, and the name before them.
struct Head {
  std::string_view name;
  size_t arguments = 0;
  bool is_fenced = false;
};

// Behind kBegin. R1: "function" kSeparator NAME "\n```json\n"; V3.1: NAME kSeparator. Nothing: it
// is no call, or its name has not come whole.
std::optional<Head> read_head(std::string_view text, size_t at) {
  const size_t separator = text.find(kSeparator, at);
  if (separator == std::string_view::npos) return std::nullopt;
  Head head{.name = without_space(text.substr(at, separator - at))};
  head.arguments = skip_json_space(text, separator + kSeparator.size());
  head.is_fenced = head.arguments < text.size() && text[head.arguments] != '{';
  const bool is_cut = head.arguments == text.size() && head.name == "function";
  if (is_cut) return std::nullopt;  // the name is still to come
  if (head.is_fenced) {
    const size_t line = text.find('\n', head.arguments);
    if (head.name != "function" || line == std::string_view::npos) return std::nullopt;
    head.name = without_space(text.substr(head.arguments, line - head.arguments));
    const std::string_view fence = text.substr(std::min(line + 1, text.size()));
    head.arguments = text.size();
    if (fence.starts_with(kJsonFence)) {
      head.arguments = skip_json_space(text, line + 1 + kJsonFence.size());
    } else if (!kJsonFence.starts_with(fence)) {
      return std::nullopt;
    }
  }
  if (head.name.empty() || head.name.find_first_of("\n<") != std::string_view::npos) {
    return std::nullopt;
  }
  return head;
}

// False: it is no call. Moves `at` behind its end.
bool read_one(const CallSection& section, size_t& at, WrittenCalls& written) {
  const std::string_view text = section.text;
  const bool may_be_cut = section.end == SectionEnd::kCutOff;
  const std::optional<Head> head = read_head(text, at);
  if (!head) {
    if (!may_be_cut || written.calls.empty()) return false;
    written.rest = text.substr(at);
    at = text.size();
    return true;
  }
  const size_t begin = head->arguments;
  if (begin < text.size() && text[begin] != '{') return false;
  const size_t end = begin < text.size() ? json_container_end(text, begin) : std::string_view::npos;
  if (end == std::string_view::npos) {
    at = text.size();
    if (!may_be_cut) return false;
    written.calls.push_back({std::string(head->name), std::string(text.substr(begin)), false});
    return true;
  }
  const std::string_view arguments = text.substr(begin, end - begin);
  if (!Json::parse(arguments).ok()) return false;
  at = skip_json_space(text, end);
  if (head->is_fenced && text.substr(at).starts_with(kFence)) {
    at = skip_json_space(text, at + kFence.size());
  }
  const std::string_view left = text.substr(at);
  if (left.starts_with(kEnd)) {
    at += kEnd.size();
  } else if (!left.empty()) {
    // A marker that was cut is none of the arguments.
    if (!may_be_cut || !(kEnd.starts_with(left) || kFence.starts_with(left))) return false;
    at = text.size();
  }
  written.calls.push_back({std::string(head->name), std::string(arguments), true});
  return true;
}

}  // namespace

std::optional<WrittenCalls> read_deepseek_calls(const CallSection& section) {
  WrittenCalls written;
  for (size_t at = skip_json_space(section.text, 0); at < section.text.size();
       at = skip_json_space(section.text, at)) {
    const std::string_view left = section.text.substr(at);
    if (!left.starts_with(kBegin)) {
      const bool is_cut = section.end == SectionEnd::kCutOff && kBegin.starts_with(left);
      if (!is_cut) return std::nullopt;
      break;
    }
    at += kBegin.size();
    if (!read_one(section, at, written)) return std::nullopt;
  }
  if (written.calls.empty()) return std::nullopt;
  return written;
}

}  // namespace pelton::chat
