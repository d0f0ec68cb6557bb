// What a page that watches a fleet is fed with: a sample a second of the last fifteen minutes, and
// tables as they stand, of which only the rows that have changed are sent. What they say is the
// business of whoever notes them. Bounded memory: samples have a greatest size, tables are as long
// as what they show. Any thread; one lock.
//
// Example: at 101 the table has rows a and b, at 102 b has changed. A page that comes then gets
//   {"n":102,"samples":[{"n":101,…},{"n":102,…}],"tables":{"t":{"all":true,"rows":[a,b]}}}
// and one that had 101
//   {"n":102,"samples":[{"n":102,…}],"tables":{"t":{"all":false,"rows":[b]}}}
// Once a row has gone, whoever may know it gets all that are left.
//
// Numbers begin at the second in which the process did, so that after a restart they go on behind
// those that a page may know from before, and all that it knows is replaced.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "console/event_streams.h"

namespace pelton::console {

class Feed {
 public:
  static constexpr size_t kSamples = 900;
  static constexpr size_t kSampleBytesMax = 8192;

  struct Table {
    std::string name;
    std::map<std::string, std::string> rows;  // JSON objects, by what a row is known by
  };

  explicit Feed(int64_t first_number) : first_(first_number), newest_(first_number - 1) {}

  // A sample: the members of a JSON object, without braces; one that is too long is left out.
  // `tables` is empty where nobody looks: pages then wait for the next ones.
  void note(std::string sample, std::vector<Table> tables);

  // Nothing new while the tables are not of the last note.
  EventStreams::News after(int64_t number) const;

 private:
  struct Row {
    std::string text;
    int64_t changed = 0;  // the number of the note
  };
  struct Shown {
    std::map<std::string, Row> rows;
    int64_t lost = 0;  // when a row last went
  };
  void note_table(const Table& table);

  const int64_t first_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  int64_t newest_;
  int64_t tabled_ = 0;               // the note that the tables are of
  std::deque<std::string> samples_;  // the last is newest_'s
  std::map<std::string, Shown> tables_;
};

}  // namespace pelton::console
