#include "chat/harmony_header.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/utf8.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";
constexpr std::string_view kConstrainMarker = "<|constrain|>";
constexpr std::string_view kChannelMarker = "<|channel|>";
constexpr std::array<std::string_view, 3> kChannels = {kAnalysis, kCommentary, kFinal};

bool is_space(char c) {
  return kSpaces.find(c) != std::string_view::npos;
}

std::string_view trim_front(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

// Takes the first word off `text`, spaces before it included; empty if there is none.
std::string_view take_word(std::string_view& text) {
  text = trim_front(text);
  const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(word.size());
  return word;
}

bool is_channel(std::string_view word) {
  return std::find(kChannels.begin(), kChannels.end(), word) != kChannels.end();
}

// The channel's name that stands last in `word`: "--commentary", "assistantanalysis".
std::string_view channel_within(std::string_view word) {
  std::string_view found;
  size_t found_end = 0;
  for (const std::string_view channel : kChannels) {
    const size_t at = word.rfind(channel);
    if (at == std::string_view::npos || at + channel.size() <= found_end) continue;
    found = channel;
    found_end = at + channel.size();
  }
  return found;
}

bool looks_like_tool(std::string_view word) {
  return word.starts_with("functions.") || word.starts_with("browser.") || word == "python" ||
         word == "browser";
}

bool addresses_no_tool(std::string_view recipient) {
  return recipient == "assistant" || recipient == "all" || recipient == "user";
}

// A name as it may be shown: without quotes around it, without what looks like a control token.
std::string clean_name(std::string_view name) {
  name = name.substr(0, name.find("<|"));
  constexpr std::string_view kQuotes = "\"'`";
  const size_t first = name.find_first_not_of(kQuotes);
  if (first == std::string_view::npos) return "";
  name = name.substr(first, name.find_last_not_of(kQuotes) - first + 1);
  return base::replace_invalid_utf8(name);
}

// A segment of ordinary text and the marker it follows.
struct Segment {
  enum class Marker : uint8_t { kNone, kChannel, kConstrain };
  Marker marker = Marker::kNone;
  std::string text;
};

std::vector<Segment> split_segments(std::span<const TokenId> ids,
                                    const tokenizer::Tokenizer& tokenizer,
                                    const HarmonyTokens& tokens) {
  std::vector<Segment> segments(1);
  for (const TokenId id : ids) {
    if (id == tokens.channel) {
      segments.push_back({Segment::Marker::kChannel, {}});
    } else if (id == tokens.constrain) {
      segments.push_back({Segment::Marker::kConstrain, {}});
    } else if (!tokenizer.is_special(id)) {
      segments.back().text += tokenizer.bytes(id);
    }
  }
  return segments;
}

// Reads a closed header word by word. Order of words hardly matters, so that both positions of the
// recipient, and the broken mixtures of them, come out the same.
class TolerantReader {
 public:
  explicit TolerantReader(std::optional<Role> role) : role_known_(role.has_value()) {
    if (role) header_.role = *role;
  }

  MessageHeader read(const std::vector<Segment>& segments) {
    for (const Segment& segment : segments) {
      std::string_view text = segment.text;
      if (segment.marker == Segment::Marker::kChannel) read_channel(text);
      if (segment.marker == Segment::Marker::kConstrain) read_constrained_type(text);
      if (segment.marker == Segment::Marker::kNone && !role_known_) read_author(text);
      for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
        read_word(word);
      }
    }
    settle();
    return std::move(header_);
  }

 private:
  void read_channel(std::string_view& text) {
    std::string_view rest = text;
    const std::string_view word = take_word(rest);
    if (word.empty() || word.starts_with("to=")) return;
    text = rest;
    const size_t to = word.find("to=");
    if (to != std::string_view::npos && is_channel(word.substr(0, to))) {
      channel_ = word.substr(0, to);
      return read_word(word.substr(to));
    }
    const std::string_view known = channel_within(word);
    if (!known.empty()) {
      channel_ = known;
    } else if (!is_channel(channel_)) {
      channel_ = clean_name(word);
    }
  }

  void read_constrained_type(std::string_view& text) {
    std::string_view rest = text;
    const std::string_view word = take_word(rest);
    if (word.empty() || word.starts_with("to=")) return;
    text = rest;
    const std::string type = clean_name(word);
    if (!type.empty()) header_.content_type = std::string(kConstrainMarker) + type;
  }

  void read_author(std::string_view& text) {
    std::string_view rest = text;
    const std::string_view word = take_word(rest);
    if (word.empty() || word.starts_with("to=")) return;
    text = rest;
    const size_t colon = word.find(':');
    if (const std::optional<Role> role = role_from_name(word.substr(0, colon))) {
      header_.role = *role;
      if (colon != std::string_view::npos) header_.name = clean_name(word.substr(colon + 1));
      return;
    }
    const std::string_view assistant = role_name(Role::kAssistant);
    if (looks_like_tool(word)) {
      header_.role = Role::kTool;
      header_.name = clean_name(word);
    } else if (word.find(assistant) != std::string_view::npos) {
      read_word(word.substr(word.rfind(assistant) + assistant.size()));
    } else if (is_channel(word)) {
      read_word(word);
    } else {
      unknown_author_ = clean_name(word);
    }
  }

  void read_word(std::string_view word) {
    if (word.starts_with("to=")) {
      expect_recipient_ = true;
      word.remove_prefix(3);
    }
    if (word.empty()) return;
    if (expect_recipient_) return read_recipient(word);
    const size_t to = word.find("to=");
    if (to != std::string_view::npos &&
        (role_from_name(word.substr(0, to)) || is_channel(word.substr(0, to)))) {
      read_word(word.substr(0, to));
      return read_word(word.substr(to));
    }
    if (looks_like_tool(word)) return read_recipient(word);
    if (role_from_name(word)) return;
    if (const std::string_view channel = channel_within(word); !channel.empty()) {
      word_channel_ = channel;
    } else if (word_type_.empty()) {
      word_type_ = clean_name(word);
    }
  }

  void read_recipient(std::string_view word) {
    expect_recipient_ = false;
    std::string name = clean_name(word);
    if (name.empty()) return;
    // A stray "to=assistant" must not hide a tool's name.
    if (header_.recipient && addresses_no_tool(name)) return;
    header_.recipient = std::move(name);
  }

  void settle() {
    if (channel_.empty()) channel_ = word_channel_;
    if (!channel_.empty()) header_.channel = channel_;
    if (!header_.content_type && !word_type_.empty()) header_.content_type = word_type_;
    // Who is not known and yet speaks to the assistant is a tool; any other stranger is a
    // misspelt assistant.
    if (!unknown_author_.empty() && header_.recipient == role_name(Role::kAssistant)) {
      header_.role = Role::kTool;
      header_.name = unknown_author_;
    }
  }

  MessageHeader header_;
  const bool role_known_;
  bool expect_recipient_ = false;
  std::string channel_;       // after <|channel|>: the last known one, else the last
  std::string word_channel_;  // a channel's name that lacked its marker
  std::string word_type_;
  std::string unknown_author_;
};

// The Harmony library's steps (harmony.md section 9). Empty where it reports an error.
std::optional<MessageHeader> read_as_library(const HeaderTokens& tokens,
                                             const tokenizer::Tokenizer& tokenizer) {
  MessageHeader header;
  std::string text;
  for (const TokenId id : tokens.ids) text += tokenizer.bytes(id);
  text = base::replace_invalid_utf8(text);

  if (const size_t at = text.find(kChannelMarker); at != std::string::npos) {
    const size_t begin = at + kChannelMarker.size();
    size_t end = begin;
    while (end < text.size() && !is_space(text[end]) && text[end] != '<') ++end;
    if (end == begin) return std::nullopt;
    header.channel = text.substr(begin, end - begin);
    text.erase(at, end - at);
  }
  for (size_t at = 0; (at = text.find(kConstrainMarker, at)) != std::string::npos;
       at += kConstrainMarker.size() + 1) {
    text.insert(at, 1, ' ');
  }
  std::vector<std::string_view> words;
  std::string_view left = text;
  for (std::string_view word = take_word(left); !word.empty(); word = take_word(left)) {
    words.push_back(word);
  }

  if (tokens.role) {
    header.role = *tokens.role;
  } else {
    if (words.empty()) return std::nullopt;
    const std::optional<Role> known = role_from_name(words.front());
    if (!known && words.size() == 1) return std::nullopt;
    header.role = known.value_or(Role::kTool);
    if (!known) header.name = std::string(words.front());
    if (!known) words.erase(words.begin());
  }
  if (!words.empty() && words.front() == role_name(header.role)) words.erase(words.begin());

  const auto take_recipient = [&](std::string_view word) {
    header.recipient = std::string(word.starts_with("to=") ? word.substr(3) : word);
    words.pop_back();
  };
  if (!words.empty()) {
    const std::string_view last = words.back();
    if (last.starts_with("to=") || words.size() == 1) {
      take_recipient(last);
    } else {
      header.content_type = std::string(last);
      words.pop_back();
      take_recipient(words.back());
    }
  }
  if (!words.empty()) return std::nullopt;
  return header;
}

// Takes what belongs to a header off the front of each segment; the rest is text.
class UnclosedReader {
 public:
  explicit UnclosedReader(std::optional<Role> role) : role_known_(role.has_value()) {
    if (role) out_.header.role = *role;
  }

  UnclosedHeader read(const std::vector<Segment>& segments) {
    for (size_t i = 0; i < segments.size(); ++i) {
      std::string_view text = segments[i].text;
      switch (segments[i].marker) {
        case Segment::Marker::kNone:
          if (!role_known_) take_author(text);
          break;
        case Segment::Marker::kChannel:
          take_channel(text, i + 1 == segments.size());
          break;
        case Segment::Marker::kConstrain:
          take_constrained_type(text);
          break;
      }
      if (out_.text.empty()) take_recipient(text);
      out_.text += text;
    }
    return std::move(out_);
  }

 private:
  void take_author(std::string_view& text) {
    std::string_view rest = text;
    const std::optional<Role> role = role_from_name(take_word(rest));
    if (!role) return;
    out_.header.role = *role;
    text = trim_front(rest);
  }

  void take_channel(std::string_view& text, bool is_last) {
    std::string_view rest = text;
    const std::string_view word = take_word(rest);
    if (word.empty()) return;
    for (const std::string_view channel : kChannels) {
      // Cut off within the channel's name ("comment|ary" are two tokens): a header all the same.
      const bool cut_off = is_last && rest.empty() && channel.starts_with(word);
      if (!word.ends_with(channel) && !cut_off) continue;
      out_.header.channel = std::string(channel);
      text = trim_front(rest);
      return;
    }
  }

  void take_constrained_type(std::string_view& text) {
    size_t end = 0;
    const auto belongs = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    };
    while (end < text.size() && belongs(text[end])) ++end;
    if (end > 0) {
      out_.header.content_type = std::string(kConstrainMarker) + std::string(text.substr(0, end));
    }
    text = trim_front(text.substr(end));
  }

  void take_recipient(std::string_view& text) {
    std::string_view rest = text;
    std::string_view word = take_word(rest);
    if (!word.starts_with("to=")) return;
    std::string name = clean_name(word.substr(3));
    if (!name.empty()) out_.header.recipient = std::move(name);
    text = trim_front(rest);
    rest = text;
    word = take_word(rest);
    if (word != "json" && word != "code") return;
    out_.header.content_type = std::string(word);
    text = trim_front(rest);
  }

  UnclosedHeader out_;
  const bool role_known_;
};

}  // namespace

MessageHeader parse_header(const HeaderTokens& header, HeaderDialect dialect,
                           const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens) {
  if (dialect == HeaderDialect::kLibrary) {
    if (std::optional<MessageHeader> read = read_as_library(header, tokenizer)) {
      return *std::move(read);
    }
  }
  return TolerantReader(header.role).read(split_segments(header.ids, tokenizer, tokens));
}

UnclosedHeader split_unclosed_header(const HeaderTokens& header,
                                     const tokenizer::Tokenizer& tokenizer,
                                     const HarmonyTokens& tokens) {
  return UnclosedReader(header.role).read(split_segments(header.ids, tokenizer, tokens));
}

}  // namespace pelton::chat
