// What the fast kernels' body asks of bytes in registers, with AVX2; bytes_neon_inl.h has the same
// functions. Included by avx2.cc and avx512.cc after `Vector` and before the body, inside their
// unnamed namespaces.

using Bytes16 = __m128i;
using Bytes32 = __m256i;
using Floats8 = __m256;

inline Bytes16 load_16(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

inline Bytes32 load_32(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

inline Bytes16 first_16(Bytes32 bytes) {
  return _mm256_castsi256_si128(bytes);
}
inline Bytes16 last_16(Bytes32 bytes) {
  return _mm256_extracti128_si256(bytes, 1);
}

inline Bytes32 either(Bytes32 a, Bytes32 b) {
  return _mm256_or_si256(a, b);
}
// `number` off each byte.
inline Bytes32 less(Bytes32 bytes, int number) {
  return _mm256_sub_epi8(bytes, _mm256_set1_epi8(static_cast<char>(number)));
}

inline Floats8 all_8(float x) {
  return _mm256_set1_ps(x);
}
inline Floats8 product(Floats8 a, Floats8 b) {
  return _mm256_mul_ps(a, b);
}
inline Floats8 difference(Floats8 a, Floats8 b) {
  return _mm256_sub_ps(a, b);
}
inline void store_8(float* to, Floats8 x) {
  _mm256_storeu_ps(to, x);
}

// Eight bytes without sign, and eight or the last eight of 16 with sign, as floats.
inline Floats8 floats_of_u8(uint64_t bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))));
}
inline Floats8 first_floats(Bytes16 bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
inline Floats8 last_floats(Bytes16 bytes) {
  return first_floats(_mm_srli_si128(bytes, 8));
}

// The eight nibbles of a word as bytes, the lowest first; and of the lower half its pairs of bits,
// each at bit 4 of its byte.
inline uint64_t bytes_of_nibbles(uint32_t nibbles) {
  return _pdep_u64(nibbles, 0x0f0f0f0f0f0f0f0f);
}
inline uint64_t bytes_of_pairs(uint32_t pairs) {
  return _pdep_u64(pairs, 0x3030303030303030);
}

// Of eight groups' factors each half group's: a b c ... -> a a b b c c ...
inline void store_twice(float* to, Floats8 x) {
  const Floats8 low = _mm256_unpacklo_ps(x, x);
  const Floats8 high = _mm256_unpackhi_ps(x, x);
  _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

// `bits` of each byte from `shift` on.
inline Bytes32 bits_at(Bytes32 bytes, int shift, int bits) {
  const Bytes32 mask = _mm256_set1_epi8(static_cast<char>((1 << bits) - 1));
  return _mm256_and_si256(_mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), mask);
}

inline Bytes32 up(Bytes32 codes, int shift) {  // no bit leaves its byte
  return _mm256_sll_epi16(codes, _mm_cvtsi32_si128(shift));
}

// 16 bytes: low nibbles are the first 16 codes, high ones the last.
inline Bytes32 nibbles(const uint8_t* from) {
  const Bytes16 bytes = load_16(from);
  const Bytes32 both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

// 32 bits: 16 or 0 for each.
inline Bytes32 fifth_bits(uint32_t bits) {
  const Bytes32 bytes =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                          _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                           2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const Bytes32 own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const Bytes32 set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, own), own);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

inline Bytes32 iq4_values(Bytes32 codes) {
  const Bytes16 values =
      _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
}

// 16 bytes of GGUF's MXFP4 in the nibble order of Hugging Face: element 2b + 16 * element 2b+1, of
// the codes 3 and 5 the byte 0x53.
inline Bytes16 mxfp4_pairs(const uint8_t* from) {
  const Bytes16 bytes = load_16(from);
  const Bytes16 nibble = _mm_set1_epi8(15);
  const Bytes16 low = _mm_and_si128(bytes, nibble);                      // elements 0 to 15
  const Bytes16 high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);  // 16 to 31
  const Bytes16 join = _mm_set1_epi16(0x1001);
  return _mm_packus_epi16(_mm_maddubs_epi16(low, join), _mm_maddubs_epi16(high, join));
}

// The 32 weights of a block of bf16 in 12 bits, which is not a raw one.
inline void expand_compact_block(const uint8_t* block, Bf16* to) {
  const auto widen = [](const uint8_t* from) { return _mm256_cvtepu8_epi16(load_16(from)); };
  const Bytes32 base_mask = _mm256_set1_epi16(0x7F);
  const Bytes32 nibbles = widen(block + 1);
  for (int half = 0; half < 2; ++half) {
    const Bytes32 code = half == 0 ? _mm256_and_si256(nibbles, _mm256_set1_epi16(15))
                                   : _mm256_srli_epi16(nibbles, 4);
    const Bytes32 exponent =
        _mm256_andnot_si256(_mm256_cmpeq_epi16(code, _mm256_setzero_si256()),
                            _mm256_add_epi16(code, _mm256_set1_epi16(block[0])));
    const Bytes32 byte = widen(block + 17 + 16 * half);
    const Bytes32 sign = _mm256_slli_epi16(_mm256_andnot_si256(base_mask, byte), 8);
    const Bytes32 bits = _mm256_or_si256(
        sign, _mm256_or_si256(_mm256_and_si256(byte, base_mask), _mm256_slli_epi16(exponent, 7)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16 * half), bits);
  }
}
