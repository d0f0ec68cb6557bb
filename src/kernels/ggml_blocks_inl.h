// 32 weights of a GGUF block as codes, scales and offsets: weight i = scale * code[i] + offset,
// each rounded once, which is what ggml computes. Layouts: ggml's ggml-common.h and ggml-quants.c;
// numbers are little-endian. Included inside an unnamed namespace of every file that reads such
// rows, each compiled with its own flags, so that none picks another's code.
//
// Worked example, a Q4_K block of 256: float16 d and dmin, 12 bytes of scales and minima of 6 bits
// for eight runs of 32, then four groups of 32 bytes, whose low nibbles are run 2g and high ones
// run 2g + 1. Element j of run r is d * sc[r] * q - dmin * mn[r].

struct Weights32 {
  int8_t codes[32];
  float scale[2];   // of the first 16 and the last 16
  float offset[2];  // what is added
};

// Half: a float16 at an address to float.
template <typename Half>
struct GgmlBlocks {
  // Group `group` of 32 in the row that begins at `row`.
  static void read(Format format, const uint8_t* row, int64_t group, Weights32& to) {
    switch (format) {
      case Format::kQ4_0:
        return q4(row + group * 18, 0, 2, 8, to);
      case Format::kQ4_1:
        return q4(row + group * 20, 2, 4, 0, to);
      case Format::kQ5_0:
        return q5(row + group * 22, 0, 2, 16, to);
      case Format::kQ5_1:
        return q5(row + group * 24, 2, 4, 0, to);
      case Format::kIq4Nl:
        return iq4_nl(row + group * 18, to);
      case Format::kQ2_K:
        return q2_k(row + group / 8 * 84, static_cast<int>(group % 8), to);
      case Format::kQ3_K:
        return q3_k(row + group / 8 * 110, static_cast<int>(group % 8), to);
      case Format::kQ4_K:
        return q45_k(row + group / 8 * 144, static_cast<int>(group % 8), false, to);
      case Format::kQ5_K:
        return q45_k(row + group / 8 * 176, static_cast<int>(group % 8), true, to);
      case Format::kQ6_K:
        return q6_k(row + group / 8 * 210, static_cast<int>(group % 8), to);
      default:
        return iq4_xs(row + group / 8 * 136, static_cast<int>(group % 8), to);
    }
  }

 private:
  static void one_scale(Weights32& to, float scale, float offset) {
    to.scale[0] = to.scale[1] = scale;
    to.offset[0] = to.offset[1] = offset;
  }

  // Low nibbles first, then high ones; minus `zero`. offset_at 0: there is none.
  static void q4(const uint8_t* block, int offset_at, int codes_at, int zero, Weights32& to) {
    const uint8_t* qs = block + codes_at;
    for (int j = 0; j < 16; ++j) {
      to.codes[j] = static_cast<int8_t>((qs[j] & 15) - zero);
      to.codes[j + 16] = static_cast<int8_t>((qs[j] >> 4) - zero);
    }
    one_scale(to, Half::at(block), offset_at > 0 ? Half::at(block + offset_at) : 0.0f);
  }

  // The same with a fifth bit for each element, in four bytes.
  static void q5(const uint8_t* block, int offset_at, int bits_at, int zero, Weights32& to) {
    uint32_t bits;
    __builtin_memcpy(&bits, block + bits_at, sizeof bits);
    q4(block, offset_at, bits_at + 4, 0, to);
    for (int j = 0; j < 32; ++j) {
      to.codes[j] = static_cast<int8_t>((to.codes[j] | (bits >> j & 1) << 4) - zero);
    }
  }

  static constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

  static void iq4(const uint8_t* qs, Weights32& to) {
    for (int j = 0; j < 16; ++j) {
      to.codes[j] = kIq4[qs[j] & 15];
      to.codes[j + 16] = kIq4[qs[j] >> 4];
    }
  }

  static void iq4_nl(const uint8_t* block, Weights32& to) {
    iq4(block + 2, to);
    one_scale(to, Half::at(block), 0.0f);
  }

  // d, two upper bits of each scale (2), lower four (4), codes (128).
  static void iq4_xs(const uint8_t* block, int run, Weights32& to) {
    uint16_t high;
    __builtin_memcpy(&high, block + 2, sizeof high);
    const int low = block[4 + run / 2] >> (run % 2 * 4) & 15;
    const int scale = (low | (high >> (2 * run) & 3) << 4) - 32;
    iq4(block + 8 + run * 16, to);
    one_scale(to, Half::at(block) * static_cast<float>(scale), 0.0f);
  }

  // Two halves of 128; in a half, 32 bytes hold four runs at shifts 0, 2, 4, 6.
  static void two_bits(const uint8_t* qs, int run, Weights32& to) {
    const uint8_t* from = qs + run / 4 * 32;
    const int shift = run % 4 * 2;
    for (int j = 0; j < 32; ++j) to.codes[j] = static_cast<int8_t>(from[j] >> shift & 3);
  }

  // scales and minima of 16 (16), codes (64), d, dmin.
  static void q2_k(const uint8_t* block, int run, Weights32& to) {
    const float d = Half::at(block + 80);
    const float minimum = Half::at(block + 82);
    two_bits(block + 16, run, to);
    for (int half = 0; half < 2; ++half) {
      const uint8_t both = block[2 * run + half];
      to.scale[half] = d * static_cast<float>(both & 15);
      to.offset[half] = -(minimum * static_cast<float>(both >> 4));
    }
  }

  // third bits (32), codes (64), scales of 16 (12), d. A third bit that is not set: minus 4.
  static void q3_k(const uint8_t* block, int run, Weights32& to) {
    const float d = Half::at(block + 108);
    two_bits(block + 32, run, to);
    for (int j = 0; j < 32; ++j) {
      to.codes[j] = static_cast<int8_t>(to.codes[j] - ((block[j] >> run & 1) != 0 ? 0 : 4));
    }
    const uint8_t* scales = block + 96;
    for (int half = 0; half < 2; ++half) {
      const int i = 2 * run + half;
      const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
      const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
      to.scale[half] = d * static_cast<float>((low | high << 4) - 32);
      to.offset[half] = 0.0f;
    }
  }

  // d, dmin, scales and minima of 32 (12), of Q5_K fifth bits (32), codes (128).
  static void q45_k(const uint8_t* block, int run, bool fifth, Weights32& to) {
    const uint8_t* s = block + 4;
    int scale = s[run & 3] >> 6 << 4;
    int minimum = s[4 + (run & 3)] >> 6 << 4;
    if (run < 4) {
      scale = s[run] & 63;
      minimum = s[run + 4] & 63;
    } else {
      scale |= s[run + 4] & 15;
      minimum |= s[run + 4] >> 4;
    }
    const uint8_t* qs = block + (fifth ? 48 : 16) + run / 2 * 32;
    const int shift = run % 2 * 4;
    for (int j = 0; j < 32; ++j) to.codes[j] = static_cast<int8_t>(qs[j] >> shift & 15);
    if (fifth) {
      const uint8_t* bits = block + 16;
      for (int j = 0; j < 32; ++j) {
        to.codes[j] = static_cast<int8_t>(to.codes[j] | (bits[j] >> run & 1) << 4);
      }
    }
    one_scale(to, Half::at(block) * static_cast<float>(scale),
              -(Half::at(block + 2) * static_cast<float>(minimum)));
  }

  // low nibbles (128), upper two bits (64), signed scales of 16 (16), d. Runs of a half of 128: low
  // nibbles of its first and second 32 bytes, then the high ones.
  static void q6_k(const uint8_t* block, int run, Weights32& to) {
    const int half = run / 4;
    const int of_half = run % 4;
    const uint8_t* low = block + half * 64 + of_half % 2 * 32;
    const uint8_t* high = block + 128 + half * 32;
    const int low_shift = of_half / 2 * 4;
    const int high_shift = of_half * 2;
    for (int j = 0; j < 32; ++j) {
      const int code = (low[j] >> low_shift & 15) | (high[j] >> high_shift & 3) << 4;
      to.codes[j] = static_cast<int8_t>(code - 32);
    }
    const float d = Half::at(block + 208);
    for (int part = 0; part < 2; ++part) {
      const auto scale = static_cast<int8_t>(block[192 + 2 * run + part]);
      to.scale[part] = d * static_cast<float>(scale);
      to.offset[part] = 0.0f;
    }
  }
};
