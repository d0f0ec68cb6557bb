// device/runtime.h on the host: device memory is device_memory.h's; everything happens at once, but
// for copies that run beside the host: those happen when they are waited for, and read what is
// there then.
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/device/runtime.h"
#include "cuda/emulation/device_memory.h"
#include "cuda/emulation/fibers.h"

namespace pelton::cuda {
namespace {

using Launches = std::vector<std::function<void()>>;
thread_local Launches* recording = nullptr;

struct LateCopy {
  void* to;
  const void* from;
  int64_t bytes;
};
struct EmulatedStream {
  std::deque<LateCopy> under_way;
  int64_t started = 0;  // late copies, ever
};
struct EmulatedMark {
  double time = 0;
  EmulatedStream* stream = nullptr;
  int64_t started = 0;  // of the stream, when the mark was set
};

void copy(void* to, const void* from, int64_t bytes) {
  const std::lock_guard lock(emulation::memory_in_use());
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Carries out the stream's first copies, up to number `count`.
void carry_out(EmulatedStream& stream, int64_t count) {
  while (!stream.under_way.empty() &&
         stream.started - static_cast<int64_t>(stream.under_way.size()) < count) {
    const LateCopy& late = stream.under_way.front();
    copy(late.to, late.from, late.bytes);
    stream.under_way.pop_front();
  }
}

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
  info.multiprocessors = multiprocessor_count();
  info.memory_bytes = int64_t{1} << 32;
  info.memory_free_bytes = info.memory_bytes;
  info.shared_bytes_max = config_device().shared_bytes_max;
  info.has_wide_configs = 1;
  return info;
}

KernelDevice config_device() {
  return {227 << 10, true};
}

void use_device(int) {}
Stream make_stream() {
  return new EmulatedStream;
}
void end_stream(Stream stream) {
  delete static_cast<EmulatedStream*>(stream);
}

void* allocate(int64_t bytes) {
  void* const memory = emulation::take_memory(static_cast<size_t>(bytes));
  if (memory == nullptr) note_failure("device memory: the host has none left");
  return memory;
}
void release(void* memory) {
  emulation::give_memory(memory);
}

void declare_weights(void* memory, int64_t bytes) {
  emulation::declare_weights(memory, static_cast<size_t>(bytes));
}

void* allocate_pinned(int64_t bytes) {
  void* const memory = emulation::take_open_memory(static_cast<size_t>(bytes));
  if (memory == nullptr) note_failure("pinned memory: the host has none left");
  return memory;
}
void release_pinned(void* memory) {
  emulation::give_memory(memory);
}

bool overlaps_launches() {
  return true;
}

bool launches_cooperatively() {
  return true;
}

int multiprocessor_count() {
  return emulation::kAliveMax;
}

void copy_to_device(Stream, void* to, const void* from, int64_t bytes) {
  copy(to, from, bytes);
}
void copy_to_device_later(Stream stream, void* to, const void* from, int64_t bytes) {
  auto& own = *static_cast<EmulatedStream*>(stream);
  own.under_way.push_back({to, from, bytes});
  ++own.started;
}
void copy_to_host(Stream, void* to, const void* from, int64_t bytes) {
  copy(to, from, bytes);
}
void copy_on_device(Stream, void* to, const void* from, int64_t bytes) {
  copy(to, from, bytes);
}
void fill(Stream, void* to, uint8_t value, int64_t bytes) {
  const std::lock_guard lock(emulation::memory_in_use());
  std::memset(to, value, static_cast<size_t>(bytes));
}
void wait_for(Stream stream) {
  auto& own = *static_cast<EmulatedStream*>(stream);
  carry_out(own, own.started);
}

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
  return new EmulatedMark;
}
void set_mark(Stream stream, Mark mark) {
  auto* const own = static_cast<EmulatedStream*>(stream);
  *static_cast<EmulatedMark*>(mark) = {now(), own, own->started};
}
double seconds_between(Mark first, Mark second) {
  return static_cast<EmulatedMark*>(second)->time - static_cast<EmulatedMark*>(first)->time;
}
bool wait_for_mark(Mark mark) {
  const EmulatedMark& own = *static_cast<EmulatedMark*>(mark);
  if (own.stream != nullptr) carry_out(*own.stream, own.started);
  return true;
}
bool is_past(Mark) {
  return true;
}
void end_mark(Mark mark) {
  delete static_cast<EmulatedMark*>(mark);
}

}  // namespace pelton::cuda
