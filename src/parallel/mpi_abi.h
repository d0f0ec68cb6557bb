// What the MPI plugin (libpelton_mpi.so) is to the rest of Pelton: one table of functions, found
// under one name in a shared library that is opened at run time (mpi_library.h), so that the binary
// itself knows of no MPI. Plain data; both sides are built from this header, and a plugin of
// another version is refused.
//
// No function waits for another rank but `begin` and `end`. A function that fails says so and
// leaves the reason, which `failure` gives. One thread at a time, whichever.
#pragma once

#include <cstdint>

namespace pelton::parallel {

inline constexpr uint32_t kMpiAbiVersion = 1;
inline constexpr const char* kMpiAbiSymbol = "pelton_mpi_library";
// Tags are from 0 on; MPI promises this many.
inline constexpr uint32_t kMpiTags = 32768;

// What `begin` finds.
struct MpiPlace {
  int32_t rank;
  int32_t ranks;
};

// A part that came.
struct MpiArrival {
  int32_t tag;
  int64_t bytes;
};

enum class MpiState : int32_t { kPending, kDone, kFailed };

struct MpiTable {
  uint32_t version;
  uint32_t table_bytes;
  // MPI_Init_thread and a communicator of this group's own; waits until every rank of the job has
  // called it. `slots` requests may be under way. Null: it failed; once for each process. What
  // comes back is `world` below.
  void* (*begin)(int32_t slots, MpiPlace* place);
  // Both return at once; false: failed. A slot is free until then, or done.
  bool (*receive)(void* world, int32_t slot, void* to, int64_t room, int32_t from);
  // Is done when the other rank has begun to receive it (MPI_Issend).
  bool (*send)(void* world, int32_t slot, const void* from, int64_t bytes, int32_t to, int32_t tag);
  // Of a slot that is under way; `arrival` is filled when a receive is done.
  MpiState (*test)(void* world, int32_t slot, MpiArrival* arrival);
  // Lets MPI go on with what it has begun, and finishes no request.
  void (*look_after)(void* world);
  // Lets go of what is under way, and MPI_Finalize: waits until every rank has called it.
  void (*end)(void* world);
  const char* (*failure)();
};

}  // namespace pelton::parallel
