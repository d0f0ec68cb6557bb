#include "bench/load_generator.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "bench/generator_limit.h"
#include "report/goodput.h"
#include "report/percentile.h"

namespace pelton::bench {
namespace {

// How often run() looks whether it should stop.
constexpr int64_t kLookNs = 50'000'000;

// Thousands that connect at once overflow a listener's queue, and try again after 1, 3, 7 s.
constexpr std::chrono::seconds kConnectTimeMax{60};

// The body of an answer, however little of it is text.
constexpr size_t kBodyBytesMax = size_t{256} << 20;

int64_t to_ns(double seconds) {
  return static_cast<int64_t>(std::min(seconds, 1e9) * 1e9);
}

}  // namespace

struct LoadGenerator::Flight {
  explicit Flight(const AnswerLimits& limits) : reader(record, limits) {}

  Due due;
  int64_t ready_ns = 0;
  report::RequestRecord record;
  AnswerReader reader;
  ThreadUse* thread = nullptr;
  int64_t held_bytes = 0;
  std::atomic<net::HttpClient::CallId> call{0};  // 0: not yet given to the client
  std::atomic<bool> silent{false};               // it is given up for that
};

LoadGenerator::LoadGenerator(const Target& target, QuestionOptions question, LoadOptions options,
                             const base::Clock& clock)
    : target_(target),
      question_(std::move(question)),
      options_(std::move(options)),
      clock_(clock) {}

LoadGenerator::~LoadGenerator() = default;

size_t LoadGenerator::record_index(size_t conversation, int turn) const {
  return first_record_[conversation] + static_cast<size_t>(turn);
}

LoadOutcome LoadGenerator::run(const std::vector<workload::Conversation>& conversations,
                               const std::vector<double>& at_s, const std::atomic<bool>& stop) {
  CHECK(client_ == nullptr, "a load generator runs once");
  CHECK(conversations.size() == at_s.size());
  conversations_ = &conversations;
  size_t records = 0;
  for (const workload::Conversation& one : conversations) {
    CHECK(!one.turns.empty());
    first_record_.push_back(records);
    records += one.turns.size();
  }
  {
    std::lock_guard lock(mutex_);
    records_.resize(records);
    landed_.resize(records, false);
    said_.resize(conversations.size());
    total_ = left_ = static_cast<int64_t>(records);
    for (size_t i = 0; i < conversations.size(); ++i) {
      due_.push({.at_ns = to_ns(at_s[i]), .conversation = i, .turn = 0});
    }
  }
  client_ = std::make_unique<net::HttpClient>(
      net::HttpClient::Options{.threads = options_.client_threads, .idle_connections_max = 65'536});
  cpu_at_start_ns_ = process_cpu_ns();
  origin_ns_ = clock_.now_ns();
  wait_for_all(stop);
  wait_for_launches();
  client_.reset();  // cuts off what still runs, and joins
  return outcome();
}

void LoadGenerator::wait_for_all(const std::atomic<bool>& stop) {
  std::unique_lock lock(mutex_);
  while (left_ > 0) {
    if (stop) {
      stopping_ = true;
      return;
    }
    drop_silent();
    if (const std::optional<Ready> ready = take_ready(0)) {
      lock.unlock();
      launch(*ready);
      lock.lock();
      continue;
    }
    int64_t wait_ns = kLookNs;
    if (!due_.empty() && due_.top().at_ns > now_ns()) {
      wait_ns = std::min(wait_ns, due_.top().at_ns - now_ns());
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(wait_ns, 0)));
  }
}

void LoadGenerator::drop_silent() {
  constexpr int64_t kEveryNs = 200'000'000;
  const int64_t now = now_ns();
  if (now - looked_ns_ < kEveryNs) return;
  looked_ns_ = now;
  const int64_t quiet_ns = std::chrono::nanoseconds(options_.quiet_time_max).count();
  for (const auto& [index, flight] : flights_) {
    const int64_t progress_ns = flight->reader.last_progress_ns();
    const net::HttpClient::CallId call = flight->call;
    if (call == 0 || progress_ns < 0 || now - progress_ns <= quiet_ns) continue;
    if (!flight->silent.exchange(true)) client_->cancel(call);
  }
}

// Other threads may be at it: one that landed an answer launches the next question.
void LoadGenerator::wait_for_launches() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return launching_ == 0; });
}

std::optional<LoadGenerator::Ready> LoadGenerator::take_ready(int64_t free_since_ns) {
  if (stopping_ || due_.empty()) return std::nullopt;
  if (options_.max_concurrency && running_ >= *options_.max_concurrency) return std::nullopt;
  const Due due = due_.top();
  if (due.at_ns > now_ns()) return std::nullopt;
  due_.pop();
  ++running_;
  ++launching_;
  return Ready{.due = due, .since_ns = std::max(due.at_ns, free_since_ns)};
}

net::HttpCall LoadGenerator::call_for(const Ready& ready) const {
  const workload::Conversation& conversation = (*conversations_)[ready.due.conversation];
  const workload::Turn& turn = conversation.turns[static_cast<size_t>(ready.due.turn)];
  const size_t index = record_index(ready.due.conversation, ready.due.turn);
  const std::string& model =
      options_.models.empty() ? target_.model : options_.models[index % options_.models.size()];
  net::HttpCall call = target_.call;
  // Nobody else touches this conversation's words while its question is on its way.
  call.body =
      question_body(target_, question_, conversation, said_[ready.due.conversation], turn, model);
  if (!options_.request_id_prefix.empty()) {
    call.headers.add("x-request-id", options_.request_id_prefix + std::to_string(index));
  }
  call.connect_time_max = kConnectTimeMax;
  call.body_bytes_max = kBodyBytesMax;
  call.head_time_max = options_.quiet_time_max;
  call.quiet_time_max = options_.quiet_time_max;
  return call;
}

void LoadGenerator::launch(const Ready& ready) {
  const workload::Turn& turn =
      (*conversations_)[ready.due.conversation].turns[static_cast<size_t>(ready.due.turn)];
  const auto flight = std::make_shared<Flight>(answer_limits(target_, question_, turn));
  flight->due = ready.due;
  flight->ready_ns = ready.since_ns;
  flight->record.due_ns = ready.due.at_ns;
  flight->record.conversation = static_cast<int>(ready.due.conversation);
  flight->record.turn = ready.due.turn;
  flight->record.input_tokens = std::max(turn.prompt_tokens, 0);  // until the server reports it
  flight->record.start_ns = now_ns();

  net::HttpCallEvents events;
  events.on_start = [this, flight] {
    flight->record.start_ns = now_ns();
    flight->thread = &threads_.mine();
    flight->thread->sample(flight->record.start_ns);
  };
  events.on_head = [this, flight](int status, const net::HttpHeaders& headers) {
    flight->reader.head(status, headers, now_ns());
  };
  events.on_body = [this, flight](std::string_view bytes) { read_body(*flight, bytes); };
  events.on_done = [this, flight](const Result<void>& result) { landed(flight, result); };
  {
    std::lock_guard lock(mutex_);
    flights_.emplace(record_index(ready.due.conversation, ready.due.turn), flight);
  }
  flight->call = client_->start(call_for(ready), std::move(events));
  std::lock_guard lock(mutex_);
  --launching_;
  changed_.notify_one();
}

void LoadGenerator::read_body(Flight& flight, std::string_view bytes) {
  const int64_t now = now_ns();
  const int64_t tokens = flight.reader.bytes(bytes, now);
  if (tokens > 0) tokens_.fetch_add(tokens, std::memory_order_relaxed);
  if (flight.thread != nullptr) flight.thread->sample(now);
  hold(flight, flight.reader.held_bytes());
  // What still comes is nothing that counts, and it may come for ever.
  if (flight.reader.failed() && flight.call != 0) client_->cancel(flight.call);
}

void LoadGenerator::hold(Flight& flight, int64_t bytes) {
  const int64_t more = bytes - std::exchange(flight.held_bytes, bytes);
  if (held_bytes_.fetch_add(more, std::memory_order_relaxed) + more <= options_.held_bytes_max) {
    return;
  }
  flight.reader.fail(fmt::format(
      "the answers of this test take more than {} MiB of memory: ask for fewer or shorter ones",
      options_.held_bytes_max >> 20));
  const int64_t kept = flight.reader.held_bytes();
  held_bytes_.fetch_sub(std::exchange(flight.held_bytes, kept) - kept, std::memory_order_relaxed);
}

void LoadGenerator::landed(const std::shared_ptr<Flight>& flight, const Result<void>& result) {
  const int64_t now = now_ns();
  if (flight->silent) flight->reader.fail(silence_words(options_.quiet_time_max));
  flight->reader.end(result, now);
  if (flight->thread != nullptr) flight->thread->settle(now);
  std::optional<Ready> next;
  {
    std::lock_guard lock(mutex_);
    --running_;
    flights_.erase(record_index(flight->due.conversation, flight->due.turn));
    const bool cut_off = stopping_ && !result.ok();
    if (!cut_off) {
      const size_t index = record_index(flight->due.conversation, flight->due.turn);
      landed_[index] = true;
      last_end_ns_ = std::max(last_end_ns_, now);
      late_ms_.push_back(static_cast<double>(flight->record.start_ns - flight->ready_ns) * 1e-6);
      ++done_;
      if (!flight->record.ok) ++failed_;
      if (!flight->record.pieces.empty()) {
        ttft_.add_ms(report::value_ms(flight->record, report::Metric::kTtft));
      }
      if (options_.keep_texts) flight->record.text = flight->reader.text();
      --left_;
      plan_next_turn(*flight);
      records_[index] = std::move(flight->record);
    }
    next = take_ready(now);
    changed_.notify_one();
  }
  if (next) launch(*next);
}

void LoadGenerator::plan_next_turn(const Flight& flight) {
  const size_t at = flight.due.conversation;
  const std::vector<workload::Turn>& turns = (*conversations_)[at].turns;
  const int next = flight.due.turn + 1;
  const auto turns_left = static_cast<int64_t>(turns.size()) - next;
  if (turns_left == 0) {
    said_[at] = {};
    return;
  }
  if (!flight.record.ok) {
    // Whoever got no answer does not go on.
    left_ -= turns_left;
    total_ -= turns_left;
    return;
  }
  said_[at].push_back(
      {.by_user = true, .text = turns[static_cast<size_t>(flight.due.turn)].prompt});
  said_[at].push_back({.by_user = false, .text = flight.reader.text()});
  due_.push({.at_ns = flight.record.end_ns + to_ns(turns[static_cast<size_t>(next)].think_s),
             .conversation = at,
             .turn = next});
}

LoadOutcome LoadGenerator::outcome() {
  std::lock_guard lock(mutex_);
  LoadOutcome outcome;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (!landed_[i]) continue;
    outcome.records.push_back(std::move(records_[i]));
  }
  outcome.interrupted = static_cast<int>(total_) - static_cast<int>(outcome.records.size());
  outcome.origin_ns = origin_ns_;
  outcome.duration_s = static_cast<double>(last_end_ns_) * 1e-9;
  std::vector<double> answers;
  for (const report::RequestRecord& record : outcome.records) {
    if (record.ok) answers.push_back(report::value_ms(record, report::Metric::kE2el));
  }
  std::sort(answers.begin(), answers.end());
  outcome.watch = watch(report::percentile(answers, 50));
  return outcome;
}

report::GeneratorWatch LoadGenerator::watch(double median_answer_ms) const {
  std::vector<double> late = late_ms_;
  std::sort(late.begin(), late.end());
  const ThreadWatch::Busiest busiest = threads_.busiest();
  report::GeneratorWatch watch{
      .late_median_ms = report::percentile(late, 50),
      .late_p99_ms = report::percentile(late, 99),
      .late_max_ms = late.empty() ? 0 : late.back(),
      .busiest_thread_share = busiest.share,
      .cpu_s = static_cast<double>(process_cpu_ns() - cpu_at_start_ns_) * 1e-9,
      .threads = options_.client_threads,
      .limit = {}};
  watch.limit = generator_limit(watch, busiest, median_answer_ms);
  return watch;
}

LoadProgress LoadGenerator::progress() const {
  std::lock_guard lock(mutex_);
  return {.total = total_,
          .done = done_,
          .failed = failed_,
          .running = running_,
          .tokens = tokens_.load(std::memory_order_relaxed),
          .ttft = ttft_};
}

}  // namespace pelton::bench
