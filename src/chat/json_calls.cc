// Calls that are written as JSON: hermes, Mistral, Llama, Phi.
#include <algorithm>
#include <utility>

#include "base/json.h"
#include "chat/call_syntax.h"
#include "chat/chatml_call.h"
#include "chat/json_extent.h"

namespace pelton::chat {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr std::string_view kToolCalls = "[TOOL_CALLS]";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";

void add_call(WrittenCalls& written, ChatMlCall call, bool complete) {
  written.calls.push_back({std::move(call.name), std::move(call.arguments), complete});
}

bool add_cut_call(WrittenCalls& written, std::string_view text) {
  std::optional<ChatMlCall> call = read_cut_call(text);
  if (!call) return false;
  add_call(written, std::move(*call), false);
  return true;
}

std::optional<WrittenCalls> unless_empty(WrittenCalls written) {
  if (written.calls.empty()) return std::nullopt;
  return written;
}

// Objects one after the other with `separator` between them, from `at` on, which is moved behind
// the last. False: something is no call.
bool read_objects(const CallSection& section, char separator, size_t& at, WrittenCalls& written) {
  const std::string_view text = section.text;
  while (true) {
    at = skip_json_space(text, at);
    if (at == text.size() || text[at] != '{') return false;
    const size_t end = json_container_end(text, at);
    if (end == std::string_view::npos) {
      const std::string_view cut = text.substr(at);
      at = text.size();
      return section.end == SectionEnd::kCutOff && add_cut_call(written, cut);
    }
    std::optional<ChatMlCall> call = read_call(text.substr(at, end - at));
    if (!call) return false;
    add_call(written, std::move(*call), true);
    at = skip_json_space(text, end);
    if (at == text.size() || text[at] != separator) return true;
    ++at;
    // "; " may also stand at the end, and a list may have been cut behind its comma.
    if (skip_json_space(text, at) == text.size()) return true;
  }
}

// name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}
bool read_mistral_call(const CallSection& section, size_t& at, WrittenCalls& written) {
  const std::string_view text = section.text;
  const size_t name_end = text.find('[', at);
  if (name_end == std::string_view::npos) return false;
  std::string_view name = text.substr(at, name_end - at);
  name = name.substr(0, name.find_last_not_of(kJsonSpace) + 1);
  const bool is_name = !name.empty() && name.size() <= kNameBytesMax &&
                       name.find_first_of(" \t\r\n{}\"") == std::string_view::npos;
  const std::string_view behind = text.substr(name_end);
  if (!is_name || (!behind.starts_with(kArgs) && !behind.starts_with(kCallId))) return false;
  const size_t args = text.find(kArgs, name_end);
  if (args == std::string_view::npos || args - name_end > kNameBytesMax) return false;
  const std::string_view id = text.substr(name_end, args - name_end);
  if (id.find_first_of(" \t\r\n{}\"") != std::string_view::npos) return false;
  const size_t begin = skip_json_space(text, args + kArgs.size());
  if (begin < text.size() && text[begin] != '{') return false;
  const size_t end = begin < text.size() ? json_container_end(text, begin) : std::string_view::npos;
  if (end == std::string_view::npos) {
    if (section.end != SectionEnd::kCutOff) return false;
    written.calls.push_back({std::string(name), std::string(text.substr(begin)), false});
    at = text.size();
    return true;
  }
  const std::string_view arguments = text.substr(begin, end - begin);
  if (!Json::parse(arguments).ok()) return false;
  written.calls.push_back({std::string(name), std::string(arguments), true});
  at = end;
  return true;
}

// name.call(a="x")
std::optional<WrittenCalls> read_builtin_call(std::string_view text) {
  const size_t dot = text.find(".call(");
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(0, dot);
  const bool is_name = !name.empty() && name.size() <= kNameBytesMax &&
                       std::all_of(name.begin(), name.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
                       });
  if (!is_name) return std::nullopt;
  size_t at = dot + 1;
  std::optional<WrittenCall> call = read_python_call(text, at);
  if (!call || skip_json_space(text, at) != text.size()) return std::nullopt;
  call->name = name;
  WrittenCalls written;
  written.calls.push_back(std::move(*call));
  return written;
}

}  // namespace

std::optional<WrittenCalls> read_hermes_call(const CallSection& section) {
  WrittenCalls written;
  if (std::optional<ChatMlCall> call = read_call(section.text)) {
    add_call(written, std::move(*call), true);
  } else if (section.end == SectionEnd::kCutOff) {
    add_cut_call(written, section.text);
  }
  return unless_empty(std::move(written));
}

std::optional<WrittenCalls> read_json_calls(const CallSection& section) {
  size_t at = skip_json_space(section.text, 0);
  if (at == section.text.size() || section.text[at] != '[') return std::nullopt;
  WrittenCalls written;
  ++at;
  if (!read_objects(section, ',', at, written)) return std::nullopt;
  const bool is_closed = at < section.text.size() && section.text[at] == ']';
  if (!is_closed && section.end != SectionEnd::kCutOff) return std::nullopt;
  if (is_closed) ++at;
  if (skip_json_space(section.text, at) < section.text.size()) {
    written.rest = section.text.substr(at);
  }
  return unless_empty(std::move(written));
}

std::optional<WrittenCalls> read_mistral_calls(const CallSection& section) {
  const std::string_view text = section.text;
  size_t at = skip_json_space(text, 0);
  if (at < text.size() && text[at] == '[') return read_json_calls(section);
  WrittenCalls written;
  while (true) {
    if (!read_mistral_call(section, at, written)) return std::nullopt;
    const size_t next = skip_json_space(text, at);
    if (next == text.size()) break;
    if (!text.substr(next).starts_with(kToolCalls)) {
      written.rest = text.substr(at);
      break;
    }
    at = skip_json_space(text, next + kToolCalls.size());
  }
  return unless_empty(std::move(written));
}

std::optional<WrittenCalls> read_llama_calls(const CallSection& section) {
  size_t at = skip_json_space(section.text, 0);
  if (at < section.text.size() && section.text[at] != '{') {
    return read_builtin_call(section.text.substr(at));
  }
  WrittenCalls written;
  const bool all = read_objects(section, ';', at, written);
  if (!all || skip_json_space(section.text, at) < section.text.size()) return std::nullopt;
  return unless_empty(std::move(written));
}

// Undecided until the first key is there.
BeginsCall begins_json_call(std::string_view text) {
  static constexpr std::string_view kKeys[] = {"\"name\"", "\"type\"", "\"function\"",
                                               "\"parameters\"", "\"arguments\""};
  if (text.empty() || text[0] != '{')
    return text.empty() ? BeginsCall::kUndecided : BeginsCall::kNo;
  const std::string_view key = text.substr(skip_json_space(text, 1));
  const bool is_begun = std::any_of(std::begin(kKeys), std::end(kKeys),
                                    [&](std::string_view k) { return k.starts_with(key); });
  const bool is_one = std::any_of(std::begin(kKeys), std::end(kKeys),
                                  [&](std::string_view k) { return key.starts_with(k); });
  if (is_one) return BeginsCall::kYes;
  return is_begun ? BeginsCall::kUndecided : BeginsCall::kNo;
}

}  // namespace pelton::chat
