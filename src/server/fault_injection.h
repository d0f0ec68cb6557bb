// Faults that an operator asks a worker of scripted answers for, to see what its gateways make of
// them: `POST /admin/faults` with any of these fields, of which those that are left out are off.
//
//   {"hang": true}          the step that runs does not end
//   {"slow": 10}            steps take ten times as long
//   {"errors": 0.2}         this share of what gateways send is answered 500
//   {"abort_on": "word"}    a prompt with this word ends the process
//   {"lie_load": 0}         load reports hold this number, whatever the load is
//   {"drop_events": 0.5}    this share of the prefix cache's events is not announced
//
// Any thread. Owned by the program's entry; there only with `--executor modelled:FILE`.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::server {

struct Faults {
  bool hang = false;
  double slow = 1;
  double errors = 0;
  std::string abort_on;
  std::optional<double> lie_load;
  double drop_events = 0;
};

// kInvalidArgument, with the field.
Result<Faults> parse_faults(std::string_view json);
std::string faults_body(const Faults& faults);

class FaultInjection {
 public:
  void set(Faults faults) {
    std::lock_guard lock(mutex_);
    faults_ = std::move(faults);
  }
  Faults now() const {
    std::lock_guard lock(mutex_);
    return faults_;
  }

 private:
  mutable std::mutex mutex_;
  Faults faults_;  // guarded by mutex_
};

}  // namespace pelton::server
