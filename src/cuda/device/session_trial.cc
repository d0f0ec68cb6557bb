// Products of the model one by one, and whole steps, timed: on the session's own weights, layer
// after layer so that none is found in the cache, and on working memory filled with random rows.
// What they compute is dropped, and nothing of keys and values is written.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda/device/operations.h"
#include "cuda/device/session.h"

namespace pelton::cuda {
namespace {

// For each row different experts, as a router would choose that finds all of them equally good.
std::vector<int32_t> random_choices(const ModelShape& shape, int rows) {
  uint64_t state = 1;
  const auto draw = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(shape.experts));
  };
  std::vector<int32_t> out;
  for (int row = 0; row < rows; ++row) {
    const auto own = static_cast<ptrdiff_t>(out.size());
    for (int i = 0; i < shape.choices; ++i) {
      int32_t expert = draw();
      while (std::find(out.begin() + own, out.end(), expert) != out.end()) {
        expert = (expert + 1) % shape.experts;
      }
      out.push_back(expert);
    }
  }
  return out;
}

// Of a decoding sequence in a trial of steps: as far as keys and values reach.
constexpr int kTrialPosition = 1024;

}  // namespace

void Session::begin_trials(uint64_t seed) {
  use_device(index_);
  for (Mark& mark : trial_marks_) {
    if (mark == nullptr) mark = make_mark();
  }
  for (const Place& place :
       {arena_.normed, arena_.normed_low, arena_.attended, arena_.h, arena_.head_input}) {
    randomize(stream_, {at<void>(place), place.bytes / 2, seed++, RandomKind::kBf16, 1});
  }
  randomize(stream_, {at<void>(arena_.x), arena_.x.bytes / 4, seed, RandomKind::kFloat, 1});
}

// As a step of so many rows would have it, but that keys and values are kept nowhere.
void Session::prepare_trials(const StepSizes& sizes) {
  const StepLayout layout = step_layout(sizes);
  std::vector<uint8_t> plan(static_cast<size_t>(layout.tables), 0);
  auto* const live = reinterpret_cast<int32_t*>(plan.data() + layout.live);
  live[0] = sizes.rows;
  live[1] = sizes.logit_rows;
  for (const int64_t slots : layout.slots) {
    std::fill_n(reinterpret_cast<int64_t*>(plan.data() + slots), sizes.rows, int64_t{-1});
  }
  const std::vector<int32_t> choices = random_choices(shape_, sizes.rows);
  write(arena_.plan.offset, plan.data(), layout.tables);
  write(arena_.choices.offset, choices.data(),
        static_cast<int64_t>(choices.size() * sizeof(int32_t)));
}

double Session::seconds_of(const ProductTrial& trial) {
  use_device(index_);
  const bool is_head = trial.kind == ProductKind::kHead;
  const auto kind = static_cast<int32_t>(trial.kind);
  if (trial_marks_[0] == nullptr || kind < 0 || kind >= kProductKinds || trial.launches <= 0 ||
      trial.rows <= 0 || trial.rows > (is_head ? limits_.logit_rows_max : limits_.rows_max) ||
      !is_usable(shape_, trial.kind, trial.config, config_device_)) {
    note_failure("a trial of a product that there is not");
    return -1;
  }
  StepSizes sizes;
  sizes.rows = is_head ? 1 : trial.rows;
  sizes.logit_rows = is_head ? trial.rows : 1;
  prepare_trials(sizes);
  if (product_shape(shape_, trial.kind).grouped) {
    group(stream_, group_of(sizes, step_layout(sizes), trial.config.columns));
  }
  set_mark(stream_, trial_marks_[0]);
  for (int i = 0; i < trial.launches; ++i) start_trial(trial, i % shape_.layers, sizes);
  set_mark(stream_, trial_marks_[1]);
  return seconds_between(trial_marks_[0], trial_marks_[1]);
}

// In `arrays` and on the device: sequences that decode one token each. All have their keys and
// values in the first block, and keep none.
bool Session::prepare_steps(int rows, StepArrays& arrays) {
  const int position = std::min(kTrialPosition, limits_.positions_max - 1);
  const std::vector<int32_t> blocks(static_cast<size_t>(position / kBlockTokens + 1), 0);
  std::vector<int32_t> tokens;
  std::vector<int32_t> logit_rows;
  std::vector<StepSequence> sequences;
  for (int row = 0; row < rows; ++row) {
    tokens.push_back(row * 977 % shape_.vocab);
    logit_rows.push_back(row);
    sequences.push_back({position, 1, {blocks.data(), blocks.data()}});
  }
  const char* const wrong = arrays.set({.tokens = tokens.data(),
                                        .row_count = rows,
                                        .sequences = sequences.data(),
                                        .sequence_count = rows,
                                        .logit_rows = logit_rows.data(),
                                        .logit_row_count = rows,
                                        .sampling = nullptr,
                                        .sampled = {}});
  const auto bytes = static_cast<int64_t>(arrays.bytes().size());
  if (wrong != nullptr || bytes > arena_.plan.bytes) {
    note_failure(wrong != nullptr ? wrong : "a trial of steps that are too long");
    return false;
  }
  uint8_t* const plan = flights_[0].plan;
  std::copy(arrays.bytes().begin(), arrays.bytes().end(), plan);
  const StepLayout layout = arrays.layout();
  for (const int64_t slots : layout.slots) {
    std::fill_n(reinterpret_cast<int64_t*>(plan + slots), rows, int64_t{-1});
  }
  return true;
}

// Both kinds as they run later: replayed, each after its plan has been copied over.
double Session::seconds_of_steps(const StepTrial& trial) {
  use_device(index_);
  const bool is_persistent = trial.is_persistent != 0;
  if (trial_marks_[0] == nullptr || begun_ > finished_ || trial.steps <= 0 || trial.rows <= 0 ||
      trial.rows > kPersistentRowsMax ||
      (is_persistent && persistent_blocks(shape_, limits_.kv_type) == 0)) {
    note_failure("a trial of steps that there are not");
    return -1;
  }
  StepArrays arrays(shape_, limits_);
  if (!prepare_steps(trial.rows, arrays)) return -1;
  const StepSizes sizes = arrays.sizes();
  const auto send_plan = [&] {
    copy_to_device(stream_, at<char>(arena_.plan), flights_[0].plan,
                   static_cast<int64_t>(arrays.bytes().size()));
  };
  int32_t& own = configs_.persistent[row_bucket(sizes.rows)];
  const int32_t before = own;
  own = trial.is_persistent;
  provide_layers();
  send_plan();
  forward(sizes);  // lets the runtime load its kernels
  begin_recording(stream_);
  forward(sizes);
  const Graph graph = end_recording(stream_);
  own = before;
  if (graph == nullptr) return -1;
  set_mark(stream_, trial_marks_[0]);
  for (int i = 0; i < trial.steps; ++i) {
    send_plan();
    run_graph(stream_, graph);
  }
  set_mark(stream_, trial_marks_[1]);
  const double seconds = seconds_between(trial_marks_[0], trial_marks_[1]);
  end_graph(graph);
  return seconds;
}

void Session::start_trial(const ProductTrial& trial, int layer, const StepSizes& sizes) {
  const StepLayout layout = step_layout(sizes);
  const auto in_config = [&](auto args) {
    args.config = trial.config;
    return args;
  };
  switch (trial.kind) {
    case ProductKind::kQkv:
      return qkv(stream_, in_config(qkv_of(layer, sizes, layout)));
    case ProductKind::kO:
      return linear(stream_, in_config(o_of(layer, sizes, layout)));
    case ProductKind::kRouter:
      return linear(stream_, in_config(router_of(layer, sizes, layout)));
    case ProductKind::kHead: {
      Linear args = in_config(head_of(sizes, layout));
      args.weights.rows = std::min(args.weights.rows, kTrialHeadRows);
      return linear(stream_, args);
    }
    case ProductKind::kGateUp:
      return gate_up(stream_, gate_up_of(layer, sizes, trial.config));
    case ProductKind::kDown:
      return down(stream_, down_of(layer, sizes, trial.config));
  }
}

// The first rows of the first layer's output projection or of its first expert, and the rows of
// activations that a trial has: enough for every place that a warpgroup keeps sums at.
std::vector<float> Session::trial_sums(const KernelConfig& config, bool grouped) {
  constexpr int kWeightRows = 128;
  const int rows = std::min(limits_.rows_max, 128);
  const ProductKind kind = grouped ? ProductKind::kDown : ProductKind::kO;
  StepSizes sizes;
  sizes.rows = rows;
  sizes.logit_rows = 1;
  prepare_trials(sizes);
  const int weight_rows = std::min(product_shape(shape_, kind).rows, kWeightRows);
  std::vector<float> sums(static_cast<size_t>(rows) * static_cast<size_t>(weight_rows));
  const auto sum_bytes = static_cast<int64_t>(sums.size() * sizeof(float));
  fill(stream_, at<void>(arena_.y), 0xFF, sum_bytes);  // a config that gives nothing is found out
  if (grouped) {
    // All rows for one expert, in as many tiles as the config's width makes of them.
    std::vector<int32_t> entries(static_cast<size_t>(rows));
    for (int i = 0; i < rows; ++i) entries[static_cast<size_t>(i)] = i;
    std::vector<ExpertTile> tiles;
    for (int first = 0; first < rows; first += config.columns) {
      tiles.push_back({0, first, std::min(config.columns, rows - first)});
    }
    const auto tile_count = static_cast<int32_t>(tiles.size());
    write(arena_.entries.offset, entries.data(), rows * int64_t{sizeof(int32_t)});
    write(arena_.expert_tiles.offset, tiles.data(), tile_count * int64_t{sizeof(ExpertTile)});
    write(arena_.expert_tile_count.offset, &tile_count, sizeof tile_count);
    Down args = down_of(0, sizes, config);
    args.weights.rows = weight_rows;
    args.weights.experts = 1;
    args.grouping.tiles_max = tile_count;
    down(stream_, args);
  } else {
    Linear args = o_of(0, sizes, step_layout(sizes));
    args.weights.rows = weight_rows;
    args.out = at<float>(arena_.y);
    args.stride = weight_rows;
    args.accumulate = 0;
    args.config = config;
    linear(stream_, args);
  }
  read(arena_.y.offset, sums.data(), sum_bytes);
  return sums;
}

bool Session::wide_configs_agree() {
  use_device(index_);
  if (trial_marks_[0] == nullptr || !config_device_.has_wide) {
    note_failure("wide configs of products that are not there to be tried");
    return false;
  }
  for (const bool grouped : {false, true}) {
    const std::vector<float> wanted = trial_sums(large_config(64), grouped);
    for (const KernelConfig& config : configs_of(grouped ? ProductKind::kDown : ProductKind::kO)) {
      if (config.kind != KernelKind::kWide) continue;
      const std::vector<float> got = trial_sums(config, grouped);
      if (std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

// As `open` leaves it: what lies beyond the columns of a row must be zero.
void Session::end_trials() {
  use_device(index_);
  const int64_t begin = arena_.weight_bytes + arena_.kv_bytes;
  fill(stream_, memory_ + begin, 0, arena_.workspace_bytes);
  layers_are_there_ = false;
  wait_for(stream_);
  for (Mark& mark : trial_marks_) {
    if (mark != nullptr) end_mark(mark);
    mark = nullptr;
  }
}

}  // namespace pelton::cuda
