// libpelton_mpi.so: the table of mpi_abi.h over Open MPI. It is not linked with MPI: whoever opens
// it has opened that before, for all to see (mpi_library.cc). What is written here are calls and
// nothing else: rounds, waits and losses are MpiTransport's, which is tested without MPI.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#define OMPI_SKIP_MPICXX 1  // only C's functions
#include <mpi.h>

#include "parallel/mpi_abi.h"

namespace pelton::parallel {
namespace {

struct World {
  MPI_Comm group = MPI_COMM_NULL;
  std::vector<MPI_Request> requests;

  MPI_Request& at(int32_t slot) { return requests[static_cast<size_t>(slot)]; }
};

std::string failure_text;

bool works(int code, const char* what) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  failure_text = std::string(what) + ": " + text;
  return false;
}

bool fails(const std::string& why) {
  failure_text = why;
  return false;
}

// One thread at a time calls MPI, not always the same: the one that loads, then the executor's.
bool init() {
  int is_there = 0;
  if (!works(MPI_Initialized(&is_there), "MPI_Initialized")) return false;
  if (is_there != 0) return fails("MPI serves one group of a process, and had begun before");
  int level = MPI_THREAD_SINGLE;
  if (!works(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread")) {
    return false;
  }
  if (level >= MPI_THREAD_SERIALIZED) return true;
  return fails("this MPI lets one thread call it (level " + std::to_string(level) +
               "); MPI_THREAD_SERIALIZED is needed");
}

void* begin(int32_t slots, MpiPlace* place) {
  if (!init()) return nullptr;
  auto* const world = new World();
  world->requests.assign(static_cast<size_t>(slots), MPI_REQUEST_NULL);
  int rank = 0;
  int ranks = 0;
  // Errors come back, they do not end the job: the group has an end of its own.
  const bool begun =
      works(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler") &&
      works(MPI_Comm_dup(MPI_COMM_WORLD, &world->group), "MPI_Comm_dup") &&
      works(MPI_Comm_set_errhandler(world->group, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler") &&
      works(MPI_Comm_rank(world->group, &rank), "MPI_Comm_rank") &&
      works(MPI_Comm_size(world->group, &ranks), "MPI_Comm_size");
  *place = {.rank = rank, .ranks = ranks};
  if (begun) return world;
  delete world;
  return nullptr;
}

bool receive(void* world, int32_t slot, void* to, int64_t room, int32_t from) {
  World& own = *static_cast<World*>(world);
  return works(
      MPI_Irecv(to, static_cast<int>(room), MPI_BYTE, from, MPI_ANY_TAG, own.group, &own.at(slot)),
      "MPI_Irecv");
}

bool send(void* world, int32_t slot, const void* from, int64_t bytes, int32_t to, int32_t tag) {
  World& own = *static_cast<World*>(world);
  return works(
      MPI_Issend(from, static_cast<int>(bytes), MPI_BYTE, to, tag, own.group, &own.at(slot)),
      "MPI_Issend");
}

MpiState test(void* world, int32_t slot, MpiArrival* arrival) {
  World& own = *static_cast<World*>(world);
  int is_done = 0;
  MPI_Status status;
  if (!works(MPI_Test(&own.at(slot), &is_done, &status), "MPI_Test")) return MpiState::kFailed;
  if (is_done == 0) return MpiState::kPending;
  if (arrival == nullptr) return MpiState::kDone;
  int bytes = 0;
  if (!works(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count")) return MpiState::kFailed;
  *arrival = {.tag = status.MPI_TAG, .bytes = bytes};
  return MpiState::kDone;
}

void look_after(void* world) {
  int is_there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, static_cast<World*>(world)->group, &is_there,
             MPI_STATUS_IGNORE);
}

void end(void* world) {
  World* const own = static_cast<World*>(world);
  for (MPI_Request& request : own->requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&own->group);
  MPI_Finalize();
  delete own;
}

const char* failure() {
  return failure_text.c_str();
}

}  // namespace
}  // namespace pelton::parallel

extern "C" __attribute__((visibility("default"))) const pelton::parallel::MpiTable*
pelton_mpi_library() {
  using namespace pelton::parallel;  // NOLINT
  static const MpiTable table{.version = kMpiAbiVersion,
                              .table_bytes = sizeof(MpiTable),
                              .begin = begin,
                              .receive = receive,
                              .send = send,
                              .test = test,
                              .look_after = look_after,
                              .end = end,
                              .failure = failure};
  return &table;
}
