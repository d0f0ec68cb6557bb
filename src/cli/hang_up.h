// SIGHUP for a verb whose loop waits for something else: while an Interrupt of
// HangUp::kReported lives (interrupt.h), it ends nothing, and this says that it has come.
#pragma once

namespace pelton::cli {

// Whether there has been one since the last call, or since that Interrupt began. Any thread.
bool take_hang_up();

}  // namespace pelton::cli
