#include "c_api/status.h"

#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

namespace pelton::c_api {
namespace {

thread_local std::string last_message;

pelton_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kBadConfig:
      return PELTON_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return PELTON_NOT_FOUND;
    case ErrorCode::kBadCheckpoint:
      return PELTON_BAD_CHECKPOINT;
    case ErrorCode::kUnsupported:
      return PELTON_UNSUPPORTED;
    case ErrorCode::kDoesNotFit:
      return PELTON_DOES_NOT_FIT;
    case ErrorCode::kOverloaded:
      return PELTON_OVERLOADED;
    case ErrorCode::kUnavailable:
      return PELTON_UNAVAILABLE;
    case ErrorCode::kCancelled:
      return PELTON_CANCELLED;
    case ErrorCode::kDeadline:
      return PELTON_DEADLINE;
    case ErrorCode::kAddressInUse:
    case ErrorCode::kIo:
      return PELTON_IO;
    case ErrorCode::kInternal:
      break;
  }
  return PELTON_INTERNAL;
}

}  // namespace

pelton_status fail(const Error& error) {
  last_message = error.message;
  return status_of(error.code);
}

pelton_status guarded(base::FunctionRef<Result<pelton_status>()> body) {
  try {
    const Result<pelton_status> result = body();
    if (!result.ok()) return fail(result.error());
    if (*result == PELTON_BUFFER_TOO_SMALL) last_message = "the buffer is too small";
    return *result;
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::kDoesNotFit, "out of memory", ""});
  } catch (const std::exception& exception) {
    return fail({ErrorCode::kInternal, exception.what(), ""});
  } catch (...) {
    return fail({ErrorCode::kInternal, "an exception that is none of the library's", ""});
  }
}

Result<void> check_given(const void* argument, std::string_view name) {
  if (argument != nullptr) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' may not be null", name),
               std::string(name)};
}

}  // namespace pelton::c_api

const char* pelton_error_message(void) {
  return pelton::c_api::last_message.c_str();
}
