#include "kernels/cuda/emulation/fibers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

// ThreadSanitizer keeps a stack of its own for each fiber and must be told of every switch.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "kernels/cuda/emulation/async_products.h"
#include "kernels/cuda/emulation/device_memory.h"

// glibc's swapcontext asks the kernel for the signal mask each time; 30 times slower than this.
#if defined(__x86_64__) && !defined(PELTON_FIBERS_BY_UCONTEXT)
extern "C" void pelton_fiber_switch(void** save, void* load);
asm(R"(
.text
.type pelton_fiber_switch,@function
pelton_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pelton_fiber_switch,.-pelton_fiber_switch
)");
#define PELTON_FIBERS_BY_STACK 1
#endif

namespace pelton::kernels::gpu::emulation {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kThreadsMax = 1024;
constexpr int kWarpsMax = kThreadsMax / kWarpLanes;
constexpr int kGroupsMax = kThreadsMax / kGroupThreads;
constexpr size_t kCopyBytes = 16;
constexpr uint64_t kCanary = 0x5eed0fca9a12ee7u;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  size_t zero_bytes;
};

struct Fiber {
  Place place;
  bool done = true;
  bool has_waited = false;             // for the kernels before
  const int64_t* waits_for = nullptr;  // until this is no longer `seen`
  int64_t seen = 0;
  std::vector<Copy> copies;         // not yet carried out
  std::vector<size_t> copy_groups;  // how many of them stand in each closed group
  size_t open_copies = 0;
  std::vector<const void*> unpublished;  // where copies have come to since the last fence
#if defined(PELTON_FIBERS_BY_STACK)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
#if defined(__SANITIZE_THREAD__)
  void* watcher = __tsan_create_fiber(0);
#endif
};

// Threads on their way to a collective of all of them.
template <int kThreads>
struct Meeting {
  int arrived = 0;
  int64_t generation = 0;
  const char* name = nullptr;
  const void* in[kThreads];
  void* out[kThreads];
};

struct Machine {
  std::vector<Fiber> fibers{kThreadsMax};
  char* stacks = nullptr;
  Meeting<kWarpLanes> warps[kWarpsMax];
  Meeting<kGroupThreads> groups[kGroupsMax];
  int block_arrived = 0;
  int64_t block_generation = 0;
  int block_line = 0;
  bool is_dependent = false;  // the grid
  bool is_closed = false;     // device memory
  int block_waited = 0;       // threads that wait for the kernels before, or did
  int64_t wait_generation = 0;
  char* shared = nullptr;  // ends at a page without access
  size_t shared_room = 0;
  std::vector<int> copying;  // for each 16 bytes: by which thread + 1, until it publishes them
  Fiber* current = nullptr;
  const std::function<void()>* kernel = nullptr;
  uint64_t random = 1;
  int64_t collectives = 0;
#if defined(PELTON_FIBERS_BY_STACK)
  void* scheduler = nullptr;
#else
  ucontext_t scheduler;
#endif
#if defined(__SANITIZE_THREAD__)
  void* scheduler_watcher = nullptr;
#endif

  uint64_t draw() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }
};

Machine& machine() {
  static Machine* const the_machine = new Machine;  // its stacks live as long as the process
  return *the_machine;
}

void to_scheduler(Fiber& fiber) {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(machine().scheduler_watcher, 0);
#endif
#if defined(PELTON_FIBERS_BY_STACK)
  pelton_fiber_switch(&fiber.stack_pointer, machine().scheduler);
#else
  ::swapcontext(&fiber.context, &machine().scheduler);
#endif
}

void to_fiber(Fiber& fiber) {
  machine().current = &fiber;
#if defined(__SANITIZE_THREAD__)
  machine().scheduler_watcher = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.watcher, 0);
#endif
#if defined(PELTON_FIBERS_BY_STACK)
  pelton_fiber_switch(&machine().scheduler, fiber.stack_pointer);
#else
  ::swapcontext(&machine().scheduler, &fiber.context);
#endif
}

void fiber_main() {
  Machine& m = machine();
  (*m.kernel)();
  if (!m.current->copies.empty()) kernel_fault("a thread ends before its copies have come");
  if (has_products_under_way(m.current->place.thread)) {
    kernel_fault("a thread ends before its products are done");
  }
  if (m.is_dependent && !m.current->has_waited) {
    kernel_fault("a thread ends without having waited for the kernels before");
  }
  m.current->done = true;
  to_scheduler(*m.current);
  std::abort();
}

char* stack_of(int thread) {
  return machine().stacks + static_cast<size_t>(thread) * kStackBytes;
}

void prepare(Fiber& fiber, const Place& place) {
  fiber.place = place;
  fiber.done = false;
  fiber.has_waited = false;
  fiber.waits_for = nullptr;
  fiber.copies.clear();
  fiber.copy_groups.clear();
  fiber.open_copies = 0;
  fiber.unpublished.clear();
  char* const stack = stack_of(place.thread);
  std::memcpy(stack, &kCanary, sizeof kCanary);
#if defined(PELTON_FIBERS_BY_STACK)
  // As if fiber_main had been called, which leaves the stack 8 bytes off a multiple of 16: a return
  // address that is never used, the way in, six saved registers.
  auto* top = reinterpret_cast<uint64_t*>(stack + kStackBytes) - 1;
  *top = 0;
  *--top = reinterpret_cast<uint64_t>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber.stack_pointer = top;
#else
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  ::makecontext(&fiber.context, &fiber_main, 0);
#endif
}

void* take_pages(size_t bytes) {
  void* const got =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) kernel_fault("no memory for the emulation");
  return got;
}

void* poisoned_shared(size_t bytes) {
  Machine& m = machine();
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t room = (bytes + page - 1) / page * page;
  if (m.shared == nullptr || room != m.shared_room) {
    if (m.shared != nullptr) ::munmap(m.shared, m.shared_room + page);
    m.shared = static_cast<char*>(take_pages(room + page));
    ::mprotect(m.shared + room, page, PROT_NONE);
    m.shared_room = room;
  }
  const size_t used = (bytes + 127) / 128 * 128;
  std::memset(m.shared, 0xFF, room);  // NaN as float and as bf16
  m.copying.assign(room / kCopyBytes, 0);
  return m.shared + room - used;
}

void shuffle(std::vector<int>& order) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[machine().draw() % i]);
}

bool is_waiting(const Fiber& fiber) {
  return fiber.waits_for != nullptr && *fiber.waits_for == fiber.seen;
}

// Runs the warp until every lane has ended or waits for the block. False: nothing could run.
bool run_warp(int warp, std::vector<int>& lanes) {
  Machine& m = machine();
  bool any = false;
  for (bool progress = true; progress;) {
    progress = false;
    shuffle(lanes);
    for (const int lane : lanes) {
      Fiber& fiber = m.fibers[static_cast<size_t>(warp * kWarpLanes + lane)];
      if (fiber.done || is_waiting(fiber)) continue;
      to_fiber(fiber);
      progress = true;
    }
    any = any || progress;
  }
  return any;
}

void run_block(const Place& place, const std::function<void()>& kernel) {
  Machine& m = machine();
  const int warp_count = place.block_threads / kWarpLanes;
  m.kernel = &kernel;
  m.block_arrived = 0;
  m.block_waited = 0;
  for (int w = 0; w < warp_count; ++w) m.warps[w].arrived = 0;
  for (auto& group : m.groups) group.arrived = 0;
  forget_products(place.block_threads);
  for (int thread = 0; thread < place.block_threads; ++thread) {
    Place own = place;
    own.thread = thread;
    prepare(m.fibers[static_cast<size_t>(thread)], own);
  }
  std::vector<int> warps(static_cast<size_t>(warp_count));
  std::vector<int> lanes(kWarpLanes);
  for (int w = 0; w < warp_count; ++w) warps[static_cast<size_t>(w)] = w;
  for (int lane = 0; lane < kWarpLanes; ++lane) lanes[static_cast<size_t>(lane)] = lane;
  const auto all_done = [&] {
    return std::all_of(m.fibers.begin(), m.fibers.begin() + place.block_threads,
                       [](const Fiber& fiber) { return fiber.done; });
  };
  while (!all_done()) {
    shuffle(warps);
    bool any = false;
    for (const int w : warps) any = run_warp(w, lanes) || any;
    if (!any)
      kernel_fault("threads wait for others that never come (a collective under a branch?)");
  }
  for (int thread = 0; thread < place.block_threads; ++thread) {
    if (std::memcmp(stack_of(thread), &kCanary, sizeof kCanary) != 0) {
      kernel_fault("a thread's stack is too small for the emulation");
    }
  }
  m.current = nullptr;
}

void wait_until_changed(const int64_t& counter, int64_t seen) {
  Fiber& fiber = *machine().current;
  fiber.waits_for = &counter;
  fiber.seen = seen;
  to_scheduler(fiber);
  fiber.waits_for = nullptr;
}

template <int kThreads>
void meet(Meeting<kThreads>& meeting, int number, const char* name, const void* in, void* out,
          Exchange exchange) {
  if (meeting.arrived == 0) meeting.name = name;
  if (meeting.name != name) {
    kernel_fault("lanes of one warp or warpgroup stand at different collectives");
  }
  meeting.in[number] = in;
  meeting.out[number] = out;
  if (++meeting.arrived < kThreads) {
    return wait_until_changed(meeting.generation, meeting.generation);
  }
  exchange(meeting.in, meeting.out);
  meeting.arrived = 0;
  ++meeting.generation;
  ++machine().collectives;
}

// Of 16 bytes of shared memory; null: the address is none of it.
int* copying_at(const void* address) {
  Machine& m = machine();
  const auto offset = static_cast<const char*>(address) - m.shared;
  if (m.shared == nullptr || offset < 0 || offset >= static_cast<ptrdiff_t>(m.shared_room)) {
    return nullptr;
  }
  return &m.copying[static_cast<size_t>(offset) / kCopyBytes];
}

void carry_out(Fiber& fiber, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = fiber.copies[i];
    std::memcpy(copy.to, copy.from, copy.bytes);
    std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zero_bytes);
    fiber.unpublished.push_back(copy.to);
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<ptrdiff_t>(count));
}

}  // namespace

const Place& place() {
  return machine().current->place;
}

namespace {

void run_blocks(Dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel,
                bool is_dependent) {
  const std::lock_guard lock(memory_in_use());
  Machine& m = machine();
  m.is_dependent = is_dependent;
  if (threads <= 0 || threads % kWarpLanes != 0 || threads > kThreadsMax) {
    kernel_fault("a block's threads are no multiple of 32, or too many");
  }
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0 || grid.y > 65535 || grid.z > 65535) {
    kernel_fault("a grid is empty or larger than a device takes");
  }
  if (shared_bytes > (227 << 10)) kernel_fault("more shared memory than any device has");
  if (m.stacks == nullptr) m.stacks = static_cast<char*>(take_pages(kThreadsMax * kStackBytes));
  const bool closes = is_dependent && (closable_bytes() <= kClosedAlwaysBytes ||
                                       m.draw() % uint64_t{kClosedOneIn} == 0);
  // Blocks in any order: they must not need one another.
  const int64_t count = int64_t{grid.x} * grid.y * grid.z;
  const auto first = static_cast<int64_t>(m.draw() % static_cast<uint64_t>(count));
  const bool backwards = m.draw() % 2 == 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t b = (backwards ? first + count - i : first + i) % count;
    Place place;
    place.grid = grid;
    place.block_threads = threads;
    place.block = {static_cast<int>(b % grid.x), static_cast<int>(b / grid.x % grid.y),
                   static_cast<int>(b / grid.x / grid.y)};
    place.shared = poisoned_shared(shared_bytes);
    m.is_closed = closes && i == 0;
    if (m.is_closed) close_memory();
    run_block(place, kernel);
  }
}

}  // namespace

void run_grid(Dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel) {
  run_blocks(grid, threads, shared_bytes, kernel, false);
}

void run_dependent_grid(Dim3 grid, int threads, size_t shared_bytes,
                        const std::function<void()>& kernel) {
  run_blocks(grid, threads, shared_bytes, kernel, true);
}

// All threads of a block pass together: on a device, too, they wait for one event.
void wait_for_predecessors() {
  Machine& m = machine();
  Fiber& fiber = *m.current;
  if (!m.is_dependent || fiber.has_waited) return;
  fiber.has_waited = true;
  if (++m.block_waited < fiber.place.block_threads) {
    return wait_until_changed(m.wait_generation, m.wait_generation);
  }
  if (m.is_closed) open_memory();
  m.is_closed = false;
  ++m.wait_generation;
}

bool is_memory_closed() {
  return machine().is_closed;
}

void warp_collective(const char* name, const void* in, void* out, Exchange exchange) {
  const int thread = machine().current->place.thread;
  meet(machine().warps[thread / kWarpLanes], thread % kWarpLanes, name, in, out, exchange);
}

void group_collective(const char* name, const void* in, void* out, Exchange exchange) {
  const Place& at = machine().current->place;
  if (at.block_threads % kGroupThreads != 0) kernel_fault("a warpgroup without four warps");
  meet(machine().groups[at.thread / kGroupThreads], at.thread % kGroupThreads, name, in, out,
       exchange);
}

void block_barrier(int line) {
  Machine& m = machine();
  if (m.block_arrived == 0) m.block_line = line;
  if (m.block_line != line) kernel_fault("threads of one block stand at different barriers");
  if (++m.block_arrived < m.current->place.block_threads) {
    return wait_until_changed(m.block_generation, m.block_generation);
  }
  m.block_arrived = 0;
  ++m.block_generation;
  ++m.collectives;
}

void copy_later(void* to, const void* from, size_t bytes, size_t zero_bytes) {
  Fiber& fiber = *machine().current;
  if (machine().is_dependent && !fiber.has_waited) {
    kernel_fault("a copy starts before the wait for the kernels before");
  }
  fiber.copies.push_back({to, from, bytes, zero_bytes});
  ++fiber.open_copies;
  std::memset(to, 0xFF, bytes + zero_bytes);
  if (int* const copying = copying_at(to)) *copying = fiber.place.thread + 1;
}

void close_copy_group() {
  Fiber& fiber = *machine().current;
  fiber.copy_groups.push_back(fiber.open_copies);
  fiber.open_copies = 0;
}

void wait_for_copies(int groups_left) {
  Fiber& fiber = *machine().current;
  while (fiber.copy_groups.size() > static_cast<size_t>(groups_left)) {
    carry_out(fiber, fiber.copy_groups.front());
    fiber.copy_groups.erase(fiber.copy_groups.begin());
  }
}

void publish_copies() {
  Fiber& fiber = *machine().current;
  for (const void* const at : fiber.unpublished) {
    int* const copying = copying_at(at);
    if (copying != nullptr && *copying == fiber.place.thread + 1) *copying = 0;
  }
  fiber.unpublished.clear();
}

const char* shared_window() {
  return machine().shared;
}

const char* published_shared(uint32_t address, size_t bytes) {
  const Machine& m = machine();
  const char* const at = m.shared + address;
  if (at < m.current->place.shared || address + bytes > m.shared_room) {
    kernel_fault("a product reads beyond shared memory");
  }
  if (*copying_at(at) != 0) {
    kernel_fault("a product reads shared memory that was copied to and not published");
  }
  return at;
}

void kernel_fault(const char* what) {
  const Fiber* const fiber = machine().current;
  if (fiber == nullptr) {
    std::fprintf(stderr, "emulated kernel: %s\n", what);
  } else {
    const Place& at = fiber->place;
    std::fprintf(stderr, "emulated kernel: %s (block %d %d %d, thread %d)\n", what, at.block.x,
                 at.block.y, at.block.z, at.thread);
  }
  std::abort();
}

void set_seed(uint64_t seed) {
  machine().random = seed * 2 + 1;
}

int64_t collectives_run() {
  return machine().collectives;
}

}  // namespace pelton::kernels::gpu::emulation
