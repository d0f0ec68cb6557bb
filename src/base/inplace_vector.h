// A vector of at most kCapacity elements that lie in it, without a heap allocation: for values of
// which there are a few. Every slot holds a T, beyond the size too: T is default-constructible and
// cheap to make. Indices and sizes are ints. Not thread-safe, as any vector.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "base/check.h"

namespace pelton::base {

template <typename T, int kCapacity>
class InplaceVector {
 public:
  using value_type = T;
  using const_iterator = const T*;

  constexpr InplaceVector() = default;
  constexpr InplaceVector(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }

  constexpr void push_back(T value) {
    CHECK(size_ < kCapacity, "more elements than an in-place vector holds");
    items_[static_cast<size_t>(size_++)] = std::move(value);
  }
  // New elements are T(), and those that go become T().
  constexpr void resize(int size) {
    CHECK(size >= 0 && size <= kCapacity, "more elements than an in-place vector holds");
    for (int i = size; i < size_; ++i) items_[static_cast<size_t>(i)] = T();
    size_ = size;
  }
  constexpr void assign(int size, const T& value) {
    resize(size);
    std::fill(begin(), end(), value);
  }
  constexpr void clear() { resize(0); }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](int index) { return items_[static_cast<size_t>(index)]; }
  constexpr const T& operator[](int index) const { return items_[static_cast<size_t>(index)]; }
  constexpr T& back() { return (*this)[size_ - 1]; }
  constexpr const T& back() const { return (*this)[size_ - 1]; }
  constexpr T* begin() { return items_.data(); }
  constexpr T* end() { return items_.data() + size_; }
  constexpr const T* begin() const { return items_.data(); }
  constexpr const T* end() const { return items_.data() + size_; }

  constexpr bool operator==(const InplaceVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  int size_ = 0;  // first: beside the elements that there are
  std::array<T, kCapacity> items_{};
};

}  // namespace pelton::base
