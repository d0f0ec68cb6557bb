// LayerNorm of a row, and the activations between the products of an MLP without gate: what
// encoders have and decoders have not. Included by cpu_kernels_inl.h, inside each instruction set's
// unnamed namespace.

inline void layer_norm_row(float* out, const float* x, const float* weight, const float* bias,
                           int size, float epsilon) {
  const int whole = size / Vector::kLanes * Vector::kLanes;
  const int rest = size - whole;
  F sum = Vector::zero();
  for (int i = 0; i < whole; i += Vector::kLanes) sum = Vector::add(sum, Vector::load(x + i));
  if (rest > 0) sum = Vector::add(sum, load_part(x + whole, rest));
  const F mean = Vector::set1(Vector::sum(sum) / static_cast<float>(size));
  F squares = Vector::zero();
  for (int i = 0; i < whole; i += Vector::kLanes) {
    const F apart = Vector::sub(Vector::load(x + i), mean);
    squares = Vector::fma(apart, apart, squares);
  }
  if (rest > 0) {
    const F apart =
        Vector::keep(Vector::sub(load_part(x + whole, rest), mean), 0, 0, rest - 1, Vector::zero());
    squares = Vector::fma(apart, apart, squares);
  }
  const float variance = Vector::sum(squares) / static_cast<float>(size);
  const F scale = Vector::set1(1.0f / __builtin_sqrtf(variance + epsilon));
  for (int i = 0; i < whole; i += Vector::kLanes) {
    const F normed = Vector::mul(Vector::sub(Vector::load(x + i), mean), scale);
    Vector::store(out + i, Vector::fma(normed, Vector::load(weight + i), Vector::load(bias + i)));
  }
  if (rest == 0) return;
  const F normed = Vector::mul(Vector::sub(load_part(x + whole, rest), mean), scale);
  store_part(out + whole,
             Vector::fma(normed, load_part(weight + whole, rest), load_part(bias + whole, rest)),
             rest);
}

// x/2 erfc(-x / sqrt 2), by erfc(z) = e^(-z^2) (a1 t + ... + a5 t^5), t = 1 / (1 + p z), z >= 0
// (Abramowitz and Stegun 7.1.26, error below 1.5e-7), and erfc(-z) = 2 - erfc(z).
inline F gelu(F x) {
  const F minus = Vector::sub(Vector::zero(), x);
  const F z = Vector::mul(Vector::max(x, minus), Vector::set1(0.70710678118f));
  const F one = Vector::set1(1.0f);
  const F t = Vector::div(one, Vector::fma(Vector::set1(0.3275911f), z, one));
  F sum = Vector::set1(1.061405429f);
  sum = Vector::fma(sum, t, Vector::set1(-1.453152027f));
  sum = Vector::fma(sum, t, Vector::set1(1.421413741f));
  sum = Vector::fma(sum, t, Vector::set1(-0.284496736f));
  sum = Vector::fma(sum, t, Vector::set1(0.254829592f));
  const F squared = Vector::mul(z, z);
  const F tail = Vector::mul(Vector::mul(sum, t), vector_exp(Vector::sub(Vector::zero(), squared)));
  // Of x > 0: x - x/2 tail; of x < 0: x/2 tail.
  const F half_tail = Vector::mul(Vector::set1(0.5f), Vector::mul(Vector::max(x, minus), tail));
  return Vector::sub(Vector::max(x, Vector::zero()), half_tail);
}

inline F activation_of(F x, ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGelu:
      return gelu(x);
    case ActivationKind::kGeluTanh: {
      const F cubic = Vector::set1(-2.0f * 0.7978845608f * 0.044715f);
      const F linear = Vector::set1(-2.0f * 0.7978845608f);
      const F minus_2y = Vector::mul(x, Vector::fma(cubic, Vector::mul(x, x), linear));
      const F one = Vector::set1(1.0f);
      return Vector::mul(x, Vector::div(one, Vector::add(one, vector_exp(minus_2y))));
    }
    case ActivationKind::kRelu:
      break;
  }
  return Vector::max(x, Vector::zero());
}
