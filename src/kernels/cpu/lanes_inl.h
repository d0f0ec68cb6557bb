// What all parts of the fast kernels' body share: floats in lanes, written once over `Vector`.
// Included by cpu_kernels_inl.h, inside each instruction set's unnamed namespace, as all are.

constexpr int kParts = 16 / Vector::kLanes;  // vectors in half an MXFP4 block, or in 16 keys

using F = Vector::F;

inline F vector_exp(F x) {
  // 2^n e^r with |r| <= ln(2)/2; e^r by its Taylor series to r^6 (error below 2e-7 relative). Of 1:
  // n is 1, r = 1 - ln 2 = 0.30685, e^r = 1.35914, and twice that is e. ln 2 is taken off in two
  // parts, the first of few bits, so that n times it is exact.
  x = Vector::max(Vector::min(x, Vector::set1(88.0f)), Vector::set1(-87.0f));
  const F n = Vector::round(Vector::mul(x, Vector::set1(1.44269504f)));
  F r = Vector::fma(n, Vector::set1(-0.693359375f), x);
  r = Vector::fma(n, Vector::set1(2.12194440e-4f), r);
  F e = Vector::set1(1.0f / 720);
  e = Vector::fma(e, r, Vector::set1(1.0f / 120));
  e = Vector::fma(e, r, Vector::set1(1.0f / 24));
  e = Vector::fma(e, r, Vector::set1(1.0f / 6));
  e = Vector::fma(e, r, Vector::set1(0.5f));
  e = Vector::fma(e, r, Vector::set1(1.0f));
  e = Vector::fma(e, r, Vector::set1(1.0f));
  return Vector::scale_by_power(e, n);
}

// The first `count` lanes, less than all; the others are zero.
template <typename T>
inline F load_part(const T* from, int count) {
  T lanes[Vector::kLanes] = {};
  __builtin_memcpy(lanes, from, static_cast<size_t>(count) * sizeof(T));
  return Vector::load(lanes);
}

inline void store_part(float* to, F x, int count) {
  float lanes[Vector::kLanes];
  Vector::store(lanes, x);
  __builtin_memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

inline void prefetch(const void* address) {
  __builtin_prefetch(address, 0, 3);
}

// Into the second level of the cache: many more lines can be on their way there than to the first.
inline void prefetch_far(const void* address) {
  __builtin_prefetch(address, 0, 2);
}
