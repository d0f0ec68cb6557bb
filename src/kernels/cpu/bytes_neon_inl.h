// What the fast kernels' body asks of bytes in registers, with NEON; bytes_x86_inl.h has the same
// functions. Included by neon.cc after `Vector` and before the body, inside its unnamed namespace.

struct Bytes32 {
  uint8x16_t low;
  uint8x16_t high;
};

inline Bytes16 load_16(const uint8_t* from) {
  return vld1q_u8(from);
}

inline Bytes32 load_32(const uint8_t* from) {
  return {vld1q_u8(from), vld1q_u8(from + 16)};
}

inline Bytes16 first_16(Bytes32 bytes) {
  return bytes.low;
}
inline Bytes16 last_16(Bytes32 bytes) {
  return bytes.high;
}

inline Bytes32 either(Bytes32 a, Bytes32 b) {
  return {vorrq_u8(a.low, b.low), vorrq_u8(a.high, b.high)};
}
// `number` off each byte.
inline Bytes32 less(Bytes32 bytes, int number) {
  const uint8x16_t off = vdupq_n_u8(static_cast<uint8_t>(number));
  return {vsubq_u8(bytes.low, off), vsubq_u8(bytes.high, off)};
}

inline Floats8 all_8(float x) {
  return Vector::set1(x);
}
inline Floats8 product(Floats8 a, Floats8 b) {
  return Vector::mul(a, b);
}
inline Floats8 difference(Floats8 a, Floats8 b) {
  return Vector::sub(a, b);
}
inline void store_8(float* to, Floats8 x) {
  Vector::store(to, x);
}

// Eight bytes without sign, and eight or the last eight of 16 with sign, as floats.
inline Floats8 floats_of_u8(uint64_t bytes) {
  const uint16x8_t wide = vmovl_u8(vcreate_u8(bytes));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), vcvtq_f32_u32(vmovl_high_u16(wide))};
}
inline Floats8 first_floats(Bytes16 bytes) {
  return Vector::of_signed(vreinterpret_s8_u8(vget_low_u8(bytes)));
}
inline Floats8 last_floats(Bytes16 bytes) {
  return Vector::of_signed(vreinterpret_s8_u8(vget_high_u8(bytes)));
}

// The eight nibbles of a word as bytes, the lowest first: of 0x...21, 0x...0201. And of the lower
// half its pairs of bits, each at bit 4 of its byte.
inline uint64_t bytes_of_nibbles(uint32_t nibbles) {
  uint64_t x = nibbles;
  x = (x | x << 16) & 0x0000ffff0000ffff;
  x = (x | x << 8) & 0x00ff00ff00ff00ff;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
}
inline uint64_t bytes_of_pairs(uint32_t pairs) {
  uint64_t x = pairs & 0xffff;
  x = (x | x << 24) & 0x000000ff000000ff;
  x = (x | x << 12) & 0x000f000f000f000f;
  x = (x | x << 6) & 0x0303030303030303;
  return x << 4;
}

// Of eight groups' factors each half group's: a b c ... -> a a b b c c ...
inline void store_twice(float* to, Floats8 x) {
  vst1q_f32(to, vzip1q_f32(x.low, x.low));
  vst1q_f32(to + 4, vzip2q_f32(x.low, x.low));
  vst1q_f32(to + 8, vzip1q_f32(x.high, x.high));
  vst1q_f32(to + 12, vzip2q_f32(x.high, x.high));
}

// `bits` of each byte from `shift` on.
inline Bytes32 bits_at(Bytes32 bytes, int shift, int bits) {
  const uint8x16_t mask = vdupq_n_u8(static_cast<uint8_t>((1 << bits) - 1));
  const int8x16_t right = vdupq_n_s8(static_cast<int8_t>(-shift));
  return {vandq_u8(vshlq_u8(bytes.low, right), mask), vandq_u8(vshlq_u8(bytes.high, right), mask)};
}

inline Bytes32 up(Bytes32 codes, int shift) {  // no bit leaves its byte
  const int8x16_t left = vdupq_n_s8(static_cast<int8_t>(shift));
  return {vshlq_u8(codes.low, left), vshlq_u8(codes.high, left)};
}

// 16 bytes: low nibbles are the first 16 codes, high ones the last.
inline Bytes32 nibbles(const uint8_t* from) {
  const Bytes16 bytes = load_16(from);
  return {vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4)};
}

// 32 bits: 16 or 0 for each.
inline Bytes32 fifth_bits(uint32_t bits) {
  const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(bits));
  const uint8x16_t own = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const auto sixteens = [&](uint64_t first, uint64_t second) {
    const uint8x16_t at = vcombine_u8(vcreate_u8(first), vcreate_u8(second));
    return vandq_u8(vtstq_u8(vqtbl1q_u8(bytes, at), own), vdupq_n_u8(16));
  };
  return {sixteens(0, 0x0101010101010101), sixteens(0x0202020202020202, 0x0303030303030303)};
}

inline Bytes32 iq4_values(Bytes32 codes) {
  alignas(16) static constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
  const uint8x16_t values = vreinterpretq_u8_s8(vld1q_s8(kValues));
  return {vqtbl1q_u8(values, codes.low), vqtbl1q_u8(values, codes.high)};
}

// 16 bytes of GGUF's MXFP4 in the nibble order of Hugging Face: element 2b + 16 * element 2b+1, of
// the codes 3 and 5 the byte 0x53.
inline Bytes16 mxfp4_pairs(const uint8_t* from) {
  const Bytes16 bytes = load_16(from);
  const uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15));  // elements 0 to 15
  const uint8x16_t high = vshrq_n_u8(bytes, 4);            // 16 to 31
  return vsliq_n_u8(vuzp1q_u8(low, high), vuzp2q_u8(low, high), 4);
}

// The 32 weights of a block of bf16 in 12 bits, which is not a raw one.
inline void expand_compact_block(const uint8_t* block, Bf16* to) {
  uint16x8_t bits[4];
  Vector::join_compact(block, bits);
  for (int i = 0; i < 4; ++i) vst1q_u16(to + 8 * i, bits[i]);
}
