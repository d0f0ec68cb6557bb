// Whether what a worker says of its KV blocks can be believed, by what it really found of prompts
// whose blocks were known: more than a fifth of fifty answers wrong, and it is not, until a test of
// its own (gateway/fleet_trust.cc) has shown that names and blocks agree again. Pure; one owner.
#pragma once

#include <bitset>
#include <cstddef>

namespace pelton::gateway {

class NameTrust {
 public:
  static constexpr size_t kAnswers = 50;
  static constexpr size_t kWrongMax = 10;

  // One answer: it found another number of blocks than was expected.
  void note(bool wrong) {
    if (!believed_) return;
    wrong_[next_] = wrong;
    next_ = (next_ + 1) % kAnswers;
    if (next_ == 0) full_ = true;
    if (full_ && wrong_.count() > kWrongMax) believed_ = false;
  }
  bool believed() const { return believed_; }
  size_t wrong() const { return wrong_.count(); }
  // It has shown that they agree, or is another start.
  void begin_anew() { *this = NameTrust(); }

 private:
  std::bitset<kAnswers> wrong_;
  size_t next_ = 0;
  bool full_ = false;
  bool believed_ = true;
};

}  // namespace pelton::gateway
