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

std::string PasteReader::restored(std::string line) {
  for (const Kept& kept : kept_) {
    const size_t at = line.find(kept.placeholder);
    if (at != std::string::npos) line.replace(at, kept.placeholder.size(), kept.text);
  }
  forget();
  return line;
}

void PasteReader::forget() {
  kept_.clear();
}

}  // namespace pelton::cli
