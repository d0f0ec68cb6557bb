#include "base/refused_resource.h"

#include <exception>
#include <new>
#include <system_error>

#include <fmt/format.h>

namespace pelton::base {

Error refused_resource() {
  try {
    throw;
  } catch (const std::system_error& error) {
    return {ErrorCode::kUnavailable,
            fmt::format("the system refuses a thread: {}", error.code().message()), ""};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kUnavailable, "the system has no more memory", ""};
  } catch (const std::exception& error) {  // Asio's: no descriptors to wait for others with
    return {ErrorCode::kUnavailable, error.what(), ""};
  }
}

}  // namespace pelton::base
