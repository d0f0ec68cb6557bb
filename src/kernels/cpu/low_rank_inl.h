// Products with adapters: A x first, then B times that, added. The order of a row's sums is a
// function of the row and its adapter alone: A's rows as dot_rows sums them, then rank by rank.
// Included by cpu_kernels_inl.h.

// emit(rank, place, sum) of the ranks [begin, end) of A with x[0..count).
template <typename T, typename Emit>
inline void dot_ranks(const LowRank& matrix, int begin, int end, const float* const* x, int count,
                      const Emit& emit) {
  const PlainRows<T> rows{static_cast<const T*>(matrix.a), matrix.cols};
  if (matrix.cols % 32 != 0) {
    return dot_uneven_rows(rows, begin, end, matrix.cols / 32, x, count, emit);
  }
  dot_rows(rows, begin, end, matrix.cols / 32, x, count, emit);
}

// body<T>(), where T is the type of the adapter's elements.
template <typename Body>
inline void with_low_rank_type(Format format, const Body& body) {
  switch (format) {
    case Format::kF32:
      return body.template operator()<float>();
    case Format::kF16:
      return body.template operator()<F16>();
    default:
      CHECK(format == Format::kBf16);
      return body.template operator()<Bf16>();
  }
}

// All of A x that is planned.
inline void multiply_low_rank(base::ThreadPool& pool, const LowRankWorkspace& plan) {
  const auto tasks = static_cast<int64_t>(plan.tasks().size());
  pool.parallel_for(tasks, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const LowRankWorkspace::Task& task = plan.tasks()[i];
      const LowRankWorkspace::Product& product = plan.products()[task.product];
      const LowRank& matrix = product.matrix;
      const int places_left = product.begin + product.count - task.place;
      const int places =
          places_left < LowRankWorkspace::kTaskPlaces ? places_left : LowRankWorkspace::kTaskPlaces;
      const int ranks_left = matrix.rank - task.rank;
      const int ranks =
          ranks_left < LowRankWorkspace::kTaskRanks ? ranks_left : LowRankWorkspace::kTaskRanks;
      float* const to = product.factors + int64_t{task.place} * plan.rank_stride();
      const auto emit = [&](int64_t rank, int place, float sum) {
        to[int64_t{place} * plan.rank_stride() + rank] = matrix.scale * sum;
      };
      with_low_rank_type(matrix.format, [&]<typename T>() {
        dot_ranks<T>(matrix, task.rank, task.rank + ranks, plan.inputs() + task.place, places,
                     emit);
      });
    }
  });
}

// to[i] += sum over ranks of factors[rank] * B[rank][first + i]
template <typename T>
inline void add_ranks(const LowRank& matrix, const float* factors, int64_t first, int count,
                      float* to) {
  constexpr int kVectors = 4;
  const T* const b = static_cast<const T*>(matrix.b) + first;
  const int64_t stride = matrix.rows;
  int i = 0;
  for (; i + kVectors * Vector::kLanes <= count; i += kVectors * Vector::kLanes) {
    F sums[kVectors];
    for (F& sum : sums) sum = Vector::zero();
    for (int rank = 0; rank < matrix.rank; ++rank) {
      const F factor = Vector::set1(factors[rank]);
      const T* const row = b + rank * stride + i;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = Vector::fma(factor, Vector::load(row + v * Vector::kLanes), sums[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      float* const at = to + i + v * Vector::kLanes;
      Vector::store(at, Vector::add(Vector::load(at), sums[v]));
    }
  }
  for (; i < count; i += Vector::kLanes) {
    const int lanes = count - i < Vector::kLanes ? count - i : Vector::kLanes;
    F sum = Vector::zero();
    for (int rank = 0; rank < matrix.rank; ++rank) {
      const T* const row = b + rank * stride + i;
      const F values = lanes == Vector::kLanes ? Vector::load(row) : load_part(row, lanes);
      sum = Vector::fma(Vector::set1(factors[rank]), values, sum);
    }
    const F old = lanes == Vector::kLanes ? Vector::load(to + i) : load_part(to + i, lanes);
    const F added = Vector::add(old, sum);
    if (lanes == Vector::kLanes) {
      Vector::store(to + i, added);
    } else {
      store_part(to + i, added, lanes);
    }
  }
}

inline void add_low_rank_part(const LowRank& matrix, const float* factors, int64_t first, int count,
                              float* to) {
  with_low_rank_type(matrix.format,
                     [&]<typename T>() { add_ranks<T>(matrix, factors, first, count, to); });
}

class VectorExpertAdditions final : public ExpertAdditions {
 public:
  // x: float (tokens, hidden). `plan` has grouped the step's experts.
  VectorExpertAdditions(base::ThreadPool& pool, LowRankWorkspace& plan, const float* x,
                        int64_t hidden)
      : pool_(pool), plan_(plan) {
    plan_.plan_gate_and_up(x, hidden);
    multiply_low_rank(pool_, plan_);
  }

  bool adds_to(int64_t assignment) const override { return plan_.place_of(assignment) >= 0; }

  void add_to_gate_and_up(int64_t assignment, int first, int count, float* gate,
                          float* up) const override {
    const int place = plan_.place_of(assignment);
    const ExpertLowRank& adapter = plan_.adapter_at(place);
    const int expert = plan_.expert_at(place);
    if (adapter.gate.adds()) {
      add_low_rank_part(adapter.gate.of_expert(expert), plan_.gate_factors(place), first, count,
                        gate);
    }
    if (adapter.up.adds()) {
      add_low_rank_part(adapter.up.of_expert(expert), plan_.up_factors(place), first, count, up);
    }
  }

  void keep_activations(int64_t assignment, int first, int count,
                        const float* activations) const override {
    float* const to = plan_.activations_at(plan_.place_of(assignment));
    __builtin_memcpy(to + first, activations, static_cast<size_t>(count) * sizeof(float));
  }

  void multiply_activations() override {
    plan_.plan_down();
    multiply_low_rank(pool_, plan_);
  }

  void add_to_down(int64_t assignment, float* out) const override {
    const int place = plan_.place_of(assignment);
    const LowRank& down = plan_.adapter_at(place).down;
    if (!down.adds()) return;
    add_low_rank_part(down.of_expert(plan_.expert_at(place)), plan_.down_factors(place), 0,
                      down.rows, out);
  }

 private:
  base::ThreadPool& pool_;
  LowRankWorkspace& plan_;
};
