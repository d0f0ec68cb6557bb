// The rows ST and CF of docs/formats/hostile_files.md, each by its number: a whole model folder is
// opened, and must be refused with a typed error that names the file, within a second, with little
// memory, while another model of the process stays as it is.
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/mapping_fault.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hostile_verdict.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic.h"

namespace pelton::checkpoint {
namespace {

using testing::HasSubstr;

const std::string kTiny = PELTON_SOURCE_DIR "/testdata/golden/tiny";

class Hostile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    witness_ = new Checkpoint(std::move(Checkpoint::open(kTiny).value()));
    witness_digest_ = new std::string(digest_of(*witness_));
  }
  static void TearDownTestSuite() {
    delete witness_;
    delete witness_digest_;
  }

  void SetUp() override {
    folder_ = testing::TempDir() + "hostile_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      std::filesystem::copy(kTiny + "/" + name, folder_);
    }
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    EXPECT_EQ(digest_of(*witness_), *witness_digest_);
  }

  static std::string digest_of(const Checkpoint& checkpoint) {
    base::Digest digest(base::Digest::Kind::kSha256);
    for (const auto& [name, view] : checkpoint.tensors()) {
      digest.update({reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()});
    }
    return digest.finish();
  }

  // --- the folder ---

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) { return *base::read_file(path(name)); }
  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::remove(path(name));
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  // A safetensors file of a length word, a header and zeros.
  void write_weights(uint64_t header_bytes, const std::string& rest) {
    write("model.safetensors", std::string(reinterpret_cast<const char*>(&header_bytes), 8) + rest);
  }
  void write_header(const std::string& header, size_t data_bytes) {
    write_weights(header.size(), header + std::string(data_bytes, '\0'));
  }
  // One tensor of four bytes.
  void write_entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    write_header(entry("t", dtype, shape, offsets), 4);
  }
  static std::string member(const std::string& name, const std::string& dtype,
                            const std::string& shape, const std::string& offsets) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                       offsets);
  }
  static std::string entry(const std::string& name, const std::string& dtype,
                           const std::string& shape, const std::string& offsets) {
    return "{" + member(name, dtype, shape, offsets) + "}";
  }
  void set_config(const std::string& key, const std::string& json) {
    Json config = Json::parse(read("config.json")).value();
    config.set(key, Json::parse(json).value());
    write("config.json", config.dump());
  }
  // The same model in shards with an index.
  Json make_shards() {
    std::filesystem::remove_all(folder_);
    SyntheticOptions options = synthetic_tiny(512);
    options.shard_bytes_max = 300'000;
    base::ThreadPool pool({.threads = 1, .pin = false});
    EXPECT_TRUE(write_synthetic(options, folder_, pool, [](int64_t, int64_t) {}).ok());
    EXPECT_TRUE(Checkpoint::open(folder_).ok());
    return Json::parse(read("model.safetensors.index.json")).value();
  }
  void write_shard_of(Json index, const std::string& tensor, const Json& file) {
    Json map = *index.find("weight_map");
    map.set(tensor, file);
    index.set("weight_map", map);
    write("model.safetensors.index.json", index.dump());
  }

  // --- the verdict ---

  void expect_refused(const std::string& file, const std::string& what,
                      ErrorCode code = ErrorCode::kBadCheckpoint) {
    expect_model_refused({.model = folder_,
                          .file = file.empty() ? folder_ : path(file),
                          .what = what,
                          .code = code});
  }
  void expect_weights_refused(const std::string& what) {
    expect_refused("model.safetensors", what);
  }
  void expect_config_refused(const std::string& what, ErrorCode code = ErrorCode::kBadCheckpoint) {
    expect_refused("config.json", what, code);
  }

  std::string folder_;
  static Checkpoint* witness_;
  static std::string* witness_digest_;
};
Checkpoint* Hostile::witness_ = nullptr;
std::string* Hostile::witness_digest_ = nullptr;

// --- safetensors ---------------------------------------------------------------------------------

TEST_F(Hostile, ST_01_AnEmptyFile) {
  write("model.safetensors", "");
  expect_weights_refused("has 0 bytes");
}
TEST_F(Hostile, ST_02_ShorterThanTheLengthWord) {
  write("model.safetensors", "1234567");
  expect_weights_refused("has 7 bytes");
}
TEST_F(Hostile, ST_03_AHeaderOfNoBytes) {
  write_weights(0, "");
  expect_weights_refused("expected '{'");
}
TEST_F(Hostile, ST_04_AHeaderLengthThatWraps) {
  for (const uint64_t length : {UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63}) {
    write_weights(length, "{}");
    expect_weights_refused("limit is 100000000");
  }
}
TEST_F(Hostile, ST_05_AHeaderAboveTheLimit) {
  write_weights(100'000'001, "{}");
  std::filesystem::resize_file(path("model.safetensors"), 200'000'000);  // sparse
  expect_weights_refused("limit is 100000000");
}
TEST_F(Hostile, ST_06_AHeaderBeyondTheFile) {
  write_weights(3, "{}");
  expect_weights_refused("truncated");
}
TEST_F(Hostile, ST_07_AHeaderThatIsNotUtf8) {
  write_header("{\"\xFF\":1}", 0);
  expect_weights_refused("not UTF-8");
}
TEST_F(Hostile, ST_08_AHeaderThatIsNoObject) {
  for (const char* header : {"[]", "3", "null", "{\"a\":{\"dtype\":\"F32\"", "{\"a", "{\"a\\"}) {
    write_header(header, 0);
    expect_weights_refused("safetensors header, byte");
  }
}
// Spaces may stand on both sides, as in the reference library; then the model opens.
TEST_F(Hostile, ST_09_SpacesAroundTheHeaderAreLegal) {
  const std::string file = read("model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  const std::string header = file.substr(8, header_bytes);
  write_weights(header_bytes + 8, "  \r\n" + header + " \t\r\n" + file.substr(8 + header_bytes));
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(digest_of(*checkpoint), *witness_digest_);
}
TEST_F(Hostile, ST_10_SomethingBeforeTheHeader) {
  write_header("\xEF\xBB\xBF{}", 0);
  expect_weights_refused("expected '{'");
  write_header("x{}", 0);
  expect_weights_refused("expected '{'");
}
TEST_F(Hostile, ST_11_ATensorTwice) {
  write_header(
      "{" + member("t", "U8", "[1]", "[0,1]") + "," + member("t", "U8", "[1]", "[1,2]") + "}", 2);
  expect_weights_refused("tensor \"t\" is there twice");
}
TEST_F(Hostile, ST_12_MetadataThatIsNotTexts) {
  std::string deep = "{\"__metadata__\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  write_header(deep, 0);
  expect_weights_refused("expected a string");
  write_header("{\"__metadata__\":{\"a\":1}}", 0);
  expect_weights_refused("expected a string");
}
TEST_F(Hostile, ST_13_MetadataOf99Megabytes) {
  write_header(fmt::format(R"({{"__metadata__":{{"a":"{}"}}}})", std::string(99'000'000, 'x')), 0);
  expect_refused("", "is missing");  // read in bounded time and memory; the tensors are not there
}
TEST_F(Hostile, ST_14_OffsetsThatAreNone) {
  for (const char* offsets :
       {"[4,0]", "[-1,4]", "[0,1.5]", "[0,\"8\"]", "[0,18446744073709551616]",
        "[0,9223372036854775808]", "[0,9223372036854775807]", "[0]", "[0,2,4]", "{}"}) {
    write_entry("U8", "[4]", offsets);
    expect_weights_refused("");
  }
}
TEST_F(Hostile, ST_15_AMillionTensorsOnFourBytes) {
  std::string header = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},)", i);
  }
  header.back() = '}';
  write_header(header, 4);
  expect_weights_refused("more than 200000 tensors");
  header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},)", i);
  }
  header.back() = '}';
  write_header(header, 4);
  expect_weights_refused("overlap");
}
TEST_F(Hostile, ST_16_AGapBetweenTensors) {
  write_header(
      "{" + member("a", "U8", "[2]", "[0,2]") + "," + member("b", "U8", "[2]", "[3,5]") + "}", 5);
  expect_weights_refused("gap");
}
TEST_F(Hostile, ST_17_AByteBehindTheLastTensor) {
  write("model.safetensors", read("model.safetensors") + "x");
  expect_weights_refused("the tensors end at");
}
TEST_F(Hostile, ST_18_AShapeWhoseProductWraps) {
  for (const char* shape : {"[4294967296,4294967296]", "[2305843009213693952]",
                            "[4611686018427387904,4]", "[65536,65536,65536,65536]"}) {
    write_entry("F32", shape, "[0,4]");
    expect_weights_refused("more than 2^63");
  }
}
TEST_F(Hostile, ST_19_AShapeThatIsNotTheBytes) {
  for (const char* shape : {"[3]", "[5]", "[4,0]", "[]"}) {
    write_entry("U8", shape, "[0,4]");
    expect_weights_refused("needs");
  }
}
TEST_F(Hostile, ST_20_ATypeThatIsNone) {
  for (const char* dtype : {"F33", "", "f32", "F4", "F6_E2M3"}) {  // F4: half a byte each
    write_entry(dtype, "[3]", "[0,4]");
    expect_weights_refused("dtype");
  }
}
TEST_F(Hostile, ST_21_DimensionsWithoutEnd) {
  write_entry("U8", fmt::format("[{}]", fmt::join(std::vector<int>(100'000, 1), ",")), "[0,4]");
  expect_weights_refused("more than 8 entries");
  write_header(entry("t", "F32", "[0,4294967296]", "[0,0]"), 0);  // legal, but not in this model
  expect_refused("", "is missing");
}
TEST_F(Hostile, ST_22_NamesThatAreNone) {
  write_header(entry("", "U8", "[4]", "[0,4]"), 4);
  expect_weights_refused("without a name");
  write_header(entry(std::string(1 << 20, 'n'), "U8", "[4]", "[0,4]"), 4);
  expect_weights_refused("the limit is 1024");
  for (const char* name : {"\\u0000", "a\\nb", "\\u001b[31m", "../../x"}) {
    write_header(entry(name, "U8", "[3]", "[0,4]"), 4);
    expect_weights_refused("tensor \"");
    const std::string message = Checkpoint::open(folder_).error().message;
    EXPECT_EQ(message.find_first_of(std::string("\0\n\x1b", 3)), std::string::npos) << name;
  }
}
// The file is mapped: the process ends with a sentence and the exit code that the entry asked for.
TEST_F(Hostile, ST_23_AFileCutAfterItWasMapped) {
  const auto read_cut_file = [&] {
    base::end_on_mapping_fault(4);
    const Checkpoint checkpoint = std::move(Checkpoint::open(folder_).value());
    ::truncate(path("model.safetensors").c_str(), 4096);
    digest_of(checkpoint);
    ::_exit(0);
  };
  EXPECT_EXIT(read_cut_file(), testing::ExitedWithCode(4),
              "model.safetensors: became unreadable while it was in use");
}
// ST-24 and ST-26, what the numbers say: executor/hostile_test.cc. Here, a scales tensor too short.
TEST_F(Hostile, ST_25_TensorsOfAnotherModel) {
  set_config("vocab_size", "513");
  expect_refused("model.safetensors", "tensor \"model.embed_tokens.weight\": expected");
  set_config("vocab_size", "512");
  set_config("num_hidden_layers", "3");
  set_config("layer_types", "null");
  expect_refused("", "tensor \"model.layers.2.input_layernorm.weight\" is missing");
  set_config("num_hidden_layers", "1");
  expect_refused("model.safetensors", "has no place in a GptOssForCausalLM of 1 layers");
}
TEST_F(Hostile, ST_26_ScalesARowShort) {
  std::string file = read("model.safetensors");
  const auto tensors =
      parse_safetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "x");
  const std::string name = "model.layers.0.mlp.experts.down_proj_scales";
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  // Everything is written anew with the scales' second dimension one less.
  std::string header = "{";
  std::string data;
  for (const StoredTensor& tensor : *tensors) {
    std::vector<int64_t> shape = tensor.shape;
    std::string bytes = file.substr(tensor.begin, tensor.end - tensor.begin);
    if (tensor.name == name) {
      bytes.resize(bytes.size() - bytes.size() / static_cast<size_t>(shape[1]));
      --shape[1];
    }
    header += member(tensor.name, std::string(tensor::dtype_name(tensor.dtype)),
                     fmt::format("[{}]", fmt::join(shape, ",")),
                     fmt::format("[{},{}]", data.size(), data.size() + bytes.size())) +
              ",";
    data += bytes;
  }
  header.back() = '}';
  write_weights(header.size(), header + data);
  expect_weights_refused("tensor \"" + name + "\": expected");
}

// --- configuration and index ---------------------------------------------------------------------

TEST_F(Hostile, CF_01_AConfigurationThatIsNone) {
  std::filesystem::remove(path("config.json"));
  expect_config_refused("", ErrorCode::kNotFound);
  for (const char* text : {"", "{", "[]", "{\"rope_theta\": 1e400}", "\xFF"}) {
    write("config.json", text);
    expect_config_refused("");
  }
  std::string twice = *base::read_file(kTiny + "/config.json");
  twice.insert(1, "\"hidden_size\": 128, ");
  write("config.json", twice);
  expect_config_refused("\"hidden_size\" is there twice");
  write("config.json", std::string(100'000, '['));
  expect_config_refused("");
}
TEST_F(Hostile, CF_02_AnArchitectureThatWeDoNotKnow) {
  for (const char* architectures : {"[]", "[\"LlamaForCausalLM\"]", "null"}) {
    set_config("architectures", architectures);
    expect_config_refused("supported: GptOssForCausalLM (gpt_oss)", ErrorCode::kUnsupported);
  }
  set_config("architectures", "[\"GptOssForCausalLM\"]");
  set_config("model_type", "\"llama\"");
  expect_config_refused("\"llama\"", ErrorCode::kUnsupported);
}
TEST_F(Hostile, CF_03_AVocabularyThatIsNotTheEmbeddings) {
  for (const char* size : {"511", "513", "201088"}) {
    set_config("vocab_size", size);
    set_config("eos_token_id", "1");
    set_config("pad_token_id", "1");
    write("generation_config.json", "{}");
    expect_weights_refused("from config.json, found BF16 [512, 128]");
  }
}
TEST_F(Hostile, CF_04_SizesThatCannotBe) {
  const std::string good = read("config.json");
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, const char*>>{{"hidden_size", "2147483648"},
                                                        {"hidden_size", "0"},
                                                        {"num_hidden_layers", "0"},
                                                        {"num_hidden_layers", "1000000000"},
                                                        {"head_dim", "63"},
                                                        {"head_dim", "0"},
                                                        {"num_attention_heads", "0"},
                                                        {"num_key_value_heads", "0"},
                                                        {"intermediate_size", "-1"}}) {
    write("config.json", good);
    set_config(key, value);
    expect_config_refused(key);
  }
}
TEST_F(Hostile, CF_05_CustomCodeIsIgnored) {
  set_config("auto_map", R"({"AutoModelForCausalLM":"evil.py--Model"})");
  write("evil.py", "raise SystemExit");
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(digest_of(*checkpoint), *witness_digest_);
}
TEST_F(Hostile, CF_06_RopeThatIsNone) {
  for (const char* rope :
       {R"({"rope_type":"yarn","factor":0})", R"({"rope_type":"yarn","factor":-1})",
        R"({"rope_type":"yarn","factor":"NaN"})", R"({"rope_type":"yarn"})"}) {
    set_config("rope_scaling", rope);
    expect_config_refused("rope_scaling");
  }
  write("config.json", "{\"rope_scaling\": {\"factor\": NaN}}");
  expect_config_refused("");
  std::filesystem::remove(path("config.json"));
  std::filesystem::copy(kTiny + "/config.json", folder_);
  set_config("rope_scaling", R"({"rope_type":"spiral","factor":2})");
  expect_config_refused("\"spiral\"", ErrorCode::kUnsupported);
}
TEST_F(Hostile, CF_07_StopTokensOutsideTheVocabulary) {
  for (const char* tokens : {"[1, 512]", "-1", "[2147483648]", "\"a\"", "[[1]]"}) {
    set_config("eos_token_id", tokens);
    expect_config_refused("eos_token_id");
  }
}
TEST_F(Hostile, CF_08_WindowsThatCannotBe) {
  const std::string good = read("config.json");
  for (const char* window : {"0", "-1", "1e30"}) {
    set_config("sliding_window", window);
    expect_config_refused("sliding_window");
  }
  write("config.json", good);
  set_config("layer_types", "[\"sliding_attention\"]");
  expect_config_refused("has 1 entries, but num_hidden_layers is 2");
}
TEST_F(Hostile, CF_09_AQuantizationThatWeDoNotKnow) {
  for (const char* method : {R"({"quant_method":"awq"})", R"({"quant_method":3})", "[]",
                             R"({"quant_method":"mxfp4","group_size":64})"}) {
    set_config("quantization_config", method);
    expect_config_refused("quantization_config", ErrorCode::kUnsupported);
  }
}
TEST_F(Hostile, CF_10_ExpertsThatCannotBe) {
  for (const char* count : {"0", "-1", "1000"}) {
    set_config("num_experts_per_tok", count);
    set_config("experts_per_token", count);
    expect_config_refused("experts_per_tok");
  }
}
// Sampling defaults are the caller's here; those of the file are never used, checked or not.
TEST_F(Hostile, CF_11_GenerationDefaultsAreNotUsed) {
  write("generation_config.json", R"({"temperature": -1, "top_p": 7, "top_k": -5})");
  EXPECT_TRUE(Checkpoint::open(folder_).ok());
  write("generation_config.json", R"({"eos_token_id": [513]})");
  expect_refused("config.json (with generation_config.json)", "eos_token_id");
  write("generation_config.json", "{");
  expect_refused("generation_config.json", "");
}
TEST_F(Hostile, CF_12_AnIndexThatLies) {
  const Json index = make_shards();
  const std::string file = *index.find("weight_map")->string("lm_head.weight");
  write_shard_of(index, "lm_head.weight", "model-00099-of-00099.safetensors");
  expect_refused("model-00099-of-00099.safetensors", "", ErrorCode::kNotFound);
  write_shard_of(index, "more.weight", file);
  expect_refused("model.safetensors.index.json", "but it is in no shard");
  Json lies = index;
  lies.set("metadata", Json::parse(R"({"total_size": 5})").value());
  write("model.safetensors.index.json", lies.dump());
  expect_refused("model.safetensors.index.json", "total_size is 5");
}
TEST_F(Hostile, CF_13_AnIndexThatLeadsElsewhere) {
  const Json index = make_shards();
  for (const char* file : {"../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b.safetensors"}) {
    write_shard_of(index, "lm_head.weight", file);
    expect_refused("model.safetensors.index.json", "must be the name of a file in the same folder");
  }
  // A link may lead out of the folder (the hub's cache is made of such), but what it leads to is
  // read as safetensors and nothing else.
  std::filesystem::create_symlink("/etc/passwd", path("link.safetensors"));
  write_shard_of(index, "lm_head.weight", "link.safetensors");
  expect_refused("link.safetensors", "");
}
TEST_F(Hostile, CF_14_AShardThatIsNoFile) {
  const Json index = make_shards();
  const std::string shard = *index.find("weight_map")->string("lm_head.weight");
  std::filesystem::remove(path(shard));
  ASSERT_EQ(::mkfifo(path(shard).c_str(), 0600), 0);
  expect_refused(shard, "is not a regular file");
  std::filesystem::remove(path(shard));
  std::filesystem::create_directory(path(shard));
  expect_refused(shard, "is not a regular file");
  for (const char* target : {"/dev/zero", "/proc/self/mem"}) {
    std::filesystem::remove(path(shard));
    std::filesystem::create_symlink(target, path(shard));
    expect_refused(shard, "");
  }
  std::filesystem::remove(path("config.json"));
  ASSERT_EQ(::mkfifo(path("config.json").c_str(), 0600), 0);
  const Result<Checkpoint> piped = Checkpoint::open(folder_);
  ASSERT_FALSE(piped.ok());
  EXPECT_THAT(piped.error().message, HasSubstr("is not a regular file"));
}
// A disk that fails below a mapping is ST-23. A folder that goes away while it is opened:
TEST_F(Hostile, CF_15_AFolderThatIsGone) {
  make_shards();
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() == ".safetensors") std::filesystem::remove(entry.path());
  }
  expect_refused("", "there is no such file", ErrorCode::kNotFound);
  std::filesystem::remove_all(folder_);
  const Result<Checkpoint> gone = Checkpoint::open(folder_);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace pelton::checkpoint
