// What is added to a row of the residual stream. Included by cpu_kernels_inl.h.

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
