// What the tests of a device's kernels share: a library (the emulation, or whatever
// PELTON_DEVICE_LIBRARY names: on a machine with a GPU the real one), device memory with poison
// around what it holds, and random inputs with outlier channels. Tests only.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "cuda/device_library.h"
#include "cuda/pack_device_weights.h"
#include "tensor/bits.h"

namespace pelton::cuda {

inline const DeviceLibrary& test_library() {
  static const DeviceLibrary* const library = [] {
    const char* const given = std::getenv("PELTON_DEVICE_LIBRARY");
    Result<DeviceLibrary> opened = DeviceLibrary::open(
        given != nullptr ? given : std::string(PELTON_BINARY_DIR) + "/libpelton_cuda_emulated.so");
    CHECK(opened.ok(), opened.ok() ? "" : opened.error().message);
    return new DeviceLibrary(std::move(*opened));
  }();
  return *library;
}

inline const DeviceTable& device() {
  return test_library().table();
}

class Random {
 public:
  Random() {
    const char* given = std::getenv("PELTON_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
    engine_.seed(seed);
    device().set_seed(seed);
  }
  int below(int bound) { return static_cast<int>(engine_() % static_cast<uint64_t>(bound)); }
  float normal() { return normal_(engine_); }
  std::vector<float> floats(int64_t count, float scale) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = scale * normal();
    return out;
  }
  // (rows, columns), a few columns of which are far larger than the others.
  std::vector<float> activations(int rows, int columns) {
    std::vector<float> out = floats(int64_t{rows} * columns, 1.0f);
    for (int i = 0; i < 3; ++i) {
      const int column = below(columns);
      for (int row = 0; row < rows; ++row) out[static_cast<size_t>(row * columns + column)] *= 60;
    }
    return out;
  }
  std::vector<uint8_t> bytes(int64_t count, int low, int high) {
    std::vector<uint8_t> out(static_cast<size_t>(count));
    for (uint8_t& x : out) x = static_cast<uint8_t>(low + below(high - low + 1));
    return out;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

inline std::vector<float> rounded(std::vector<float> values) {
  for (float& x : values) x = tensor::bf16_to_float(tensor::float_to_bf16(x));
  return values;
}

// Device memory of `count` elements, between two zones that nobody may write.
template <typename T>
class DeviceBuffer {
 public:
  // Poisoned: NaN.
  explicit DeviceBuffer(int64_t count) : count_(count) {
    memory_ = static_cast<char*>(device().allocate(bytes() + 2 * kZone));
    CHECK(memory_ != nullptr, "device memory");
    device().fill(memory_, 0xFF, bytes() + 2 * kZone);
  }
  explicit DeviceBuffer(const std::vector<T>& values)
      : DeviceBuffer(static_cast<int64_t>(values.size())) {
    device().to_device(data(), values.data(), count_ * int64_t{sizeof(T)});
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    std::vector<uint8_t> zones(2 * kZone);
    device().to_host(zones.data(), memory_, kZone);
    device().to_host(zones.data() + kZone, memory_ + kZone + bytes(), kZone);
    bool is_whole = true;
    for (const uint8_t byte : zones) is_whole = is_whole && byte == 0xFF;
    EXPECT_TRUE(is_whole) << "a kernel wrote beyond its output";
    device().release(memory_);
  }

  T* data() const { return reinterpret_cast<T*>(memory_ + kZone); }
  std::vector<T> get() const {
    std::vector<T> out(static_cast<size_t>(count_));
    device().to_host(out.data(), data(), count_ * int64_t{sizeof(T)});
    const char* const failure = device().failure();
    EXPECT_EQ(failure, nullptr) << failure;
    return out;
  }
  void fill(uint8_t value) { device().fill(data(), value, count_ * int64_t{sizeof(T)}); }

 private:
  static constexpr int64_t kZone = 256;
  int64_t bytes() const { return (count_ * int64_t{sizeof(T)} + 15) / 16 * 16; }

  int64_t count_;
  char* memory_ = nullptr;
};

// bf16 rows, each filled up with zeros to whole chunks.
inline std::vector<Bf16Bits> padded_rows(const std::vector<float>& values, int columns) {
  const size_t rows = values.size() / static_cast<size_t>(columns);
  const auto wide = static_cast<size_t>(padded_columns(columns));
  std::vector<Bf16Bits> out(rows * wide, 0);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      out[row * wide + i] = tensor::float_to_bf16(values[row * static_cast<size_t>(columns) + i]);
    }
  }
  return out;
}

inline std::vector<uint8_t> bf16_tiles(const TiledShape& shape, const std::vector<float>& values) {
  std::vector<uint8_t> out(static_cast<size_t>(tiles_bytes(WeightType::kBf16, shape)));
  const kernels::StoredMatrix matrix{values.data(), nullptr, shape.rows, shape.columns,
                                     kernels::Format::kF32};
  const auto row = [&](int64_t number, uint16_t* room) { return bf16_row(matrix, number, room); };
  pack_bf16_tiles(shape, {0, tile_count(shape.rows)}, row, out.data());
  return out;
}

inline double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  CHECK(got.size() == exact.size());
  double difference = 0;
  double norm = 1e-30;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    norm += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / norm);  // NaN if any is
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace pelton::cuda
