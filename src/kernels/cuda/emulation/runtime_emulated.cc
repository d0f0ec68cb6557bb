// device/runtime.h on the host: "device memory" is the host's, and ends at a page that nobody may
// touch; everything happens at once.
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cuda/device/runtime.h"
#include "kernels/cuda/emulation/fibers.h"

namespace pelton::kernels::gpu {
namespace {

struct Area {
  void* begin;
  size_t bytes;
};

// By what was handed out; given back by whichever thread.
std::mutex areas_mutex;
std::map<void*, Area> areas;

using Launches = std::vector<std::function<void()>>;
thread_local Launches* recording = nullptr;

std::string& failure() {
  static thread_local std::string text;
  return text;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string take_failure() {
  std::string out;
  out.swap(failure());
  return out;
}

void note_failure(const std::string& what) {
  if (failure().empty()) failure() = what;
}

int device_count() {
  return 1;
}

DeviceInfo device_info(int index) {
  DeviceInfo info = {};
  if (index != 0) {
    note_failure("the emulation has one device, number 0");
    return info;
  }
  std::strncpy(info.name, "emulated on the host", sizeof info.name - 1);
  info.compute_major = 9;
  info.multiprocessors = 1;
  info.memory_bytes = int64_t{1} << 32;
  info.memory_free_bytes = info.memory_bytes;
  info.shared_bytes_max = shared_bytes_max();
  return info;
}

int64_t shared_bytes_max() {
  return 227 << 10;
}

void use_device(int) {}
Stream make_stream() {
  return nullptr;
}
void end_stream(Stream) {}

// Poisoned: NaN as float and as bf16.
void* allocate(int64_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t used = (static_cast<size_t>(bytes) + 15) / 16 * 16;
  const size_t room = (used + page - 1) / page * page;
  void* const begin = ::mmap(nullptr, room + page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    note_failure("device memory: the host has none left");
    return nullptr;
  }
  ::mprotect(static_cast<char*>(begin) + room, page, PROT_NONE);
  void* const memory = static_cast<char*>(begin) + room - used;
  if (bytes <= (64 << 20)) std::memset(memory, 0xFF, used);  // more would be touched for nothing
  const std::lock_guard lock(areas_mutex);
  areas[memory] = {begin, room + page};
  return memory;
}

void release(void* memory) {
  const std::lock_guard lock(areas_mutex);
  const auto found = areas.find(memory);
  if (found == areas.end()) return;
  ::munmap(found->second.begin, found->second.bytes);
  areas.erase(found);
}

void* allocate_pinned(int64_t bytes) {
  return allocate(bytes);
}
void release_pinned(void* memory) {
  release(memory);
}

void copy_to_device(Stream, void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void copy_to_host(Stream, void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void copy_on_device(Stream, void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void fill(Stream, void* to, uint8_t value, int64_t bytes) {
  std::memset(to, value, static_cast<size_t>(bytes));
}
void wait_for(Stream) {}

// A recorded graph is the launches themselves, with the arguments that they got.
void begin_recording(Stream) {
  recording = new Launches;
}
Graph end_recording(Stream) {
  return std::exchange(recording, nullptr);
}
void run_graph(Stream, Graph graph) {
  for (const auto& launch : *static_cast<Launches*>(graph)) launch();
}
void end_graph(Graph graph) {
  delete static_cast<Launches*>(graph);
}
bool records_graphs() {
  return true;
}

void emulation::start(std::function<void()> launch) {
  if (recording == nullptr) return launch();
  recording->push_back(std::move(launch));
}

Mark make_mark() {
  return new double(0);
}
void set_mark(Stream, Mark mark) {
  *static_cast<double*>(mark) = now();
}
double seconds_between(Mark first, Mark second) {
  return *static_cast<double*>(second) - *static_cast<double*>(first);
}
void end_mark(Mark mark) {
  delete static_cast<double*>(mark);
}

}  // namespace pelton::kernels::gpu
