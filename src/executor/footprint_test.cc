// What is predicted and what is allocated are the same bytes: the allocators report theirs.
#include "cost_model/footprint.h"

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/synthetic.h"
#include "executor/local_executor.h"
#include "models/int_weights_file.h"
#include "models/pack_model.h"
#include "tensor/kv_block.h"

namespace pelton::executor {
namespace {

using tensor::DType;

constexpr int64_t kMiB = int64_t{1} << 20;

std::string tiny() {
  return std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
}

models::KvStorage::Options storage_of(const cost_model::KvAllocated& kv) {
  models::KvStorage::Options options{.dtype = kv.dtype, .block_tokens = kv.block_tokens};
  for (const auto& group : kv.groups) options.block_counts.push_back(group.block_count);
  return options;
}

// Reserving is not using: the large ones cost address space only.
TEST(Footprint, KvIsAllocatedToTheByteInEveryTypeAndBlockSize) {
  for (const char* like : {"gpt-oss-20b", "gpt-oss-120b"}) {
    const auto options = checkpoint::synthetic_like(like, 0);
    ASSERT_TRUE(options.ok());
    const auto config = families::parse_model_config(options->config, nullptr, like);
    ASSERT_TRUE(config.ok());
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16, DType::kF8E4m3, DType::kI8}) {
      for (const int block_tokens : {8, 16, 32, 128}) {
        const auto predicted = cost_model::footprint(*config, {.block_tokens = block_tokens,
                                                               .kv_dtype = dtype,
                                                               .swap_bytes = 777 * kMiB,
                                                               .kv_bytes = 3001 * kMiB + 12345});
        ASSERT_TRUE(predicted.ok()) << predicted.error().message;
        for (const cost_model::KvAllocated& kv : {predicted->kv, predicted->swap}) {
          const auto storage = models::KvStorage::allocate(*config, storage_of(kv));
          ASSERT_TRUE(storage.ok());
          EXPECT_EQ(storage->bytes(), kv.bytes())
              << like << " " << tensor::kv_type_name(dtype) << " " << block_tokens;
          EXPECT_GT(kv.bytes(), 700 * kMiB);
        }
      }
    }
  }
}

// LocalExecutor CHECKs what it has allocated against its footprint; that is proved here for shapes
// of all sorts, and that the numbers are those anyone else would predict.
TEST(Footprint, TheExecutorAllocatesWhatIsForeseen) {
  const auto checkpoint = checkpoint::Checkpoint::open(tiny());
  ASSERT_TRUE(checkpoint.ok());
  for (const char* kernels : {"auto", "reference"}) {
    for (const int threads : {1, 2}) {
      for (const int batch : {1, 33, 512}) {
        const LocalExecutor::Options options{.kernels = kernels,
                                             .threads = threads,
                                             .sequences_max = 1 + batch % 7,
                                             .batch_tokens_max = batch,
                                             .prefix_cache = batch > 1,
                                             .context_tokens = 200,
                                             .kv_bytes = 64 * kMiB,
                                             .swap_bytes = batch == 33 ? 5 * kMiB : 0};
        const auto request = LocalExecutor::memory_request(options);
        ASSERT_TRUE(request.ok()) << request.error().message;
        const auto predicted = cost_model::footprint(*checkpoint, *request);
        ASSERT_TRUE(predicted.ok());
        const auto executor = LocalExecutor::create(*checkpoint, options);
        ASSERT_TRUE(executor.ok()) << executor.error().message;
        EXPECT_EQ(cost_model::to_json((*executor)->footprint()), cost_model::to_json(*predicted));
        const engine::ExecutorCapacity& capacity = (*executor)->capacity();
        for (int group = 0; group < capacity.groups.size(); ++group) {
          EXPECT_EQ(capacity.blocks(group, kv::kDevice), predicted->kv.groups[group].block_count);
          EXPECT_EQ(capacity.blocks(group, kv::kHost) > 0, batch == 33);
        }
      }
    }
  }
}

// Blocks in place of the file's integers, and with GPTQ's act order the order of each matrix'
// inputs and the inputs so ordered.
TEST(Footprint, MatricesOfIntegersAreAllocatedAsPredicted) {
  using Kind = models::IntWeightsFile::Kind;
  const std::string folder = testing::TempDir() + "footprint_test_integers";
  for (const Kind kind : {Kind::kGptqInAnyOrder, Kind::kPacked4, Kind::kPacked8, Kind::kBytes}) {
    models::IntWeightsFile::write(folder, {.kind = kind});
    const auto checkpoint = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    for (const char* kernels : {"auto", "reference"}) {
      const LocalExecutor::Options options{.kernels = kernels,
                                           .threads = 2,
                                           .sequences_max = 3,
                                           .batch_tokens_max = 40,
                                           .context_tokens = 200,
                                           .kv_bytes = 64 * kMiB};
      const auto executor = LocalExecutor::create(*checkpoint, options);  // which CHECKs it
      ASSERT_TRUE(executor.ok()) << executor.error().message;
    }
  }
  std::filesystem::remove_all(folder);
}

// What a proposer keeps is part of it: weights, keys and values, what it sees of the target.
TEST(Footprint, SpeculationIsAllocatedAsPredicted) {
  const std::string box = std::string(PELTON_SOURCE_DIR) + "/models/pelton-box";
  if (!std::filesystem::exists(box + "/eagle3/config.json")) GTEST_SKIP() << "no model in the box";
  const auto checkpoint = checkpoint::Checkpoint::open(box);
  ASSERT_TRUE(checkpoint.ok());
  const std::string draft = R"(,"num_speculative_tokens":3,"model":")" + box + R"(/draft"})";
  const std::string head = R"(,"num_speculative_tokens":3,"model":")" + box + R"(/eagle3"})";
  const std::string medusa = R"(,"num_speculative_tokens":3,"model":")" + box + R"(/medusa"})";
  for (const std::string& json :
       {std::string(R"({"method":"suffix"})"), std::string(R"({"method":"suffix_shared"})"),
        std::string(R"({"method":"lookahead","num_speculative_tokens":4})"),
        R"({"method":"draft_model")" + draft, R"({"method":"eagle3")" + head,
        R"({"method":"suffix+eagle3")" + head, R"({"method":"suffix+draft_model")" + draft,
        R"({"method":"auto")" + head, R"({"method":"medusa")" + medusa,
        R"({"method":"auto")" + medusa}) {
    for (const char* kernels : {"auto", "reference"}) {
      SCOPED_TRACE(json + kernels);
      const LocalExecutor::Options options{.kernels = kernels,
                                           .threads = 2,
                                           .sequences_max = 3,
                                           .batch_tokens_max = 40,
                                           .context_tokens = 200,
                                           .kv_bytes = 64 * kMiB,
                                           .speculation = *speculative::parse_config(json)};
      const auto request = LocalExecutor::memory_request(options, checkpoint->config());
      ASSERT_TRUE(request.ok()) << request.error().message;
      const auto predicted = cost_model::footprint(*checkpoint, *request);
      ASSERT_TRUE(predicted.ok());
      EXPECT_GT(predicted->workspace.drafting, 10'000);
      const auto executor = LocalExecutor::create(*checkpoint, options);
      ASSERT_TRUE(executor.ok()) << executor.error().message;
      EXPECT_EQ(cost_model::to_json((*executor)->footprint()), cost_model::to_json(*predicted));
    }
  }
}

// A dense model's MLPs in tiles, and an output head in 4 bits beside an embedding that it is tied
// to.
TEST(Footprint, DenseTilesAreAllocatedAsPredicted) {
  base::ThreadPool pool({.threads = 1});
  for (const char* name : {"llama3", "qwen3"}) {
    SCOPED_TRACE(name);
    const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + name;
    const std::string folder = testing::TempDir() + "footprint_test_dense";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(golden + "/config.json", folder + "/config.json");
    const auto source = checkpoint::Checkpoint::open(golden);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto packed =
        models::pack_model(*source, {.weights = models::WeightChoice::kInt8}, folder, pool,
                           [](std::string_view, int64_t, int64_t) { return true; });
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    const auto checkpoint = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->has("lm_head_coarse.weight"));
    for (const char* kernels : {"auto", "reference"}) {
      const LocalExecutor::Options options{.kernels = kernels,
                                           .threads = 2,
                                           .sequences_max = 3,
                                           .batch_tokens_max = 40,
                                           .context_tokens = 200,
                                           .kv_bytes = 64 * kMiB};
      const auto executor = LocalExecutor::create(*checkpoint, options);  // which CHECKs it
      ASSERT_TRUE(executor.ok()) << executor.error().message;
    }
    std::filesystem::remove_all(folder);
  }
}

TEST(Footprint, EveryLayoutOfWeightsIsForeseen) {
  const std::string folder = testing::TempDir() + "footprint_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  base::ThreadPool pool({.threads = 1});
  const auto quiet = [](int64_t, int64_t) {};
  const checkpoint::SyntheticOptions model = checkpoint::synthetic_tiny(512);
  const std::vector<std::string> models{folder + "/hf", folder + "/original", folder + "/bf16.gguf",
                                        folder + "/q8.gguf"};
  ASSERT_TRUE(checkpoint::write_synthetic(model, models[0], pool, quiet).ok());
  ASSERT_TRUE(checkpoint::write_synthetic_original(model, models[1], pool, quiet).ok());
  for (const auto& [file, type] : {std::pair(models[2], DType::kBf16), {models[3], DType::kQ8_0}}) {
    const auto written =
        checkpoint::write_synthetic_gguf(model, {.matrices = type}, file, pool, quiet);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  for (const std::string& path : models) {
    const auto checkpoint = checkpoint::Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto executor = LocalExecutor::create(
        *checkpoint, {.threads = 1, .context_tokens = 100, .kv_bytes = 64 * kMiB});
    ASSERT_TRUE(executor.ok()) << executor.error().message;  // and no CHECK failed
    EXPECT_EQ((*executor)->footprint().weights.mapped, checkpoint->weight_bytes());
    EXPECT_GT((*executor)->footprint().weights.owned, 0);
  }
  std::filesystem::remove_all(folder);
}

TEST(Footprint, FastKernelsRefuseOtherBlockSizes) {
  const auto refused = LocalExecutor::memory_request({.block_tokens = 32});
  const auto plain = LocalExecutor::memory_request({.kernels = "reference", .block_tokens = 32});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->block_tokens, 32);
  if (LocalExecutor::memory_request({})->kernels == cost_model::KernelKind::kReference) {
    GTEST_SKIP() << "this processor has no fast kernels";
  }
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--block-size 32"), std::string::npos);
}

}  // namespace
}  // namespace pelton::executor
