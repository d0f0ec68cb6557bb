// Finds the MPI plugin (mpi_abi.h) and opens it, with the system's MPI before it. What is open
// stays open. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "parallel/mpi_abi.h"

namespace pelton::parallel {

// $PELTON_MPI_LIBRARY, or libpelton_mpi.so beside the program or in ../lib/pelton. Errors:
// kNotFound saying what to install; kUnsupported of a plugin of another version.
Result<const MpiTable*> open_mpi();
Result<const MpiTable*> open_mpi(const std::string& path);

}  // namespace pelton::parallel
