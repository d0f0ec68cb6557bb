// The table that device_abi.h describes.
#include <new>
#include <string>

#include "cuda/device/operations.h"
#include "cuda/device/session.h"
#if !defined(__CUDACC__)
#include "cuda/emulation/fibers.h"
#endif

namespace pelton::cuda {
namespace {

// What tests and benchmarks call one by one runs on this stream.
Stream& test_stream() {
  static Stream stream = make_stream();
  return stream;
}
Mark& test_mark(int which) {
  static Mark marks[2] = {make_mark(), make_mark()};
  return marks[which];
}

const char* kind() {
#if defined(__CUDACC__)
  return "cuda";
#else
  return "emulated";
#endif
}

const char* failure() {
  static thread_local std::string text;
  text = take_failure();
  return text.empty() ? nullptr : text.c_str();
}

void set_seed(uint64_t seed) {
#if !defined(__CUDACC__)
  emulation::set_seed(seed);
#else
  (void)seed;
#endif
}

template <typename Args, void (*kOperation)(Stream, const Args&)>
void operation(const Args* args) {
  kOperation(test_stream(), *args);
}

// Nothing may be thrown through this interface.
template <typename Result, typename Body>
Result guarded(const Body& body, Result otherwise) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    note_failure("the host has no memory left");
    return otherwise;
  }
}

constexpr DeviceTable kTable = {
    .version = kAbiVersion,
    .table_bytes = sizeof(DeviceTable),
    .kind = kind,
    .failure = failure,
    .device_count = [] { return int32_t{device_count()}; },
    .device_info = [](int32_t index, DeviceInfo* info) { *info = device_info(index); },
    .open =
        [](int32_t index, const ModelShape* shape, const Limits* limits) {
          return guarded([&] { return Session::open(index, *shape, *limits).release(); },
                         static_cast<Session*>(nullptr));
        },
    .close = [](Session* session) { delete session; },
    .write = [](Session* session, int64_t offset, const void* from,
                int64_t bytes) { session->write(offset, from, bytes); },
    .stage =
        [](Session* session, int64_t bytes) {
          return guarded([&] { return session->stage(bytes); }, static_cast<void*>(nullptr));
        },
    .send = [](Session* session, const void* staged, int64_t offset,
               int64_t bytes) { session->send(staged, offset, bytes); },
    .finish_sending = [](Session* session) { session->finish_sending(); },
    .read = [](Session* session, int64_t offset, void* to,
               int64_t bytes) { session->read(offset, to, bytes); },
    .copy = [](Session* session, int64_t to, int64_t from,
               int64_t bytes) { session->copy(to, from, bytes); },
    .set_factors = [](Session* session, int32_t layer, float gate_up,
                      float down) { session->set_factors(layer, gate_up, down); },
    .set_configs = [](Session* session,
                      const KernelConfigs* configs) { session->set_configs(*configs); },
    .begin_trials = [](Session* session, uint64_t seed) { session->begin_trials(seed); },
    .seconds_of =
        [](Session* session, const ProductTrial* trial) {
          return guarded([&] { return session->seconds_of(*trial); }, -1.0);
        },
    .seconds_of_steps =
        [](Session* session, const StepTrial* trial) {
          return guarded([&] { return session->seconds_of_steps(*trial); }, -1.0);
        },
    .end_trials = [](Session* session) { session->end_trials(); },
    .wide_configs_agree =
        [](Session* session) {
          return guarded([&] { return int32_t{session->wide_configs_agree()}; }, int32_t{0});
        },
    .step =
        [](Session* session, const Step* step) {
          return guarded([&] { return session->step(*step); }, static_cast<float*>(nullptr));
        },
    .begin_step = [](Session* session,
                     const Step* step) { guarded([&] { return session->begin(*step), 0; }, 0); },
    .is_step_done = [](Session* session) { return session->is_done() ? 1 : 0; },
    .finish_step = [](Session* session) { return session->finish(); },
    .step_counts =
        [](Session* session, int64_t* steps, int64_t* replayed, int64_t* graphs) {
          *steps = session->steps();
          *replayed = session->replayed();
          *graphs = session->graph_count();
        },
    .use_device = [](int32_t index) { use_device(index); },
    .allocate = [](int64_t bytes) { return allocate(bytes); },
    .release = [](void* memory) { release(memory); },
    .to_device =
        [](void* to, const void* from, int64_t bytes) {
          copy_to_device(test_stream(), to, from, bytes);
          wait_for(test_stream());
        },
    .to_host =
        [](void* to, const void* from, int64_t bytes) {
          copy_to_host(test_stream(), to, from, bytes);
          wait_for(test_stream());
        },
    .fill = [](void* to, uint8_t value, int64_t bytes) { fill(test_stream(), to, value, bytes); },
    .wait = [] { wait_for(test_stream()); },
    .mark = [](int32_t which) { set_mark(test_stream(), test_mark(which)); },
    .seconds_between_marks = [] { return seconds_between(test_mark(0), test_mark(1)); },
    .set_seed = set_seed,
    .embed = operation<Embed, embed>,
    .norm = operation<Norm, norm>,
    .choose = operation<Choose, choose>,
    .group = operation<Group, group>,
    .linear = operation<Linear, linear>,
    .qkv = operation<Qkv, qkv>,
    .store_kv = operation<StoreKv, store_kv>,
    .gate_up = operation<GateUp, gate_up>,
    .down = operation<Down, down>,
    .attention = operation<Attention, attention>,
    .sample = operation<Sample, sample>,
    .randomize = operation<Randomize, randomize>,
    .copy_device = [](void* to, const void* from,
                      int64_t bytes) { copy_on_device(test_stream(), to, from, bytes); },
    .randomize_session = [](Session* session, uint64_t seed) { session->randomize_all(seed); },
};

}  // namespace
}  // namespace pelton::cuda

extern "C" __attribute__((visibility("default"))) const pelton::cuda::DeviceTable*
pelton_device_library() {
  return &pelton::cuda::kTable;
}
