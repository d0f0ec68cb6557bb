// Rows of bf16 in 12 bits (tensor/compact_bf16.h), with the sums that bf16 rows give. Included by
// cpu_kernels_inl.h.

// For few tokens: a block is expanded in registers, where memory is the bound.
struct CompactRows {
  static constexpr int kAhead = 42;  // blocks, some 2 KB
  const uint8_t* data;
  int64_t row_bytes;

  template <int kRows>
  struct Cursor {
    const uint8_t* row[kRows];  // at its header
    void fetch(int r, int block) const { prefetch(block_of(r, block)); }
    void fetch_far(int r, int block) const { prefetch_far(block_of(r, block)); }
    void read(int r, int block, F* first, F* second) const {
      const uint8_t* const at = block_of(r, block);
      if (__builtin_expect(at[0] == tensor::kCompactRaw, 0)) {
        return read_raw(tensor::compact_raw_block(tensor::compact_raw_blocks(row[r]), at), first,
                        second);
      }
      Vector::expand_compact(at, first, second);
    }

   private:
    const uint8_t* block_of(int r, int block) const {
      return row[r] + tensor::kCompactHeaderBytes + int64_t{block} * tensor::kCompactBlockBytes;
    }
    static void read_raw(const uint8_t* from, F* first, F* second) {
      const auto* const at = reinterpret_cast<const Bf16*>(from);
      for (int p = 0; p < kParts; ++p) {
        first[p] = Vector::load(at + p * Vector::kLanes);
        second[p] = Vector::load(at + 16 + p * Vector::kLanes);
      }
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    for (int r = 0; r < kRows; ++r) {
      cursor.row[r] = data + (first_row + r) * row_bytes;
      // Few rows have raw blocks, and no stream of lines leads to them.
      prefetch(tensor::compact_raw_blocks(cursor.row[r]));
    }
    return cursor;
  }
};

// bf16s of one row.
inline void expand_compact_row(const uint8_t* row, int64_t cols, Bf16* to) {
  const uint8_t* const raw = tensor::compact_raw_blocks(row);
  const uint8_t* block = row + tensor::kCompactHeaderBytes;
  for (int64_t i = 0; i < cols; i += 32, block += tensor::kCompactBlockBytes) {
    if (block[0] == tensor::kCompactRaw) {
      __builtin_memcpy(to + i, tensor::compact_raw_block(raw, block), tensor::kCompactRawBytes);
      continue;
    }
    expand_compact_block(block, to + i);
  }
}

// Rows [begin, end) against x[0..tokens). For many tokens rows are expanded once for all of them.
template <typename Emit>
inline void dot_compact_rows(const StoredMatrix& matrix, int64_t begin, int64_t end,
                             const float* const* x, int tokens, const Emit& emit) {
  constexpr int64_t kElements = 64 << 10;  // expanded at a time: 128 KB of the stack
  const auto* const data = static_cast<const uint8_t*>(matrix.data);
  const int64_t row_bytes = kernels::row_bytes(matrix.format, matrix.cols);
  const int blocks = static_cast<int>(matrix.cols / 32);
  const int64_t at_once = kElements / matrix.cols / Vector::kTileRows * Vector::kTileRows;
  if (tokens <= 2 * Vector::kTileTokens || at_once == 0) {
    return dot_rows(CompactRows{data, row_bytes}, begin, end, blocks, x, tokens, emit);
  }
  alignas(64) Bf16 expanded[kElements];
  for (int64_t row = begin; row < end; row += at_once) {
    const int64_t count = end - row < at_once ? end - row : at_once;
    for (int64_t r = 0; r < count; ++r) {
      expand_compact_row(data + (row + r) * row_bytes, matrix.cols, expanded + r * matrix.cols);
    }
    const auto emit_row = [&](int64_t r, int t, float sum) { emit(row + r, t, sum); };
    dot_rows(PlainRows<Bf16>{expanded, matrix.cols}, 0, count, blocks, x, tokens, emit_row);
  }
}
