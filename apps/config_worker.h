// What is done about a gateway's configuration when it is asked for, on a thread of its own: a file
// of a thousand pools takes seconds to read and compare, and the admin listener has one net thread.
// One request after the other, a bounded number of them; whoever comes beyond it gets 503 and when
// to ask again. Owned by the verb, whose listener stops before stop(); answer() runs on that
// listener's net threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "net/http_message.h"
#include "net/http_server.h"
#include "net/work_loop.h"

namespace pelton::apps {

class ConfigWorker {
 public:
  static constexpr int kRequestsMax = 16;  // each holds a body of 1 MiB at most

  ConfigWorker() = default;
  ~ConfigWorker() { stop(); }
  ConfigWorker(const ConfigWorker&) = delete;
  ConfigWorker& operator=(const ConfigWorker&) = delete;

  // The answer is what `work` gives back, which runs on the worker's thread.
  using Work = std::function<net::HttpResponse()>;
  void answer(const std::shared_ptr<net::Exchange>& exchange, Work work);

  // Waits for what is under way; what has not begun is dropped.
  void stop();

 private:
  std::atomic<int> requests_ = 0;  // that have no answer yet
  std::atomic<bool> stops_ = false;
  std::unique_ptr<net::WorkLoop> loop_ = std::make_unique<net::WorkLoop>("pelton-config");
};

}  // namespace pelton::apps
