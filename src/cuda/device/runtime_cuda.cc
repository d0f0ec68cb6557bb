// device/runtime.h as CUDA has it; compiled by nvcc.
#include <cstdio>

#include <cuda_runtime.h>

#include "cuda/device/runtime.h"

namespace pelton::cuda {
namespace {

std::string& failure() {
  static thread_local std::string text;
  return text;
}

bool is_well(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  note_failure(std::string(what) + ": " + cudaGetErrorString(error));
  cudaGetLastError();  // so that the next call does not report it again
  return false;
}

// Of the current device; 0 with a failure noted.
int attribute(cudaDeviceAttr which, const char* what) {
  int device = 0;
  int value = 0;
  is_well(cudaGetDevice(&device), "asking for the device");
  is_well(cudaDeviceGetAttribute(&value, which, device), what);
  return value;
}

cudaStream_t cuda(Stream stream) {
  return static_cast<cudaStream_t>(stream);
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
  int count = 0;
  int driver = 0;  // stays 0 where none is installed, which is no failure
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return 0;
  if (!is_well(cudaGetDeviceCount(&count), "the driver says")) return 0;
  return count;
}

DeviceInfo device_info(int index) {
  DeviceInfo info = {};
  cudaDeviceProp prop;
  if (!is_well(cudaGetDeviceProperties(&prop, index), "asking a device")) return info;
  std::snprintf(info.name, sizeof info.name, "%.127s", prop.name);
  info.compute_major = prop.major;
  info.compute_minor = prop.minor;
  info.multiprocessors = prop.multiProcessorCount;
  info.cache_bytes = prop.l2CacheSize;
  info.memory_bytes = static_cast<int64_t>(prop.totalGlobalMem);
  info.shared_bytes_max = static_cast<int64_t>(prop.sharedMemPerBlockOptin);
  use_device(index);
  info.has_wide_configs = config_device().has_wide ? 1 : 0;
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  if (is_well(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for free memory")) {
    info.memory_free_bytes = static_cast<int64_t>(free_bytes);
  }
  cudaDriverGetVersion(&info.driver_version);
  cudaRuntimeGetVersion(&info.runtime_version);
  return info;
}

KernelDevice config_device() {
  const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, "asking for shared memory");
  const int major =
      attribute(cudaDevAttrComputeCapabilityMajor, "asking for the compute capability");
  const int minor =
      attribute(cudaDevAttrComputeCapabilityMinor, "asking for the compute capability");
  return {bytes, kCompilesWideConfigs && major == 9 && minor == 0};
}

bool overlaps_launches() {
  return attribute(cudaDevAttrComputeCapabilityMajor, "asking for the compute capability") >= 9;
}

bool launches_cooperatively() {
  return attribute(cudaDevAttrCooperativeLaunch, "asking for cooperative launches") != 0;
}

int multiprocessor_count() {
  return attribute(cudaDevAttrMultiProcessorCount, "asking for multiprocessors");
}

void use_device(int index) {
  is_well(cudaSetDevice(index), "choosing a device");
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  is_well(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return stream;
}

void end_stream(Stream stream) {
  is_well(cudaStreamDestroy(cuda(stream)), "ending a stream");
}

void* allocate(int64_t bytes) {
  void* memory = nullptr;
  const bool got = is_well(cudaMalloc(&memory, static_cast<size_t>(bytes)), "device memory");
  return got ? memory : nullptr;
}

void release(void* memory) {
  is_well(cudaFree(memory), "giving device memory back");
}

void declare_weights(void*, int64_t) {}

void* allocate_pinned(int64_t bytes) {
  void* memory = nullptr;
  const bool got =
      is_well(cudaHostAlloc(&memory, static_cast<size_t>(bytes), 0), "pinned host memory");
  return got ? memory : nullptr;
}

void release_pinned(void* memory) {
  is_well(cudaFreeHost(memory), "giving pinned memory back");
}

void copy_to_device(Stream stream, void* to, const void* from, int64_t bytes) {
  is_well(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, cuda(stream)),
      "copying to the device");
}

void copy_to_device_later(Stream stream, void* to, const void* from, int64_t bytes) {
  copy_to_device(stream, to, from, bytes);  // CUDA knows what is pinned
}

void copy_to_host(Stream stream, void* to, const void* from, int64_t bytes) {
  is_well(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, cuda(stream)),
      "copying to the host");
}

void copy_on_device(Stream stream, void* to, const void* from, int64_t bytes) {
  is_well(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, cuda(stream)),
      "copying on the device");
}

void fill(Stream stream, void* to, uint8_t value, int64_t bytes) {
  is_well(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), cuda(stream)), "filling memory");
}

void wait_for(Stream stream) {
  is_well(cudaStreamSynchronize(cuda(stream)), "waiting for the device");
}

void begin_recording(Stream stream) {
  is_well(cudaStreamBeginCapture(cuda(stream), cudaStreamCaptureModeThreadLocal),
          "recording a graph");
}

Graph end_recording(Stream stream) {
  cudaGraph_t graph = nullptr;
  if (!is_well(cudaStreamEndCapture(cuda(stream), &graph), "ending a graph")) return nullptr;
  cudaGraphExec_t ready = nullptr;
  is_well(cudaGraphInstantiate(&ready, graph, 0), "making a graph ready");
  is_well(cudaGraphDestroy(graph), "ending a graph");
  return ready;
}

void run_graph(Stream stream, Graph graph) {
  is_well(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), cuda(stream)), "running a graph");
}

void end_graph(Graph graph) {
  is_well(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)), "ending a graph");
}

bool records_graphs() {
  return true;
}

Mark make_mark() {
  cudaEvent_t event = nullptr;
  is_well(cudaEventCreate(&event), "making an event");
  return event;
}

void set_mark(Stream stream, Mark mark) {
  is_well(cudaEventRecord(static_cast<cudaEvent_t>(mark), cuda(stream)), "setting an event");
}

double seconds_between(Mark first, Mark second) {
  float ms = 0;
  is_well(cudaEventSynchronize(static_cast<cudaEvent_t>(second)), "waiting for an event");
  is_well(
      cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(first), static_cast<cudaEvent_t>(second)),
      "reading events");
  return static_cast<double>(ms) * 1e-3;
}

bool wait_for_mark(Mark mark) {
  return is_well(cudaEventSynchronize(static_cast<cudaEvent_t>(mark)), "waiting for the device");
}
bool is_past(Mark mark) {
  // A failure is found by whoever waits.
  return cudaEventQuery(static_cast<cudaEvent_t>(mark)) != cudaErrorNotReady;
}
void end_mark(Mark mark) {
  is_well(cudaEventDestroy(static_cast<cudaEvent_t>(mark)), "ending an event");
}

}  // namespace pelton::cuda
