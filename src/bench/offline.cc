#include "bench/offline.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace pelton::bench {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // how late a stop may be noticed

// Which streams have something; filled by the engine's thread.
class ReadyList {
 public:
  void add(size_t index) {
    std::lock_guard lock(mutex_);
    ready_.push_back(index);
    changed_.notify_one();
  }
  std::vector<size_t> take() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return !ready_.empty(); });
    return std::exchange(ready_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> ready_;
};

class OfflineRun {
 public:
  OfflineRun(engine::Engine& engine, const std::vector<OfflineQuestion>& questions,
             const OfflineOptions& options, const base::Clock& clock)
      : engine_(engine), questions_(questions), options_(options), clock_(clock) {
    outcome_.records.resize(questions.size());
  }

  Result<OfflineOutcome> run(const std::atomic<bool>& stop);

 private:
  int64_t now_ns() const { return clock_.now_ns() - origin_ns_; }
  Result<void> submit_more();
  Result<engine::TokenStream> submit(size_t index);
  void take(size_t index);

  engine::Engine& engine_;
  const std::vector<OfflineQuestion>& questions_;
  const OfflineOptions& options_;
  const base::Clock& clock_;
  const int64_t origin_ns_ = clock_.now_ns();
  // Shared with callbacks that the engine may still hold when we are gone.
  const std::shared_ptr<ReadyList> ready_ = std::make_shared<ReadyList>();
  std::map<size_t, engine::TokenStream> running_;
  size_t next_ = 0;
  int64_t done_ = 0;
  OfflineOutcome outcome_;
};

Result<engine::TokenStream> OfflineRun::submit(size_t index) {
  const OfflineQuestion& question = questions_[index];
  request::GenerationRequest request{.id = "bench/" + std::to_string(index),
                                     .prompt = question.prompt};
  request.sampling.temperature = options_.temperature;
  request.sampling.seed = options_.seed + index;
  request.stop.max_new_tokens = question.output_tokens;
  request.stop.stop_tokens = options_.stop_tokens;
  return engine_.submit(std::move(request));
}

// Until all are on their way, or the engine's queue is full.
Result<void> OfflineRun::submit_more() {
  while (next_ < questions_.size()) {
    const size_t index = next_;
    outcome_.records[index].start_ns = now_ns();
    Result<engine::TokenStream> stream = submit(index);
    if (!stream) {
      const bool full = stream.error().code == ErrorCode::kOverloaded && !running_.empty();
      return full ? Result<void>() : Result<void>(stream.error());
    }
    ++next_;
    engine::TokenStream& kept = running_.emplace(index, std::move(*stream)).first->second;
    kept.on_ready([ready = ready_, index] { ready->add(index); });
  }
  return {};
}

void OfflineRun::take(size_t index) {
  const auto found = running_.find(index);
  if (found == running_.end()) return;
  const engine::TokenStream::Batch batch = found->second.take();
  report::RequestRecord& record = outcome_.records[index];
  if (!batch.tokens.empty()) {
    record.pieces.push_back({now_ns(), static_cast<int32_t>(batch.tokens.size())});
    record.output_tokens += static_cast<int64_t>(batch.tokens.size());
  }
  if (!batch.end) return;
  record.end_ns = now_ns();
  record.ok = !batch.end->error;
  if (batch.end->error) record.error = batch.end->error->message;
  record.tokens_told = true;
  record.input_tokens = batch.end->prompt_tokens;
  record.cached_tokens = batch.end->cached_tokens;
  running_.erase(found);
  ++done_;
  if (options_.on_done) options_.on_done(done_);
}

Result<OfflineOutcome> OfflineRun::run(const std::atomic<bool>& stop) {
  TRY(submit_more());
  while (!running_.empty()) {
    if (stop) return Error{ErrorCode::kCancelled, "interrupted", {}};
    for (const size_t index : ready_->take()) take(index);
    TRY(submit_more());
  }
  outcome_.duration_s = static_cast<double>(now_ns()) * 1e-9;
  return std::move(outcome_);
}

}  // namespace

Result<OfflineOutcome> run_offline(engine::Engine& engine,
                                   const std::vector<OfflineQuestion>& questions,
                                   const OfflineOptions& options, const base::Clock& clock,
                                   const std::atomic<bool>& stop) {
  return OfflineRun(engine, questions, options, clock).run(stop);
}

}  // namespace pelton::bench
