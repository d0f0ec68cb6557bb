// What an exception says of a resource that the system refused (a thread, memory, a descriptor), as
// an Error. Everything else here travels as a Result; the standard library and Asio throw.
#pragma once

#include "base/result.h"

namespace pelton::base {

// Within a catch block only: kUnavailable with one sentence that names what was refused. An
// exception that is none of the standard library's is thrown on.
Error refused_resource();

}  // namespace pelton::base
