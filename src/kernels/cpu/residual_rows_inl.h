// A row of the residual stream: its norm, and what is added to it. Included by cpu_kernels_inl.h.

// 1 / rms(x)
inline F inverse_rms(const float* x, int size, float epsilon) {
  F squares = Vector::zero();
  int i = 0;
  for (; i + Vector::kLanes <= size; i += Vector::kLanes) {
    const F value = Vector::load(x + i);
    squares = Vector::fma(value, value, squares);
  }
  if (i < size) {
    const F value = load_part(x + i, size - i);
    squares = Vector::fma(value, value, squares);
  }
  const float mean = Vector::sum(squares) / static_cast<float>(size);
  return Vector::set1(1.0f / __builtin_sqrtf(mean + epsilon));
}

// out = x / rms(x) * weight, of one row; out may be x.
inline void rms_norm_row(float* out, const float* x, const float* weight, int size, float epsilon) {
  const F scale = inverse_rms(x, size, epsilon);
  int i = 0;
  for (; i + Vector::kLanes <= size; i += Vector::kLanes) {
    const F normed = Vector::mul(Vector::load(x + i), scale);
    Vector::store(out + i, Vector::mul(normed, Vector::load(weight + i)));
  }
  if (i == size) return;
  const F normed = Vector::mul(load_part(x + i, size - i), scale);
  store_part(out + i, Vector::mul(normed, load_part(weight + i, size - i)), size - i);
}

// out += x * scale * weight
inline void add_normed_row(float* out, const float* x, const float* weight, F scale, int size) {
  int i = 0;
  for (; i + Vector::kLanes <= size; i += Vector::kLanes) {
    const F normed = Vector::mul(Vector::load(x + i), scale);
    Vector::store(out + i, Vector::fma(normed, Vector::load(weight + i), Vector::load(out + i)));
  }
  const int rest = size - i;
  if (rest == 0) return;
  const F normed = Vector::mul(load_part(x + i, rest), scale);
  store_part(out + i, Vector::fma(normed, load_part(weight + i, rest), load_part(out + i, rest)),
             rest);
}

// out += x * scale
inline void add_scaled_row(float* out, const float* x, F scale, int size) {
  int i = 0;
  for (; i + Vector::kLanes <= size; i += Vector::kLanes) {
    Vector::store(out + i, Vector::fma(Vector::load(x + i), scale, Vector::load(out + i)));
  }
  const int rest = size - i;
  if (rest == 0) return;
  store_part(out + i, Vector::fma(load_part(x + i, rest), scale, load_part(out + i, rest)), rest);
}
