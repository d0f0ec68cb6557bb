// A file's descriptor, closed when it goes; -1: there is none, or it could not be opened. One
// owner; any thread.
#pragma once

#include <utility>

#include <unistd.h>

namespace pelton::base {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  bool ok() const { return number_ >= 0; }
  // Closes what it has and takes another one.
  void reset(int number = -1) {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }
  // The caller's to close.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace pelton::base
