#include "speech/live_transcript.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::speech {
namespace {

using What = LiveTranscript::Event::What;

constexpr size_t kSamplesPerMs = LiveTranscript::kRate / 1000;
constexpr size_t kPreviousMax = 224;  // tokens: no prompt takes more
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string without_blanks_before(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text;
}

}  // namespace

size_t quiet_cut(std::span<const float> samples) {
  constexpr size_t kLast = 5 * LiveTranscript::kRate;
  constexpr size_t kQuiet = LiveTranscript::kRate / 5;
  constexpr size_t kStep = SpeechDetector::kFrame;
  CHECK(samples.size() >= LiveTranscript::kWindow);
  size_t best = 0;
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t at = LiveTranscript::kWindow - kLast; at + kQuiet <= LiveTranscript::kWindow;
       at += kStep) {
    double sum = 0.0;
    for (const float sample : samples.subspan(at, kQuiet)) sum += double{sample} * sample;
    if (sum > lowest) continue;
    lowest = sum;
    best = at;
  }
  return best + kQuiet / 2;
}

LiveTranscript::LiveTranscript(Options options, TextOf text_of) : text_of_(std::move(text_of)) {
  set_options(std::move(options));
}

void LiveTranscript::set_options(Options options) {
  options_ = std::move(options);
  const auto& wanted = options_.detector;
  if (detector_ && wanted && detector_->options() == *wanted) return;
  if (!wanted && detector_ && is_open()) append(items_.back(), rest_);
  if (!wanted || !detector_) rest_.clear();
  padding_.clear();
  detector_.reset();
  if (wanted) detector_.emplace(*wanted, is_open());
}

size_t LiveTranscript::buffered() const {
  size_t count = padding_.size() + rest_.size();
  for (const Item& item : items_) count += item.samples.size();
  return count;
}

LiveTranscript::Item& LiveTranscript::open_item() {
  if (is_open()) return items_.back();
  Item& item = items_.emplace_back();
  item.number = items_begun_++;
  return item;
}

void LiveTranscript::append(Item& item, std::span<const float> samples) {
  item.samples.insert(item.samples.end(), samples.begin(), samples.end());
  item.sample_count += samples.size();
}

Result<LiveTranscript::Events> LiveTranscript::push(std::span<const float> samples) {
  if (samples.size() > kBufferedMax) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{:.1f} s of sound in one message, which are never taken: at most {} s "
                    "are kept, so that shorter ones are to be sent",
                    static_cast<double>(samples.size()) / kRate, kBufferedMax / kRate),
        "audio"};
  }
  if (buffered() + samples.size() > kBufferedMax) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{:.1f} s of sound wait to be heard, and at most {} s are kept",
                             static_cast<double>(buffered()) / kRate, kBufferedMax / kRate),
                 "audio"};
  }
  if (is_open() && items_.back().sample_count + samples.size() > kItemMax) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{} s without a commit, which is the most", kItemMax / kRate),
                 "audio"};
  }
  Events events;
  if (!detector_) {
    if (samples.empty()) return events;
    append(open_item(), samples);
    taken_ += samples.size();
    return events;
  }
  rest_.insert(rest_.end(), samples.begin(), samples.end());
  size_t at = 0;
  for (; at + SpeechDetector::kFrame <= rest_.size(); at += SpeechDetector::kFrame) {
    push_frame(std::span(rest_).subspan(at, SpeechDetector::kFrame), events);
  }
  rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(at));
  return events;
}

void LiveTranscript::push_frame(std::span<const float> frame, Events& events) {
  const SpeechDetector::Change change = detector_->push(frame);
  taken_ += frame.size();
  if (is_open()) {
    append(items_.back(), frame);
  } else {
    padding_.insert(padding_.end(), frame.begin(), frame.end());
    const size_t most = static_cast<size_t>(options_.detector->prefix_padding_ms) * kSamplesPerMs +
                        SpeechDetector::kLoudFrames * SpeechDetector::kFrame;
    if (padding_.size() > most) {
      padding_.erase(padding_.begin(),
                     padding_.begin() + static_cast<std::ptrdiff_t>(padding_.size() - most));
    }
  }
  if (change == SpeechDetector::Change::kBegins && !is_open()) {
    Item& item = open_item();
    append(item, padding_);
    const auto ms = static_cast<int64_t>((taken_ - padding_.size()) / kSamplesPerMs);
    padding_.clear();
    events.push_back({.what = What::kBegins, .item = item.number, .ms = ms});
  }
  if (change == SpeechDetector::Change::kEnds && is_open()) {
    events.push_back({.what = What::kEnds,
                      .item = items_.back().number,
                      .ms = static_cast<int64_t>(taken_ / kSamplesPerMs)});
    commit_open(events);
  }
}

void LiveTranscript::commit_open(Events& events) {
  items_.back().is_committed = true;
  events.push_back({.what = What::kCommitted, .item = items_.back().number});
}

Result<LiveTranscript::Events> LiveTranscript::commit() {
  if (is_open()) append(items_.back(), std::exchange(rest_, {}));
  const size_t count = is_open() ? items_.back().sample_count : 0;
  if (count < kItemMin) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the buffer has {} ms of sound, and a commit needs {}",
                             count / kSamplesPerMs, kItemMin / kSamplesPerMs),
                 ""};
  }
  if (items_.size() > kItemsMax) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{} items wait for their text, which is the most", kItemsMax), ""};
  }
  Events events;
  if (detector_) detector_->reset();
  commit_open(events);
  return events;
}

void LiveTranscript::clear() {
  if (is_open()) items_.pop_back();
  padding_.clear();
  rest_.clear();
  if (detector_) detector_->reset();
}

std::optional<LiveWindow> LiveTranscript::next_window() {
  if (pass_ || items_.empty()) return std::nullopt;
  const Item& item = items_.front();
  Pass pass{.item = item.number, .sample_count = item.samples.size()};
  if (item.samples.size() > kWindow) {
    pass.sample_count = quiet_cut(item.samples);
    pass.is_last = true;
  } else if (item.is_committed) {
    pass.is_last = true;
  } else if (item.samples.size() < item.passed + kPassStep) {
    return std::nullopt;
  }
  pass_ = pass;
  return LiveWindow{
      .samples = {item.samples.begin(),
                  item.samples.begin() + static_cast<std::ptrdiff_t>(pass.sample_count)},
      .language = item.language.empty() ? options_.language : item.language,
      .prompt = options_.prompt,
      .previous = item.previous,
      .begun = item.begun,
      .is_last = pass.is_last};
}

LiveTranscript::Events LiveTranscript::heard(Result<LiveText> text) {
  CHECK(pass_.has_value(), "no window is being heard");
  const Pass pass = *std::exchange(pass_, std::nullopt);
  Events events;
  // The front one, unless it has been cleared meanwhile.
  if (items_.empty() || items_.front().number != pass.item) return events;
  Item& item = items_.front();
  if (!text.ok()) {
    events.push_back({.what = What::kFailed, .item = item.number, .error = text.error()});
    if (!item.is_committed && detector_) detector_->reset();
    items_.pop_front();
    return events;
  }
  item.passed = pass.sample_count;
  if (pass.is_last) {
    item.begun = std::move(text->tokens);
  } else if (!text->is_repetitive) {
    std::vector<TokenId> both = agreed(item.last, text->tokens);
    if (both.size() > item.begun.size()) item.begun = std::move(both);
    item.last = std::move(text->tokens);
  }
  if (!item.begun.empty() && item.language.empty()) item.language = text->language;
  emit(item, events);
  if (pass.is_last) end_window(item, pass.sample_count);
  if (pass.is_last && item.is_committed && item.samples.empty()) {
    events.push_back({.what = What::kCompleted,
                      .item = item.number,
                      .text = item.emitted,
                      .seconds = static_cast<double>(item.sample_count) / kRate});
    items_.pop_front();
  }
  return events;
}

void LiveTranscript::end_window(Item& item, size_t sample_count) {
  item.before += text_of_(item.begun);
  item.previous.insert(item.previous.end(), item.begun.begin(), item.begun.end());
  if (item.previous.size() > kPreviousMax) {
    item.previous.erase(item.previous.begin(), item.previous.end() - kPreviousMax);
  }
  item.begun.clear();
  item.last.clear();
  item.passed = 0;
  item.samples.erase(item.samples.begin(),
                     item.samples.begin() + static_cast<std::ptrdiff_t>(sample_count));
}

std::vector<TokenId> LiveTranscript::agreed(std::span<const TokenId> one,
                                            std::span<const TokenId> other) const {
  const auto apart = std::ranges::mismatch(one, other);
  std::vector<TokenId> both(one.begin(), apart.in1);
  // A token may end within a character, whose other bytes the next one has.
  while (!both.empty() && text_of_(both).ends_with(kReplacement)) both.pop_back();
  return both;
}

void LiveTranscript::emit(Item& item, Events& events) const {
  std::string all = without_blanks_before(item.before + text_of_(item.begun));
  if (all.size() <= item.emitted.size()) return;
  events.push_back(
      {.what = What::kDelta, .item = item.number, .text = all.substr(item.emitted.size())});
  item.emitted = std::move(all);
}

}  // namespace pelton::speech
