// Activations of experts and dense MLPs: gated, a chunk of kActivationChunk at a time, and in the
// order in which the next matrix reads them. Included by cpu_kernels_inl.h.

// Puts each group of 32 into the order in which MXFP4 rows are read: evens first, 0 2 4 ... 30 1 3
// ... 31.
inline void interleave(float* to, const float* from, int count) {
  for (int base = 0; base < count; base += 32) {
    for (int i = 0; i < 16; ++i) {
      to[base + i] = from[base + 2 * i];
      to[base + 16 + i] = from[base + 2 * i + 1];
    }
  }
}

inline bool reads_evens_first(Format format) {
  return format == Format::kMxfp4Pairs || format == Format::kMxfp4Blocks;
}

// Activations in the order in which a matrix of that format reads its weights.
inline void arrange(float* to, const float* from, int count, Format format) {
  if (reads_evens_first(format)) return interleave(to, from, count);
  __builtin_memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

// gate <- min(gate, limit) * sigmoid(alpha * gate) * (clamp(up) + 1)
inline void clamped_swiglu(float* gate, const float* up, const GluShape& shape) {
  const F limit = Vector::set1(shape.limit);
  const F low = Vector::set1(-shape.limit);
  const F alpha = Vector::set1(-shape.alpha);
  const F one = Vector::set1(1.0f);
  for (int i = 0; i < kActivationChunk; i += Vector::kLanes) {
    const F g = Vector::min(Vector::load(gate + i), limit);
    const F u = Vector::max(Vector::min(Vector::load(up + i), limit), low);
    const F sigmoid = Vector::div(one, Vector::add(one, vector_exp(Vector::mul(alpha, g))));
    Vector::store(gate + i, Vector::mul(Vector::mul(g, sigmoid), Vector::add(u, one)));
  }
}

// gate <- gelu(gate) * up, where x/2 (1 + tanh(y)) = x sigmoid(2y)
inline void geglu_tanh(float* gate, const float* up) {
  const F one = Vector::set1(1.0f);
  const F cubic = Vector::set1(-2.0f * 0.7978845608f * 0.044715f);
  const F linear = Vector::set1(-2.0f * 0.7978845608f);
  for (int i = 0; i < kActivationChunk; i += Vector::kLanes) {
    const F g = Vector::load(gate + i);
    const F minus_2y = Vector::mul(g, Vector::fma(cubic, Vector::mul(g, g), linear));
    const F sigmoid = Vector::div(one, Vector::add(one, vector_exp(minus_2y)));
    Vector::store(gate + i, Vector::mul(Vector::mul(g, sigmoid), Vector::load(up + i)));
  }
}

// gate[i] = glu(gate[i], up[i]) of kActivationChunk.
inline void glu_chunk(float* gate, const float* up, const GluShape& shape) {
  if (shape.kind == GluShape::Kind::kClampedSwiglu) return clamped_swiglu(gate, up, shape);
  if (shape.kind == GluShape::Kind::kGegluTanh) return geglu_tanh(gate, up);
  const F one = Vector::set1(1.0f);
  for (int i = 0; i < kActivationChunk; i += Vector::kLanes) {
    const F g = Vector::load(gate + i);
    const F minus = Vector::sub(Vector::zero(), g);
    const F sigmoid = Vector::div(one, Vector::add(one, vector_exp(minus)));
    Vector::store(gate + i, Vector::mul(Vector::mul(g, sigmoid), Vector::load(up + i)));
  }
}

// As glu_chunk, of less than kActivationChunk.
inline void glu_rest(float* gate, const float* up, int64_t count, const GluShape& shape) {
  float gates[kActivationChunk] = {};
  float ups[kActivationChunk] = {};
  __builtin_memcpy(gates, gate, static_cast<size_t>(count) * sizeof(float));
  __builtin_memcpy(ups, up, static_cast<size_t>(count) * sizeof(float));
  glu_chunk(gates, ups, shape);
  __builtin_memcpy(gate, gates, static_cast<size_t>(count) * sizeof(float));
}
