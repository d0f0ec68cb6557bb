#include "chat/chatml_call.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "chat/json_extent.h"
#include "chat/spaced_json.h"

namespace pelton::chat {
namespace {

// Goes over an object's members without building values, as far as the text goes.
class MemberScan {
 public:
  struct Member {
    std::string_view key;    // with its quotes
    std::string_view value;  // may be cut off
  };

  explicit MemberScan(std::string_view text) : text_(text) {
    skip_space();
    if (!take('{')) at_ = text_.size();
  }

  std::optional<Member> next() {
    skip_space();
    const size_t key_begin = at_;
    if (!skip_string()) return std::nullopt;
    const std::string_view key = text_.substr(key_begin, at_ - key_begin);
    skip_space();
    if (!take(':')) return std::nullopt;
    skip_space();
    const size_t begin = at_;
    skip_value();
    std::string_view value = text_.substr(begin, at_ - begin);
    value = value.substr(0, value.find_last_not_of(kJsonSpace) + 1);
    take(',');
    return Member{key, value};
  }

 private:
  void skip_space() { at_ = skip_json_space(text_, at_); }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // False: there is none, or it has no end.
  bool skip_string() {
    if (!take('"')) return false;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    return take('"');
  }
  // Up to the comma or the brace behind it.
  void skip_value() {
    for (int depth = 0; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == '"') {
        if (!skip_string()) return;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (depth == 0 && (c == ',' || c == '}')) return;
      if (c == '}' || c == ']') --depth;
      ++at_;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

struct Members {
  std::optional<std::string> name;
  std::string_view arguments;
  std::string_view behind;  // the last value
  // There are others, or one twice: as a call, some of what was said would be lost.
  bool has_more = false;
};

// What a call's object may hold; its own id and type are not shown.
bool is_member_of_call(const Json& key) {
  constexpr const char* kKeys[] = {"name", "function", "arguments", "parameters", "id", "type"};
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const char* known) { return key == Json(known); });
}

Members members_of(std::string_view text) {
  Members members;
  MemberScan scan(text);
  members.behind = text;
  while (const std::optional<MemberScan::Member> member = scan.next()) {
    const Result<Json> key = Json::parse(member->key);
    if (!key.ok()) break;
    const auto end = member->value.data() + member->value.size() - text.data();
    members.behind = text.substr(static_cast<size_t>(end));
    if (!is_member_of_call(*key)) members.has_more = true;
    if (*key == Json("arguments") || *key == Json("parameters")) {
      members.has_more = members.has_more || !members.arguments.empty();
      members.arguments = member->value;
    }
    if (!(*key == Json("name")) && !(*key == Json("function"))) continue;
    const Result<Json> name = Json::parse(member->value);
    members.name.reset();
    if (name.ok() && name->is_string()) members.name = name->as_string();
  }
  return members;
}

// An object as it is; a string that holds one as that; anything else as JSON of ours.
std::string arguments_of(std::string_view text) {
  const Result<Json> value = Json::parse(text);
  if (!value.ok() || value->is_null()) return "{}";
  if (value->is_object()) return std::string(text);
  if (value->is_string()) {
    const Result<Json> held = Json::parse(value->as_string());
    if (held.ok() && held->is_object()) return value->as_string();
  }
  std::string out;
  append_spaced_json(out, *value);
  return out;
}

}  // namespace

std::optional<ChatMlCall> read_call(std::string_view text) {
  const Result<Json> call = Json::parse(text);
  if (!call.ok() || !call->is_object()) return std::nullopt;
  Members members = members_of(text);
  if (!members.name || members.name->empty() || members.has_more) return std::nullopt;
  return ChatMlCall{std::move(*members.name),
                    members.arguments.empty() ? "{}" : arguments_of(members.arguments)};
}

std::optional<ChatMlCall> read_cut_call(std::string_view text) {
  Members members = members_of(text);
  if (!members.name || members.name->empty() || members.has_more) return std::nullopt;
  // What else was begun behind the last value would be lost.
  if (members.behind.find_first_not_of(" \t\r\n,}") != std::string_view::npos) return std::nullopt;
  return ChatMlCall{std::move(*members.name), std::string(members.arguments)};
}

}  // namespace pelton::chat
