#include "server/stop_filter.h"

#include <algorithm>
#include <utility>

namespace pelton::server {

StopStrings stop_strings(const api::GenerationFields& fields) {
  return {.strings = fields.stop,
          .itself = fields.include_stop ? StopStrings::Itself::kKept : StopStrings::Itself::kCut,
          .min_tokens = fields.min_tokens};
}

StopFilter::StopFilter(const StopStrings& stops)
    : itself_(stops.itself), min_tokens_(stops.min_tokens) {
  for (const std::string& stop : stops.strings) {
    Needle needle;
    needle.fallback.resize(stop.size(), 0);
    for (size_t i = 1, border = 0; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) border = needle.fallback[border - 1];
      if (stop[i] == stop[border]) ++border;
      needle.fallback[i] = border;
    }
    needle.text = stop;
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

void StopFilter::push(std::string_view text, int64_t sampled, std::string& out) {
  if (stopped_) return;
  const bool too_early = min_tokens_ > 0 && sampled <= min_tokens_;
  if (needles_.empty() || too_early) {
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
      if (itself_ == StopStrings::Itself::kCut) held_.resize(held_.size() - matched_.size());
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
