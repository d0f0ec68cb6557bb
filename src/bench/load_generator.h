// Asks a server what a workload says, when it says it, and keeps what was seen. Arrivals are known
// before the run: a server that is slow makes its own queue longer, not the questions fewer. With a
// limit of concurrency, what is due waits here, and that wait is part of the record.
//
// Owned by whoever runs the test. run() is called on one thread; answers are read on the client's
// own threads; progress() may be asked on any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "bench/answer_reader.h"
#include "bench/question.h"
#include "bench/target.h"
#include "bench/thread_watch.h"
#include "net/http_client.h"
#include "report/latency_histogram.h"
#include "report/request_record.h"
#include "report/serve_result.h"
#include "workload/conversation.h"

namespace pelton::bench {

struct LoadOptions {
  std::optional<int> max_concurrency;  // requests at once; none: as many as are due
  int client_threads = 1;
  // Until the head, and then until each next piece that brings something: a server that only sends
  // comments is silent.
  std::chrono::milliseconds quiet_time_max{600'000};
  int64_t held_bytes_max = int64_t{2} << 30;  // of all answers together, until the report
  std::vector<std::string> models;            // in turn; empty: the target's
  bool keep_texts = false;                    // in the records
  std::string request_id_prefix;              // "x-request-id": this and the number
};

struct LoadOutcome {
  std::vector<report::RequestRecord> records;  // in the order of the questions
  int64_t origin_ns = 0;                       // the start, on the clock
  double duration_s = 0;                       // from the start to the last byte
  int interrupted = 0;                         // asked and not waited for
  report::GeneratorWatch watch;
};

struct LoadProgress {
  int64_t total = 0;
  int64_t done = 0;
  int64_t failed = 0;
  int64_t running = 0;
  int64_t tokens = 0;
  report::LatencyHistogram ttft;
};

class LoadGenerator {
 public:
  // `target` and `clock` outlive it.
  LoadGenerator(const Target& target, QuestionOptions question, LoadOptions options,
                const base::Clock& clock);
  ~LoadGenerator();

  // Asks all of `conversations`, the i-th beginning at `at_s[i]`. Once; ends early when `stop`
  // becomes true: running answers are then cut off.
  LoadOutcome run(const std::vector<workload::Conversation>& conversations,
                  const std::vector<double>& at_s, const std::atomic<bool>& stop);

  LoadProgress progress() const;

 private:
  // A question that has its moment.
  struct Due {
    int64_t at_ns = 0;  // from the start
    size_t conversation = 0;
    int turn = 0;
    bool operator>(const Due& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : conversation > other.conversation;
    }
  };
  // A question on its way.
  struct Flight;
  struct Ready {
    Due due;
    int64_t since_ns = 0;  // it could have been sent
  };

  int64_t now_ns() const { return clock_.now_ns() - origin_ns_; }
  size_t record_index(size_t conversation, int turn) const;

  void wait_for_all(const std::atomic<bool>& stop);
  void wait_for_launches();
  void drop_silent();                                      // under mutex_
  std::optional<Ready> take_ready(int64_t free_since_ns);  // under mutex_
  void launch(const Ready& ready);
  net::HttpCall call_for(const Ready& ready) const;
  void read_body(Flight& flight, std::string_view bytes);
  void hold(Flight& flight, int64_t bytes);
  void landed(const std::shared_ptr<Flight>& flight, const Result<void>& result);
  void plan_next_turn(const Flight& flight);  // under mutex_
  LoadOutcome outcome();
  report::GeneratorWatch watch(double median_answer_ms) const;

  const Target& target_;
  const QuestionOptions question_;
  const LoadOptions options_;
  const base::Clock& clock_;

  const std::vector<workload::Conversation>* conversations_ = nullptr;
  std::vector<size_t> first_record_;  // of each conversation
  int64_t origin_ns_ = 0;
  int64_t cpu_at_start_ns_ = 0;
  ThreadWatch threads_;
  std::atomic<int64_t> tokens_{0};
  std::atomic<int64_t> held_bytes_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below is under mutex_.
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::unordered_map<size_t, std::shared_ptr<Flight>> flights_;  // by their records
  std::vector<std::vector<Said>> said_;  // of each conversation, while it lasts
  std::vector<report::RequestRecord> records_;
  std::vector<bool> landed_;
  std::vector<double> late_ms_;
  int64_t total_ = 0;
  int64_t left_ = 0;  // neither landed nor given up
  int running_ = 0;
  int launching_ = 0;  // taken and not yet given to the client, which must stay until then
  int64_t done_ = 0;
  int64_t failed_ = 0;
  int64_t last_end_ns_ = 0;
  int64_t looked_ns_ = 0;  // for the silent
  bool stopping_ = false;
  report::LatencyHistogram ttft_;

  std::unique_ptr<net::HttpClient> client_;  // last: its threads touch all of the above
};

}  // namespace pelton::bench
