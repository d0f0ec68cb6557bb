#include "gateway/quarantine.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/random.h"

namespace pelton::gateway {

std::string Quarantine::name_of(const net::HttpRequest& request) const {
  return base::hmac_sha256(options_.secret, request.path + "\n" + request.body);
}

bool Quarantine::holds(const net::HttpRequest& request, int64_t now_ns) {
  if (size_ == 0) return false;
  const std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found != entries_.end() && found->second.crashes >= options_.crashes_max &&
         now_ns - found->second.last_ns <= options_.time_ns;
}

std::vector<std::string> Quarantine::tried_by_others(const net::HttpRequest& request) {
  if (size_ == 0) return {};
  const std::string name = name_of(request);
  std::vector<std::string> all;
  std::lock_guard lock(mutex_);
  if (!entries_.contains(name)) return {};
  for (const auto& [incarnation, whose] : trials_) all.push_back(incarnation);
  return all;
}

Quarantine::Trial Quarantine::begin_trial(const net::HttpRequest& request,
                                          std::string_view incarnation) {
  if (size_ == 0) return Trial::kNone;
  std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  if (!entries_.contains(name)) return Trial::kNone;
  if (in_flight_.contains(fingerprint_of(request))) return Trial::kTaken;
  const bool is_free = trials_.emplace(incarnation, std::move(name)).second;
  return is_free ? Trial::kBegun : Trial::kTaken;
}

// Two that differ in the middle only are taken for alike: then one of them waits for the other.
uint64_t Quarantine::fingerprint_of(const net::HttpRequest& request) {
  constexpr size_t kEnd = 256;
  const std::string_view body = request.body;
  const std::string_view tail = body.substr(body.size() - std::min(body.size(), kEnd));
  return base::mix64(base::fnv1a64(request.path) + body.size()) ^
         base::mix64(base::fnv1a64(body.substr(0, kEnd)) + base::mix64(base::fnv1a64(tail)));
}

Quarantine::InFlight::InFlight(Quarantine& quarantine, const net::HttpRequest& request)
    : quarantine_(quarantine), fingerprint_(fingerprint_of(request)) {
  std::lock_guard lock(quarantine_.mutex_);
  ++quarantine_.in_flight_[fingerprint_];
}

Quarantine::InFlight::~InFlight() {
  std::lock_guard lock(quarantine_.mutex_);
  const auto found = quarantine_.in_flight_.find(fingerprint_);
  if (--found->second == 0) quarantine_.in_flight_.erase(found);
}

void Quarantine::end_trial(std::string_view incarnation) {
  std::lock_guard lock(mutex_);
  const auto found = trials_.find(incarnation);
  if (found != trials_.end()) trials_.erase(found);
}

bool Quarantine::note_crash(const net::HttpRequest& request, std::string_view incarnation,
                            int64_t now_ns) {
  std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  const auto trial = trials_.find(incarnation);
  if (trial != trials_.end() && trial->second == name) trials_.erase(trial);
  if (!entries_.contains(name)) make_room(now_ns);
  Entry& entry = entries_[std::move(name)];
  if (now_ns - entry.last_ns > options_.time_ns) entry = {};
  // Sent twice, it may have been at one worker twice.
  if (std::exchange(entry.incarnation, incarnation) != incarnation) ++entry.crashes;
  entry.last_ns = now_ns;
  size_ = entries_.size();
  return entry.crashes >= options_.crashes_max;
}

void Quarantine::note_begun(const net::HttpRequest& request, std::string_view incarnation) {
  const std::string name = name_of(request);
  std::lock_guard lock(mutex_);
  const auto trial = trials_.find(incarnation);
  if (trial != trials_.end() && trial->second == name) trials_.erase(trial);
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
