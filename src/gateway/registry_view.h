// What a registry (etcd) says of a fleet's workers, kept as it was said last: whatever comes late,
// twice or under another key's name changes nothing, and a record that is gone only marks its
// worker, whom somebody else takes out once nobody answers there. Each change is worked in by
// itself. Pure; one owner, under that one's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/etcd_client.h"
#include "cluster/registration.h"

namespace pelton::gateway {

class RegistryView {
 public:
  static constexpr size_t kRecordsMax = 8192;

  // Of keys that begin so ("/pelton/v1/main").
  explicit RegistryView(std::string prefix) : prefix_(std::move(prefix)) {}

  struct Taken {
    bool is_other = false;             // there are other workers than before
    std::vector<std::string> refused;  // "KEY: why"
  };
  // All that there is: what it lacks is marked.
  Taken take(const cluster::EtcdClient::Snapshot& snapshot);
  Taken take(const std::vector<cluster::EtcdClient::Change>& changes);

  std::vector<cluster::Registration> workers() const;
  // Whose records are gone, by key.
  std::vector<std::pair<std::string, cluster::Registration>> unlisted() const;
  // Nobody answers there; false: its record has come back meanwhile.
  bool drop(const std::string& key);

 private:
  struct Record {
    cluster::Registration worker;
    int64_t mod_revision = 0;
    bool is_listed = true;  // false: its key is gone
  };
  void put(const cluster::EtcdClient::Entry& entry, Taken& taken);
  void say_passed_over(Taken& taken);

  const std::string prefix_;
  std::map<std::string, Record> records_;  // by key
  size_t passed_over_ = 0;                 // while one change is taken: new ones without room
  std::string first_passed_over_;
  bool full_said_ = false;
};

}  // namespace pelton::gateway
