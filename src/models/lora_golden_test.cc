// LoRA adapters on golden models: exact logits of an independent float64 evaluation
// (testdata/golden/lora/README.md), in every layout, for every kind of kernels, fed whole, in
// chunks and token by token. B = 0 is the base, to the bit; a row's bits depend on the row and its
// adapter alone, whatever it is computed with.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/golden_cases.h"
#include "checkpoint/golden_checkpoint.h"
#include "layers/pack_weights.h"
#include "lora/adapter.h"
#include "lora/random_adapter.h"
#include "models/sequence_runner.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

const std::string kCases = PELTON_SOURCE_DIR "/testdata/golden/lora/";

std::vector<int> integers(const Json& json, std::string_view key) {
  std::vector<int> out;
  for (const Json& value : json.find(key)->as_array()) {
    out.push_back(static_cast<int>(value.as_integer()));
  }
  return out;
}

std::vector<float> floats(const std::string& path) {
  Result<tensor::NpyArray> array = tensor::read_npy(path);
  CHECK(array.ok(), array.ok() ? "" : array.error().message);
  const auto* data = reinterpret_cast<const float*>(array->bytes.data());
  return {data, data + array->bytes.size() / sizeof(float)};
}

struct GoldenLora {
  Json facts;
  std::vector<TokenId> tokens;  // prompt and continuation
  int prompt_count = 0;
  std::vector<int> positions;
  std::vector<float> logits;  // (positions, vocab)
  std::vector<float> top_gap;
  std::vector<float> router_margin;
};

GoldenLora read_case(const std::string& name) {
  const std::string folder = kCases + name;
  const Json json = *Json::parse(*base::read_file(folder + "/tokens.json"));
  GoldenLora golden{.facts = *Json::parse(*base::read_file(folder + "/case.json")),
                    .tokens = integers(json, "prompt")};
  golden.prompt_count = static_cast<int>(golden.tokens.size());
  for (const int token : integers(json, "continuation")) golden.tokens.push_back(token);
  golden.positions = integers(json, "logit_positions");
  golden.logits = floats(folder + "/logits_exact.npy");
  golden.top_gap = floats(folder + "/top_gap.npy");
  golden.router_margin = floats(folder + "/router_margin.npy");
  return golden;
}

std::string own_folder(const std::string& name) {
  return testing::TempDir() + "lora_golden_" + std::to_string(::getpid()) + "_" + name;
}

// A model with its kernels, for one test.
struct Base {
  base::ThreadPool pool{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels;
  std::optional<checkpoint::Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
};

// Null if this machine lacks what the kernels need. `packed`: its weights in tiles.
std::unique_ptr<Base> load_base(const std::string& name, kernels::KernelChoice choice, bool packed,
                                int tokens) {
  auto base = std::make_unique<Base>();
  auto kernels = kernels::make_kernels(choice, base->pool);
  if (!kernels.ok()) return nullptr;
  base->kernels = *std::move(kernels);
  const bool is_tiny = name == "tiny";
  std::string folder = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
  if (!is_tiny) {
    folder = own_folder(name);
    CHECK(write_golden_checkpoint(checkpoint::GoldenCase::kMid, folder).ok());
  }
  auto opened = checkpoint::Checkpoint::open(folder);
  CHECK(opened.ok(), opened.ok() ? "" : opened.error().message);
  base->checkpoint = *std::move(opened);
  if (!is_tiny) std::filesystem::remove_all(folder);  // mapped by now
  if (packed) {
    const std::string tiles = own_folder(name + "_tiles");
    std::filesystem::create_directories(tiles);
    const std::string config = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + name;
    std::filesystem::copy_file(config + "/config.json", tiles + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(layers::pack_weights(*base->checkpoint,
                               {.matrices = layers::MatrixWeights::kAsShipped,
                                .coarse_head = false,
                                .activations = kernels::Activations::kInt16,
                                .source = "golden"},
                               tiles + "/model.safetensors", base->pool,
                               [](int64_t, int64_t) { return true; })
              .ok());
    auto tiled = checkpoint::Checkpoint::open(tiles);
    CHECK(tiled.ok(), tiled.ok() ? "" : tiled.error().message);
    base->checkpoint = *std::move(tiled);
    std::filesystem::remove_all(tiles);
  }
  auto model = load_model(*base->checkpoint, *base->kernels,
                          {.batch_tokens_max = tokens,
                           .logit_rows_max = tokens,
                           .adapter_rank_max = 64,
                           .expert_adapters = true});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  base->model = *std::move(model);
  return base;
}

lora::Adapter adapter_of(const lora::RandomAdapter& random, const families::ModelConfig& config,
                         lora::WrittenLayout layout) {
  const std::string folder = own_folder("adapter");
  CHECK(write_random_adapter(random, config, layout, folder).ok());
  Result<lora::Adapter> adapter = lora::Adapter::load(folder, config, {});
  CHECK(adapter.ok(), adapter.ok() ? "" : adapter.error().message);
  std::filesystem::remove_all(folder);
  return *std::move(adapter);
}

// (tokens, vocab), fed `chunk` tokens at a time; 0: all at once.
std::vector<float> logits_of(Base& base, std::span<const TokenId> tokens,
                             const lora::Adapter* adapter, int chunk) {
  const int count = static_cast<int>(tokens.size());
  auto runner = SequenceRunner::make(*base.model, base.kernels->kv_dtype(), count);
  CHECK(runner.ok());
  runner->use_adapter(adapter);
  std::vector<float> all;
  for (int begin = 0; begin < count;) {
    const int step = chunk == 0 ? count : std::min(chunk, count - begin);
    std::vector<int> rows(static_cast<size_t>(step));
    std::iota(rows.begin(), rows.end(), 0);
    const float* got = runner->step(tokens.subspan(begin, step), rows, nullptr);
    all.insert(all.end(), got, got + int64_t{step} * base.model->config().vocab_size);
    begin += step;
  }
  return all;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Errors {
  double median = 0;
  double mean = 0;
  double highest = 0;
  int wrong_best = 0;          // best tokens
  int wrong_best_if_sure = 0;  // of rows where neither tokens nor experts are close
};

Errors compare(const GoldenLora& golden, const std::vector<float>& logits, int vocab) {
  Errors errors;
  std::vector<double> all;
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    const auto position = static_cast<size_t>(golden.positions[i]);
    const float* const exact = golden.logits.data() + i * static_cast<size_t>(vocab);
    const float* const got = logits.data() + position * static_cast<size_t>(vocab);
    double difference = 0;
    double size = 0;
    for (int t = 0; t < vocab; ++t) {
      difference += (double{got[t]} - exact[t]) * (double{got[t]} - exact[t]);
      size += double{exact[t]} * exact[t];
    }
    all.push_back(std::sqrt(difference / size));
    const auto best = [&](const float* row) { return std::max_element(row, row + vocab) - row; };
    if (best(got) == best(exact)) continue;
    ++errors.wrong_best;
    if (golden.top_gap[position] > 0.25f && golden.router_margin[position] > 0.05f) {
      ++errors.wrong_best_if_sure;
    }
  }
  std::sort(all.begin(), all.end());
  errors.median = all[all.size() / 2];
  errors.highest = all.back();
  errors.mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  return errors;
}

struct Case {
  std::string name;
  kernels::KernelChoice kernels = kernels::KernelChoice::kReference;
  bool packed = false;
};
void PrintTo(const Case& param, std::ostream* out) {
  *out << param.name;
}

// Tiny ones everywhere; the others, whose weights take a while to make, with PELTON_FULL=1.
class LoraGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const bool is_tiny = !GetParam().name.starts_with("mid");
    if (!is_tiny && std::getenv("PELTON_FULL") == nullptr) GTEST_SKIP() << "PELTON_FULL=1 runs it";
  }
};

TEST_P(LoraGolden, LogitsAreInsideTheTolerance) {
  const Case& param = GetParam();
  const GoldenLora golden = read_case(param.name);
  const std::string base_name = golden.facts.string("base").value();
  const auto base =
      load_base(base_name, param.kernels, param.packed, static_cast<int>(golden.tokens.size()));
  if (base == nullptr) GTEST_SKIP() << "this machine has no such kernels";
  const families::ModelConfig& config = base->model->config();
  const lora::RandomAdapter random = *lora::random_adapter_of(golden.facts);
  std::vector<float> first;
  for (const Json& name : golden.facts.find("layouts")->as_array()) {
    const lora::Adapter adapter =
        adapter_of(random, config, *lora::parse_written_layout(name.as_string()));
    const std::vector<float> logits = logits_of(*base, golden.tokens, &adapter, 0);
    if (!first.empty()) {
      EXPECT_TRUE(same_bits(logits, first)) << name.as_string();
      continue;
    }
    first = logits;
    const Errors errors = compare(golden, logits, config.vocab_size);
    if (param.kernels == kernels::KernelChoice::kReference && !param.packed) {
      EXPECT_LE(errors.mean, 1e-5);
      EXPECT_LE(errors.highest, 1e-4);
      EXPECT_EQ(errors.wrong_best, 0);  // and so the greedy continuation is the exact one
    } else {
      EXPECT_LE(errors.median, 2e-2);
      EXPECT_LE(errors.mean, 3e-2);
      EXPECT_EQ(errors.wrong_best_if_sure, 0);
    }
    std::printf("%s: mean %.2g median %.2g highest %.2g\n", param.name.c_str(), errors.mean,
                errors.median, errors.highest);
    const bool is_slow = param.kernels == kernels::KernelChoice::kReference;
    for (const int chunk : {7, 1}) {
      if (base_name != "tiny" || (is_slow && chunk == 1)) break;
      EXPECT_TRUE(same_bits(logits_of(*base, golden.tokens, &adapter, chunk), first)) << chunk;
    }
  }
}

TEST_P(LoraGolden, WithoutBIsTheBase) {
  const Case& param = GetParam();
  const GoldenLora golden = read_case(param.name);
  if (golden.facts.string("base") != "tiny") GTEST_SKIP() << "tiny ones have every part";
  const auto base =
      load_base("tiny", param.kernels, param.packed, static_cast<int>(golden.tokens.size()));
  if (base == nullptr) GTEST_SKIP() << "this machine has no such kernels";
  lora::RandomAdapter random = *lora::random_adapter_of(golden.facts);
  random.zero = true;
  const lora::Adapter adapter =
      adapter_of(random, base->model->config(), lora::WrittenLayout::kPeft);
  EXPECT_TRUE(same_bits(logits_of(*base, golden.tokens, &adapter, 0),
                        logits_of(*base, golden.tokens, nullptr, 0)));
}

std::vector<Case> all_cases() {
  using Choice = kernels::KernelChoice;
  std::vector<Case> cases;
  for (const char* name :
       {"attention", "experts", "patterns", "down-only", "mid-all", "mid-layers"}) {
    for (const Choice choice : {Choice::kReference, Choice::kAvx512, Choice::kAvx2}) {
      cases.push_back({name, choice, false});
      if (choice != Choice::kReference) cases.push_back({name, choice, true});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraGolden, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           using Choice = kernels::KernelChoice;
                           const bool reference = info.param.kernels == Choice::kReference;
                           const bool wide = info.param.kernels == Choice::kAvx512;
                           return name +
                                  (reference ? "_reference"
                                   : wide    ? "_avx512"
                                             : "_avx2") +
                                  (info.param.packed ? "_tiles" : "");
                         });

// Sequences that run together: each its own tokens, blocks and adapter, in steps of 5 rows of the
// even ones and 3 of the odd ones.
class Company {
 public:
  static constexpr int kSequences = 8;
  static constexpr int kLength = 40;

  Company(Base& base, std::span<const TokenId> tokens, const std::vector<lora::Adapter>& adapters)
      : base_(base), tokens_(tokens), adapters_(adapters) {}

  std::span<const TokenId> tokens_of(int s) const {
    return tokens_.subspan(static_cast<size_t>(s * 7), kLength);
  }
  const lora::Adapter* adapter_of(int s) const {
    return s % 4 == 0 ? nullptr : &adapters_[static_cast<size_t>(s % 4 - 1)];
  }

  // By sequence: (kLength, vocab).
  std::vector<std::vector<float>> run() {
    const families::ModelConfig& config = base_.model->config();
    KvStorage::Options options{.dtype = base_.kernels->kv_dtype()};
    const int groups = static_cast<int>(families::kv_groups(config, {}).specs.size());
    const int blocks_each = kLength / options.block_tokens + 1;
    options.block_counts.assign(groups, kSequences * blocks_each);
    KvStorage kv = *KvStorage::allocate(config, options);
    std::vector<std::vector<int32_t>> blocks(kSequences);
    for (int s = 0; s < kSequences; ++s) {
      for (int b = 0; b < blocks_each; ++b) blocks[s].push_back(s * blocks_each + b);
    }
    std::vector<int> done(kSequences, 0);
    std::vector<std::vector<float>> logits(kSequences);
    while (true) {
      ForwardInput input;
      std::vector<int> owners;
      for (int s = 0; s < kSequences; ++s) {
        const int count = std::min(s % 2 == 0 ? 5 : 3, kLength - done[s]);
        if (count == 0) continue;
        kv::PerGroup<const int32_t*> tables;
        tables.assign(groups, blocks[s].data());
        for (int i = 0; i < count; ++i) {
          input.logit_rows.push_back(static_cast<int>(input.tokens.size()));
          input.tokens.push_back(tokens_of(s)[static_cast<size_t>(done[s] + i)]);
          owners.push_back(s);
        }
        input.sequences.push_back({done[s], count, tables, adapter_of(s)});
        done[s] += count;
      }
      if (owners.empty()) return logits;
      const float* row = base_.model->forward(input, kv, nullptr);
      for (const int owner : owners) {
        logits[owner].insert(logits[owner].end(), row, row + config.vocab_size);
        row += config.vocab_size;
      }
    }
  }

 private:
  Base& base_;
  const std::span<const TokenId> tokens_;
  const std::vector<lora::Adapter>& adapters_;
};

// Sequences of the base and of three adapters, decoding and prefilling, against each by itself.
TEST(LoraCompany, ChangesNoBit) {
  using Choice = kernels::KernelChoice;
  const std::vector<std::vector<std::string>> parts = {
      {"q", "k", "v", "o"}, {"gate_up", "down"}, {"q", "o", "gate_up", "down"}};
  const GoldenLora golden = read_case("attention");
  for (const Choice choice : {Choice::kReference, Choice::kAvx512, Choice::kAvx2}) {
    for (const bool packed : {false, true}) {
      if (choice == Choice::kReference && packed) continue;
      const auto base = load_base("tiny", choice, packed, 64);
      if (base == nullptr) continue;
      std::vector<lora::Adapter> adapters;
      for (size_t i = 0; i < parts.size(); ++i) {
        const int rank = 3 + static_cast<int>(i) * 6;
        adapters.push_back(adapter_of({.seed = i, .parts = parts[i], .rank = rank, .alpha = 8},
                                      base->model->config(), lora::WrittenLayout::kPeft));
      }
      Company company(*base, golden.tokens, adapters);
      const std::vector<std::vector<float>> together = company.run();
      for (int s = 0; s < Company::kSequences; ++s) {
        EXPECT_TRUE(same_bits(together[s],
                              logits_of(*base, company.tokens_of(s), company.adapter_of(s), 0)))
            << base->kernels->name() << (packed ? " tiles" : "") << " sequence " << s;
      }
    }
  }
}

}  // namespace
}  // namespace pelton::models
