// Asks one address for answers of a known number of tokens and keeps when their pieces came: what
// `pelton bench gateway` measures with. The tokens' text is a bench::FrameSink's, so that a token
// that is lost, doubled or out of its place makes its answer a failed one. One measurement at a
// time, on the caller's thread; answers are read on one thread of the client's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/http_client.h"

namespace pelton::bench {

// What answers are asked for: long beginnings that all share, or that are each request's own.
struct StreamQuestion {
  std::string model = "bench";
  size_t prompt_bytes = 8192;
  bool distinct = false;  // no two prompts begin alike
  bool streamed = true;
  int tokens = 1;

  // The number-th body.
  std::string body(uint64_t number) const;
};

struct StreamTimes {
  int64_t answered = 0;  // whole
  int64_t failed = 0;
  double seconds = 0;
  std::vector<double> first_byte_ms;  // of each whole answer, from the call's start
  std::vector<double> move_gap_ms;    // of each that another sink went on with: across that
  int64_t tokens = 0;
};

// Of values, not sorted; 0 of none. 0.5: the median.
double percentile(std::vector<double> values, double share);

class StreamLoad {
 public:
  // `stops` may end a measurement early; asked now and then.
  explicit StreamLoad(std::function<bool()> stops) : stops_(std::move(stops)), client_({}) {}

  // Open loop: so many a second, whether or not answers come. Waits for all answers.
  StreamTimes at_rate(const net::HttpCall& call, const StreamQuestion& question, double per_second,
                      std::chrono::duration<double> time);
  // Closed loop: so many at once.
  StreamTimes closed(const net::HttpCall& call, const StreamQuestion& question, int concurrency,
                     std::chrono::duration<double> time);
  // So many at once, each once; `amid` is called when each of them has begun.
  StreamTimes together(const net::HttpCall& call, const StreamQuestion& question, int count,
                       const std::function<void()>& amid);

 private:
  struct Flight;

  void start(const net::HttpCall& call, const StreamQuestion& question);
  void landed(const std::shared_ptr<Flight>& flight, bool ok);
  StreamTimes wait_for_all();

  const std::function<bool()> stops_;
  uint64_t number_ = 0;  // of bodies, so far

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  StreamTimes times_;
  int64_t running_ = 0;
  int64_t begun_ = 0;            // have had a first byte, or are over
  std::function<void()> again_;  // a closed loop's next call
  std::chrono::steady_clock::time_point began_;

  net::HttpClient client_;  // last: its thread touches all of the above
};

}  // namespace pelton::bench
