// A whole step of few rows in one launch. All blocks of its grid are alive at once (a cooperative
// launch) and go from phase to phase together; between two phases stands a barrier of the grid. The
// phases call what the launched kernels call, so the bits are the same.
//
// Of a layer: queries, keys and values | (fp8 codes) | attention | (merge of divided rows) | output
// projection | router | gate and up | down. What the launches do between these, each block does for
// itself: it norms all rows in front of a product that reads them, and chooses and groups experts.
// Down adds what the experts gave to the residual stream: one block has all experts' results of a
// tile of rows.
//
// Memory should not idle at a barrier: who ends a phase asks for the first weights of a product
// that comes next to be brought to the L2 cache, and a product loads its very first ones before it
// waits. Of experts' weights nobody knows before the choice which ones they are.
//
// What one block writes, another reads by plain loads after the barrier: its release and acquire
// order them (arrive_at_grid, wait_for_grid). Only weights go by load_weights.
#pragma once

#include "cuda/device/attention.h"
#include "cuda/device/epilogues.h"
#include "cuda/device/gpu.h"
#include "cuda/device/product.h"
#include "cuda/device/rows.h"
#include "cuda/device/store_kv.h"
#include "cuda/persistent_step.h"

namespace pelton::cuda {

inline constexpr int kPersistentThreads = kSmallThreads;
static_assert(kPersistentThreads == kRowThreads);  // whose number decides the order of a norm's sum
inline constexpr int kPersistentWarps = kPersistentThreads / 32;
static_assert(kPersistentRowsMax <= kPersistentWarps);  // a warp chooses for a row

// Blocks on a multiprocessor. Attention takes 240 registers of a thread: two blocks have 128 for
// each. Never measured.
inline constexpr int kPersistentBlocks = 1;

// Chunks of weights that a warp has on their way, of all its tiles together: of a block 48 KB of
// bf16, 26 KB of MXFP4, and 6 or 3 MB of 132 blocks. An H100 needs about 3 MB to keep its memory
// at work (3.35 TB/s, a microsecond's latency assumed). Never measured.
inline constexpr int kBf16AtOnce = 3;
inline constexpr int kMxfp4AtOnce = 6;

inline constexpr int kPersistentEntries = kPersistentRowsMax * kChoicesMax;

// Of a block, for the whole step; what a product needs lies behind it.
struct alignas(128) PersistentShared {
  PersistentLayer layers[2];  // this one and the next
  float sums[kPersistentRowsMax][kPersistentWarps];
  int32_t live[2];
  // Of the layer's experts: what launched steps have in `choices` and the grouping.
  int32_t choices[kPersistentEntries];
  float choice_weights[kPersistentEntries];
  int32_t is_first[kPersistentEntries];  // of its expert's entries
  ExpertTile tiles[kPersistentEntries];
  int32_t entries[kPersistentEntries * kPersistentRowsMax];
  int32_t tile_count;
};

// Which blocks of a product are this thread block's: every so manieth.
struct GridBlocks {
  int across;  // blocks beside each other in x
  int count;
  int index = block_x();
  int x = index % across;
  int y = index / across;
  bool is_valid = index < count;

  PELTON_DEVICE void advance() {
    index += grid_blocks();
    x = index % across;
    y = index / across;
    is_valid = index < count;
  }
};

// All blocks of one x, in the order of y.
struct ColumnBlocks {
  int x;
  int count;
  int y = 0;
  bool is_valid = true;

  PELTON_DEVICE void advance() { is_valid = ++y < count; }
};

// Rows of x, normed, where a product expects staged rows; `low`: what bf16 has left of them, or
// null. As norm_row, for all rows at once. The block's threads meet at the end.
struct StagedNorm {
  const float* x;
  const float* weight;
  const int32_t* rows;  // or null: one after the other
  int count;
  int hidden;
  float epsilon;

  PELTON_DEVICE void put(unsigned char* to, unsigned char* low,
                         float (&sums)[kPersistentRowsMax][kPersistentWarps]) const {
    constexpr int kAtOnce = 4;
    for (int first = 0; first < count; first += kAtOnce) {
      add_squares<kAtOnce>(first, sums);
      sync_block();
      put_rows<kAtOnce>(first, to, low, sums);
    }
    sync_block();
  }

 private:
  PELTON_DEVICE const float* row(int index) const {
    return x + int64_t{rows != nullptr ? rows[index] : index} * hidden;
  }

  template <int kCount>
  PELTON_DEVICE void add_squares(int first,
                                 float (&sums)[kPersistentRowsMax][kPersistentWarps]) const {
    float squares[kCount];
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      squares[r] = 0;
      if (first + r >= count) continue;
      const float* const from = row(first + r);
#pragma unroll 4
      for (int i = thread_index(); i < hidden; i += kPersistentThreads) {
        const float value = from[i];
        squares[r] = fused(value, value, squares[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) squares[r] += shuffle_xor(squares[r], mask);
      if (thread_index() % 32 == 0 && first + r < count) {
        sums[first + r][thread_index() / 32] = squares[r];
      }
    }
  }

  template <int kCount>
  PELTON_DEVICE void put_rows(int first, unsigned char* to, unsigned char* low,
                              const float (&sums)[kPersistentRowsMax][kPersistentWarps]) const {
    const int padded = padded_columns(hidden);
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      const int index = first + r;
      if (index >= count) continue;
      float sum = sums[index][0];
      for (int warp = 1; warp < kPersistentWarps; ++warp) sum += sums[index][warp];
      const float scale = inverse_root(sum / static_cast<float>(hidden) + epsilon);
      const float* const from = row(index);
      const int at = index * staged_row_bytes(chunk_count(hidden));
      auto* const high_row = reinterpret_cast<Bf16Bits*>(to + at);
      auto* const low_row = low != nullptr ? reinterpret_cast<Bf16Bits*>(low + at) : nullptr;
#pragma unroll 4
      for (int i = thread_index(); i < padded; i += kPersistentThreads) {
        const float value = i < hidden ? from[i] * scale * weight[i] : 0;
        const Bf16Bits bits = to_bf16(value);
        high_row[i] = bits;
        if (low_row != nullptr) low_row[i] = to_bf16(value - low_bf16(uint32_t{bits}));
      }
    }
  }
};

// What a thread block does in a step of a model with such heads and such keys and values.
template <int kHead, KvType kType>
class PersistentBlock {
 public:
  PELTON_DEVICE explicit PersistentBlock(const PersistentStep& step)
      : step_(step),
        shared_(*shared_memory<PersistentShared>()),
        room_(shared_memory<unsigned char>() + sizeof(PersistentShared)) {}

  PELTON_DEVICE void run() {
    begin();
    for (int index = 0; index < step_.layer_count; ++index) {
      const PersistentLayer& layer = shared_.layers[index % 2];
      const PersistentAttention& attention = step_.attention[layer.kv_group];
      project(layer, attention);
      if constexpr (kType == KvType::kFp8) store_keys(layer, attention);
      attend(layer, attention, index + 1);
      if (attention.spans_max > 0) merge_rows(layer, attention);
      add_attended(layer);
      route(layer);
      route_top_k();
      expand(layer);
      contract(layer, index + 1);
    }
    if (step_.logit_rows_max > 0) write_logits();
  }

 private:
  PELTON_DEVICE int warp() const { return thread_index() / 32; }
  PELTON_DEVICE int live() const { return shared_.live[0]; }

  // The end of a phase and the beginning of the next one: whatever a block wrote before it arrives
  // can be read by all when they have waited.
  PELTON_DEVICE void arrive() {
    sync_block();
    target_ += static_cast<uint32_t>(grid_blocks());
    if (thread_index() == 0) arrive_at_grid(step_.arrivals);
  }
  PELTON_DEVICE void wait() const {
    if (thread_index() == 0) wait_for_grid(step_.arrivals, target_);
    sync_block();
  }

  // For each of `count` things that one warp does: neighbours are different blocks'.
  template <class Body>
  PELTON_DEVICE void spread_over_warps(int count, const Body& body) const {
#pragma unroll 1  // a body takes most of the registers
    for (int i = block_x() + grid_blocks() * warp(); i < count;
         i += grid_blocks() * kPersistentWarps) {
      body(i);
    }
  }

  // To shared memory, where the block finds it after its next barrier.
  PELTON_DEVICE void load_layer(int index) const {
    static_assert(sizeof(PersistentLayer) % sizeof(uint32_t) == 0);
    if (index >= step_.layer_count) return;
    const auto* const from = reinterpret_cast<const uint32_t*>(step_.layers + index);
    auto* const to = reinterpret_cast<uint32_t*>(&shared_.layers[index % 2]);
    for (int i = thread_index(); i < static_cast<int>(sizeof(PersistentLayer) / 4);
         i += kPersistentThreads) {
      to[i] = from[i];
    }
  }

  // Asks for what the warp will load of a tile, for the L2 cache, if it is not more than `left`
  // bytes; and says how many are left then.
  template <WeightType kWeights>
  PELTON_DEVICE int prefetch(const Weights& weights, int expert, int tile, int left) const {
    const int chunks = chunk_count(weights.columns);
    const int begin = slice_begin(chunks, warp());
    const int end = slice_begin(chunks, warp() + 1);
    const int64_t at = (int64_t{expert} * tile_count(weights.rows) + tile) * chunks + begin;
    const int all = (end - begin) * chunk_bytes(kWeights);
    const int bytes = all < left ? all : left;
    prefetch_weights(static_cast<const char*>(weights.data) + at * chunk_bytes(kWeights), bytes);
    if constexpr (kWeights == WeightType::kMxfp4) {
      prefetch_weights(reinterpret_cast<const char*>(weights.scales) + at * kScaleChunkBytes,
                       (end - begin) * kScaleChunkBytes);
    }
    return left - bytes;
  }
  PELTON_DEVICE void prefetch_dense(const Weights& weights) const {
    int left = kPrefetchBytes;
    for (int tile = block_x(); tile < tile_count(weights.rows) && left > 0; tile += grid_blocks()) {
      left = prefetch<WeightType::kBf16>(weights, 0, tile, left);
    }
  }
  // In the order in which contract() reads them.
  PELTON_DEVICE void prefetch_down(const Weights& weights) const {
    int left = kPrefetchBytes;
    for (int tile = block_x(); tile < tile_count(weights.rows) && left > 0; tile += grid_blocks()) {
      for (int i = 0; i < shared_.tile_count && left > 0; ++i) {
        left = prefetch<WeightType::kMxfp4>(weights, shared_.tiles[i].expert, tile, left);
      }
    }
  }
  PELTON_DEVICE static GridBlocks tiles_of(const Weights& weights) {
    return {tile_count(weights.rows), tile_count(weights.rows)};
  }

  // A product of all rows by bf16 weights; `ready` puts them to room_.
  template <bool kLow, class Ready, class Epilogue>
  PELTON_DEVICE void multiply(const Weights& weights, const int32_t* live, const Ready& ready,
                              const Epilogue& epilogue) const {
    const ProductArgs args{.weights = weights,
                           .x = nullptr,
                           .low = nullptr,
                           .live = live,
                           .tiles = nullptr,
                           .entries = nullptr,
                           .rows_of_entry = 1};
    small_product_blocks<WeightType::kBf16, 1, 1, kLow, Rows::kThere, kBf16AtOnce>(
        args, epilogue, room_, tiles_of(weights), ready);
  }

  PELTON_DEVICE void norm_to_room(const float* weight, const int32_t* rows, int count,
                                  bool with_low) const {
    unsigned char* const low =
        with_low ? room_ + 8 * staged_row_bytes(chunk_count(step_.hidden)) : nullptr;
    StagedNorm{step_.x, weight, rows, count, step_.hidden, step_.epsilon}.put(room_, low,
                                                                              shared_.sums);
  }

  // ---- phases, each from wait() to arrive() ----

  PELTON_DEVICE void begin() {
    load_layer(0);
    if (thread_index() < 2) shared_.live[thread_index()] = step_.live[thread_index()];
    sync_block();
    prefetch_dense(shared_.layers[0].qkv);
    for (int row = block_x(); row < live(); row += grid_blocks()) embed_row(step_.embed, row);
    arrive();
  }

  PELTON_DEVICE void project(const PersistentLayer& layer, const PersistentAttention& attention) {
    const Qkv qkv{.weights = layer.qkv,
                  .input = {},
                  .q = step_.q,
                  .cache = layer.cache,
                  .positions = step_.positions,
                  .slots = attention.slots,
                  .turns = step_.turns,
                  .heads = step_.heads,
                  .staged = step_.staged,
                  .config = {}};
    const auto ready = [&] {
      wait();
      norm_to_room(layer.attention_norm, nullptr, live(), false);
    };
    multiply<false>(layer.qkv, shared_.live, ready, QkvEpilogue{qkv});
    prefetch_dense(layer.o);  // attention does not need the memory's whole time
    arrive();
  }

  PELTON_DEVICE void store_keys(const PersistentLayer& layer,
                                const PersistentAttention& attention) {
    const StoreKv store{step_.staged, layer.cache, attention.slots, shared_.live, step_.rows_max};
    const int vectors = 2 * layer.cache.kv_heads;
    wait();
    spread_over_warps(live() * vectors,
                      [&](int i) { store_vector<kHead>(store, i / vectors, i % vectors); });
    arrive();
  }

  PELTON_DEVICE Attention attention_of(const PersistentLayer& layer,
                                       const PersistentAttention& attention) const {
    return {.out = step_.attended,
            .q = step_.q,
            .cache = layer.cache,
            .tables = step_.tables,
            .items = attention.items,
            .sinks = layer.sinks,
            .partials = step_.partials,
            .positions = step_.positions,
            .live = shared_.live,
            .partial_rows = step_.partial_rows,
            .rows_max = step_.rows_max,
            .items_max = attention.items_max,
            .spans_max = attention.spans_max,
            .heads = step_.heads,
            .window = attention.window,
            .scale = step_.attention_scale};
  }

  PELTON_DEVICE void attend(const PersistentLayer& layer, const PersistentAttention& attention,
                            int next_layer) {
    const Attention args = attention_of(layer, attention);
    const int kv_heads = layer.cache.kv_heads;
    wait();
    load_layer(next_layer);
    spread_over_warps(args.items_max * kv_heads,
                      [&](int i) { attend_item<kHead, kType>(args, i / kv_heads, i % kv_heads); });
    arrive();
  }

  PELTON_DEVICE void merge_rows(const PersistentLayer& layer,
                                const PersistentAttention& attention) {
    const Attention args = attention_of(layer, attention);
    wait();
    spread_over_warps(live() * args.heads,
                      [&](int i) { merge_head<kHead>(args, i / args.heads, i % args.heads); });
    arrive();
  }

  PELTON_DEVICE void add_attended(const PersistentLayer& layer) {
    const Linear o{.weights = layer.o,
                   .input = {},
                   .out = step_.x,
                   .stride = step_.hidden,
                   .accumulate = 1,
                   .config = {}};
    const auto ready = [&] {
      wait();
      const ProductArgs rows{.weights = layer.o,
                             .x = step_.attended,
                             .low = nullptr,
                             .live = shared_.live,
                             .tiles = nullptr,
                             .entries = nullptr,
                             .rows_of_entry = 1};
      stage_rows(room_, step_.attended, rows, {0, 0, live()}, chunk_count(layer.o.columns));
      commit_copies();
      wait_copies<0>();
    };
    multiply<false>(layer.o, shared_.live, ready, LinearEpilogue{o});
    prefetch_dense(layer.router);
    arrive();
  }

  // Logits of the router, by a handful of blocks; and rows for gate and up, by the last ones.
  PELTON_DEVICE void route(const PersistentLayer& layer) {
    const Linear router{.weights = layer.router,
                        .input = {},
                        .out = step_.router_logits,
                        .stride = step_.experts,
                        .accumulate = 0,
                        .config = {}};
    const auto ready = [&] {
      wait();
      if (block_x() < tile_count(layer.router.rows)) {
        norm_to_room(layer.expert_norm, nullptr, live(), true);
      }
    };
    multiply<true>(layer.router, shared_.live, ready, LinearEpilogue{router});
    const Norm norm{.x = step_.x,
                    .weight = layer.expert_norm,
                    .out = step_.normed,
                    .low = nullptr,
                    .rows = nullptr,
                    .y = nullptr,
                    .choice_weights = nullptr,
                    .live = shared_.live,
                    .rows_max = step_.rows_max,
                    .hidden = step_.hidden,
                    .choices = 0,
                    .epsilon = step_.epsilon};
    for (int row = grid_blocks() - 1 - block_x(); row < live(); row += grid_blocks()) {
      sync_block();  // the row before has read the sums
      norm_row(norm, row, shared_.sums[0]);
    }
    arrive();
  }

  // Each block for itself: all need it, and it is little work.
  PELTON_DEVICE void route_top_k() {
    const Choose choose{.logits = step_.router_logits,
                        .choices = shared_.choices,
                        .weights = shared_.choice_weights,
                        .live = shared_.live,
                        .rows_max = step_.rows_max,
                        .experts = step_.experts,
                        .k = step_.choices};
    wait();
    if (warp() < live()) choose_of_row(choose, warp());
    sync_block();
    group_entries();
  }

  // A tile for each expert that was chosen, in the order of the first entry that chose it. A row
  // chooses an expert once, so a tile has room for all of its entries.
  PELTON_DEVICE void group_entries() const {
    const int count = live() * step_.choices;
    const int own = thread_index();
    int first = own;  // of the entries with the same expert
    int before = 0;   // of them, those before this one
    int all = 0;
    if (own < count) {
      const int expert = shared_.choices[own];
      for (int i = 0; i < count; ++i) {
        if (shared_.choices[i] != expert) continue;
        if (i < first) first = i;
        before += i < own ? 1 : 0;
        ++all;
      }
      shared_.is_first[own] = first == own ? 1 : 0;
    }
    sync_block();
    if (own < count) {
      int tile = 0;
      for (int i = 0; i < first; ++i) tile += shared_.is_first[i];
      shared_.entries[tile * kPersistentRowsMax + before] = own;
      if (first == own) {
        shared_.tiles[tile] = {shared_.choices[own], tile * kPersistentRowsMax, all};
      }
    }
    if (own == 0) {
      int tiles = 0;
      for (int i = 0; i < count; ++i) tiles += shared_.is_first[i];
      shared_.tile_count = tiles;
    }
    sync_block();
  }

  PELTON_DEVICE ProductArgs grouped(const Weights& weights, const Bf16Bits* x,
                                    int rows_of_entry) const {
    return {.weights = weights,
            .x = x,
            .low = nullptr,
            .live = &shared_.tile_count,
            .tiles = shared_.tiles,
            .entries = shared_.entries,
            .rows_of_entry = rows_of_entry,
            .knows_tiles = true};
  }

  PELTON_DEVICE void expand(const PersistentLayer& layer) {
    constexpr int kRowTiles = 2;
    const GateUp gate_up{.weights = layer.gate_up,
                         .x = step_.normed,
                         .h = step_.h,
                         .grouping = {},
                         .alpha = step_.alpha,
                         .limit = step_.limit,
                         .config = {}};
    const int across = (tile_count(layer.gate_up.rows) + kRowTiles - 1) / kRowTiles;
    small_product_blocks<WeightType::kMxfp4, 1, kRowTiles, false, Rows::kCopied,
                         kMxfp4AtOnce / kRowTiles>(
        grouped(layer.gate_up, step_.normed, step_.choices), GateUpEpilogue{gate_up}, room_,
        GridBlocks{across, across * shared_.tile_count}, [] {});
    prefetch_down(layer.down);
    arrive();
  }

  PELTON_DEVICE void contract(const PersistentLayer& layer, int next_layer) {
    const Down down{
        .weights = layer.down, .h = step_.h, .y = step_.y, .grouping = {}, .config = {}};
    const int tiles = tile_count(layer.down.rows);
    bool has_waited = false;
    const auto ready = [&] {
      if (!has_waited) wait();
      has_waited = true;
    };
#pragma unroll 1
    for (int x = block_x(); x < tiles; x += grid_blocks()) {
      small_product_blocks<WeightType::kMxfp4, 1, 1, false, Rows::kCopied, kMxfp4AtOnce>(
          grouped(layer.down, step_.h, 1), DownEpilogue{down}, room_,
          ColumnBlocks{x, shared_.tile_count}, ready);
      sync_block();
      add_experts(x);
    }
    ready();
    prefetch_dense(next_layer < step_.layer_count ? shared_.layers[next_layer % 2].qkv
                                                  : step_.head);
    arrive();
  }

  // As norm_row adds them, to the columns of x that are rows of the tile.
  PELTON_DEVICE void add_experts(int tile) const {
    const int row = thread_index() / kTileRows;
    const int column = kTileRows * tile + thread_index() % kTileRows;
    if (row >= live() || column >= step_.hidden) return;
    float& x = step_.x[int64_t{row} * step_.hidden + column];
    float value = x;
    for (int j = 0; j < step_.choices; ++j) {
      const int entry = row * step_.choices + j;
      value = fused(shared_.choice_weights[entry], step_.y[int64_t{entry} * step_.hidden + column],
                    value);
    }
    x = value;
  }

  PELTON_DEVICE void write_logits() {
    const Linear head{.weights = step_.head,
                      .input = {},
                      .out = step_.logits,
                      .stride = step_.head.rows,
                      .accumulate = 0,
                      .config = {}};
    const auto ready = [&] {
      wait();
      norm_to_room(step_.norm, step_.logit_rows, shared_.live[1], false);
    };
    multiply<false>(step_.head, shared_.live + 1, ready, LinearEpilogue{head});
  }

  const PersistentStep& step_;
  PersistentShared& shared_;
  unsigned char* const room_;
  uint32_t target_ = 0;  // of the barrier that the block arrived at last
};

template <int kHead, KvType kType>
PELTON_KERNEL(kPersistentThreads, kPersistentBlocks)
persistent_kernel(PELTON_ARGUMENT PersistentStep step) {
  PersistentBlock<kHead, kType>(step).run();
}

}  // namespace pelton::cuda
