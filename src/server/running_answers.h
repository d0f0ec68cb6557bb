// The answers that are being generated now, by the id that their clients know, for those who want
// to act on one: only its own tenant finds it. Owned by the Server; any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/http_server.h"

namespace pelton::server {

class Generation;

class RunningAnswers {
 public:
  struct Entry {
    std::string tenant;
    std::weak_ptr<Generation> generation;  // to be locked on its exchange's thread only
    std::weak_ptr<net::Exchange> exchange;
  };

  // Of two answers of the same name the later one is found.
  void add(const std::string& id, Entry entry);
  void remove(const std::string& id, const Generation& generation);

  // Has the reasoning of that answer end now, if it is reasoning. False: there is none of that
  // name.
  bool end_reasoning(const std::string& id, const std::string& tenant) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;  // bounded by what the engine takes
};

}  // namespace pelton::server
