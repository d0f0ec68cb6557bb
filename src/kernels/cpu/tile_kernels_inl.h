// The tile kernels themselves: which thread multiplies which tiles, and the working memory.
// Included inside the unnamed namespace of tiles_avx*.cc, as what it includes is.

#include "kernels/cpu/tile_products_inl.h"

// Products::multiply does what multiply_tiles does.
template <typename Products>
class Tiles final : public TileKernels {
 public:
  explicit Tiles(base::ThreadPool& pool)
      : pool_(pool), scratch_(pool.size()), gates_(pool.size()) {}

  void reserve(const StepCapacity& shape) override {
    const auto tokens = static_cast<size_t>(shape.tokens);
    const size_t assignments = tokens * static_cast<size_t>(shape.experts_per_token);
    const int planes = shape.activations == Activations::kInt8 ? 1 : 2;
    const int64_t widest_blocks = shape.widest / kBlock;
    for (std::vector<uint8_t>& scratch : scratch_) {
      scratch.reserve(static_cast<size_t>(kPanelTiles * widest_blocks * kSpreadBytes));
    }
    for (std::vector<float>& gates : gates_) gates.reserve(tokens * 4 * kTileRows);
    inputs_.reserve(shape.tokens, shape.widest, planes);
    activations_.reserve(static_cast<int64_t>(assignments), shape.inner, planes);
    rows_.reserve(assignments);
    groups_.reserve(shape);
    outputs_.reserve(assignments * static_cast<size_t>(shape.hidden));
  }

  int64_t scratch_bytes() const override {
    int64_t sum = capacity_bytes(rows_) + groups_.bytes() + capacity_bytes(outputs_) +
                  inputs_.bytes() + activations_.bytes();
    for (const std::vector<uint8_t>& scratch : scratch_) sum += capacity_bytes(scratch);
    for (const std::vector<float>& gates : gates_) sum += capacity_bytes(gates);
    return sum;
  }

  void linear(float* out, const float* x, const Linear& linear, int tokens,
              Kernels::Output output) override {
    if (linear.weight.activations == Activations::kInt8) {
      multiply_linear<1>(out, x, linear, tokens, output);
    } else {
      multiply_linear<2>(out, x, linear, tokens, output);
    }
  }

  void experts(float* out, const float* x, const ExpertChoice* choices,
               const ExpertWeights& weights, const MoeShape& shape, int tokens,
               ExpertAdditions* additions) override {
    if (weights.gate.activations == Activations::kInt8) {
      multiply_experts<1>(out, x, choices, weights, shape, tokens, additions);
    } else {
      multiply_experts<2>(out, x, choices, weights, shape, tokens, additions);
    }
  }

 private:
  static WeightCode code_of(Format format) {
    switch (format) {
      case Format::kInt8Tiles:
        return Int8Tile::kCode;
      case Format::kInt4Tiles:
        return Int4Tile::kCode;
      default:
        return Mxfp4Tile::kCode;
    }
  }

  template <int kPlanes>
  void multiply_linear(float* out, const float* x, const Linear& linear, int tokens,
                       Kernels::Output output) {
    const Matrix& matrix = linear.weight;
    quantize<kPlanes>(inputs_, x, tokens, matrix.cols, code_of(matrix.format));
    rows_.resize(static_cast<size_t>(tokens));
    for (int t = 0; t < tokens; ++t) rows_[t] = row_view(inputs_, t);
    const int64_t tiles = (matrix.rows + kTileRows - 1) / kTileRows;
    const int64_t grain = tokens <= kStreamTokens ? kPanelTiles : 2 * kPanelTiles;
    pool_.parallel_for(tiles, grain, [&](int64_t begin, int64_t end, int worker) {
      prefetch_biases(linear.bias, begin, end);
      const auto emit = [&](int64_t tile, int t, L sums) {
        const int64_t row = tile * kTileRows;
        float* to = out + int64_t{t} * matrix.rows + row;
        const float* bias = linear.bias != nullptr ? linear.bias + row : nullptr;
        if (row + kTileRows <= matrix.rows) {
          if (bias != nullptr) sums = Ints::add(sums, Ints::load(bias));
          if (output == Kernels::Output::kAccumulate) sums = Ints::add(Ints::load(to), sums);
          Ints::store(to, sums);
          return;
        }
        float lanes[kTileRows];
        Ints::store(lanes, sums);
        for (int64_t r = 0; row + r < matrix.rows; ++r) {
          const float value = bias != nullptr ? lanes[r] + bias[r] : lanes[r];
          to[r] = output == Kernels::Output::kAccumulate ? to[r] + value : value;
        }
      };
      multiply<kPlanes>(matrix.format, static_cast<const uint8_t*>(matrix.data), begin, end,
                        matrix.cols, rows_.data(), tokens, worker, emit);
    });
  }

  template <int kPlanes>
  void multiply_experts(float* out, const float* x, const ExpertChoice* choices,
                        const ExpertWeights& weights, const MoeShape& shape, int tokens,
                        ExpertAdditions* additions) {
    const int k = shape.experts_per_token;
    const int64_t assignments = int64_t{tokens} * k;
    const Experts& down = weights.down;
    groups_.group(choices, tokens, k, weights.gate.experts, shape.dealt);
    const auto own = static_cast<int64_t>(groups_.assignments().size());
    outputs_.resize(static_cast<size_t>(assignments * down.rows));
    activations_.resize(assignments, down.cols, kPlanes);
    rows_.resize(static_cast<size_t>(assignments));

    quantize<kPlanes>(inputs_, x, tokens, weights.gate.cols, Mxfp4Tile::kCode);
    for (int64_t i = 0; i < own; ++i) rows_[i] = row_view(inputs_, groups_.assignments()[i] / k);
    expert_up<kPlanes>(weights, shape, additions);
    if (additions != nullptr) additions->multiply_activations();
    if (shape.exchange != nullptr) gather_activations<kPlanes>(*shape.exchange, assignments);
    for (int64_t i = 0; i < own; ++i) rows_[i] = row_view(activations_, groups_.assignments()[i]);
    expert_down<kPlanes>(down);
    if (shape.dealt != nullptr) shape.dealt->gather(outputs_.data(), down.rows, assignments);
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t i = t * k; additions != nullptr && i < (t + 1) * k; ++i) {
          if (additions->adds_to(i)) additions->add_to_down(i, outputs_.data() + i * down.rows);
        }
        mix_experts(out + t * down.rows, choices + t * k, outputs_.data() + t * k * down.rows, k,
                    down.rows);
      }
    });
  }

  // As they will be multiplied: a unit's 32 share a scale, so its bytes are those of one process.
  template <int kPlanes>
  void gather_activations(ColumnExchange& exchange, int64_t assignments) {
    const ColumnExchange::Array arrays[] = {
        {activations_.values.data(), kPlanes * kBlock},
        {activations_.scales.data(), sizeof(float)},
        {activations_.begins.data(), kPlanes * sizeof(int32_t)},
    };
    exchange.gather(arrays, 3, assignments);
  }

  // They are wanted when a tile is done, and nothing after could be looked ahead to while they
  // come.
  static void prefetch_biases(const float* bias, int64_t begin, int64_t end) {
    if (bias == nullptr) return;
    for (int64_t tile = begin; tile < end; ++tile) prefetch(bias + tile * kTileRows);
  }

  template <int kPlanes>
  void quantize(QuantizedRows& to, const float* x, int64_t rows, int cols, WeightCode code) {
    to.resize(rows, cols, kPlanes);
    pool_.parallel_for(rows, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        for (int b = 0; b < to.blocks; ++b) {
          quantize_block<kPlanes>(x + row * cols + b * kBlock, to, row, b, code);
        }
      }
    });
  }

  template <int kPlanes, typename Emit>
  void multiply(Format format, const uint8_t* tiles, int64_t begin, int64_t end, int cols,
                const RowView* x, int tokens, int worker, const Emit& emit) {
    const int64_t blocks = cols / kBlock;
    std::vector<uint8_t>& scratch = scratch_[worker];
    const auto room = static_cast<size_t>(kPanelTiles * blocks * kSpreadBytes);
    // Not resize(), which stays a function of its own, compiled for this processor alone.
    if (scratch.size() < room) scratch = std::vector<uint8_t>(room);
    if (format == Format::kInt8Tiles) {
      Products::template multiply<kPlanes, Int8Tile>(tiles, begin, end, blocks, x, tokens,
                                                     scratch.data(), emit);
    } else if (format == Format::kInt4Tiles) {
      Products::template multiply<kPlanes, Int4Tile>(tiles, begin, end, blocks, x, tokens,
                                                     scratch.data(), emit);
    } else {
      Products::template multiply<kPlanes, Mxfp4Tile>(tiles, begin, end, blocks, x, tokens,
                                                      scratch.data(), emit);
    }
  }

  // Each task: 32 gates and 32 ups of one expert, which make one block of its activations. Block 2
  // is of the tiles 8 to 11: the gates 64 to 79, the ups 64 to 79, the gates 80 to 95, the ups 80
  // to 95.
  template <int kPlanes>
  void expert_up(const ExpertWeights& weights, const MoeShape& shape,
                 const ExpertAdditions* additions) {
    const Experts& gate = weights.gate;
    const bool shared = shape.exchange != nullptr;
    const int blocks = shared ? shape.exchange->count() : weights.down.cols / kBlock;
    const int first_block = shared ? shape.exchange->first() : 0;
    if (blocks == 0) return;
    const int64_t tasks = static_cast<int64_t>(groups_.active().size()) * blocks;
    pool_.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int worker) {
      std::vector<float>& room = gates_[worker];
      for (int64_t task = begin; task < end; ++task) {
        const ActiveExpert& active = groups_.active()[task / blocks];
        const auto block = static_cast<int>(task % blocks);
        const auto* tiles = static_cast<const uint8_t*>(expert_matrix(gate, active.expert).data);
        const float* bias = gate.bias + int64_t{active.expert} * gate.rows;
        prefetch_biases(bias, block * 4, block * 4 + 4);
        room.resize(static_cast<size_t>(active.count) * 4 * kTileRows);
        const auto emit = [&](int64_t tile, int t, L sums) {
          sums = Ints::add(sums, Ints::load(bias + tile * kTileRows));
          Ints::store(room.data() + (int64_t{t} * 4 + tile % 4) * kTileRows, sums);
        };
        multiply<kPlanes>(gate.format, tiles, block * 4, block * 4 + 4, gate.cols,
                          rows_.data() + active.begin, active.count, worker, emit);
        for (int t = 0; t < active.count; ++t) {
          float* at = room.data() + int64_t{t} * 4 * kTileRows;
          const int64_t assignment = groups_.assignments()[active.begin + t];
          const bool adds = additions != nullptr && additions->adds_to(assignment);
          if (adds) add_to_block(*additions, assignment, block, at);
          float activations[kBlock];
          swiglu_tile(activations, at, at + kTileRows, shape);
          swiglu_tile(activations + kTileRows, at + 2 * kTileRows, at + 3 * kTileRows, shape);
          if (adds) additions->keep_activations(assignment, block * kBlock, kBlock, activations);
          quantize_block<kPlanes>(activations, activations_, assignment, first_block + block,
                                  Mxfp4Tile::kCode);
        }
      }
    });
  }

  // 16 gates, 16 ups, 16 gates, 16 ups: those of the block's first and second half.
  static void add_to_block(const ExpertAdditions& additions, int64_t assignment, int block,
                           float* at) {
    for (int half = 0; half < 2; ++half) {
      float* const gates = at + half * 2 * kTileRows;
      additions.add_to_gate_and_up(assignment, block * kBlock + half * kTileRows, kTileRows, gates,
                                   gates + kTileRows);
    }
  }

  template <int kPlanes>
  void expert_down(const Experts& matrix) {
    const int64_t tiles = (matrix.rows + kTileRows - 1) / kTileRows;
    const int64_t chunks = (tiles + 2 * kPanelTiles - 1) / (2 * kPanelTiles);
    const int64_t tasks = static_cast<int64_t>(groups_.active().size()) * chunks;
    pool_.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t task = begin; task < end; ++task) {
        const ActiveExpert& active = groups_.active()[task / chunks];
        const int64_t first = task % chunks * 2 * kPanelTiles;
        const int64_t last = first + 2 * kPanelTiles < tiles ? first + 2 * kPanelTiles : tiles;
        const float* bias = matrix.bias + int64_t{active.expert} * matrix.rows;
        prefetch_biases(bias, first, last);
        const auto emit = [&](int64_t tile, int t, L sums) {
          const int64_t row = tile * kTileRows;
          float* to = outputs_.data() +
                      int64_t{groups_.assignments()[active.begin + t]} * matrix.rows + row;
          Ints::store(to, Ints::add(sums, Ints::load(bias + row)));
        };
        multiply<kPlanes>(
            matrix.format, static_cast<const uint8_t*>(expert_matrix(matrix, active.expert).data),
            first, last, matrix.cols, rows_.data() + active.begin, active.count, worker, emit);
      }
    });
  }

  base::ThreadPool& pool_;

  // Working memory, grown to the largest step and kept.
  std::vector<std::vector<uint8_t>> scratch_;  // for each worker: tiles spread out
  std::vector<std::vector<float>> gates_;      // for each worker: gates and ups
  QuantizedRows inputs_;
  QuantizedRows activations_;  // (assignments, intermediate)
  std::vector<RowView> rows_;
  ExpertGroups groups_;
  std::vector<float> outputs_;  // (assignments, hidden)
};
