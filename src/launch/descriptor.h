// A file's descriptor, closed when it goes; -1: the file could not be opened.
#pragma once

#include <unistd.h>

namespace pelton::launch {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  bool ok() const { return number_ >= 0; }

 private:
  const int number_;
};

}  // namespace pelton::launch
