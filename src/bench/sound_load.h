// Asks a server for answers that go with sound, so many at once, and gives the pieces of each with
// their times to whoever reads it: what `pelton bench speech` and `bench transcribe` measure with.
// run() on the caller's thread, which waits; answers are read on one thread of the client's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/result.h"
#include "net/http_client.h"

namespace pelton::bench {

// One answer as it comes. Times are seconds from its call's start. Of the client's thread.
class SoundAnswer {
 public:
  virtual ~SoundAnswer() = default;
  virtual void head(int status, const net::HttpHeaders& headers) = 0;
  virtual void piece(std::string_view bytes, double at_s) = 0;
  virtual void end(const Result<void>& result, double at_s) = 0;
};

class SoundLoad {
 public:
  struct Asked {
    net::HttpCall call;
    std::shared_ptr<SoundAnswer> answer;
  };
  struct Plan {
    int count = 1;
    int at_once = 1;
    std::function<Asked(int number)> ask;  // any thread; numbers from 0, each once
    std::function<bool()> stops;           // asked now and then; what runs then is given up
    std::function<void(int done)> on_done = nullptr;  // on the caller's thread, now and then
  };

  // Seconds from the first call to the last answer's end.
  double run(const Plan& plan);

 private:
  void start(const Plan& plan);
  void wait(const Plan& plan);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_, of the run.
  int begun_ = 0;
  int done_ = 0;
  bool stopped_ = false;

  net::HttpClient* client_ = nullptr;  // of the run
};

}  // namespace pelton::bench
