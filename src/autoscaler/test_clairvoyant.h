// For tests and benchmarks: the fewest replica-seconds with which a load that is known beforehand
// can be served with at most so many late requests. Exact, by dynamic programming, for the plant
// that TestPool is when a request takes one second: in each second every ready replica serves as
// many as it has slots, first come, first served.
//
// State: replicas that are ready, requests that wait. (Who waits follows: the last that came.) Of
// each state is kept what no other path beats in both, late requests and cost so far. One that
// starts costs start_s - 1 seconds beforehand; one that goes, the second in which it answers its
// last ones. Seconds below start_s have no more than there were at the beginning.
//
// Pure; the memory is states x late_max at most.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace pelton::autoscaler {

class Clairvoyant {
 public:
  struct Options {
    int slots = 8;  // requests that a replica serves in a second
    int64_t start_s = 30;
    int64_t late_s = 2;  // a request that waited longer is late
    int least = 1;
    int most = 16;
    int at_first = 1;  // replicas that are ready at the beginning
  };
  // Requests of each second; nothing comes before.
  Clairvoyant(const Options& options, std::vector<int> requests)
      : options_(options), requests_(std::move(requests)) {
    int64_t sum = 0;
    came_.push_back(0);
    for (const int one : requests_) came_.push_back(sum += one);
  }

  // Replica-seconds. None: no number of replicas does. Those that wait at the end are late.
  std::optional<int64_t> fewest(int64_t late_max) const {
    std::vector<Row> rows(static_cast<size_t>(options_.most) + 1);
    rows[static_cast<size_t>(options_.at_first)][0] = {{0, 0}};
    for (int64_t second = 1; second <= std::ssize(requests_); ++second) {
      if (second > 1) change_counts(rows, second);  // nobody decides before the first
      for (size_t n = 0; n < rows.size(); ++n) {
        rows[n] = served(rows[n], static_cast<int64_t>(n), second, late_max);
      }
    }
    int64_t best = std::numeric_limits<int64_t>::max();
    for (const Row& row : rows) {
      for (const auto& [waiting, front] : row) {
        for (const Point& one : front) {
          if (one.late + waiting <= late_max) best = std::min(best, one.cost);
        }
      }
    }
    if (best == std::numeric_limits<int64_t>::max()) return std::nullopt;
    return best;
  }

  // Not above fewest(late_max), and equal to it where the fewest is convex in late_max: the
  // greatest, over prices of a late request, of what all costs at that price less the price of
  // late_max. Fast enough for an hour of thousands of requests.
  double fewest_at_least(int64_t late_max) const {
    // Concave in the price, so with one maximum; dear ones first, as few wait then.
    constexpr double kDearest = 6;
    constexpr double kCheapest = -6;
    constexpr double kStep = 0.5;
    double best = 0;
    double last = -std::numeric_limits<double>::infinity();
    for (double exponent = kDearest; exponent >= kCheapest; exponent -= kStep) {
      const double price = std::exp2(exponent);
      const double bound = cost_at(price) - price * static_cast<double>(late_max);
      if (bound < last) break;
      last = bound;
      best = std::max(best, bound);
    }
    return best;
  }

 private:
  struct Point {
    int64_t late;
    int64_t cost;
  };
  using Front = std::vector<Point>;      // late rises, cost falls
  using Row = std::map<int64_t, Front>;  // by how many wait

  // That had come at the end of a second.
  int64_t came(int64_t second) const {
    return second <= 0 ? 0 : came_[static_cast<size_t>(std::min(second, std::ssize(requests_)))];
  }
  // Of those that wait at the end of a second, who will be late whatever happens.
  int64_t overdue(int64_t waiting, int64_t second) const {
    const int64_t served = came(second) - waiting;
    return std::max<int64_t>(came(second - options_.late_s) - served, 0);
  }

  static void merge(Front& into, const Front& from, int64_t late, int64_t cost) {
    Front both;
    both.reserve(into.size() + from.size());
    auto a = into.begin();
    auto b = from.begin();
    while (a != into.end() || b != from.end()) {
      const bool first = b == from.end() || (a != into.end() && a->late <= b->late + late);
      const Point next = first ? *a++ : Point{b->late + late, b->cost + cost};
      if (!first) ++b;
      if (!both.empty() && both.back().cost <= next.cost) continue;
      if (!both.empty() && both.back().late == next.late) both.pop_back();
      both.push_back(next);
    }
    into = std::move(both);
  }
  static void merge_row(Row& into, const Row& from, int64_t cost) {
    for (const auto& [waiting, front] : from) merge(into[waiting], front, 0, cost);
  }

  // More and fewer, one by one: no best path goes both ways in one second.
  void change_counts(std::vector<Row>& rows, int64_t second) const {
    const std::vector<Row> before = rows;
    const auto least = static_cast<size_t>(options_.least);
    if (second >= options_.start_s + 1) {
      Row carried;
      for (size_t n = 0; n + 1 < rows.size(); ++n) {
        merge_row(carried, before[n], 0);
        Row next;
        merge_row(next, carried, options_.start_s - 1);
        carried = std::move(next);
        merge_row(rows[n + 1], carried, 0);
      }
    }
    Row carried;
    for (size_t n = rows.size() - 1; n > least; --n) {
      merge_row(carried, before[n], 0);
      Row next;
      merge_row(next, carried, 1);
      carried = std::move(next);
      merge_row(rows[n - 1], carried, 0);
    }
  }

  // Who waits less with no more late and no more cost is better whatever comes.
  static void prune(Row& row) {
    Front best;
    for (auto at = row.begin(); at != row.end();) {
      Front& front = at->second;
      std::erase_if(front, [&](const Point& one) {
        const auto after =
            std::upper_bound(best.begin(), best.end(), one.late,
                             [](int64_t late, const Point& other) { return late < other.late; });
        return after != best.begin() && std::prev(after)->cost <= one.cost;
      });
      merge(best, front, 0, 0);
      at = front.empty() ? row.erase(at) : std::next(at);
    }
  }

  struct Served {
    int64_t waiting;
    int64_t late;
  };
  // A second with so many replicas, in which so many wait already.
  Served serve(int64_t waited, int64_t replicas, int64_t second) const {
    const int64_t begun = came(second - 1) - waited;
    const int64_t count = std::min(came(second) - begun, replicas * options_.slots);
    const int64_t overdue_before = came(second - options_.late_s - 1) - begun;
    return {.waiting = came(second) - begun - count,
            .late = std::clamp<int64_t>(overdue_before, 0, count)};
  }
  Row served(const Row& row, int64_t replicas, int64_t second, int64_t late_max) const {
    Row after;
    for (const auto& [waited, front] : row) {
      const auto [waiting, late] = serve(waited, replicas, second);
      const int64_t room = late_max - late - overdue(waiting, second);
      if (front.empty() || front.front().late > room) continue;
      Front fits = front;
      while (fits.back().late > room) fits.pop_back();
      merge(after[waiting], fits, late, replicas);
    }
    prune(after);
    return after;
  }

  // The least of replica-seconds + price x late requests. Here a front is of who waits and costs.
  double cost_at(double price) const {
    constexpr double kUnit = 1e6;  // costs in whole millionths
    const auto unit = static_cast<int64_t>(kUnit);
    const auto late_cost = static_cast<int64_t>(price * kUnit);
    std::vector<Front> rows(static_cast<size_t>(options_.most) + 1);
    rows[static_cast<size_t>(options_.at_first)] = {{0, 0}};
    for (int64_t second = 1; second <= std::ssize(requests_); ++second) {
      if (second > 1) change_counts(rows, second, unit);
      for (size_t n = 0; n < rows.size(); ++n) {
        Front after;
        for (const Point& one : rows[n]) {
          const Served next = serve(one.late, static_cast<int64_t>(n), second);
          const Point point{next.waiting,
                            one.cost + static_cast<int64_t>(n) * unit + next.late * late_cost};
          if (!after.empty() && after.back().cost <= point.cost) continue;
          if (!after.empty() && after.back().late == point.late) after.pop_back();
          after.push_back(point);
        }
        rows[n] = std::move(after);
      }
    }
    int64_t best = std::numeric_limits<int64_t>::max();
    for (const Front& row : rows) {
      for (const Point& one : row) best = std::min(best, one.cost + one.late * late_cost);
    }
    return static_cast<double>(best) / kUnit;
  }
  void change_counts(std::vector<Front>& rows, int64_t second, int64_t unit) const {
    const std::vector<Front> before = rows;
    Front carried;
    for (size_t n = 0; second >= options_.start_s + 1 && n + 1 < rows.size(); ++n) {
      merge(carried, before[n], 0, 0);
      for (Point& one : carried) one.cost += (options_.start_s - 1) * unit;
      merge(rows[n + 1], carried, 0, 0);
    }
    carried.clear();
    for (size_t n = rows.size() - 1; n > static_cast<size_t>(options_.least); --n) {
      merge(carried, before[n], 0, 0);
      for (Point& one : carried) one.cost += unit;
      merge(rows[n - 1], carried, 0, 0);
    }
  }

  const Options options_;
  const std::vector<int> requests_;
  std::vector<int64_t> came_;
};

}  // namespace pelton::autoscaler
