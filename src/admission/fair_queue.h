// Waiting work of several tenants, and whose turn it is: weighted fairness by tokens between
// tenants, priorities within and across them, and nobody starves. Pure; owned by one thread.
//
// Each tenant has an account: the tokens spent on it, divided by its weight. The next item comes
// from the tenant with the smallest account (a tenant that comes back starts where the busy ones
// are: idle time is no credit), and of one tenant's items the one of smallest rank goes first. A
// step of priority counts as `priority_tokens` tokens, in accounts and in ranks. So a lower
// priority is a head start for others, of so many tokens, and not a sentence for life.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pelton::admission {

class FairQueue {
 public:
  struct Options {
    int64_t priority_tokens = 65'536;  // what one step of priority is worth
  };

  struct Item {
    int64_t id = 0;     // unique; the smaller first among equals
    int priority = 0;   // smaller first; clamped to -1000..1000
    int64_t rank = 0;   // by rank(), when the item came
    int64_t group = 0;  // what next() may leave out together
  };

  explicit FairQueue(const Options& options) : options_(options) {}

  // The rank of work that comes now: by priority and arrival, the passing of time being known by
  // the tokens spent. Total order with the id; it never changes, so it can order running work too.
  int64_t rank(int priority) const;

  // A tenant takes part from its first enter to its last leave, whether its items wait or run. The
  // weight last said counts.
  void enter(const std::string& tenant, double weight);
  void leave(const std::string& tenant);

  // `tenant` has entered.
  void add(const std::string& tenant, const Item& item);
  void remove(const std::string& tenant, const Item& item);

  // Whose turn it is, those in `passed_over` and of groups that `admits` says no to left out.
  using Admits = std::function<bool(int64_t group)>;
  std::optional<int64_t> next(std::span<const int64_t> passed_over,
                              const Admits& admits = nullptr) const;

  void charge(const std::string& tenant, int64_t tokens);

  bool empty() const { return waiting_count_ == 0; }
  int waiting_count() const { return waiting_count_; }
  size_t tenant_count() const { return tenants_.size(); }
  double account(const std::string& tenant) const;  // for tests and for whoever asks why

 private:
  struct Earlier {
    bool operator()(const Item& a, const Item& b) const {
      return std::pair(a.rank, a.id) < std::pair(b.rank, b.id);
    }
  };
  struct Tenant {
    double weight = 1.0;
    double account = 0.0;
    int present = 0;  // items that wait or run
    std::set<Item, Earlier> waiting;
  };

  double floor_of_present() const;
  void drop_settled();

  const Options options_;
  std::map<std::string, Tenant, std::less<>> tenants_;  // present, or with a debt
  double floor_ = 0.0;  // the smallest account of those present, so far; it never falls
  int64_t spent_ = 0;
  int waiting_count_ = 0;
};

}  // namespace pelton::admission
