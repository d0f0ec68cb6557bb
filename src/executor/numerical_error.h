// The error of a request whose logits or states are no numbers.
#pragma once

#include "base/result.h"

namespace pelton::executor {

inline Error numerical_error() {
  return Error{ErrorCode::kBadCheckpoint,
               "the model computed NaN or infinity for this request; its weights may be damaged"};
}

}  // namespace pelton::executor
