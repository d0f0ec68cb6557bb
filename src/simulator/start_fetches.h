// Weights that replicas fetch while they start, from a place that they share: each as fast as its
// own link and its even share of that place let it. Two that begin together take twice as long
// where one alone would fill the place. One owner, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace pelton::simulator {

class StartFetches {
 public:
  struct Options {
    double bytes_per_s = 1;         // of each
    double shared_bytes_per_s = 0;  // of all together; 0: no bound
  };
  explicit StartFetches(const Options& options) : options_(options) {}

  // From that moment on, which may be to come.
  void begin(int replica, int64_t from_ns, double bytes);
  void cancel(int replica, int64_t now_ns);

  struct End {
    int replica = 0;
    int64_t at_ns = 0;
  };
  // When each under way ends if none is begun or cancelled any more, and those that have ended
  // since this was asked last.
  std::vector<End> ends(int64_t now_ns);

 private:
  struct Fetch {
    int replica = 0;
    int64_t from_ns = 0;
    double bytes_left = 0;
  };
  using Ended = std::function<void(int replica, int64_t at_ns)>;
  void flow(std::vector<Fetch>& fetches, int64_t& at_ns, int64_t until_ns,
            const Ended& ended) const;

  const Options options_;
  std::vector<Fetch> fetches_;
  int64_t flowed_ns_ = 0;
  std::vector<End> ended_;  // that ends() has not reported
};

}  // namespace pelton::simulator
