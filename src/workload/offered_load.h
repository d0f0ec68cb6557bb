// What a load asks of servers in the long run, in requests: each turn of a conversation is one. Who
// sizes a fleet (`plan`) and who judges one (`simulate`) read the same numbers here. Pure.
#pragma once

#include "workload/spec.h"

namespace pelton::workload {

struct OfferedLoad {
  // Of all turns of all conversations; 0: all conversations come at once. Of a ramp, a day or a
  // trace its mean.
  double requests_per_s = 0;
  // Means of a request.
  double prompt_tokens = 1;    // as it is sent: with the earlier turns and their answers
  double repeated_tokens = 0;  // those earlier turns alone, which a prefix cache may still hold
  double pause_s = 0;          // before a later turn of a conversation
  double output_tokens = 1;    // kOutputTokensOtherwise where the load leaves it to the model
};

// Two turns of 200 tokens in and 100 out, a conversation a second: two requests a second, of 200
// and 500 prompt tokens, of which 0 and 300 are repeated.
OfferedLoad offered_load(const Workload& workload);

}  // namespace pelton::workload
