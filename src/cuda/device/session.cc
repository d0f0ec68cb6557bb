#include "cuda/device/session.h"

#include <algorithm>
#include <cstring>

#include "cuda/device/operations.h"
#include "cuda/kernel_configs.h"

namespace pelton::cuda {
namespace {

// Steps of more rows than this are prompts: their launches hide behind their work, and their sizes
// hardly come again.
constexpr int kRecordedRowsMax = 256;
constexpr size_t kGraphsMax = 96;

const char* unsupported(const ModelShape& shape) {
  if (shape.layers <= 0 || shape.layers > kLayersMax) return "too many layers";
  if (shape.head_size != 32 && shape.head_size != 64) return "the head size is neither 32 nor 64";
  if (shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0 ||
      shape.heads / shape.kv_heads > kQueryRows) {
    return "heads that do not share keys evenly, or more than 16 to one";
  }
  if (shape.experts > kExpertsMax || shape.choices > kChoicesMax || shape.choices > shape.experts) {
    return "too many experts";
  }
  const KernelDevice device = config_device();
  if (!are_usable(shape, default_configs(shape, device), device)) {
    return "rows too wide for this device's shared memory";
  }
  return nullptr;
}

// What is copied over about sampling, and what comes back, one after the other.
int64_t sampling_bytes(const ArenaLayout& arena) {
  return arena.sampling_rows.bytes + arena.sampling_edits.bytes + arena.sampling_masks.bytes +
         arena.sampled.bytes;
}

}  // namespace

Session::Session(int index, const ModelShape& shape, const Limits& limits)
    : index_(index),
      shape_(shape),
      limits_(limits),
      arena_(arena_layout(shape, limits)),
      arrays_(shape, limits),
      factors_(static_cast<size_t>(shape.layers)),
      config_device_(config_device()),
      // Not wide ones: whether they give the same bits here nobody has looked yet.
      configs_(default_configs(shape, {config_device_.shared_bytes_max})) {}

std::unique_ptr<Session> Session::open(int index, const ModelShape& shape, const Limits& limits) {
  use_device(index);
  if (const char* wrong = unsupported(shape)) {
    note_failure(wrong);
    return nullptr;
  }
  std::unique_ptr<Session> session(new Session(index, shape, limits));
  session->stream_ = make_stream();
  session->memory_ = static_cast<char*>(allocate(session->arena_.bytes()));
  session->logits_ = static_cast<float*>(allocate_pinned(session->arena_.logits.bytes));
  if (session->memory_ == nullptr || session->logits_ == nullptr) return nullptr;
  for (Flight& flight : session->flights_) {
    flight.plan = static_cast<uint8_t*>(allocate_pinned(session->arena_.plan.bytes));
    flight.sampling = static_cast<char*>(allocate_pinned(sampling_bytes(session->arena_)));
    flight.done = make_mark();
    if (flight.plan == nullptr || flight.sampling == nullptr) return nullptr;
  }
  declare_weights(session->memory_, session->arena_.weight_bytes);
  // Whatever lies beyond the columns of a row must be zero, and keys that nobody wrote no NaN.
  fill(session->stream_, session->memory_, 0, session->arena_.bytes());
  wait_for(session->stream_);
  return session;
}

Session::~Session() {
  use_device(index_);
  staging_.reset();
  drop_graphs();
  for (const Mark mark : trial_marks_) {
    if (mark != nullptr) end_mark(mark);
  }
  if (begun_ > finished_) wait_for(stream_);
  for (const Flight& flight : flights_) {
    if (flight.plan != nullptr) release_pinned(flight.plan);
    if (flight.sampling != nullptr) release_pinned(flight.sampling);
    if (flight.done != nullptr) end_mark(flight.done);
  }
  if (logits_ != nullptr) release_pinned(logits_);
  if (memory_ != nullptr) release(memory_);
  if (stream_ != nullptr) end_stream(stream_);
}

bool Session::is_inside(int64_t offset, int64_t bytes) const {
  if (offset >= 0 && bytes >= 0 && offset <= arena_.bytes() - bytes) return true;
  note_failure("a place outside the device's memory");
  return false;
}

void Session::write(int64_t offset, const void* from, int64_t bytes) {
  use_device(index_);
  if (!is_inside(offset, bytes)) return;
  copy_to_device(stream_, memory_ + offset, from, bytes);
  wait_for(stream_);
}

void* Session::stage(int64_t bytes) {
  use_device(index_);
  if (staging_ == nullptr) staging_ = std::make_unique<Staging>();
  return staging_->room(bytes);
}

void Session::send(const void* staged, int64_t offset, int64_t bytes) {
  use_device(index_);
  if (staging_ == nullptr) return note_failure("nothing was staged");
  if (is_inside(offset, bytes)) staging_->send(memory_ + offset, staged, bytes);
}

void Session::finish_sending() {
  use_device(index_);
  staging_.reset();
}

void Session::read(int64_t offset, void* to, int64_t bytes) {
  use_device(index_);
  if (!is_inside(offset, bytes)) return;
  copy_to_host(stream_, to, memory_ + offset, bytes);
  wait_for(stream_);
}

void Session::copy(int64_t to, int64_t from, int64_t bytes) {
  use_device(index_);
  if (!is_inside(to, bytes) || !is_inside(from, bytes)) return;
  copy_on_device(stream_, memory_ + to, memory_ + from, bytes);
}

void Session::set_factors(int layer, float gate_up, float down) {
  if (layer < 0 || layer >= shape_.layers) return note_failure("a layer that there is not");
  factors_[static_cast<size_t>(layer)] = {gate_up, down};
  layers_are_there_ = false;
}

void Session::set_configs(const KernelConfigs& configs) {
  use_device(index_);
  if (!are_usable(shape_, configs, config_device_)) {
    return note_failure("configs of products that this device does not have");
  }
  if (has_persistent(configs) && persistent_blocks(shape_, limits_.kv_type) == 0) {
    return note_failure("a persistent step, which this device cannot run");
  }
  drop_graphs();
  configs_ = configs;
}

float* Session::step(const Step& step) {
  begin(step);
  return finish();
}

void Session::begin(const Step& step) {
  use_device(index_);
  if (begun_ - finished_ >= 2) return note_failure("a third step on its way");
  Flight& flight = flights_[begun_++ % 2];
  const char* const wrong = prepare(flight, step);
  if (wrong != nullptr) {
    drawn_.clear();
    flight.failure = wrong;
    return;
  }
  const std::span<const uint8_t> bytes = arrays_.bytes();
  std::memcpy(flight.plan, bytes.data(), bytes.size());
  copy_to_device(stream_, at<char>(arena_.plan), flight.plan, static_cast<int64_t>(bytes.size()));
  if (flight.draws) upload_sampling(flight, step);
  run(arrays_.sizes());
  download_logits(step);
  if (flight.draws) download_sampled(flight);
  set_mark(stream_, flight.done);
  flight.failure = take_failure();
}

const char* Session::prepare(Flight& flight, const Step& step) {
  if (staging_ != nullptr) return "a step while weights are on their way";
  if (const char* wrong = arrays_.set(step, drawn_)) return wrong;
  if (static_cast<int64_t>(arrays_.bytes().size()) > arena_.plan.bytes) {
    return "a step whose block tables are longer than all sequences'";
  }
  const bool is_alone = begun_ - finished_ == 1;
  drawn_.clear();
  for (int32_t row = 0; row < step.logit_row_count; ++row) {
    const bool on_host = step.sampling == nullptr || step.sampling->rows[row].on_host != 0;
    // There is one place for logits on the host.
    if (on_host && !is_alone) return "a step with rows for the host beside another one";
    drawn_.push_back(on_host ? 0 : 1);
  }
  flight.draws = arrays_.sizes().sampling.any;
  flight.reports_best = arrays_.sizes().sampling.reports_best;
  flight.logit_rows = step.logit_row_count;
  flight.sampled = step.sampled;
  return nullptr;
}

bool Session::is_done() {
  use_device(index_);
  const Flight& flight = flights_[finished_ % 2];
  return begun_ == finished_ || !flight.failure.empty() || is_past(flight.done);
}

float* Session::finish() {
  use_device(index_);
  if (begun_ == finished_) {
    note_failure("no step is on its way");
    return nullptr;
  }
  const Flight& flight = flights_[finished_++ % 2];
  if (!flight.failure.empty()) {
    note_failure(flight.failure);
    return nullptr;
  }
  wait_for_mark(flight.done);
  if (flight.draws) give_sampled(flight);
  ++steps_;
  return flight.logit_rows > 0 ? logits_ : nullptr;
}

void Session::upload_sampling(const Flight& flight, const Step& step) {
  const Sampling& sampling = *step.sampling;
  char* from = flight.sampling;
  const auto upload = [&](const Place& place, int64_t bytes) {
    if (bytes > 0) copy_to_device(stream_, at<char>(place), from, bytes);
    from += place.bytes;
  };
  const int32_t counts[2] = {step.logit_row_count, sampling.vocab};
  const int64_t row_bytes = step.logit_row_count * int64_t{sizeof(RowSampling)};
  std::memcpy(from, counts, sizeof counts);
  std::memcpy(from + kSamplingHeaderBytes, sampling.rows, static_cast<size_t>(row_bytes));
  upload(arena_.sampling_rows, kSamplingHeaderBytes + row_bytes);
  const int64_t edit_bytes = sampling.edit_count * int64_t{sizeof(LogitEdit)};
  if (edit_bytes > 0) std::memcpy(from, sampling.edits, static_cast<size_t>(edit_bytes));
  upload(arena_.sampling_edits, edit_bytes);
  const int64_t mask_bytes = sampling.mask_words * int64_t{sizeof(uint64_t)};
  if (mask_bytes > 0) std::memcpy(from, sampling.masks, static_cast<size_t>(mask_bytes));
  upload(arena_.sampling_masks, mask_bytes);
}

void Session::download_logits(const Step& step) {
  const auto is_wanted = [&](int32_t row) {
    return row < step.logit_row_count &&
           (step.sampling == nullptr || step.sampling->rows[row].on_host != 0);
  };
  for (int32_t row = 0; row < step.logit_row_count; ++row) {
    int32_t end = row;
    while (is_wanted(end)) ++end;
    if (end == row) continue;
    const int64_t first = int64_t{row} * shape_.vocab;
    copy_to_host(stream_, logits_ + first, at<float>(arena_.logits) + first,
                 int64_t{end - row} * shape_.vocab * int64_t{sizeof(float)});
    row = end;
  }
}

char* Session::sampled_on_host(const Flight& flight) const {
  return flight.sampling + sampling_bytes(arena_) - arena_.sampled.bytes;
}

void Session::download_sampled(const Flight& flight) {
  const int64_t reported = limits_.logit_rows_max * int64_t{sizeof(SampledRow)};
  copy_to_host(stream_, sampled_on_host(flight), at<char>(arena_.sampled),
               flight.logit_rows * int64_t{sizeof(SampledRow)});
  if (!flight.reports_best) return;
  copy_to_host(stream_, sampled_on_host(flight) + reported, at<char>(arena_.sampled) + reported,
               flight.logit_rows * kReportedMax * int64_t{sizeof(ReportedToken)});
}

void Session::give_sampled(const Flight& flight) const {
  const auto count = static_cast<size_t>(flight.logit_rows);
  std::memcpy(flight.sampled.rows, sampled_on_host(flight), count * sizeof(SampledRow));
  if (!flight.reports_best) return;
  std::memcpy(flight.sampled.reported,
              sampled_on_host(flight) + limits_.logit_rows_max * int64_t{sizeof(SampledRow)},
              count * kReportedMax * sizeof(ReportedToken));
}

void Session::draw(const StepSizes& sizes) {
  auto* const rows = at<char>(arena_.sampling_rows);
  auto* const sampled = at<char>(arena_.sampled);
  sample(stream_, {.logits = at<float>(arena_.logits),
                   .stride = shape_.vocab,
                   .counts = reinterpret_cast<const int32_t*>(rows),
                   .rows = reinterpret_cast<const RowSampling*>(rows + kSamplingHeaderBytes),
                   .edits = at<LogitEdit>(arena_.sampling_edits),
                   .masks = at<uint64_t>(arena_.sampling_masks),
                   .before = at<float>(arena_.edited_before),
                   .states = at<SampleState>(arena_.sample_states),
                   .buckets = at<SampleBuckets>(arena_.sample_buckets),
                   .slice_masses = at<uint64_t>(arena_.slice_masses),
                   .slice_equals = at<uint64_t>(arena_.slice_equals),
                   .results = reinterpret_cast<SampledRow*>(sampled),
                   .reported = reinterpret_cast<ReportedToken*>(
                       sampled + limits_.logit_rows_max * int64_t{sizeof(SampledRow)}),
                   .rows_max = sizes.logit_rows,
                   .slices = slice_count(shape_.vocab),
                   .reports = 0,
                   .needs = sizes.sampling});
}

void Session::randomize_all(uint64_t seed) {
  use_device(index_);
  const auto fill_place = [&](const Place& place, RandomKind kind, float scale) {
    const int64_t each = kind == RandomKind::kScales ? 1 : kind == RandomKind::kBf16 ? 2 : 4;
    randomize(stream_, {at<void>(place), place.bytes / each, seed, kind, scale});
    seed += static_cast<uint64_t>(place.bytes);
  };
  const auto bf16 = [&](const Place& place, float scale) {
    fill_place(place, RandomKind::kBf16, scale);
  };
  const auto floats = [&](const Place& place) { fill_place(place, RandomKind::kFloat, 1); };
  bf16(arena_.embedding, 1);
  bf16(arena_.head, 0.03f);
  floats(arena_.norm);
  floats(arena_.turns);
  for (const LayerPlaces& layer : arena_.layers) {
    for (const Place& place :
         {layer.attention_norm, layer.qkv_bias, layer.sinks, layer.o_bias, layer.expert_norm,
          layer.router_bias, layer.gate_up_bias, layer.down_bias}) {
      floats(place);
    }
    for (const Place& place : {layer.qkv, layer.o, layer.router}) bf16(place, 0.03f);
    for (const Place& place : {layer.gate_up, layer.down}) {
      fill_place(place, RandomKind::kBits, 1);
    }
    for (const Place& place : {layer.gate_up_scales, layer.down_scales}) {
      fill_place(place, RandomKind::kScales, 1);
    }
    bf16(layer.kv, 1);  // any bytes are codes, and bf16 numbers good scales
  }
  wait_for(stream_);
}

// The first step of some sizes runs as it is (and lets the runtime load its kernels); the second is
// recorded.
void Session::run(const StepSizes& sizes) {
  if (is_persistent(sizes)) provide_layers();
  if (!records_graphs() || sizes.rows > kRecordedRowsMax) return forward(sizes);
  const auto [entry, is_new] = graphs_.try_emplace(sizes);
  Recorded& recorded = entry->second;
  recorded.last_used = steps_;
  if (is_new) {
    forward(sizes);
    if (graphs_.size() > kGraphsMax) drop_oldest_graph();
    return;
  }
  if (recorded.graph == nullptr) {
    begin_recording(stream_);
    forward(sizes);
    recorded.graph = end_recording(stream_);
    if (recorded.graph == nullptr) return;
  } else {
    ++replayed_;
  }
  run_graph(stream_, recorded.graph);
}

void Session::drop_oldest_graph() {
  const auto oldest = std::min_element(
      graphs_.begin(), graphs_.end(),
      [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; });
  if (oldest->second.graph != nullptr) end_graph(oldest->second.graph);
  graphs_.erase(oldest);
}

void Session::drop_graphs() {
  for (auto& [sizes, recorded] : graphs_) {
    if (recorded.graph != nullptr) end_graph(recorded.graph);
  }
  graphs_.clear();
}

void Session::forward(const StepSizes& sizes) {
  const StepLayout layout = step_layout(sizes);
  if (is_persistent(sizes)) {
    forward_persistent(sizes, layout);
  } else {
    forward_launched(sizes, layout);
  }
  if (sizes.logit_rows > 0 && sizes.sampling.any) draw(sizes);
}

void Session::forward_launched(const StepSizes& sizes, const StepLayout& layout) {
  embed(stream_, embed_of(sizes, layout));
  for (int layer = 0; layer < shape_.layers; ++layer) {
    attention_block(layer, sizes, layout);
    expert_block(layer, sizes, layout);
  }
  head(sizes, layout);
}

void Session::norm_rows(const Place& weight, const StepSizes& sizes, const StepLayout& layout,
                        bool adds, bool with_low) {
  norm(stream_, {.x = at<float>(arena_.x),
                 .weight = at<float>(weight),
                 .out = at<Bf16Bits>(arena_.normed),
                 .low = with_low ? at<Bf16Bits>(arena_.normed_low) : nullptr,
                 .rows = nullptr,
                 .y = adds ? at<float>(arena_.y) : nullptr,
                 .choice_weights = at<float>(arena_.choice_weights),
                 .live = live(layout),
                 .rows_max = sizes.rows,
                 .hidden = shape_.hidden,
                 .choices = shape_.choices,
                 .epsilon = shape_.epsilon});
}

void Session::attention_block(int layer, const StepSizes& sizes, const StepLayout& layout) {
  const LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const int group = shape_.group_of_layer[layer];
  const int32_t window = shape_.windows[group];
  char* const plan = at<char>(arena_.plan);

  norm_rows(places.attention_norm, sizes, layout, layer > 0, false);
  const Qkv product = qkv_of(layer, sizes, layout);
  qkv(stream_, product);
  if (product.staged != nullptr) {
    store_kv(stream_, {.staged = product.staged,
                       .cache = product.cache,
                       .slots = product.slots,
                       .live = live(layout),
                       .rows_max = sizes.rows});
  }
  attention(stream_, {.out = at<Bf16Bits>(arena_.attended),
                      .q = at<uint16_t>(arena_.q),
                      .cache = product.cache,
                      .tables = reinterpret_cast<const int32_t*>(plan + layout.tables),
                      .items = reinterpret_cast<const AttentionItem*>(plan + layout.items[group]),
                      .sinks = at<float>(places.sinks),
                      .partials = at<float>(arena_.partials),
                      .positions = reinterpret_cast<const int32_t*>(plan + layout.positions),
                      .live = live(layout),
                      .partial_rows = reinterpret_cast<const int32_t*>(plan + layout.partial_rows),
                      .rows_max = sizes.rows,
                      .items_max = sizes.items[group],
                      .spans_max = window == 0 ? sizes.spans : 0,
                      .heads = shape_.heads,
                      .window = window,
                      .scale = shape_.attention_scale});
  linear(stream_, o_of(layer, sizes, layout));
}

void Session::expert_block(int layer, const StepSizes& sizes, const StepLayout& layout) {
  const LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const KernelConfig& gate_up_config = configs_.at(ProductKind::kGateUp, sizes.rows);
  norm_rows(places.expert_norm, sizes, layout, false, true);
  linear(stream_, router_of(layer, sizes, layout));
  choose(stream_, {.logits = at<float>(arena_.router_logits),
                   .choices = at<int32_t>(arena_.choices),
                   .weights = at<float>(arena_.choice_weights),
                   .live = live(layout),
                   .rows_max = sizes.rows,
                   .experts = shape_.experts,
                   .k = shape_.choices});
  group(stream_, group_of(sizes, layout, gate_up_config.columns));
  gate_up(stream_, gate_up_of(layer, sizes, gate_up_config));
  down(stream_, down_of(layer, sizes, configs_.at(ProductKind::kDown, sizes.rows)));
}

void Session::head(const StepSizes& sizes, const StepLayout& layout) {
  norm_rows(arena_.norm, sizes, layout, true, false);
  if (sizes.logit_rows == 0) return;
  norm(stream_,
       {.x = at<float>(arena_.x),
        .weight = at<float>(arena_.norm),
        .out = at<Bf16Bits>(arena_.head_input),
        .low = nullptr,
        .rows = reinterpret_cast<const int32_t*>(at<char>(arena_.plan) + layout.logit_rows),
        .y = nullptr,
        .choice_weights = nullptr,
        .live = live(layout) + 1,
        .rows_max = sizes.logit_rows,
        .hidden = shape_.hidden,
        .choices = 0,
        .epsilon = shape_.epsilon});
  linear(stream_, head_of(sizes, layout));
}

}  // namespace pelton::cuda
