// Asks for memory before it is needed, so that the wait for it is spent on other work. What is
// asked for need not exist any more; nothing is read. Worth it only where hundreds of objects that
// have left the caches take their turns, one after the other.
#pragma once

#include <cstddef>

namespace pelton::base {

inline constexpr size_t kCacheLineBytes = 64;

// For writing, as most of what is touched in a turn is.
inline void prefetch(const void* begin, size_t bytes) {
  const char* const first = static_cast<const char*>(begin);
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(first + at, 1);
  if (bytes > 0) __builtin_prefetch(first + bytes - 1, 1);
}

template <typename T>
void prefetch(const T& object) {
  prefetch(&object, sizeof object);
}

}  // namespace pelton::base
