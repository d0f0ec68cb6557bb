#include "server/stop_filter.h"

#include <algorithm>
#include <utility>

namespace pelton::server {

StopFilter::StopFilter(std::vector<std::string> stops, StopText stop_text) : stop_text_(stop_text) {
  for (std::string& stop : stops) {
    Needle needle;
    needle.fallback.resize(stop.size(), 0);
    for (size_t i = 1, border = 0; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) border = needle.fallback[border - 1];
      if (stop[i] == stop[border]) ++border;
      needle.fallback[i] = border;
    }
    needle.text = std::move(stop);
    needles_.push_back(std::move(needle));
  }
}

bool StopFilter::advance(char byte) {
  bool ended = false;
  for (Needle& needle : needles_) {
    while (needle.matched > 0 && needle.text[needle.matched] != byte) {
      needle.matched = needle.fallback[needle.matched - 1];
    }
    if (needle.text[needle.matched] == byte) ++needle.matched;
    if (needle.matched == needle.text.size()) ended = true;
  }
  return ended;
}

void StopFilter::push(std::string_view text, std::string& out) {
  if (stopped_) return;
  if (needles_.empty()) {
    out += text;
    return;
  }
  for (const char byte : text) {
    held_ += byte;
    if (advance(byte)) {
      // Of several that end here the longest began first.
      for (const Needle& needle : needles_) {
        const bool whole = needle.matched == needle.text.size();
        if (whole && needle.matched > matched_.size()) matched_ = needle.text;
      }
      if (stop_text_ == StopText::kCut) held_.resize(held_.size() - matched_.size());
      out += held_;
      held_.clear();
      stopped_ = true;
      return;
    }
  }
  size_t open = 0;
  for (const Needle& needle : needles_) open = std::max(open, needle.matched);
  out.append(held_, 0, held_.size() - open);
  held_.erase(0, held_.size() - open);
}

void StopFilter::finish(std::string& out) {
  if (stopped_) return;
  out += held_;
  held_.clear();
}

}  // namespace pelton::server
