#include "cli/exit_code.h"

namespace pelton::cli {

ExitCode exit_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kBadConfig:
      return kExitBadConfig;
    case ErrorCode::kNotFound:
    case ErrorCode::kBadCheckpoint:
    case ErrorCode::kUnsupported:  // an architecture or a tensor type that we do not know
      return kExitNoModel;
    case ErrorCode::kDoesNotFit:
      return kExitDoesNotFit;
    case ErrorCode::kAddressInUse:
      return kExitAddressInUse;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kUnavailable:
      return error.field == kSuperseded ? kExitSuperseded : kExitFailure;
    case ErrorCode::kOverloaded:
    case ErrorCode::kDeadline:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return kExitFailure;
  }
  return kExitFailure;
}

}  // namespace pelton::cli
