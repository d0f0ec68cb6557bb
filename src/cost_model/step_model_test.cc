#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cost_model/built_in_data.h"
#include "cost_model/calibration.h"
#include "cost_model/closed_form.h"
#include "cost_model/footprint.h"
#include "cost_model/hardware.h"
#include "cost_model/parameters.h"
#include "cost_model/slices.h"
#include "cost_model/step_cost.h"
#include "cost_model/step_time.h"
#include "families/expected_tensors.h"
#include "families/published_config.h"

namespace pelton::cost_model {
namespace {

using testing::HasSubstr;

constexpr double kGiB = 1 << 30;

families::ModelConfig shape_of(const std::string& name) {
  Result<families::ModelConfig> shape = find_model_config(name);
  EXPECT_TRUE(shape.ok()) << shape.error().message;
  return *shape;
}

StepTimeModel model_of(const std::string& gpu, const std::string& model, const Layout& layout) {
  Result<StepTimeModel> made = StepTimeModel::make(
      {.hardware = *find_hardware(gpu), .shape = shape_of(model), .layout = layout});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

// The worked example that many pages copy: Llama-3.1-405B, batch 4, 16 bits.
TEST(Textbook, ReproducesTheWorkedExample) {
  const families::ModelConfig llama = shape_of("llama-3.1-405b");
  EXPECT_EQ(llama.head_size, 128);  // hidden / heads
  const closed_form::Attention attention{
      .layers = llama.layer_count(), .kv_heads = llama.kv_head_count, .head_size = llama.head_size};
  const closed_form::Batch at_8k{.sequences = 4, .tokens = 8192};
  const closed_form::Batch at_128k{.sequences = 4, .tokens = 131072};
  EXPECT_EQ(closed_form::parameter_bytes(llama.nominal_parameters, 2), 810'000'000'000);
  EXPECT_NEAR(810e9 / kGiB, 754.4, 0.05);
  EXPECT_EQ(closed_form::kv_bytes(at_8k, attention), static_cast<int64_t>(15.75 * kGiB));
  EXPECT_EQ(closed_form::kv_bytes(at_128k, attention), int64_t{252} << 30);
  EXPECT_EQ(closed_form::attention_activation_bytes(at_8k, llama.hidden_size), int64_t{5} << 30);
  EXPECT_EQ(closed_form::ffn_activation_bytes(at_8k, llama.hidden_size, llama.intermediate_size),
            static_cast<int64_t>(8.5 * kGiB));
  EXPECT_EQ(closed_form::id_buffer_bytes(at_8k), 64 << 10);
  EXPECT_EQ(closed_form::id_buffer_bytes(at_128k), 1 << 20);
}

TEST(Parameters, CountsTheParametersOfPublishedModels) {
  EXPECT_EQ(count_parameters(shape_of("gpt-oss-20b")).total(), 20'914'757'184);
  EXPECT_EQ(count_parameters(shape_of("gpt-oss-120b")).total(), 116'829'156'672);
  EXPECT_EQ(count_parameters(shape_of("llama-3.1-405b")).total(), 405'853'388'800);
  EXPECT_EQ(count_parameters(shape_of("llama-3.1-8b")).total(), 8'030'261'248);
  // 671 B in all, 37 B of them active, as the authors say.
  const families::ModelConfig deepseek = shape_of("deepseek-v3");
  EXPECT_NEAR(static_cast<double>(count_parameters(deepseek).total()), 671e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(count_parameters(deepseek).active(deepseek)), 37e9, 1e9);
}

// The same as the list that checkpoints are written and checked by, tensor for tensor.
TEST(Parameters, AgreesWithTheCheckpointsTensors) {
  for (const std::string model : {"gpt-oss-20b", "gpt-oss-120b", "qwen3-0.6b"}) {
    const Json config = *families::published_config(model);
    const families::ModelConfig parsed = *families::parse_model_config(config, nullptr, model);
    int64_t parameters = 0;
    int64_t bytes = 0;
    for (const auto& tensor :
         families::expected_tensors(parsed, families::WeightLayout::kPublished)) {
      if (!tensor.is_scales) parameters += tensor.parameters();
      bytes += tensor.bytes();
    }
    const families::ModelConfig shape = shape_of(model);
    EXPECT_EQ(count_parameters(shape).total(), parameters) << model;
    // Biases of experts are stored in 16 bits, which `expert_bits` does not distinguish.
    EXPECT_NEAR(weight_bytes(shape) / static_cast<double>(bytes), 1, 1e-3) << model;
  }
}

TEST(Parameters, KeysAndValuesByArchitecture) {
  const families::ModelConfig big = shape_of("gpt-oss-120b");
  const families::ModelConfig small = shape_of("gpt-oss-20b");
  // Beyond the window each token costs the full layers alone.
  EXPECT_EQ(kv_bytes(big, 1001, 2) - kv_bytes(big, 1000, 2), 36 << 10);
  EXPECT_EQ(kv_bytes(small, 1001, 2) - kv_bytes(small, 1000, 2), 24 << 10);
  EXPECT_EQ(kv_bytes(big, 1000, 2) - 1000 * (36 << 10), 4.5 * (1 << 20));
  EXPECT_EQ(kv_bytes(small, 1000, 2) - 1000 * (24 << 10), 3 << 20);
  EXPECT_NEAR(kv_bytes(big, 131072, 2) / kGiB, 4.504, 0.001);
  EXPECT_NEAR(kv_bytes(small, 131072, 2) / kGiB, 3.003, 0.001);
  // 61 layers of 512 + 64 elements.
  EXPECT_EQ(kv_bytes(shape_of("deepseek-v3"), 1, 2), 61 * 576 * 2);
}

TEST(Parameters, RefusesWhatItCannotCount) {
  const auto refuse = [](const std::string& text) {
    const Result<families::ModelConfig> config =
        families::parse_planned_config(*Json::parse(text), "x.json");
    EXPECT_FALSE(config.ok());
    return config.ok() ? "" : config.error().message;
  };
  EXPECT_THAT(refuse("{}"), HasSubstr("model_type"));
  EXPECT_THAT(refuse(R"({"model_type":"mamba2"})"), HasSubstr("mamba2"));
  EXPECT_THAT(refuse(R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":-1})"),
              HasSubstr("hidden_size"));
  EXPECT_THAT(refuse(R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":64,
                 "num_attention_heads":0})"),
              HasSubstr("num_attention_heads"));
  EXPECT_THAT(refuse(R"({"model_type":"llama","hidden_size":65536,"num_attention_heads":1024,
                 "intermediate_size":1048576,"num_hidden_layers":1024,"num_experts":4096,
                 "num_experts_per_tok":8,"vocab_size":4194304,"max_position_embeddings":1})"),
              HasSubstr("1e15"));
}

TEST(Hardware, EveryFileIsSoundAndEveryFigureHasASource) {
  const std::vector<std::string> names = data_names("hardware/");
  for (const char* must :
       {"a100-40", "a100-80", "l4", "l40s", "h100", "h200", "b200", "gb200-nvl72", "rtx-pro-6000",
        "rtx-5090", "rtx-4080", "mi300x", "mi355x", "cpu-zen4-2"}) {
    EXPECT_THAT(names, testing::Contains(must));
  }
  for (const std::string& name : names) {
    const Result<Hardware> hardware = find_hardware(name);
    ASSERT_TRUE(hardware.ok()) << hardware.error().message;
    EXPECT_EQ(hardware->name, name);
    EXPECT_GT(hardware->memory_bytes, 1e9);
  }
  for (const Instance& instance : instances()) {
    EXPECT_TRUE(find_hardware(instance.gpu).ok()) << instance.name;
    EXPECT_FALSE(instance.source.empty());
  }
  EXPECT_THAT(find_hardware("h1000").error().message, HasSubstr("h100"));
}

TEST(Hardware, ComputesOnlyInWhatItHas) {
  EXPECT_TRUE(find_hardware("b200")->rate(Arithmetic::kFp4).ok());
  EXPECT_TRUE(find_hardware("rtx-5090")->rate(Arithmetic::kFp4).ok());
  EXPECT_TRUE(find_hardware("h100")->rate(Arithmetic::kFp8).ok());
  EXPECT_TRUE(find_hardware("l4")->rate(Arithmetic::kFp8).ok());
  EXPECT_THAT(find_hardware("h100")->rate(Arithmetic::kFp4).error().message,
              HasSubstr("sm_90) cannot compute in fp4; it computes in bf16, int8, fp8"));
  EXPECT_THAT(find_hardware("a100-80")->rate(Arithmetic::kFp8).error().message,
              HasSubstr("cannot compute in fp8"));
}

// docs/performance.md: computed there by hand.
TEST(StepCost, ReadsAndComputesWhatWasCountedByHand) {
  const families::ModelConfig small = shape_of("gpt-oss-20b");
  const families::ModelConfig big = shape_of("gpt-oss-120b");
  const StepCost cost20 = StepCounter(small, 2).count(StepLoad::decodes(1, 0, {0, 128}));
  const StepCost cost120 = StepCounter(big, 2).count(StepLoad::decodes(1, 0, {0, 128}));
  EXPECT_NEAR(cost20.bytes() / 1e9, 3.708, 0.01);
  EXPECT_NEAR(cost120.bytes() / 1e9, 5.003, 0.03);
  EXPECT_NEAR(cost20.operations() / 1e9, 7.21, 0.01);
  EXPECT_NEAR(cost120.operations() / 1e9, 10.26, 0.03);
  // Keys and values read for a token at 8 k: 205 MB.
  const StepCost deep = StepCounter(small, 2).count(StepLoad::decodes(1, 8192, {0, 128}));
  EXPECT_NEAR(deep.attention.bytes / 1e6, 205, 2);
}

TEST(StepCost, ExpertsTouchedByBatch) {
  const double at20[] = {4, 7.5, 13.2, 21.0, 28.2, 31.6, 32, 32, 32};
  const double at120[] = {4, 7.9, 15.3, 28.7, 51.0, 81.7, 111, 126, 128};
  for (int i = 0; i < 9; ++i) {
    EXPECT_NEAR(experts_touched(32, 4, 1 << i), at20[i], 0.06) << i;
    EXPECT_NEAR(experts_touched(128, 4, 1 << i), at120[i], 0.5) << i;
  }
  EXPECT_EQ(experts_touched(0, 0, 5), 0);
}

// Rows are summed up: the sum is what adding key by key and query by query gives.
TEST(StepCost, RowsAddUpAsCountedOneByOne) {
  constexpr int64_t kWindow = 16;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto start = static_cast<int64_t>(base::random_bits(seed, 0) % 60);
    const auto count = static_cast<int64_t>(1 + base::random_bits(seed, 1) % 40);
    StepLoad load;
    load.add_row(start, count, 0, {0, kWindow});
    double full = 0;
    double window = 0;
    for (int64_t query = start; query < start + count; ++query) {
      full += static_cast<double>(query + 1);
      window += static_cast<double>(std::min(query + 1, kWindow));
    }
    EXPECT_EQ(load.of(0).pairs, full) << "seed " << seed;
    EXPECT_EQ(load.of(kWindow).pairs, window) << "seed " << seed;
    EXPECT_EQ(load.of(kWindow).keys, std::min(start + count, kWindow + count - 1))
        << "seed " << seed;
  }
}

// performance.md 2.3: ceilings at a context of 1 k. At efficiency 1 the model gives them.
TEST(StepTime, GivesTheRooflineOfTheReference) {
  for (const auto& [gpu, model, batch, expected] : {std::tuple{"b200", "gpt-oss-20b", 1, 2142.0},
                                                    {"b200", "gpt-oss-20b", 64, 35557.0},
                                                    {"b200", "gpt-oss-120b", 1, 1587.0},
                                                    {"b200", "gpt-oss-120b", 64, 8716.0},
                                                    {"b200", "gpt-oss-120b", 512, 47765.0}}) {
    const StepTimeModel time = model_of(gpu, model, {});
    const double rate = batch / time.ideal_seconds(StepLoad::decodes(batch, 1024, {0, 128}));
    EXPECT_NEAR(rate / expected, 1, 0.02) << gpu << " " << model << " " << batch;
  }
}

TEST(StepTime, LayoutsShareTheWorkAndPayForIt) {
  const StepLoad load = StepLoad::decodes(64, 2048, {0, 128});
  const StepTimeModel one = model_of("h200", "gpt-oss-120b", {});
  const StepTimeModel tensor = model_of("h200", "gpt-oss-120b", {.tensor = 8});
  const StepTimeModel expert = model_of("h200", "gpt-oss-120b", {.expert = 8});
  const StepTimeModel pipeline = model_of("h200", "gpt-oss-120b", {.pipeline = 2});
  EXPECT_EQ(one.time(load).exchange_s, 0);
  EXPECT_GT(tensor.time(load).exchange_s, 0);
  EXPECT_LT(tensor.seconds(load), one.seconds(load));
  // Latency: cutting everything wins. Throughput: eight times the tokens, an eighth of the experts.
  EXPECT_LT(tensor.seconds(StepLoad::decodes(1, 2048, {0, 128})),
            expert.seconds(StepLoad::decodes(1, 2048, {0, 128})));
  EXPECT_LT(expert.seconds(StepLoad::decodes(4096, 2048, {0, 128})),
            tensor.seconds(StepLoad::decodes(4096, 2048, {0, 128})));
  // Two stages with two groups under way do not come down to one stage's time.
  EXPECT_GT(pipeline.seconds(load), 0.5 * one.seconds(load));
  EXPECT_THAT(layout_name({.tensor = 4, .pipeline = 2}), "TP4 PP2");
}

TEST(StepTime, RefusesLayoutsThatCannotBe) {
  const auto refuse = [](const std::string& gpu, const Layout& layout) {
    const auto made = StepTimeModel::make(
        {.hardware = *find_hardware(gpu), .shape = shape_of("gpt-oss-20b"), .layout = layout});
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_THAT(refuse("cpu-zen4-2", {.tensor = 2}), HasSubstr("no link"));
  EXPECT_THAT(refuse("h100", {.tensor = 16}), HasSubstr("NVLink"));
  EXPECT_THAT(refuse("h100", {.tensor = 3}), HasSubstr("64 heads"));
  EXPECT_THAT(refuse("h100", {.expert = 5}), HasSubstr("32 experts"));
  EXPECT_THAT(refuse("h100", {.tensor = 0}), HasSubstr("at least 1"));
}

// Steps made by a model with known factors, and 2 % of them interrupted: the factors' effect comes
// back, and what the fit leaves is the noise that was put in.
TEST(Calibration, FindsWhatStepsWereMadeWith) {
  StepTimeModel::Options truth{.hardware = *find_hardware("cpu-zen4-2"),
                               .shape = shape_of("gpt-oss-20b"),
                               .efficiency = {.bandwidth = 0.8,
                                              .compute = 0.55,
                                              .attention = 0.2,
                                              .step_s = 3e-3,
                                              .row_s = 2e-4,
                                              .overlap = 3},
                               .arithmetic = Arithmetic::kInt8};
  const StepTimeModel made = *StepTimeModel::make(truth);
  std::vector<MeasuredStep> steps;
  for (uint64_t i = 0; i < 600; ++i) {
    MeasuredStep step;
    const int rows = static_cast<int>(1 + base::random_bits(1, i) % 16);
    for (int row = 0; row < rows; ++row) {
      step.load.add_row(static_cast<int64_t>(base::random_bits(2, i * 16 + row) % 4000), 1, 1,
                        {0, 128});
    }
    if (i % 3 == 0) {
      step.load.add_row(0, static_cast<int64_t>(1 + base::random_bits(3, i) % 512), 1, {0, 128});
    }
    const double noise = 1 + 0.02 * (base::random_unit(4, i) - 0.5);
    step.seconds = made.seconds(step.load) * noise * (i % 50 == 7 ? 3 : 1);
    steps.push_back(step);
  }
  StepTimeModel::Options start = truth;
  start.efficiency = Efficiency{};
  const Result<Calibration> fitted = calibrate(start, steps);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_LT(fitted->error_p50, 0.02);
  EXPECT_LT(fitted->error_p90, 0.04);
  EXPECT_GT(fitted->residuals.back(), 2.5);
  StepTimeModel::Options found = truth;
  found.efficiency = fitted->efficiency;
  const StepTimeModel model = *StepTimeModel::make(found);
  for (const int rows : {1, 4, 16}) {
    const StepLoad load = StepLoad::decodes(rows, 1000, {0, 128});
    EXPECT_NEAR(model.seconds(load) / made.seconds(load), 1, 0.03) << rows;
  }
  const Result<Calibration> again = Calibration::from_json(fitted->to_json(), "again");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->to_json(), fitted->to_json());
}

// Others take the processor away for the same time whatever runs: a run's time is what it was, of
// long steps too, and is no product of what short ones were multiplied by.
TEST(Calibration, InterruptionsAddAndDoNotMultiply) {
  const StepTimeModel::Options start{.hardware = *find_hardware("cpu-zen4-2"),
                                     .shape = shape_of("gpt-oss-20b"),
                                     .arithmetic = Arithmetic::kInt8};
  const StepTimeModel made = *StepTimeModel::make(start);
  const double interrupted_s = 20 * made.seconds(StepLoad::decodes(1, 100, {0, 128}));
  std::vector<MeasuredStep> steps;
  double measured_s = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    MeasuredStep step{.load = StepLoad::decodes(i % 4 == 0 ? 512 : 1, 2000, {0, 128})};
    step.seconds = made.seconds(step.load) + (i % 10 == 1 ? interrupted_s : 0);
    measured_s += step.seconds;
    steps.push_back(step);
  }
  const Result<Calibration> fitted = calibrate(start, steps);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  StepTimeModel::Options found = start;
  found.efficiency = fitted->efficiency;
  found.by_rows = fitted->by_rows;
  found.by_tokens = fitted->by_tokens;
  const StepTimeModel model = *StepTimeModel::make(found);
  double factor = 0;
  for (const double one : fitted->residuals) factor += one / kSlices;
  double modelled_s = 0;
  for (const MeasuredStep& step : steps) modelled_s += model.seconds(step.load) * factor;
  EXPECT_NEAR(modelled_s / measured_s, 1, 0.02);
}

// Few steps have long prompts, and a processor may compute those faster than the formula's one rate
// lets it: they are corrected all the same.
TEST(Calibration, CorrectsTheFewStepsWithLongPrompts) {
  const StepTimeModel::Options start{.hardware = *find_hardware("cpu-zen4-2"),
                                     .shape = shape_of("gpt-oss-20b"),
                                     .arithmetic = Arithmetic::kInt8};
  const StepTimeModel made = *StepTimeModel::make(start);
  const auto step_of = [&](int64_t prompt, double factor) {
    MeasuredStep step;
    step.load.add_row(0, prompt, 1, {0, 128});
    step.seconds = made.seconds(step.load) * factor;
    return step;
  };
  std::vector<MeasuredStep> steps(40, step_of(64, 1));
  for (const int64_t prompt : {120, 128, 192, 256}) steps.push_back(step_of(prompt, 0.94));
  for (const int64_t prompt : {320, 384, 448, 511, 512}) steps.push_back(step_of(prompt, 0.87));
  for (int i = 0; i < 40; ++i) {
    steps.push_back({.load = StepLoad::decodes(1 + i % 4, 100, {0, 128})});
    steps.back().seconds = made.seconds(steps.back().load);
  }
  const Result<Calibration> fitted = calibrate(start, steps);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  StepTimeModel::Options found = start;
  found.efficiency = fitted->efficiency;
  found.by_rows = fitted->by_rows;
  found.by_tokens = fitted->by_tokens;
  const StepTimeModel model = *StepTimeModel::make(found);
  for (const auto& [prompt, factor] : {std::pair(64, 1.0), {192, 0.94}, {448, 0.87}, {512, 0.87}}) {
    const MeasuredStep step = step_of(prompt, factor);
    EXPECT_NEAR(model.seconds(step.load) / step.seconds, 1, 0.03) << prompt;
  }
}

TEST(Calibration, ReadsStepLogsAndRefusesBadOnes) {
  const auto read = [](const std::string& text) { return parse_step_log(text, "s.log", {0, 128}); };
  const auto steps = read("{\"ns\":2000000,\"rows\":[0,5,1,7,1,1]}\n\n{\"ns\":1,\"rows\":[]}\n");
  ASSERT_TRUE(steps.ok());
  ASSERT_EQ(steps->size(), 1u);  // the second computed nothing
  EXPECT_EQ(steps->front().load.tokens, 6);
  EXPECT_EQ(steps->front().load.rows, 2);
  EXPECT_DOUBLE_EQ(steps->front().seconds, 0.002);
  EXPECT_THAT(read("{\"ns\":-1,\"rows\":[]}").error().message, HasSubstr("line 1"));
  EXPECT_THAT(read("{\"ns\":1,\"rows\":[1,2]}").error().message, HasSubstr("three a row"));
  EXPECT_THAT(read("{\"ns\":1,\"rows\":[1,2,9e18]}").error().message, HasSubstr("rows[2]"));
  EXPECT_THAT(read("\n{").error().message, HasSubstr("line 2"));
  const auto few =
      calibrate({.hardware = *find_hardware("h100"), .shape = shape_of("gpt-oss-20b")}, *steps);
  EXPECT_THAT(few.error().message, HasSubstr("too few"));
}

// 120b on one card of 80 GB: what is left for keys and values, stated.
TEST(Footprint, The120bFitsOn80Gigabytes) {
  const Json config = *families::published_config("gpt-oss-120b");
  MemoryRequest request;
  request.kv_dtype = tensor::DType::kBf16;
  request.memory_bytes = find_hardware("h100")->memory_bytes;
  request.memory_utilization = 0.92;
  request.kernels = KernelKind::kReference;
  const Result<Footprint> fits =
      footprint(*families::parse_model_config(config, nullptr, "gpt-oss-120b"), request);
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  EXPECT_GT(fits->kv.bytes(), 5e9);
  EXPECT_GE(fits->context_tokens_max, 131072);
  EXPECT_LE(fits->bytes(), 0.92 * 80e9);
}

}  // namespace
}  // namespace pelton::cost_model
