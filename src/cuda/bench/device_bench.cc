// Measures a device library: each kernel and whole steps in gpt-oss' shapes, with random weights
// made on the device. Prints time, bytes and bytes/s, and the share of the copy bandwidth measured
// first (or of the arithmetic, for prompts). Needs no model and no test framework.
//
//   device_bench LIBRARY [--shape 20b|120b|tiny] [--only copy,kernels,decode,persistent,prefill]
//              [--kv f16|bf16|fp8] [--configs default|measure|plain|persistent] [--runs N]
//
// A step's time is from the call to its logits on the host: what an engine waits for.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cuda/device_library.h"
#include "cuda/device_tuning.h"
#include "cuda/gpt_oss_shape.h"

namespace pelton::cuda {
namespace {

struct Settings {
  std::string library;
  std::string shape = "20b";
  std::string only = "copy,kernels,decode,persistent,prefill";
  std::string kv = "f16";
  int runs = 20;
  std::string configs = "default";  // of the products in whole steps
};

ModelShape shape_named(const std::string& name) {
  ModelShape shape = name == "120b" ? gpt_oss_shape(36, 128) : gpt_oss_shape();
  if (name == "tiny") {
    shape.layers = 2;
    shape.hidden = shape.inner = 128;
    shape.heads = 8;
    shape.kv_heads = 1;
    shape.experts = 8;
    shape.choices = 2;
    shape.vocab = 512;
  }
  return shape;
}

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "device_bench: {}\n", why);
  std::exit(1);
}

class Bench {
 public:
  Bench(const DeviceLibrary& library, const Settings& settings)
      : library_(library),
        table_(library.table()),
        settings_(settings),
        shape_(shape_named(settings.shape)),
        kv_type_(settings.kv == "fp8"    ? KvType::kFp8
                 : settings.kv == "bf16" ? KvType::kBf16
                                         : KvType::kF16),
        tiny_(settings.shape == "tiny") {}

  void run() {
    const auto wanted = [&](const char* part) {
      return settings_.only.find(part) != std::string::npos;
    };
    measure_copy();
    if (wanted("kernels")) measure_kernels();
    if (wanted("decode")) measure_decode();
    if (wanted("persistent")) measure_persistent();
    if (wanted("prefill")) measure_prefill();
  }

 private:
  void check(const char* doing) const {
    const Result<void> well = library_.check(doing);
    if (!well.ok()) give_up(well.error().message);
  }

  // Median seconds on the device of what `body` starts, repeated so often inside one measurement
  // that the marks themselves do not count.
  double seconds_of(const std::function<void(int)>& body, int inside) const {
    std::vector<double> seconds;
    for (int run = 0; run < settings_.runs + 2; ++run) {
      table_.mark(0);
      for (int i = 0; i < inside; ++i) body(i);
      table_.mark(1);
      const double each = table_.seconds_between_marks() / inside;
      if (run >= 2) seconds.push_back(each);
    }
    check("measuring");
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }

  void* take(int64_t bytes) {
    void* const memory = table_.allocate(std::max<int64_t>(bytes, 16));
    if (memory == nullptr) check("taking device memory");
    taken_.push_back(memory);
    return memory;
  }
  template <typename T>
  T* take_random(int64_t count, RandomKind kind, float scale) {
    T* const memory = static_cast<T*>(take(count * int64_t{sizeof(T)}));
    const Randomize args{memory, count, 7 + taken_.size(), kind, scale};
    table_.randomize(&args);
    return memory;
  }
  template <typename T>
  T* take_copy(const std::vector<T>& values) {
    T* const memory = static_cast<T*>(take(static_cast<int64_t>(values.size() * sizeof(T))));
    table_.to_device(memory, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    return memory;
  }
  void give_all_back() {
    table_.wait();
    for (void* const memory : taken_) table_.release(memory);
    taken_.clear();
  }

  // Bytes read and written; larger than any cache.
  void measure_copy() {
    const int64_t bytes = tiny_ ? 1 << 20 : int64_t{2} << 30;
    char* const from = static_cast<char*>(take(bytes));
    char* const to = static_cast<char*>(take(bytes));
    table_.fill(from, 1, bytes);
    const double seconds = seconds_of([&](int) { table_.copy_device(to, from, bytes); }, 2);
    copy_rate_ = 2 * static_cast<double>(bytes) / seconds;
    give_all_back();
    fmt::print("copy on the device: {:.0f} GB/s (read and written)\n", copy_rate_ * 1e-9);
  }

  void report(const std::string& name, double seconds, double bytes, double flops) const {
    fmt::print("{:<34} {:>10.1f} us {:>9.1f} MB {:>8.0f} GB/s {:>6.1f} % {:>9.2f} TFLOP/s\n", name,
               seconds * 1e6, bytes * 1e-6, bytes / seconds * 1e-9,
               100 * bytes / seconds / copy_rate_, flops / seconds * 1e-12);
    std::fflush(stdout);
  }

  // Several copies of the weights in turn, so that none is found in the cache.
  int copies_for(int64_t bytes) const {
    if (tiny_) return 1;
    return static_cast<int>(std::clamp<int64_t>((int64_t{256} << 20) / bytes, 1, 16));
  }

  Weights dense(int rows, int columns, bool with_bias) {
    const int64_t bytes = int64_t{tile_count(rows)} * chunk_count(columns) * kBf16ChunkBytes;
    return {.data = take_random<Bf16Bits>(bytes / 2, RandomKind::kBf16, 0.03f),
            .bias = with_bias ? take_random<float>(rows, RandomKind::kFloat, 1) : nullptr,
            .rows = rows,
            .columns = columns};
  }

  // By constants, with wgmma and without.
  std::vector<KernelConfig> configs_for(ProductKind kind, int tokens) const {
    const Result<DeviceInfo> info = library_.device(0);
    if (!info.ok()) give_up(info.error().message);
    std::vector<KernelConfig> configs;
    const bool tries_wide = info->has_wide_configs != 0 && settings_.configs != "plain";
    for (const bool has_wide : {false, tries_wide}) {
      const KernelConfig config =
          default_config(shape_, kind, tokens, {info->shared_bytes_max, has_wide});
      if (configs.empty() || !(config == configs.back())) configs.push_back(config);
    }
    return configs;
  }

  void measure_linear(const std::string& name, ProductKind kind, int tokens) {
    const ProductShape product = product_shape(shape_, kind);
    const int rows = product.rows;
    const int columns = product.columns;
    const int64_t bytes = int64_t{rows} * columns * 2;
    std::vector<Weights> weights;
    for (int i = 0; i < copies_for(bytes); ++i) weights.push_back(dense(rows, columns, true));
    const auto* x =
        take_random<Bf16Bits>(int64_t{tokens} * padded_columns(columns), RandomKind::kBf16, 1);
    auto* out = static_cast<float*>(take(int64_t{tokens} * rows * 4));
    const auto* live = take_copy<int32_t>({tokens});
    for (const KernelConfig& config : configs_for(kind, tokens)) {
      const double seconds = seconds_of(
          [&](int i) {
            const Linear args{.weights = weights[static_cast<size_t>(i) % weights.size()],
                              .input = {x, nullptr, live, tokens},
                              .out = out,
                              .stride = rows,
                              .accumulate = 0,
                              .config = config};
            table_.linear(&args);
          },
          16);
      report(fmt::format("{} x{} ({})", name, tokens, config_name(config)), seconds,
             static_cast<double>(bytes) + 4.0 * tokens * rows, 2.0 * rows * columns * tokens);
    }
    give_all_back();
  }

  void measure_experts(int tokens) {
    const int hidden = shape_.hidden;
    const int inner = shape_.inner;
    const int entries = tokens * shape_.choices;
    std::vector<int32_t> choices;
    std::vector<bool> touched(static_cast<size_t>(shape_.experts));
    uint64_t seed = 1;
    for (int t = 0; t < tokens; ++t) {
      std::vector<int32_t> own;
      while (static_cast<int>(own.size()) < shape_.choices) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const auto expert =
            static_cast<int32_t>((seed >> 33) % static_cast<uint64_t>(shape_.experts));
        if (std::find(own.begin(), own.end(), expert) == own.end()) own.push_back(expert);
      }
      for (const int32_t expert : own) touched[static_cast<size_t>(expert)] = true;
      choices.insert(choices.end(), own.begin(), own.end());
    }
    const double experts = static_cast<double>(std::count(touched.begin(), touched.end(), true));
    const std::vector<KernelConfig> configs = configs_for(ProductKind::kGateUp, tokens);
    const KernelConfig& plan = configs[0];  // all of its width
    const int tiles_max = expert_tiles_max(entries, shape_.experts, plan.columns);
    auto* device_choices = take_copy(choices);
    auto* device_entries = static_cast<int32_t*>(take(int64_t{entries} * 4));
    auto* tiles = static_cast<ExpertTile*>(take(int64_t{tiles_max} * sizeof(ExpertTile)));
    auto* count = static_cast<int32_t*>(take(4));
    const auto* live = take_copy<int32_t>({tokens});
    const Group group{.choices = device_choices,
                      .entries = device_entries,
                      .tiles = tiles,
                      .tile_count = count,
                      .live = live,
                      .rows_max = tokens,
                      .experts = shape_.experts,
                      .k = shape_.choices,
                      .columns = plan.columns};
    report(fmt::format("group x{}", tokens), seconds_of([&](int) { table_.group(&group); }, 16),
           4.0 * entries, 0);
    const Grouping grouping{.tile_count = count,
                            .tiles = tiles,
                            .entries = device_entries,
                            .tiles_max = tiles_max,
                            .columns = plan.columns,
                            .choices = shape_.choices};
    const auto mxfp4 = [&](int rows, int columns) {
      const int64_t chunks = int64_t{shape_.experts} * tile_count(rows) * chunk_count(columns);
      return Weights{
          .data = take_random<uint32_t>(chunks * kMxfp4ChunkBytes / 4, RandomKind::kBits, 1),
          .scales = reinterpret_cast<const uint32_t*>(
              take_random<uint8_t>(chunks * kScaleChunkBytes, RandomKind::kScales, 1)),
          .bias = take_random<float>(int64_t{shape_.experts} * rows, RandomKind::kFloat, 1),
          .type = WeightType::kMxfp4,
          .rows = rows,
          .columns = columns,
          .experts = shape_.experts};
    };
    const Weights gate = mxfp4(2 * inner, hidden);
    const Weights down_weights = mxfp4(hidden, inner);
    const auto* x =
        take_random<Bf16Bits>(int64_t{tokens} * padded_columns(hidden), RandomKind::kBf16, 1);
    auto* h = take_random<Bf16Bits>(int64_t{entries} * padded_columns(inner), RandomKind::kBf16, 1);
    auto* y = static_cast<float*>(take(int64_t{entries} * hidden * 4));
    GateUp gate_up{
        .weights = gate, .x = x, .h = h, .grouping = grouping, .alpha = 1.702f, .limit = 7};
    Down down{.weights = down_weights, .h = h, .y = y, .grouping = grouping};
    const double weights_each = static_cast<double>(hidden) * inner * 4.25 / 8;
    const double flops = 2.0 * entries * hidden * inner;
    for (const KernelConfig& config : configs) {
      gate_up.config = down.config = config;
      report(fmt::format("gate_up x{} ({})", tokens, config_name(config)),
             seconds_of([&](int) { table_.gate_up(&gate_up); }, 4), 2 * weights_each * experts,
             2 * flops);
      report(fmt::format("down x{} ({})", tokens, config_name(config)),
             seconds_of([&](int) { table_.down(&down); }, 4), weights_each * experts, flops);
    }
    give_all_back();
  }

  void measure_norm(int tokens) {
    const int hidden = shape_.hidden;
    auto* x = take_random<float>(int64_t{tokens} * hidden, RandomKind::kFloat, 1);
    const auto* gain = take_random<float>(hidden, RandomKind::kFloat, 1);
    const auto* y =
        take_random<float>(int64_t{tokens} * shape_.choices * hidden, RandomKind::kFloat, 1);
    const auto* weights =
        take_random<float>(int64_t{tokens} * shape_.choices, RandomKind::kFloat, 0.1f);
    auto* out = static_cast<Bf16Bits*>(take(int64_t{tokens} * padded_columns(hidden) * 2));
    const auto* live = take_copy<int32_t>({tokens});
    const Norm norm{.x = x,
                    .weight = gain,
                    .out = out,
                    .low = nullptr,
                    .rows = nullptr,
                    .y = y,
                    .choice_weights = weights,
                    .live = live,
                    .rows_max = tokens,
                    .hidden = hidden,
                    .choices = shape_.choices,
                    .epsilon = 1e-5f};
    report(fmt::format("norm and combine x{}", tokens),
           seconds_of([&](int) { table_.norm(&norm); }, 16),
           double{1} * tokens * hidden * (4.0 * shape_.choices + 10), 0);
    give_all_back();
  }

  void measure_kernels() {
    fmt::print("\nkernels of {}: time, bytes of weights, bytes/s, share of the copy, arithmetic\n",
               settings_.shape);
    for (const int tokens :
         tiny_ ? std::vector<int>{1, 40} : std::vector<int>{1, 8, 64, 256, 2048}) {
      measure_norm(tokens);
      measure_linear("qkv (as linear)", ProductKind::kQkv, tokens);
      measure_linear("o", ProductKind::kO, tokens);
      measure_experts(tokens);
      if (tokens <= 256) measure_linear("head", ProductKind::kHead, tokens);
    }
  }

  Session* open(const Limits& limits) const {
    Session* const session = table_.open(0, &shape_, &limits);
    if (session == nullptr) return nullptr;
    table_.randomize_session(session, 1);
    check("making random weights");
    set_configs_of(session, limits);
    return session;
  }

  void set_configs_of(Session* session, const Limits& limits) const {
    const Result<TuningMode> mode = parse_tuning_mode(settings_.configs);
    if (!mode.ok()) give_up(mode.error().message);
    const Result<DeviceInfo> info = library_.device(0);
    if (!info.ok()) give_up(info.error().message);
    const Result<DeviceTuning> configs =
        choose_configs(library_, *info, session, shape_, limits, {.mode = *mode});
    if (!configs.ok()) give_up(configs.error().message);
    if (*mode == TuningMode::kMeasure)
      fmt::print("configs {}: {}\n", configs->how, describe(configs->configs));
    for (const std::string& problem : configs->problems) fmt::print("  {}\n", problem);
  }

  // Tokens of `context` that a row of the layer attends to.
  int seen_by(int layer, int context) const {
    const int window = shape_.windows[shape_.group_of_layer[layer]];
    return window > 0 ? std::min(context, window) : context;
  }

  // Bytes that a decode step of `batch` at `context` reads, with even routing.
  double decode_bytes(int batch, int context) const {
    const double hidden = shape_.hidden;
    const double attention = 2.0 * hidden * (shape_.qkv_rows() + shape_.attention_columns());
    const double router = 2.0 * hidden * shape_.experts;
    const double each = 3.0 * hidden * shape_.inner * 4.25 / 8;
    const double share = static_cast<double>(shape_.choices) / shape_.experts;
    const double touched = shape_.experts * (1 - std::pow(1 - share, batch));
    const double key = static_cast<double>(kv_block_bytes(shape_, kv_type_)) / kBlockTokens;
    double bytes =
        2.0 * hidden * shape_.vocab + shape_.layers * (attention + router + each * touched);
    for (int i = 0; i < shape_.layers; ++i) {
      bytes += batch * key * seen_by(i, context);
    }
    return bytes;
  }

  struct Batch {
    std::vector<int32_t> tokens;
    std::vector<std::vector<int32_t>> blocks;
    std::vector<StepSequence> sequences;
    std::vector<int32_t> logit_rows;
    std::vector<RowSampling> rows;
    std::vector<SampledRow> results;
    std::vector<ReportedToken> reported;
    Sampling sampling = {};
    Step step = {};
  };

  // Median seconds of steps, from the call to the tokens (or, undrawn, the logits) on the host.
  double step_seconds(Session* session, const Step& step, int runs) const {
    std::vector<double> seconds;
    for (int run = 0; run < runs + 3; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      table_.step(session, &step);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (run >= 3) seconds.push_back(took.count());
    }
    check("a step");
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

  // Seconds of a step of a chain, each begun before the one before it is finished: all tokens but
  // the first step's are looked up on the device.
  double chained_seconds(Session* session, Batch& input, int runs) const {
    std::vector<int32_t> drawn(input.tokens.size());
    for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = ~static_cast<int32_t>(i);
    Step later = input.step;
    later.tokens = drawn.data();
    std::vector<SampledRow> other_rows(input.results.size());
    std::vector<ReportedToken> other_best(input.reported.size());
    const Sampled places[2] = {input.step.sampled, {other_rows.data(), other_best.data()}};
    const auto chain = [&](int steps) {
      table_.begin_step(session, &input.step);
      for (int i = 1; i <= steps; ++i) {
        later.sampled = places[i % 2];
        table_.begin_step(session, &later);
        table_.finish_step(session);
      }
      table_.finish_step(session);
    };
    chain(3);
    const auto begin = std::chrono::steady_clock::now();
    chain(runs);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    check("a chain of steps");
    return took.count() / (runs + 1);
  }

  // Rows are drawn from on the device: greedily, or at temperature 1 with a cut by top-p.
  void draw_rows(Batch& batch, bool cuts) const {
    RowSampling row{};
    row.reported = -1;
    row.mask = -1;
    if (cuts) {
      row.sharpness = 1.4426950408889634f;
      row.top_p_share = (uint64_t{1} << 53) / 100 * 95;
      row.random = uint64_t{1} << 63;
    }
    batch.rows.assign(batch.logit_rows.size(), row);
    batch.results.resize(batch.rows.size());
    batch.reported.resize(batch.rows.size() * kReportedMax);
    batch.sampling = {.rows = batch.rows.data(), .vocab = shape_.vocab};
    batch.step.sampling = &batch.sampling;
    batch.step.sampled = {batch.results.data(), batch.reported.data()};
  }

  // `count` sequences of `rows` rows from position `start`, each with blocks of its own.
  Batch batch_of(int count, int rows, int start, int block_count) const {
    Batch out;
    const int each = (start + rows - 1) / kBlockTokens + 1;
    for (int s = 0; s < count; ++s) {
      std::vector<int32_t> blocks(static_cast<size_t>(each));
      for (int b = 0; b < each; ++b) {
        blocks[static_cast<size_t>(b)] = (s * each + b) % block_count;
      }
      out.blocks.push_back(std::move(blocks));
      for (int r = 0; r < rows; ++r) out.tokens.push_back((s * 977 + r * 31) % shape_.vocab);
      out.logit_rows.push_back((s + 1) * rows - 1);
    }
    for (int s = 0; s < count; ++s) {
      const int32_t* table = out.blocks[static_cast<size_t>(s)].data();
      out.sequences.push_back({start, rows, table, table});
    }
    out.step = {out.tokens.data(),     count * rows, out.sequences.data(), count,
                out.logit_rows.data(), count};
    return out;
  }

  // So many sequences that decode from position `context` on.
  Limits decode_limits(int batch, int context) const {
    const int blocks = batch * (context / kBlockTokens + 2);
    return {.rows_max = batch,
            .sequences_max = batch,
            .logit_rows_max = batch,
            .positions_max = context + 64,
            .kv_blocks = {blocks, blocks},
            .kv_type = kv_type_,
            .partial_bytes_max = int64_t{256} << 20};
  }

  void measure_decode() {
    const std::vector<int> batches =
        tiny_ ? std::vector<int>{1, 3} : std::vector<int>{1, 8, 64, 256};
    const std::vector<int> contexts =
        tiny_ ? std::vector<int>{200} : std::vector<int>{1024, 8192, 32768};
    fmt::print("\ndecode of {} ({}): step, tokens/s, share of the copy bandwidth's roofline\n",
               settings_.shape, settings_.kv);
    for (const int batch : batches) {
      for (const int context : contexts) {
        const Limits limits = decode_limits(batch, context);
        const ArenaLayout arena = arena_layout(shape_, limits);
        const Result<DeviceInfo> info = library_.device(0);
        if (!info.ok()) give_up(info.error().message);
        if (arena.bytes() > info->memory_free_bytes / 20 * 19) {
          fmt::print("batch {:>3} context {:>5}: {:.1f} GB do not fit\n", batch, context,
                     static_cast<double>(arena.bytes()) * 1e-9);
          continue;
        }
        Session* const session = open(limits);
        check("opening a session");
        Batch input = batch_of(batch, 1, context, limits.kv_blocks[0]);
        const double with_logits = step_seconds(session, input.step, settings_.runs);
        draw_rows(input, true);
        const double with_top_p = step_seconds(session, input.step, settings_.runs);
        draw_rows(input, false);
        const double seconds = step_seconds(session, input.step, settings_.runs);
        const double chained = chained_seconds(session, input, settings_.runs);
        int64_t steps = 0;
        int64_t replayed = 0;
        int64_t graphs = 0;
        table_.step_counts(session, &steps, &replayed, &graphs);
        const double floor = decode_bytes(batch, context) / copy_rate_;
        fmt::print(
            "batch {:>3} context {:>5}: {:>9.1f} us {:>9.1f} tokens/s {:>6.1f} % (chained; greedy "
            "one by one {:.1f} us, top-p {:.1f}, all logits to the host {:.1f}; {} of {} steps "
            "replayed)\n",
            batch, context, chained * 1e6, batch / chained, 100 * floor / chained, seconds * 1e6,
            with_top_p * 1e6, with_logits * 1e6, replayed, steps);
        std::fflush(stdout);
        table_.close(session);
      }
    }
  }

  // The same greedy steps launched kernel by kernel and in one launch each, of a few sequences.
  void measure_persistent() {
    const std::vector<int> batches = tiny_ ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 4, 8};
    const std::vector<int> contexts = tiny_ ? std::vector<int>{200} : std::vector<int>{1024, 32768};
    fmt::print("\nsteps of {} ({}): launched, persistent, share of the roofline\n", settings_.shape,
               settings_.kv);
    for (const int batch : batches) {
      for (const int context : contexts) {
        const Limits limits = decode_limits(batch, context);
        Session* const session = open(limits);
        check("opening a session");
        Batch input = batch_of(batch, 1, context, limits.kv_blocks[0]);
        draw_rows(input, false);
        const Result<DeviceInfo> info = library_.device(0);
        if (!info.ok()) give_up(info.error().message);
        KernelConfigs configs =
            default_configs(shape_, {.shared_bytes_max = info->shared_bytes_max});
        double seconds[2];
        double chained[2];
        for (const int is_persistent : {0, 1}) {
          std::fill(std::begin(configs.persistent), std::end(configs.persistent), is_persistent);
          table_.set_configs(session, &configs);
          check("choosing kernels");
          seconds[is_persistent] = step_seconds(session, input.step, settings_.runs);
          chained[is_persistent] = chained_seconds(session, input, settings_.runs);
        }
        const double floor = decode_bytes(batch, context) / copy_rate_;
        fmt::print(
            "batch {:>3} context {:>5}: launched {:>9.1f} us {:>6.1f} %, persistent {:>9.1f} us "
            "{:>6.1f} % (chained; one by one {:.1f} and {:.1f} us)\n",
            batch, context, chained[0] * 1e6, 100 * floor / chained[0], chained[1] * 1e6,
            100 * floor / chained[1], seconds[0] * 1e6, seconds[1] * 1e6);
        std::fflush(stdout);
        table_.close(session);
      }
    }
  }

  void measure_prefill() {
    fmt::print("\nprefill of {} ({}): one prompt in one step\n", settings_.shape, settings_.kv);
    const double hidden = shape_.hidden;
    for (const int tokens : tiny_ ? std::vector<int>{70} : std::vector<int>{512, 2048, 4096}) {
      const int blocks = tokens / kBlockTokens + 2;
      const Limits limits{.rows_max = tokens,
                          .sequences_max = 1,
                          .logit_rows_max = 1,
                          .positions_max = tokens,
                          .kv_blocks = {blocks, blocks},
                          .kv_type = kv_type_,
                          .partial_bytes_max = 0};
      Session* const session = open(limits);
      check("opening a session");
      const Batch input = batch_of(1, tokens, 0, blocks);
      const double seconds = step_seconds(session, input.step, std::min(settings_.runs, 8));
      double attended = 0;
      for (int i = 0; i < shape_.layers; ++i) {
        attended += seen_by(i, tokens / 2);
      }
      const double each = shape_.layers * 2.0 * hidden *
                              (shape_.qkv_rows() + shape_.attention_columns() + shape_.experts +
                               3.0 * shape_.choices * shape_.inner) +
                          4.0 * shape_.attention_columns() * attended;
      fmt::print("{:>5} tokens: {:>9.2f} ms {:>9.0f} tokens/s {:>7.1f} TFLOP/s\n", tokens,
                 seconds * 1e3, tokens / seconds, each * tokens / seconds * 1e-12);
      std::fflush(stdout);
      table_.close(session);
    }
  }

  const DeviceLibrary& library_;
  const DeviceTable& table_;
  const Settings settings_;
  const ModelShape shape_;
  const KvType kv_type_;
  const bool tiny_;
  double copy_rate_ = 1;
  std::vector<void*> taken_;
};

Settings read_settings(int count, char** words) {
  Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto next = [&]() -> std::string {
      if (i + 1 >= count) give_up(fmt::format("{} needs a value", word));
      return words[++i];
    };
    if (word == "--shape") {
      settings.shape = next();
    } else if (word == "--only") {
      settings.only = next();
    } else if (word == "--kv") {
      settings.kv = next();
      if (settings.kv != "f16" && settings.kv != "bf16" && settings.kv != "fp8") {
        give_up("--kv takes f16, bf16 or fp8");
      }
    } else if (word == "--configs") {
      settings.configs = next();
    } else if (word == "--runs") {
      settings.runs = std::max(1, std::atoi(next().c_str()));
    } else if (settings.library.empty() && word[0] != '-') {
      settings.library = word;
    } else {
      give_up(fmt::format("what is '{}'?", word));
    }
  }
  if (settings.library.empty())
    give_up("usage: device_bench LIBRARY [--shape S] [--only P] [--kv T] [--configs F] [--runs N]");
  return settings;
}

int run(int count, char** words) {
  const Settings settings = read_settings(count, words);
  const Result<DeviceLibrary> library = DeviceLibrary::open(settings.library);
  if (!library.ok()) give_up(library.error().message);
  const Result<DeviceInfo> info = library->device(0);
  if (!info.ok()) give_up(info.error().message);
  fmt::print("{} ({})\n", describe(*info), library->table().kind());
  library->table().use_device(0);
  Bench(*library, settings).run();
  return 0;
}

}  // namespace
}  // namespace pelton::cuda

int main(int count, char** words) {
  return pelton::cuda::run(count, words);
}
