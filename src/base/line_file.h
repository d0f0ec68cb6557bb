// Lines into a file, whole or not at all: where a disk is full amid a line, its beginning is taken
// out again. One thread's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::base {

class LineFile {
 public:
  // The descriptor stays its owner's.
  explicit LineFile(int descriptor) : descriptor_(descriptor) {}

  struct Written {
    int64_t lost = 0;  // lines
    int error = 0;     // why: errno
    std::string why() const;
  };
  // lines: each ends with a line feed.
  Written write(std::string_view lines);

 private:
  size_t write_some(std::string_view bytes, int& error) const;
  bool take_back(size_t bytes) const;

  const int descriptor_;
  // Of a line whose beginning is out, and could not be taken back, as from a pipe: goes first.
  std::string rest_;
};

}  // namespace pelton::base
