// Objects of Kubernetes' API server: listed, page by page, and then watched; what the watch cannot
// go on from (410) is listed anew, and one that was cut off goes on from its last event. While the
// server does not answer, nothing is said, so that what was known before stays. Owned by whoever
// wants to know; a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "cluster/kubernetes_api.h"

namespace pelton::cluster {

class KubernetesWatch {
 public:
  struct Options {
    KubernetesApi::Options api;
    std::string name;    // in the log: "ml/pelton"
    std::string target;  // path and query, with a '?' in it
    std::chrono::milliseconds retry{1'000};
    // On this object's threads, one at a time. An error ends the list or the watch, which is then
    // begun anew.
    std::function<void()> list_begins;
    std::function<Result<void>(const Json& object)> listed_one;
    std::function<void()> listed;  // that was all: what was not among them is gone
    enum class Kind { kPut, kDeleted };
    std::function<Result<void>(Kind kind, const Json& object)> changed;
  };
  // `log` outlives it.
  KubernetesWatch(Options options, base::Log& log);
  ~KubernetesWatch();
  KubernetesWatch(const KubernetesWatch&) = delete;
  KubernetesWatch& operator=(const KubernetesWatch&) = delete;

 private:
  void run();
  Result<void> list();
  Result<void> watch();
  // Whole lines of a watch; the client's thread.
  Result<void> take(std::string& lines);
  bool wait(std::chrono::milliseconds time);  // false: it is over

  const Options options_;
  base::Log& log_;
  std::string version_;  // to watch from; empty: to be listed. The thread's and, amid a watch, the
                         // client's
  std::string trouble_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_
  KubernetesApi api_;
  std::thread thread_;
};

}  // namespace pelton::cluster
