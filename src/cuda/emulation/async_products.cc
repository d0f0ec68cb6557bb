#include "cuda/emulation/async_products.h"

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "cuda/emulation/fibers.h"

namespace pelton::cuda::emulation {
namespace {

constexpr int kDepth = 16;  // of one product
constexpr int kRows = 64;
constexpr int kColumnsMax = 256;
constexpr int kPieceBytes = 16;
constexpr uint32_t kPoison = 0xFFFFFFFF;  // NaN

// The right operand in shared memory: each column's 32 bytes as two pieces, and what they held when
// the product began.
struct Right {
  std::vector<const char*> pieces;
  std::vector<char> bytes;

  bool has_changed() const {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (std::memcmp(pieces[i], bytes.data() + i * kPieceBytes, kPieceBytes) != 0) return true;
    }
    return false;
  }
};

// A thread's part of one product under way.
struct Part {
  float* c;
  const uint32_t* a;
  std::array<uint32_t, 4> a_was;
  std::vector<float> result;
  std::shared_ptr<const Right> right;
};

struct Thread {
  std::deque<Part> parts;
  std::deque<size_t> groups;  // how many parts stand in each closed one
  size_t open = 0;
  bool is_fenced = false;
};

std::vector<Thread>& threads() {
  static auto* const the_threads = new std::vector<Thread>(1024);
  return *the_threads;
}
Thread& own() {
  return threads()[static_cast<size_t>(place().thread)];
}

struct In {
  float* c;
  const uint32_t* a;
  uint64_t right;
  int columns;
  Thread* thread;
  int lane;  // of the warpgroup
};

float low_of(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
float high_of(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000u);
}

// Rows of 128 bytes whose pieces of 16 the hardware finds by the address: its bits 4 to 6 are
// changed by bits 7 to 9.
std::shared_ptr<const Right> find_right(uint64_t descriptor, int columns) {
  const auto start = static_cast<uint32_t>(descriptor & 0x3FFF) * 16;
  const auto eight_rows = static_cast<uint32_t>(descriptor >> 32 & 0x3FFF) * 16;
  if (descriptor >> 62 != 1) kernel_fault("a descriptor of another swizzle than of 128 bytes");
  if ((descriptor >> 49 & 7) != 0 || start % 1024 / 128 != 0) {
    kernel_fault("a matrix in shared memory is not aligned to 1 024 bytes");
  }
  if (start % 128 + kDepth * 2 > 128) kernel_fault("a product's columns go beyond their rows");
  auto right = std::make_shared<Right>();
  for (int column = 0; column < columns; ++column) {
    for (int piece = 0; piece < 2; ++piece) {
      const uint32_t address = start + static_cast<uint32_t>(column / 8) * eight_rows +
                               static_cast<uint32_t>(column % 8 * 128 + piece * kPieceBytes);
      const char* const at = published_shared(address ^ (address >> 7 & 7) << 4, kPieceBytes);
      right->pieces.push_back(at);
      right->bytes.insert(right->bytes.end(), at, at + kPieceBytes);
    }
  }
  return right;
}

// The sums that a thread's product adds to: another's result that is under way, or the registers.
std::vector<float> sums_before(const In& in) {
  const auto count = static_cast<size_t>(in.columns / 2);
  for (auto part = in.thread->parts.rbegin(); part != in.thread->parts.rend(); ++part) {
    if (part->c == in.c) return part->result;
  }
  return {in.c, in.c + count};
}

// All threads of the warpgroup have come: the products are computed, and there when waited for.
void begin_product(const void* const* ins, void* const*) {
  constexpr int kThreads = kGroupThreads;
  const auto& first = *static_cast<const In*>(ins[0]);
  const int columns = first.columns;
  static float x[kRows][kDepth];
  static float y[kDepth][kColumnsMax];
  for (int i = 0; i < kThreads; ++i) {
    const auto& in = *static_cast<const In*>(ins[i]);
    if (in.right != first.right) kernel_fault("threads of a warpgroup with different descriptors");
    const int row = in.lane / 32 * 16 + in.lane % 32 / 4;
    const int t = in.lane % 4;
    for (int j = 0; j < 4; ++j) {  // as mma has them: low and high row, then columns + 8
      x[row + 8 * (j % 2)][8 * (j / 2) + 2 * t] = low_of(in.a[j]);
      x[row + 8 * (j % 2)][8 * (j / 2) + 2 * t + 1] = high_of(in.a[j]);
    }
  }
  const std::shared_ptr<const Right> right = find_right(first.right, columns);
  for (int column = 0; column < columns; ++column) {
    for (int k = 0; k < kDepth; ++k) {
      uint16_t bits;
      std::memcpy(&bits, right->bytes.data() + column * kDepth * 2 + k * 2, sizeof bits);
      y[k][column] = low_of(bits);
    }
  }
  static float sums[kRows][kColumnsMax];
  std::memset(sums, 0, sizeof sums);
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      for (int column = 0; column < columns; ++column) {
        sums[row][column] += x[row][k] * y[k][column];
      }
    }
  }
  for (int i = 0; i < kThreads; ++i) {
    const auto& in = *static_cast<const In*>(ins[i]);
    Part part{in.c, in.a, {in.a[0], in.a[1], in.a[2], in.a[3]}, sums_before(in), right};
    const int row = in.lane / 32 * 16 + in.lane % 32 / 4;
    for (int j = 0; j < columns / 2; ++j) {
      part.result[static_cast<size_t>(j)] +=
          sums[row + 8 * (j % 4 / 2)][j / 4 * 8 + 2 * (in.lane % 4) + j % 2];
      std::memcpy(in.c + j, &kPoison, sizeof kPoison);
    }
    in.thread->parts.push_back(std::move(part));
    ++in.thread->open;
  }
}

void finish(Thread& thread, Part& part) {
  if (std::memcmp(part.a, part.a_was.data(), sizeof part.a_was) != 0) {
    kernel_fault("a register changed while a product still read it");
  }
  // A warp's threads share what is read: one of them looks.
  if (place().thread % kWarpLanes == 0 && part.right->has_changed()) {
    kernel_fault("shared memory changed while a product still read it");
  }
  for (size_t i = 0; i < part.result.size(); ++i) {
    if (std::bit_cast<uint32_t>(part.c[i]) != kPoison) {
      kernel_fault("sums changed while a product still added to them");
    }
  }
  for (const Part& later : thread.parts) {
    if (&later != &part && later.c == part.c) return;  // the sums are still under way
  }
  std::copy(part.result.begin(), part.result.end(), part.c);
}

}  // namespace

uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(static_cast<const char*>(at) - shared_window());
}

void fence_products() {
  own().is_fenced = true;
}

void multiply_async(float* c, const uint32_t* a, uint64_t right, int columns) {
  Thread& thread = own();
  if (!thread.is_fenced) kernel_fault("a product begins without a fence since the last wait");
  const In in{c, a, right, columns, &thread, place().thread % kGroupThreads};
  group_collective("wgmma", &in, nullptr, begin_product);
}

void commit_products() {
  Thread& thread = own();
  thread.groups.push_back(thread.open);
  thread.open = 0;
}

void wait_for_products(int groups_left) {
  Thread& thread = own();
  thread.is_fenced = false;
  while (thread.groups.size() > static_cast<size_t>(groups_left)) {
    for (size_t i = 0; i < thread.groups.front(); ++i) {
      finish(thread, thread.parts.front());
      thread.parts.pop_front();
    }
    thread.groups.pop_front();
  }
}

void forget_products(int block_threads) {
  for (int i = 0; i < block_threads; ++i) threads()[static_cast<size_t>(i)] = {};
}

bool has_products_under_way(int thread) {
  return !threads()[static_cast<size_t>(thread)].parts.empty();
}

}  // namespace pelton::cuda::emulation
