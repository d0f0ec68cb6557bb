#include "cli/paste_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "base/utf8.h"

namespace pelton::cli {
namespace {

constexpr std::string_view kBegin = "\x1b[200~";
constexpr std::string_view kEnd = "\x1b[201~";

// Lines end in "\n", and nothing in it is a key.
std::string as_text(const std::string& pasted) {
  std::string text;
  for (size_t i = 0; i < pasted.size(); ++i) {
    const bool crlf = pasted[i] == '\r' && i + 1 < pasted.size() && pasted[i + 1] == '\n';
    if (!crlf) text += pasted[i] == '\r' ? '\n' : pasted[i];
  }
  text = base::without_controls(base::replace_invalid_utf8(text));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::wstring wide(const std::string& ascii) {
  return {ascii.begin(), ascii.end()};
}

}  // namespace

void PasteReader::push(char byte, std::string& typed) {
  const std::string_view wanted = inside_ ? kEnd : kBegin;
  mark_ += byte;
  if (mark_ == wanted) {
    mark_.clear();
    if (inside_) end_paste(typed);
    inside_ = !inside_;
    return;
  }
  if (wanted.starts_with(mark_)) return;
  // The last byte may begin a mark of its own.
  const size_t kept = mark_.back() == '\x1b' ? 1 : 0;
  const std::string_view over = std::string_view(mark_).substr(0, mark_.size() - kept);
  if (!inside_) {
    typed += over;
  } else if (paste_.size() + over.size() <= kBytesMax) {
    paste_ += over;
  } else {
    too_long_ = true;
  }
  mark_ = kept > 0 ? "\x1b" : "";
}

void PasteReader::flush(std::string& typed) {
  if (inside_) return;
  typed += mark_;
  mark_.clear();
}

void PasteReader::end_paste(std::string& typed) {
  const std::string text = as_text(paste_);
  paste_.clear();
  if (std::exchange(too_long_, false)) {
    typed += fmt::format("[a paste of over {} bytes was left out: use /file]", kBytesMax);
    return;
  }
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  if (lines == 1) {
    std::string line = text;
    std::replace(line.begin(), line.end(), '\t', ' ');  // a tab is a key
    typed += line;
    return;
  }
  kept_.push_back({fmt::format("[pasted text {}: {} lines]", kept_.size() + 1, lines), text});
  typed += kept_.back().placeholder;
}

size_t PasteReader::count_in(const std::wstring& text) const {
  size_t count = 0;
  for (const Kept& kept : kept_) {
    const std::wstring placeholder = wide(kept.placeholder);
    for (size_t at = 0; (at = text.find(placeholder, at)) != std::wstring::npos; ++at) ++count;
  }
  return count;
}

// Of placeholders that the last key has changed.
//
//   before  say [pasted text 1: 3 lines] now
//   line    say [pasted text 1: 3 lines now      one character deleted, at `begin`
//   then    say  now                             what was left of it goes too
void PasteReader::remove_remains(Edited& line) const {
  const std::wstring& before = seen_.text;
  std::wstring& now = line.text;
  if (now.size() > before.size() || count_in(now) >= count_in(before)) return;
  const auto begin = static_cast<size_t>(
      std::mismatch(now.begin(), now.end(), before.begin()).first - now.begin());
  size_t behind = 0;  // characters that are the same at the end
  while (begin + behind < now.size() &&
         now[now.size() - 1 - behind] == before[before.size() - 1 - behind]) {
    ++behind;
  }
  if (now.size() == before.size() && begin + behind > 0) {  // letters were swapped, or made capital
    line = seen_;
    return;
  }
  if (begin + behind != now.size()) return;  // another line, from the history
  const size_t end = before.size() - behind;
  size_t left = 0;
  size_t right = 0;
  for (const Kept& kept : kept_) {
    const std::wstring placeholder = wide(kept.placeholder);
    for (size_t at = 0; (at = before.find(placeholder, at)) != std::wstring::npos; ++at) {
      const size_t over = at + placeholder.size();
      if (over <= begin || at >= end) continue;
      left = std::max(left, begin - std::min(at, begin));
      right = std::max(right, over - std::min(end, over));
    }
  }
  now.erase(begin - left, left + right);
  line.cursor = begin - left;
}

// To the side towards which it went.
void PasteReader::move_out(Edited& line) const {
  for (const Kept& kept : kept_) {
    const std::wstring placeholder = wide(kept.placeholder);
    for (size_t at = 0; (at = line.text.find(placeholder, at)) != std::wstring::npos; ++at) {
      const size_t over = at + placeholder.size();
      if (line.cursor <= at || line.cursor >= over) continue;
      line.cursor = seen_.cursor <= at ? over : at;
    }
  }
}

std::optional<PasteReader::Edited> PasteReader::mended(const Edited& now) {
  Edited line = now;
  // While somebody searches the history libedit writes what is sought below the line.
  const bool is_searching = now.text.find(L'\n') != std::wstring::npos;
  if (!is_searching && !kept_.empty()) {
    remove_remains(line);
    move_out(line);
  }
  seen_ = line;
  if (line.text == now.text && line.cursor == now.cursor) return std::nullopt;
  return line;
}

std::string PasteReader::restored(std::string line) {
  std::string whole;
  for (size_t at = 0; at < line.size();) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return std::string_view(line).substr(at).starts_with(kept.placeholder);
    });
    whole += found == kept_.end() ? line.substr(at, 1) : found->text;
    at += found == kept_.end() ? 1 : found->placeholder.size();
  }
  forget();
  return whole;
}

void PasteReader::forget() {
  kept_.clear();
  seen_ = {};
}

}  // namespace pelton::cli
