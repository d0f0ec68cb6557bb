// In which stored response an item is that a later request names by its id alone
// ("item_reference"). The newest are known, so many of them; any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace pelton::server {

class ItemPlaces {
 public:
  static constexpr size_t kItemsMax = size_t{1} << 16;

  struct Key {
    std::string_view owner;
    std::string_view id;
  };
  void note(const Key& item, std::string_view response_id);
  std::string find(const Key& item) const;  // the response's id; empty: not known

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> responses_;  // guarded by mutex_
  std::deque<std::string> order_;                           // guarded by mutex_; oldest first
};

}  // namespace pelton::server
