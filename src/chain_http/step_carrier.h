// How the calls of a run are made: one interface for those that this process answers itself
// (inner_request.h) and those that go to another server (http_step.h). All on the runs' thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "chain/step_call.h"

namespace pelton::chain_http {

// What a call reports. Its answer comes once, last; both come later than the call is made, and not
// after it has been dropped.
struct StepCallEvents {
  std::function<void(std::string text)> on_text;  // of one that is streamed
  std::function<void(chain::CallAnswer answer)> on_answer;
  // Before it keeps so many bytes of its answer, other than a stream's text. False: those of all
  // the run's calls would be too many together, and it ends as kTooLarge.
  std::function<bool(size_t bytes)> keep_bytes;
  // Bytes that the run's reader has not taken yet: a call that is streamed stops reading for it.
  std::function<size_t()> backlog_bytes;
};

// One call while it runs. Dropping it ends the call.
class RunningCall {
 public:
  virtual ~RunningCall() = default;
  // The reader has taken what there was.
  virtual void on_drained() {}
};

using CarryOut =
    std::function<std::unique_ptr<RunningCall>(const chain::StepCall& call, StepCallEvents events)>;

inline constexpr std::string_view kTooLargeTogether =
    "the answers that the run waits for are too large together";

// A stream stops being read where the reader is so far behind, and no call begins.
inline constexpr size_t kBacklogBytesMax = size_t{256} << 10;

}  // namespace pelton::chain_http
