// What a sanitizer changes, for tests that bound time or memory.
#pragma once

namespace pelton::base {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // what is freed is kept for a while
inline constexpr int kSanitizedSlowness = 20;
#else
inline constexpr bool kSanitized = false;
inline constexpr int kSanitizedSlowness = 1;
#endif

}  // namespace pelton::base
