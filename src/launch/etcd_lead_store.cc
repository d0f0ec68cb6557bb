#include "launch/etcd_lead_store.h"

#include <utility>

namespace pelton::launch {

EtcdLeadStore::EtcdLeadStore(Options options)
    : options_(std::move(options)), client_(options_.etcd), writing_client_(options_.etcd) {}

Result<std::optional<LeadStore::Term>> EtcdLeadStore::enter(const std::string& name) {
  if (lease_ == 0) {
    TRY_ASSIGN(lease_, client_.grant(options_.lease));
  } else {
    // While another one leads ours stays, so that there is no new one with each look.
    const Result<std::chrono::seconds> left = client_.renew(lease_);
    if (!left.ok()) {
      if (left.error().code == ErrorCode::kNotFound) lease_ = 0;
      return left.error();
    }
  }
  TRY_ASSIGN(const bool is_ours, client_.create(key(), name, lease_));
  if (!is_ours) return std::optional<Term>();
  TRY_ASSIGN(const cluster::EtcdClient::Snapshot seen, client_.range(key()));
  for (const cluster::EtcdClient::Entry& one : seen.entries) {
    if (one.key == key() && one.value == name) revision_ = one.mod_revision;
  }
  if (revision_ == 0) return std::optional<Term>();
  return std::optional<Term>({.epoch = static_cast<uint64_t>(revision_), .left = options_.lease});
}

Result<std::chrono::nanoseconds> EtcdLeadStore::renew() {
  TRY_ASSIGN(const std::chrono::seconds left, client_.renew(lease_));
  return std::chrono::nanoseconds(left);
}

Result<void> EtcdLeadStore::give_up() {
  if (lease_ == 0) return {};
  return client_.revoke(lease_);
}

Result<std::vector<LeadStore::Entry>> EtcdLeadStore::read() {
  TRY_ASSIGN(const cluster::EtcdClient::Snapshot seen, client_.range(memory_key()));
  std::vector<Entry> all;
  for (const cluster::EtcdClient::Entry& one : seen.entries) {
    all.push_back({.pool = one.key.substr(memory_key().size()), .text = one.value});
  }
  return all;
}

Result<bool> EtcdLeadStore::write(const Entry& entry) {
  return writing_client_.put_while(key(), revision_, memory_key() + entry.pool, entry.text);
}

}  // namespace pelton::launch
