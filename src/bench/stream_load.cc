#include "bench/stream_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookTime{50};
constexpr std::chrono::milliseconds kQuietTime{20'000};
constexpr size_t kLineMax = size_t{64} << 10;

// Common English words: a tokenizer takes as long as for a text.
std::string words(uint64_t seed, size_t bytes) {
  constexpr std::array<std::string_view, 96> kWords = {
      "the",   "of",    "and",   "to",    "in",   "is",    "you",   "that",   "it",    "he",
      "was",   "for",   "on",    "are",   "as",   "with",  "his",   "they",   "at",    "be",
      "this",  "have",  "from",  "or",    "one",  "had",   "by",    "word",   "but",   "not",
      "what",  "all",   "were",  "we",    "when", "your",  "can",   "said",   "there", "use",
      "an",    "each",  "which", "she",   "do",   "how",   "their", "if",     "will",  "up",
      "other", "about", "out",   "many",  "then", "them",  "these", "so",     "some",  "her",
      "would", "make",  "like",  "him",   "into", "time",  "has",   "look",   "two",   "more",
      "write", "go",    "see",   "river", "no",   "way",   "could", "people", "my",    "than",
      "first", "water", "been",  "call",  "who",  "wheel", "its",   "now",    "find",  "long",
      "down",  "day",   "did",   "get",   "come", "miller"};
  std::string text;
  text.reserve(bytes + 12);
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    text += kWords[base::random_bits(seed, i) % kWords.size()];
    text += ' ';
  }
  text.resize(bytes);
  return text;
}

double ms_between(steady_clock::time_point from, steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

std::string StreamQuestion::body(uint64_t number) const {
  // The same for all: of a prefix that workers share, and that need not be made anew.
  thread_local std::string shared;
  thread_local size_t shared_bytes = 0;
  if (shared_bytes != prompt_bytes) {
    shared = words(1, prompt_bytes);
    shared_bytes = prompt_bytes;
  }
  return fmt::format(
      R"({{"max_tokens":{},"stream":{},"model":"{}","messages":[{{"role":"system","content":"{}{}"}},)"
      R"({{"role":"user","content":"question {}"}}]}})",
      tokens, streamed, model, distinct ? fmt::format("{} ", number) : std::string(), shared,
      number);
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const size_t at = std::min(values.size(), std::max<size_t>(rank, 1)) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

// One answer as it comes; its client's thread only.
struct StreamLoad::Flight {
  steady_clock::time_point sent;
  bool streamed = true;
  int tokens = 1;  // that it is to have

  std::optional<double> first_byte_ms;
  int status = 0;
  std::string line;  // has not ended yet
  int next = 0;      // the token that comes next
  int sink = -1;     // who said the last one
  steady_clock::time_point last;
  std::vector<double> move_gap_ms;
  bool done = false;
  bool broken = false;

  bool whole() const {
    return status == 200 && !broken && (streamed ? done && next == tokens : done);
  }

  void read(std::string_view bytes, steady_clock::time_point now) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const bool ends = end != std::string_view::npos;
      line.append(bytes.substr(0, end));
      bytes.remove_prefix(ends ? end + 1 : bytes.size());
      if (line.size() > kLineMax) broken = true;
      if (!ends) return;
      read_line(now);
      line.clear();
    }
  }

  void read_line(steady_clock::time_point now) {
    if (line == "data: [DONE]") {
      broken = broken || done;
      done = true;
      return;
    }
    constexpr std::string_view kText = "\"content\":\"";
    const size_t at = line.find(kText);
    if (at == std::string::npos) return;
    // "17.1 ": token 17, said by sink 1.
    int token = -1;
    int by = -1;
    const char* const end = line.data() + line.size();
    const auto [dot, error] = std::from_chars(line.data() + at + kText.size(), end, token);
    if (error == std::errc() && dot < end && *dot == '.') std::from_chars(dot + 1, end, by);
    if (token != next || by < 0 || done) broken = true;
    if (sink >= 0 && by != sink) move_gap_ms.push_back(ms_between(last, now));
    sink = by;
    last = now;
    ++next;
  }
};

void StreamLoad::start(const net::HttpCall& call, const StreamQuestion& question) {
  net::HttpCall mine = call;
  mine.method = "POST";
  mine.target = "/v1/chat/completions";
  mine.head_time_max = mine.quiet_time_max = kQuietTime;
  mine.headers.add("Content-Type", "application/json");
  const auto flight = std::make_shared<Flight>();
  flight->streamed = question.streamed;
  flight->tokens = question.tokens;
  {
    std::lock_guard lock(mutex_);
    ++running_;
    mine.body = question.body(number_++);
  }
  flight->sent = steady_clock::now();
  client_.start(
      std::move(mine),
      {.on_start = {},
       .on_head = [flight](int status, const net::HttpHeaders&) { flight->status = status; },
       .on_body =
           [this, flight](std::string_view bytes) {
             const auto now = steady_clock::now();
             if (!flight->first_byte_ms) {
               flight->first_byte_ms = ms_between(flight->sent, now);
               std::lock_guard lock(mutex_);
               ++begun_;
               changed_.notify_all();
             }
             if (flight->streamed) return flight->read(bytes, now);
             if (bytes.find("\"chat.completion\"") != std::string_view::npos) flight->done = true;
           },
       .on_done = [this, flight](const Result<void>& result) { landed(flight, result.ok()); }});
}

void StreamLoad::landed(const std::shared_ptr<Flight>& flight, bool ok) {
  std::function<void()> again;
  {
    std::lock_guard lock(mutex_);
    if (!flight->first_byte_ms) ++begun_;
    times_.tokens += flight->next;
    if (ok && flight->whole()) {
      ++times_.answered;
      times_.first_byte_ms.push_back(flight->first_byte_ms.value_or(0));
    } else {
      ++times_.failed;
    }
    for (const double gap : flight->move_gap_ms) times_.move_gap_ms.push_back(gap);
    again = again_;
  }
  if (again) again();
  std::lock_guard lock(mutex_);
  --running_;  // behind the next one's start, or a closed loop would seem to be over
  changed_.notify_all();
}

StreamTimes StreamLoad::wait_for_all() {
  std::unique_lock lock(mutex_);
  while (running_ > 0) changed_.wait_for(lock, kLookTime);
  times_.seconds = std::chrono::duration<double>(steady_clock::now() - began_).count();
  return std::exchange(times_, {});
}

StreamTimes StreamLoad::at_rate(const net::HttpCall& call, const StreamQuestion& question,
                                double per_second, std::chrono::duration<double> time) {
  began_ = steady_clock::now();
  const auto count = static_cast<int64_t>(std::max(time.count() * per_second, 1.0));
  for (int64_t i = 0; i < count && !stops_(); ++i) {
    const std::chrono::duration<double> due(static_cast<double>(i) / per_second);
    std::this_thread::sleep_until(began_ + std::chrono::duration_cast<steady_clock::duration>(due));
    start(call, question);
  }
  return wait_for_all();
}

StreamTimes StreamLoad::closed(const net::HttpCall& call, const StreamQuestion& question,
                               int concurrency, std::chrono::duration<double> time) {
  began_ = steady_clock::now();
  const auto end = began_ + std::chrono::duration_cast<steady_clock::duration>(time);
  {
    std::lock_guard lock(mutex_);
    again_ = [this, call, question, end] {
      if (steady_clock::now() < end && !stops_()) start(call, question);
    };
  }
  for (int i = 0; i < concurrency; ++i) start(call, question);
  StreamTimes times = wait_for_all();
  std::lock_guard lock(mutex_);
  again_ = nullptr;
  return times;
}

StreamTimes StreamLoad::together(const net::HttpCall& call, const StreamQuestion& question,
                                 int count, const std::function<void()>& amid) {
  began_ = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    begun_ = 0;
  }
  for (int i = 0; i < count && !stops_(); ++i) start(call, question);
  if (amid) {
    {
      std::unique_lock lock(mutex_);
      while (begun_ < count && running_ > 0 && !stops_()) changed_.wait_for(lock, kLookTime);
    }
    amid();
  }
  return wait_for_all();
}

}  // namespace pelton::bench
