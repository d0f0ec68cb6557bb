#include "cuda/emulation/fibers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

// ThreadSanitizer keeps a stack of its own for each fiber and must see every switch.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "cuda/emulation/async_products.h"
#include "cuda/emulation/device_memory.h"

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

namespace pelton::cuda::emulation {
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
  const uint32_t* waits_for_grid = nullptr;  // until this has reached `target`
  uint32_t target = 0;
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

// What a block of threads runs on; used again for the next one.
struct Block {
  std::vector<Fiber> fibers{kThreadsMax};
  char* stacks = nullptr;
  Meeting<kWarpLanes> warps[kWarpsMax];
  Meeting<kGroupThreads> groups[kGroupsMax];
  Place place;
  int arrived = 0;  // at the block's barrier
  int64_t generation = 0;
  int line = 0;
  int waited = 0;  // threads that wait for the kernels before, or did
  int64_t wait_generation = 0;
  uint32_t grid_arrivals = 0;  // of this block, at the grid's barriers
  uint32_t grid_waits = 0;
  char* shared = nullptr;  // ends at a page without access
  size_t shared_room = 0;
  std::vector<int> copying;  // for each 16 bytes: by which thread + 1, until it publishes them
};

struct Machine {
  std::vector<std::unique_ptr<Block>> blocks;  // more than one: alive at once
  bool is_dependent = false;                   // the grid
  bool is_cooperative = false;
  bool is_closed = false;  // device memory
  Block* block = nullptr;  // the current fiber's
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

char* stack_of(const Block& block, int thread) {
  return block.stacks + static_cast<size_t>(thread) * kStackBytes;
}

void prepare(Fiber& fiber, const Place& place, char* stack) {
  fiber.place = place;
  fiber.done = false;
  fiber.has_waited = false;
  fiber.waits_for = nullptr;
  fiber.waits_for_grid = nullptr;
  fiber.copies.clear();
  fiber.copy_groups.clear();
  fiber.open_copies = 0;
  fiber.unpublished.clear();
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

void* poisoned_shared(Block& block, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t room = (bytes + page - 1) / page * page;
  if (block.shared == nullptr || room != block.shared_room) {
    if (block.shared != nullptr) ::munmap(block.shared, block.shared_room + page);
    block.shared = static_cast<char*>(take_pages(room + page));
    ::mprotect(block.shared + room, page, PROT_NONE);
    block.shared_room = room;
  }
  const size_t used = (bytes + 127) / 128 * 128;
  std::memset(block.shared, 0xFF, room);  // NaN as float and as bf16
  block.copying.assign(room / kCopyBytes, 0);
  return block.shared + room - used;
}

void shuffle(std::vector<int>& order) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[machine().draw() % i]);
}

bool is_reached(const uint32_t* counter, uint32_t target) {
  return static_cast<int32_t>(*counter - target) >= 0;
}

bool is_waiting(const Fiber& fiber) {
  if (fiber.waits_for_grid != nullptr) return !is_reached(fiber.waits_for_grid, fiber.target);
  return fiber.waits_for != nullptr && *fiber.waits_for == fiber.seen;
}

// Nothing can run any more. Names a thread that waits, and where other blocks wait at the grid's
// barrier, a block that does not.
[[noreturn]] void fault_of_waiting(int count) {
  Machine& m = machine();
  const auto waits_at_grid = [](const Fiber& fiber) {
    return !fiber.done && fiber.waits_for_grid != nullptr;
  };
  bool any_at_grid = false;
  const Block* missing = nullptr;
  for (int b = 0; b < count; ++b) {
    const Block& block = *m.blocks[static_cast<size_t>(b)];
    const bool is_there = std::any_of(
        block.fibers.begin(), block.fibers.begin() + block.place.block_threads, waits_at_grid);
    any_at_grid = any_at_grid || is_there;
    if (!is_there) missing = &block;
  }
  if (!any_at_grid) {
    kernel_fault("threads wait for others that never come (a collective under a branch?)");
  }
  m.current = nullptr;
  static char what[160];
  if (missing == nullptr) {
    std::snprintf(what, sizeof what,
                  "all blocks wait at a barrier of the grid: its counter is off");
  } else {
    const bool has_ended =
        std::all_of(missing->fibers.begin(), missing->fibers.begin() + missing->place.block_threads,
                    [](const Fiber& fiber) { return fiber.done; });
    std::snprintf(what, sizeof what, "blocks wait at barrier %u of the grid for block %d, which %s",
                  missing->grid_arrivals + 1, missing->place.block.x,
                  has_ended ? "has ended" : "does not come");
  }
  kernel_fault(what);
}

// Runs the warp until every lane has ended or waits for the block. False: nothing could run.
bool run_warp(Block& block, int warp, std::vector<int>& lanes) {
  bool any = false;
  for (bool progress = true; progress;) {
    progress = false;
    shuffle(lanes);
    for (const int lane : lanes) {
      Fiber& fiber = block.fibers[static_cast<size_t>(warp * kWarpLanes + lane)];
      if (fiber.done || is_waiting(fiber)) continue;
      to_fiber(fiber);
      progress = true;
    }
    any = any || progress;
  }
  return any;
}

// Runs each warp once, as far as it gets. False: nothing could run.
bool run_warps(Block& block) {
  machine().block = &block;
  std::vector<int> warps(static_cast<size_t>(block.place.block_threads / kWarpLanes));
  std::vector<int> lanes(kWarpLanes);
  std::iota(warps.begin(), warps.end(), 0);
  std::iota(lanes.begin(), lanes.end(), 0);
  shuffle(warps);
  bool any = false;
  for (const int w : warps) any = run_warp(block, w, lanes) || any;
  return any;
}

bool is_done(const Block& block) {
  return std::all_of(block.fibers.begin(), block.fibers.begin() + block.place.block_threads,
                     [](const Fiber& fiber) { return fiber.done; });
}

void begin_block(Block& block, const Place& place, size_t shared_bytes) {
  if (block.stacks == nullptr) {
    block.stacks = static_cast<char*>(take_pages(kThreadsMax * kStackBytes));
  }
  block.place = place;
  block.place.shared = poisoned_shared(block, shared_bytes);
  block.arrived = 0;
  block.waited = 0;
  block.grid_arrivals = 0;
  block.grid_waits = 0;
  for (auto& warp : block.warps) warp.arrived = 0;
  for (auto& group : block.groups) group.arrived = 0;
  forget_products(place.block_threads);
  for (int thread = 0; thread < place.block_threads; ++thread) {
    Place own = block.place;
    own.thread = thread;
    prepare(block.fibers[static_cast<size_t>(thread)], own, stack_of(block, thread));
  }
}

void end_block(const Block& block) {
  for (int thread = 0; thread < block.place.block_threads; ++thread) {
    if (std::memcmp(stack_of(block, thread), &kCanary, sizeof kCanary) != 0) {
      kernel_fault("a thread's stack is too small for the emulation");
    }
  }
}

// Blocks that are alive at once, in turns in any order, each as far as it gets.
void run_alive(int count) {
  Machine& m = machine();
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  bool any = true;
  for (bool done = false; !done;) {
    if (!any) fault_of_waiting(count);
    any = false;
    done = true;
    shuffle(order);
    for (const int b : order) {
      Block& block = *m.blocks[static_cast<size_t>(b)];
      any = run_warps(block) || any;
      done = done && is_done(block);
    }
  }
  for (int b = 0; b < count; ++b) end_block(*m.blocks[static_cast<size_t>(b)]);
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
  Block& block = *machine().block;
  const auto offset = static_cast<const char*>(address) - block.shared;
  if (block.shared == nullptr || offset < 0 ||
      offset >= static_cast<ptrdiff_t>(block.shared_room)) {
    return nullptr;
  }
  return &block.copying[static_cast<size_t>(offset) / kCopyBytes];
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

void check_launch(Dim3 grid, int threads, size_t shared_bytes) {
  if (threads <= 0 || threads % kWarpLanes != 0 || threads > kThreadsMax) {
    kernel_fault("a block's threads are no multiple of 32, or too many");
  }
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0 || grid.y > 65535 || grid.z > 65535) {
    kernel_fault("a grid is empty or larger than a device takes");
  }
  if (shared_bytes > (227 << 10)) kernel_fault("more shared memory than any device has");
}

Block& block_number(int index) {
  std::vector<std::unique_ptr<Block>>& blocks = machine().blocks;
  while (blocks.size() <= static_cast<size_t>(index)) blocks.push_back(std::make_unique<Block>());
  return *blocks[static_cast<size_t>(index)];
}

// One after the other.
void run_blocks(Dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel,
                bool is_dependent) {
  const std::lock_guard lock(memory_in_use());
  Machine& m = machine();
  check_launch(grid, threads, shared_bytes);
  m.is_dependent = is_dependent;
  m.is_cooperative = false;
  m.kernel = &kernel;
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
    begin_block(block_number(0), place, shared_bytes);
    m.is_closed = closes && i == 0;
    if (m.is_closed) close_memory();
    run_alive(1);
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

void run_cooperative_grid(Dim3 grid, int threads, size_t shared_bytes,
                          const std::function<void()>& kernel) {
  const std::lock_guard lock(memory_in_use());
  Machine& m = machine();
  check_launch(grid, threads, shared_bytes);
  if (grid.x > kAliveMax || grid.y != 1 || grid.z != 1) {
    kernel_fault("more blocks than can be alive at once, or not in a row");
  }
  m.is_dependent = false;
  m.is_cooperative = true;
  m.kernel = &kernel;
  for (int b = 0; b < grid.x; ++b) {
    Place place;
    place.grid = grid;
    place.block_threads = threads;
    place.block.x = b;
    begin_block(block_number(b), place, shared_bytes);
  }
  run_alive(grid.x);
}

int draw_alive() {
  return 3 + static_cast<int>(machine().draw() % uint64_t{kAliveMax - 2});
}

void arrive_at_grid(uint32_t* counter) {
  Machine& m = machine();
  if (!m.is_cooperative) kernel_fault("a barrier of a grid whose blocks are not alive at once");
  if (m.block->grid_arrivals != m.block->grid_waits) {
    kernel_fault("a block arrives at a barrier of the grid twice");
  }
  ++m.block->grid_arrivals;
  ++*counter;
}

void wait_for_grid(const uint32_t* counter, uint32_t target) {
  Machine& m = machine();
  Fiber& fiber = *m.current;
  ++m.block->grid_waits;
  const auto blocks = static_cast<uint32_t>(fiber.place.grid.x);
  if (m.block->grid_arrivals != m.block->grid_waits || target != blocks * m.block->grid_waits) {
    kernel_fault("a block waits at a barrier of the grid that it has not arrived at");
  }
  if (is_reached(counter, target)) return;
  fiber.waits_for_grid = counter;
  fiber.target = target;
  to_scheduler(fiber);
  fiber.waits_for_grid = nullptr;
}

// All threads of a block pass together: on a device, too, they wait for one event.
void wait_for_predecessors() {
  Machine& m = machine();
  Fiber& fiber = *m.current;
  if (!m.is_dependent || fiber.has_waited) return;
  fiber.has_waited = true;
  Block& block = *m.block;
  if (++block.waited < fiber.place.block_threads) {
    return wait_until_changed(block.wait_generation, block.wait_generation);
  }
  if (m.is_closed) open_memory();
  m.is_closed = false;
  ++block.wait_generation;
}

bool is_memory_closed() {
  return machine().is_closed;
}

void warp_collective(const char* name, const void* in, void* out, Exchange exchange) {
  const int thread = machine().current->place.thread;
  meet(machine().block->warps[thread / kWarpLanes], thread % kWarpLanes, name, in, out, exchange);
}

void group_collective(const char* name, const void* in, void* out, Exchange exchange) {
  const Place& at = machine().current->place;
  if (at.block_threads % kGroupThreads != 0) kernel_fault("a warpgroup without four warps");
  meet(machine().block->groups[at.thread / kGroupThreads], at.thread % kGroupThreads, name, in, out,
       exchange);
}

void block_barrier(int line) {
  Machine& m = machine();
  Block& block = *m.block;
  if (block.arrived == 0) block.line = line;
  if (block.line != line) kernel_fault("threads of one block stand at different barriers");
  if (++block.arrived < m.current->place.block_threads) {
    return wait_until_changed(block.generation, block.generation);
  }
  block.arrived = 0;
  ++block.generation;
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
  return machine().block->shared;
}

const char* published_shared(uint32_t address, size_t bytes) {
  const Machine& m = machine();
  const Block& block = *m.block;
  const char* const at = block.shared + address;
  if (at < m.current->place.shared || address + bytes > block.shared_room) {
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

}  // namespace pelton::cuda::emulation
