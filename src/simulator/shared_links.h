// Transfers over the replicas' links in virtual time. Each replica has one link, as fast in either
// direction; what leaves one replica shares its link evenly, and likewise what reaches one: a
// transfer is as fast as the fuller end lets it be. One owner, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pelton::simulator {

class SharedLinks {
 public:
  SharedLinks(size_t replicas, double bytes_per_s);

  // Its number.
  int64_t begin(int64_t now_ns, size_t from, size_t to, double bytes);
  // It is of no interest any more; one that is over is passed over.
  void cancel(int64_t now_ns, int64_t transfer);
  // When the next one ends, if none is begun before; none: nothing is on its way.
  std::optional<int64_t> next_ns() const;
  // Those that have ended by now.
  std::vector<int64_t> advance(int64_t now_ns);

 private:
  struct Transfer {
    size_t from = 0;
    size_t to = 0;
    double bytes_left = 0;
  };
  double rate_of(const Transfer& transfer) const;
  void flow(int64_t now_ns);
  void remove(std::map<int64_t, Transfer>::iterator transfer);

  const double bytes_per_s_;
  std::map<int64_t, Transfer> transfers_;
  std::vector<int> leaving_;   // transfers, by replica
  std::vector<int> arriving_;  // likewise
  int64_t flowed_ns_ = 0;
  int64_t next_ = 0;
};

}  // namespace pelton::simulator
