// What a thread does between two looks at a word that another thread is about to write. Any thread.
#pragma once

#include <thread>

namespace pelton::base {

// Some ten to fifty nanoseconds in which a core that runs two threads leaves more to the other.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // most cores take `yield` for nothing to do
#else
  std::this_thread::yield();
#endif
}

}  // namespace pelton::base
