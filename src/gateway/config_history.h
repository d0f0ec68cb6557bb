// What a gateway's configuration file has said, one text after the other, so that a change can be
// taken back: the last kEntriesMax texts, and of these no more than kBytesMax. They are kept in a
// file of JSON lines beside it (0600), and go on behind what stands there after a new start; where
// that file cannot be written they are kept in memory, and where it is there and cannot be read it
// is never replaced. One thread's at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::gateway {

class ConfigHistory {
 public:
  static constexpr size_t kEntriesMax = 100;
  static constexpr size_t kBytesMax = size_t{16} << 20;
  static constexpr size_t kChangesMax = 64;                // lines of an entry
  static constexpr int64_t kNumberMax = int64_t{1} << 53;  // what JSON's readers count to

  struct Entry {
    int64_t number = 0;  // 1 is the first one; none is used twice
    int64_t unix_ms = 0;
    std::string who;
    std::string from;        // an address; empty: this machine itself
    int64_t reverts_to = 0;  // the number whose text this is again; 0: it is a new one
    std::string text;
    std::vector<std::string> changes;  // as change_text() has them; more are cut off

    friend bool operator==(const Entry&, const Entry&) = default;
  };

  // Empty: it is kept in memory only. Lines there that cannot be read are left out: one that was
  // begun and not ended, at the end of a machine.
  explicit ConfigHistory(std::string file);

  // Its number is given to it. A text that is the last one's is none.
  void note(Entry entry);

  const std::deque<Entry>& entries() const { return entries_; }  // by number
  const Entry* find(int64_t number) const;                       // null: it is not kept (any more)
  // Why what was noted last is in memory only; empty: it is on the disk, or is not to be.
  const std::string& error() const { return error_; }
  bool is_on_disk() const { return !file_.empty() && error_.empty(); }

 private:
  void read();
  void drop_old();
  void write_all();
  void append(const std::string& line);

  const std::string file_;
  std::deque<Entry> entries_;
  int64_t last_number_ = 0;
  size_t text_bytes_ = 0;  // of entries_
  size_t file_bytes_ = 0;
  std::string error_;
  bool is_foreign_ = false;  // what the file says is not known: it stays as it is
};

}  // namespace pelton::gateway
