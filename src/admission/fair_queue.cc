#include "admission/fair_queue.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace pelton::admission {

namespace {

// Tenants remembered, those present aside.
constexpr size_t kTenantsMax = 1024;

int clamped(int priority) {
  return std::clamp(priority, -1000, 1000);
}

}  // namespace

int64_t FairQueue::rank(int priority) const {
  return clamped(priority) * options_.priority_tokens + spent_;
}

void FairQueue::enter(const std::string& tenant, double weight) {
  CHECK(weight > 0, "a tenant without weight");
  Tenant& one = tenants_[tenant];
  one.weight = weight;
  if (one.present++ == 0) one.account = std::max(one.account, floor_);
}

void FairQueue::leave(const std::string& tenant) {
  const auto found = tenants_.find(tenant);
  CHECK(found != tenants_.end() && found->second.present > 0, "a tenant left that was not there");
  if (--found->second.present == 0) drop_settled();
}

void FairQueue::add(const std::string& tenant, const Item& item) {
  const auto found = tenants_.find(tenant);
  CHECK(found != tenants_.end() && found->second.present > 0, "work of a tenant who is not there");
  CHECK(found->second.waiting.insert(item).second, "an item waits twice");
  ++waiting_count_;
}

void FairQueue::remove(const std::string& tenant, const Item& item) {
  const auto found = tenants_.find(tenant);
  CHECK(found != tenants_.end() && found->second.waiting.erase(item) == 1, "no such item waits");
  --waiting_count_;
}

std::optional<int64_t> FairQueue::next(std::span<const int64_t> passed_over,
                                       const Admits& admits) const {
  std::optional<int64_t> best;
  std::tuple<double, int64_t, int64_t> best_key;
  for (const auto& [name, tenant] : tenants_) {
    for (const Item& item : tenant.waiting) {
      if (admits && !admits(item.group)) continue;
      if (std::find(passed_over.begin(), passed_over.end(), item.id) != passed_over.end()) continue;
      const double head_start = static_cast<double>(clamped(item.priority)) *
                                static_cast<double>(options_.priority_tokens);
      const std::tuple key(tenant.account + head_start, item.rank, item.id);
      if (!best || key < best_key) {
        best = item.id;
        best_key = key;
      }
      break;  // the tenant's others come after this one
    }
  }
  return best;
}

void FairQueue::charge(const std::string& tenant, int64_t tokens) {
  const auto found = tenants_.find(tenant);
  CHECK(found != tenants_.end(), "charging a tenant who is not there");
  found->second.account += static_cast<double>(tokens) / found->second.weight;
  spent_ += tokens;
  floor_ = std::max(floor_, floor_of_present());
}

double FairQueue::account(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? floor_ : found->second.account;
}

double FairQueue::floor_of_present() const {
  std::optional<double> least;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.present > 0 && (!least || tenant.account < *least)) least = tenant.account;
  }
  return least.value_or(floor_);
}

// Who left without a debt is forgotten: he would come back as a new one does. When nobody is left,
// nobody can be owed anything; and when very many have left, their debts are forgiven rather than
// kept.
void FairQueue::drop_settled() {
  const bool nobody_present = std::none_of(
      tenants_.begin(), tenants_.end(), [](const auto& entry) { return entry.second.present > 0; });
  const bool forgives = nobody_present || tenants_.size() > kTenantsMax;
  std::erase_if(tenants_, [&](const auto& entry) {
    return entry.second.present == 0 && (forgives || entry.second.account <= floor_);
  });
}

}  // namespace pelton::admission
