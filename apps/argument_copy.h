// The program's arguments, kept where other users of the machine do not see them: keys that stand
// among them are overwritten where they came from, which is what ps and /proc/PID/cmdline show.
#pragma once

#include <string>
#include <vector>

namespace pelton::apps {

class ArgumentCopy {
 public:
  ArgumentCopy(int argc, char** argv);

  int count() const { return static_cast<int>(texts_.size()); }
  char** pointers() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;  // null at the end
};

}  // namespace pelton::apps
