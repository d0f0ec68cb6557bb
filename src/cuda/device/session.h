// One model on one device: its memory, and the forward pass of a step as a sequence of operations,
// recorded as a graph for the sizes that come again. Owned by whoever opened it; one thread at a
// time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/device/runtime.h"
#include "cuda/device/staging.h"
#include "cuda/device_abi.h"
#include "cuda/kernel_configs.h"
#include "cuda/step_arrays.h"

namespace pelton::cuda {

struct Session {
 public:
  // Null with a failure noted.
  static std::unique_ptr<Session> open(int index, const ModelShape& shape, const Limits& limits);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void write(int64_t offset, const void* from, int64_t bytes);
  void* stage(int64_t bytes);
  void send(const void* staged, int64_t offset, int64_t bytes);
  void finish_sending();
  void read(int64_t offset, void* to, int64_t bytes);
  void copy(int64_t to, int64_t from, int64_t bytes);
  void set_factors(int layer, float gate_up, float down);
  // What is recorded was recorded with the configs before: it goes.
  void set_configs(const KernelConfigs& configs);
  float* step(const Step& step);
  void begin(const Step& step);
  bool is_done();
  float* finish();
  void randomize_all(uint64_t seed);

  // Products by themselves, on the working memory (session_trial.cc). No step between the two ends.
  void begin_trials(uint64_t seed);
  double seconds_of(const ProductTrial& trial);  // negative with a failure noted
  double seconds_of_steps(const StepTrial& trial);
  void end_trials();
  // Whether wide configs give other configs' bits, on some of the session's weights; between the
  // two ends. False, too, with a failure noted.
  bool wide_configs_agree();

  int64_t steps() const { return steps_; }
  int64_t replayed() const { return replayed_; }
  int64_t graph_count() const { return static_cast<int64_t>(graphs_.size()); }

 private:
  struct Factors {
    float gate_up = 1;
    float down = 1;
  };
  // A step on its way: what its copies read and write on the host.
  struct Flight {
    uint8_t* plan = nullptr;   // pinned: what is copied over for a step
    char* sampling = nullptr;  // pinned: what is copied over about sampling, and back
    Mark done = nullptr;
    std::string failure;  // of its beginning, reported when it finishes
    bool draws = false;
    bool reports_best = false;
    int32_t logit_rows = 0;
    Sampled sampled{};
  };
  struct Recorded {
    Graph graph = nullptr;
    int64_t last_used = 0;
  };

  Session(int index, const ModelShape& shape, const Limits& limits);

  bool is_inside(int64_t offset, int64_t bytes) const;
  template <typename T>
  T* at(const Place& place) const {
    return reinterpret_cast<T*>(memory_ + place.offset);
  }

  // The operations of a step, in order.
  void forward(const StepSizes& sizes);
  void forward_launched(const StepSizes& sizes, const StepLayout& layout);
  void forward_persistent(const StepSizes& sizes, const StepLayout& layout);
  bool is_persistent(const StepSizes& sizes) const;
  void provide_layers();
  void attention_block(int layer, const StepSizes& sizes, const StepLayout& layout);
  void expert_block(int layer, const StepSizes& sizes, const StepLayout& layout);
  void head(const StepSizes& sizes, const StepLayout& layout);
  // Tokens from the head's rows.
  void draw(const StepSizes& sizes);
  void upload_sampling(const Flight& flight, const Step& step);
  void download_logits(const Step& step);
  void download_sampled(const Flight& flight);
  void give_sampled(const Flight& flight) const;
  char* sampled_on_host(const Flight& flight) const;
  const char* prepare(Flight& flight, const Step& step);
  // x += what the last layer's experts gave, if `adds`; and the rows normed.
  void norm_rows(const Place& weight, const StepSizes& sizes, const StepLayout& layout, bool adds,
                 bool with_low);
  // What the operations of a step get.
  Embed embed_of(const StepSizes& sizes, const StepLayout& layout) const;
  Weights weights(const Place& data, const Place& bias, int rows, int columns) const;
  Qkv qkv_of(int layer, const StepSizes& sizes, const StepLayout& layout) const;
  Linear o_of(int layer, const StepSizes& sizes, const StepLayout& layout) const;
  Linear router_of(int layer, const StepSizes& sizes, const StepLayout& layout) const;
  Linear head_of(const StepSizes& sizes, const StepLayout& layout) const;
  Group group_of(const StepSizes& sizes, const StepLayout& layout, int columns) const;
  Grouping grouping_of(const StepSizes& sizes, int columns) const;
  Weights expert_weights(ProductKind kind, int layer) const;
  GateUp gate_up_of(int layer, const StepSizes& sizes, const KernelConfig& config) const;
  Down down_of(int layer, const StepSizes& sizes, const KernelConfig& config) const;
  const int32_t* live(const StepLayout& layout) const;

  std::vector<float> trial_sums(const KernelConfig& config, bool grouped);
  void start_trial(const ProductTrial& trial, int layer, const StepSizes& sizes);
  void prepare_trials(const StepSizes& sizes);
  bool prepare_steps(int rows, StepArrays& arrays);
  void run(const StepSizes& sizes);
  void drop_oldest_graph();
  void drop_graphs();

  const int index_;
  const ModelShape shape_;
  const Limits limits_;
  const ArenaLayout arena_;
  StepArrays arrays_;
  std::vector<Factors> factors_;
  const KernelDevice config_device_;
  KernelConfigs configs_;
  bool layers_are_there_ = false;  // on the device, for persistent steps
  Stream stream_ = nullptr;
  std::unique_ptr<Staging> staging_;  // while weights are on their way
  char* memory_ = nullptr;
  float* logits_ = nullptr;  // pinned
  Flight flights_[2];
  int64_t begun_ = 0;
  int64_t finished_ = 0;
  std::vector<uint8_t>
      drawn_;  // of each row of logits of the step begun last: here, not by the host
  std::map<StepSizes, Recorded> graphs_;
  int64_t steps_ = 0;
  int64_t replayed_ = 0;
  Mark trial_marks_[2] = {nullptr, nullptr};
};

}  // namespace pelton::cuda
