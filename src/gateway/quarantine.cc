#include "gateway/quarantine.h"

#include <algorithm>

#include "base/digest.h"

namespace pelton::gateway {
namespace {

constexpr size_t kLossesMax = 64;

}  // namespace

std::string Quarantine::name_of(const net::HttpRequest& request) const {
  return base::hmac_sha256(options_.secret, request.path + "\n" + request.body);
}

bool Quarantine::refuses(const Entry& entry) const {
  return entry.alone >= options_.alone_max || entry.crashes >= options_.crashes_max;
}

bool Quarantine::holds(const net::HttpRequest& request, int64_t now_ns) {
  if (size_ == 0) return false;
  const std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found != entries_.end() && refuses(found->second) &&
         now_ns - found->second.last_ns <= options_.time_ns;
}

void Quarantine::note_crash(const net::HttpRequest& request, std::string_view incarnation,
                            int64_t now_ns) {
  std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  if (!entries_.contains(name)) make_room(now_ns);
  Entry& entry = entries_[std::move(name)];
  if (now_ns - entry.last_ns > options_.time_ns) entry = {};
  ++entry.crashes;
  entry.incarnation = incarnation;
  entry.last_ns = now_ns;
  size_ = entries_.size();
  const auto loss = std::ranges::find(losses_, incarnation, &Loss::incarnation);
  if (loss != losses_.end()) {
    ++loss->requests;
    return;
  }
  if (losses_.size() == kLossesMax) losses_.pop_front();
  losses_.push_back({.incarnation = std::string(incarnation), .requests = 1});
}

bool Quarantine::judge(const net::HttpRequest& request) {
  const std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  const auto loss = std::ranges::find(losses_, entry.incarnation, &Loss::incarnation);
  if (loss != losses_.end() && loss->requests == 1) ++entry.alone;
  return refuses(entry);
}

void Quarantine::note_begun(const net::HttpRequest& request) {
  const std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  entries_.erase(name);
  size_ = entries_.size();
}

void Quarantine::make_room(int64_t now_ns) {
  std::erase_if(entries_,
                [&](const auto& one) { return now_ns - one.second.last_ns > options_.time_ns; });
  if (entries_.size() < options_.requests_max) return;
  entries_.erase(
      std::ranges::min_element(entries_, {}, [](const auto& one) { return one.second.last_ns; }));
}

}  // namespace pelton::gateway
