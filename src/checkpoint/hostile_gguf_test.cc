// The rows GG of docs/formats/hostile_files.md, each by its number. Some files are made up byte by
// byte; the others are a good one of the golden tiny model with one value changed.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hostile_verdict.h"

namespace pelton::checkpoint {
namespace {

const std::string kTiny = PELTON_SOURCE_DIR "/testdata/golden/tiny";

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text(std::string_view value) {
  return raw(uint64_t{value.size()}) + std::string(value);
}
std::string key(std::string_view name, GgufType type) {
  return text(name) + raw(static_cast<uint32_t>(type));
}
std::string array(std::string_view name, GgufType element, uint64_t count) {
  return key(name, GgufType::kArray) + raw(static_cast<uint32_t>(element)) + raw(count);
}
std::string front(uint64_t tensors, uint64_t keys, std::string_view magic = "GGUF",
                  uint32_t version = 3) {
  return std::string(magic) + raw(version) + raw(tensors) + raw(keys);
}
const std::string kArchitecture = key("general.architecture", GgufType::kString) + text("gpt-oss");

struct RawTensor {
  std::string name = "t";
  std::vector<uint64_t> ne = {4};
  uint32_t type = 0;
  uint64_t offset = 0;
};
std::string entry(const RawTensor& tensor) {
  std::string out = text(tensor.name) + raw(static_cast<uint32_t>(tensor.ne.size()));
  for (const uint64_t size : tensor.ne) out += raw(size);
  return out + raw(tensor.type) + raw(tensor.offset);
}

std::string good_file() {
  const Checkpoint tiny = std::move(Checkpoint::open(kTiny).value());
  const Json config = Json::parse(*base::read_file(kTiny + "/config.json")).value();
  GgufOptions options;
  for (int i = 0; i < 512; ++i) {
    options.vocabulary.tokens.push_back(fmt::format("token{}", i));
    options.vocabulary.types.push_back(1);
  }
  options.vocabulary.merges = {"a b"};
  const std::string file = testing::TempDir() + fmt::format("hostile_{}.gguf", ::getpid());
  base::ThreadPool pool({.threads = 1, .pin = false});
  const auto bytes = [&](const families::ExpectedTensor& tensor, int64_t begin,
                         std::span<uint8_t> out) {
    const auto& view = tiny.tensors().find(tensor.name)->second;
    std::memcpy(out.data(), view.bytes.data() + begin, out.size());
  };
  const Result<void> written =
      write_gguf(config, options, bytes, file, pool, [](int64_t, int64_t) {});
  CHECK(written.ok());
  std::string good = *base::read_file(file);
  std::filesystem::remove(file);
  return good;
}

class HostileGguf : public testing::Test {
 protected:
  static void SetUpTestSuite() { good_ = new std::string(good_file()); }
  static void TearDownTestSuite() { delete good_; }

  void SetUp() override {
    folder_ = testing::TempDir() + "hostile_gguf_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    file_ = folder_ + "/model.gguf";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  }
  void expect_refused(const std::string& bytes, const std::string& what,
                      ErrorCode code = ErrorCode::kBadCheckpoint) {
    write(file_, bytes);
    expect_model_refused({.model = file_, .file = file_, .what = what, .code = code});
  }
  // One tensor entry, or several, and so many bytes of data behind them.
  void expect_tensors_refused(const std::vector<RawTensor>& tensors, size_t data_bytes,
                              const std::string& what, ErrorCode code = ErrorCode::kBadCheckpoint) {
    std::string bytes = front(tensors.size(), 1) + kArchitecture;
    for (const RawTensor& tensor : tensors) bytes += entry(tensor);
    bytes.resize(gguf_padded(bytes.size()) + data_bytes, '\0');
    expect_refused(bytes, what, code);
  }

  // The good file with another value (type and payload) for a key; without the key for "".
  static std::string with(const std::string& wanted, const std::string& typed_value) {
    const GgufFile good = parsed(*good_);
    std::string entries;
    uint64_t count = 0;
    size_t end = 0;
    bool seen = false;
    const auto* const base = reinterpret_cast<const uint8_t*>(good_->data());
    for (const auto& [name, value] : good.metadata.values()) {
      const size_t value_end = static_cast<size_t>(value.bytes.data() - base) + value.bytes.size();
      end = std::max(end, value_end);
      if (name == wanted) {
        seen = true;
        if (typed_value.empty()) continue;
        entries += text(name) + typed_value;
      } else {
        entries += value.type == GgufType::kArray ? array(name, value.element_type, value.count)
                                                  : key(name, value.type);
        entries.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
      }
      ++count;
    }
    if (!seen) {
      entries += text(wanted) + typed_value;
      ++count;
    }
    const size_t data = good.tensors.front().begin;
    std::string out = front(good.tensors.size(), count) + entries;
    // The tensors' entries, without the padding behind them.
    size_t entries_end = end;
    for (const GgufTensor& tensor : good.tensors) {
      entries_end += 8 + tensor.name.size() + 4 + 8 * tensor.shape.size() + 4 + 8;
    }
    out += good_->substr(end, entries_end - end);
    out.resize(gguf_padded(out.size()), '\0');
    return out + good_->substr(data);
  }
  static std::string u32(uint32_t value) {
    return raw(static_cast<uint32_t>(GgufType::kU32)) + raw(value);
  }
  static std::string i32(int32_t value) {
    return raw(static_cast<uint32_t>(GgufType::kI32)) + raw(value);
  }
  static std::string string(std::string_view value) {
    return raw(static_cast<uint32_t>(GgufType::kString)) + text(value);
  }
  static GgufFile parsed(const std::string& bytes) {
    return std::move(parse_gguf({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                "good.gguf", [](const GgufMetadata&) -> Result<void> { return {}; })
                         .value());
  }

  std::string folder_;
  std::string file_;
  static std::string* good_;
};
std::string* HostileGguf::good_ = nullptr;

TEST_F(HostileGguf, TheGoodFileOpens) {
  write(file_, *good_);
  const Result<Checkpoint> good = Checkpoint::open(file_);
  ASSERT_TRUE(good.ok()) << good.error().message;
  write(file_, with("general.name", string("rebuilt")));
  const Result<Checkpoint> rebuilt = Checkpoint::open(file_);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().message;
}

TEST_F(HostileGguf, GG_01_AnotherMagic) {
  expect_refused(front(0, 0, "FUGG"), "does not begin with \"GGUF\"");
  expect_refused(front(0, 0, "FGUG"), "does not begin with \"GGUF\"");
  expect_refused("", "does not begin");
  expect_refused(front(0, 0, "GGUF", __builtin_bswap32(3)), "big-endian", ErrorCode::kUnsupported);
}
TEST_F(HostileGguf, GG_02_AnotherVersion) {
  for (const uint32_t version : {0u, 1u, 4u, 0x7fffffffu}) {
    expect_refused(front(0, 0, "GGUF", version), "is GGUF version", ErrorCode::kUnsupported);
  }
}
TEST_F(HostileGguf, GG_03_TheFileEndsInItsHeader) {
  const std::string whole = front(0, 0);
  for (size_t size = 4; size < whole.size(); ++size) {
    expect_refused(whole.substr(0, size), "is it truncated?");
  }
  expect_refused(whole, "general.architecture is missing");
  for (size_t size = whole.size(); size < 700; size += 13) {
    expect_refused(good_->substr(0, size), "GGUF, byte");
  }
}
TEST_F(HostileGguf, GG_04_TensorsWithoutEnd) {
  for (const uint64_t count : {uint64_t{1} << 63, UINT64_MAX, uint64_t{1} << 32}) {
    expect_refused(front(count, 1) + kArchitecture, "tensors; the limit is 200000");
  }
}
TEST_F(HostileGguf, GG_05_KeysWithoutEnd) {
  for (const uint64_t count : {uint64_t{1} << 63, UINT64_MAX}) {
    expect_refused(front(0, count) + kArchitecture, "keys; the limit is 10000");
  }
}
TEST_F(HostileGguf, GG_06_MoreKeysThanTheFileCanHold) {
  expect_refused(front(0, 1'000'000'000) + std::string(1000, '\0'), "keys; the limit is 10000");
  expect_refused(front(0, 9'000) + std::string(1000, '\0'), "keys; the limit is 10000");
}
TEST_F(HostileGguf, GG_07_KeysThatAreNoNames) {
  const std::string tail = raw(uint32_t{4}) + raw(uint32_t{1}) + std::string(64, '\0');
  expect_refused(front(0, 1) + text("") + tail, "is empty");
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 63, uint64_t{5000}}) {
    expect_refused(front(0, 1) + raw(length) + "abc" + tail, "is it truncated?");
  }
  expect_refused(front(0, 1) + text(std::string(65'536, 'k')) + tail, "the limit is 1024");
}
TEST_F(HostileGguf, GG_08_AKeyTwice) {
  expect_refused(front(0, 2) + kArchitecture + kArchitecture, "is there twice");
}
TEST_F(HostileGguf, GG_09_KeysThatAreNotText) {
  const std::string tail = raw(uint32_t{4}) + raw(uint32_t{1});
  expect_refused(front(0, 1) + text(std::string_view("a\0b", 3)) + tail, "is not plain UTF-8");
  expect_refused(front(0, 1) + text("a\xFF") + tail, "is not plain UTF-8");
}
TEST_F(HostileGguf, GG_10_TypesThatDoNotExist) {
  for (const uint32_t type : {13u, 999u, UINT32_MAX}) {
    expect_refused(front(0, 1) + text("k") + raw(type) + std::string(16, '\0'),
                   "which does not exist");
  }
  expect_refused(front(0, 1) + key("k", GgufType::kBool) + "\x07" + std::string(8, '\0'),
                 "is a bool of value 7");
  expect_refused(front(0, 1) + array("k", GgufType::kBool, 2) + "\x01\x07", "is a bool of value 7");
}
TEST_F(HostileGguf, GG_11_StringsBeyondTheFile) {
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 63, uint64_t{100}}) {
    expect_refused(front(0, 1) + key("k", GgufType::kString) + raw(length) + "short",
                   "is it truncated?");
  }
}
TEST_F(HostileGguf, GG_12_ArraysOfArrays) {
  std::string deep = front(0, 1) + key("k", GgufType::kArray);
  for (int i = 0; i < 100'000; ++i) deep += raw(uint32_t{9}) + raw(uint64_t{1});
  expect_refused(deep, "is an array of arrays");
}
TEST_F(HostileGguf, GG_13_AnArrayWhoseBytesWrap) {
  for (const uint64_t count : {uint64_t{1} << 61, (uint64_t{1} << 61) + 1, UINT64_MAX}) {
    expect_refused(front(0, 1) + array("k", GgufType::kU64, count) + std::string(8, '\0'),
                   "is it truncated?");
  }
}
TEST_F(HostileGguf, GG_14_ABillionStringsInASmallFile) {
  expect_refused(front(0, 1) + array("k", GgufType::kString, 1'000'000'000) + std::string(80, '\0'),
                 "is it truncated?");
}
// Many short strings are legal; that there are more than rows is found before they are listed.
TEST_F(HostileGguf, GG_14_MillionsOfStringsThatAreThere) {
  const uint64_t count = 4'000'000;
  expect_refused(with("tokenizer.ggml.tokens", raw(uint32_t{9}) + raw(uint32_t{8}) + raw(count) +
                                                   std::string(count * 8, '\0')),
                 "tokenizer.ggml.tokens has 4000000 entries");
}
TEST_F(HostileGguf, GG_15_AlignmentsThatAreNone) {
  const auto refused = [&](const std::string& value, const char* what) {
    expect_refused(with("general.alignment", value), what);
  };
  for (const uint32_t alignment : {0u, 3u, 1u, 1u << 31, UINT32_MAX}) {
    refused(u32(alignment), "general.alignment must be a power of two");
  }
  refused(string("32"), "general.alignment must be a whole number");
  refused(u32(4096), "no multiple of the alignment");  // the data lies at multiples of 32
}
TEST_F(HostileGguf, GG_16_TensorNamesThatAreNone) {
  expect_tensors_refused({{.name = std::string(65, 'n')}}, 64, "the limit is 64");
  expect_tensors_refused({{.name = ""}}, 64, "is empty");
  expect_tensors_refused({{.name = "t"}, {.name = "t", .offset = 32}}, 64, "is there twice");
  expect_refused(front(1, 1) + kArchitecture + raw(uint64_t{1} << 63) + std::string(64, '\0'),
                 "is it truncated?");
}
TEST_F(HostileGguf, GG_17_DimensionsWithoutEnd) {
  expect_tensors_refused({{.ne = {}}}, 64, "has 0 dimensions");
  expect_tensors_refused({{.ne = {1, 1, 1, 1, 1}}}, 64, "has 5 dimensions");
  expect_refused(
      front(1, 1) + kArchitecture + text("t") + raw(uint32_t{1} << 31) + std::string(64, '\0'),
      "dimensions");
}
TEST_F(HostileGguf, GG_18_NegativeSizes) {
  for (const uint64_t size : {UINT64_MAX, uint64_t{1} << 63, uint64_t{0}}) {
    expect_tensors_refused({{.ne = {4, size}}}, 64, "dimension 1 is");
  }
}
TEST_F(HostileGguf, GG_19_ShapesWhoseProductWraps) {
  for (const std::vector<uint64_t>& ne :
       std::vector<std::vector<uint64_t>>{{uint64_t{1} << 32, uint64_t{1} << 32},
                                          {uint64_t{1} << 62, 4},
                                          {(uint64_t{1} << 63) - 1, 2},
                                          {uint64_t{1} << 61, 1},
                                          {1 << 16, 1 << 16, 1 << 16, 1 << 16}}) {
    expect_tensors_refused({{.ne = ne}}, 64, "too many elements");
  }
  expect_tensors_refused({{.ne = {uint64_t{1} << 59}}}, 64, "reach beyond the file");
}
TEST_F(HostileGguf, GG_20_TypesOfTensorsThatDoNotExist) {
  for (const uint32_t type : {UINT32_MAX, 4u, 5u, 31u, 255u}) {
    expect_tensors_refused({{.type = type}}, 64, "removed or unknown");
  }
  expect_tensors_refused({{.ne = {256}, .type = 16}}, 256, "(IQ2_XXS)", ErrorCode::kUnsupported);
}
TEST_F(HostileGguf, GG_21_RowsThatAreNoWholeBlocks) {
  for (const uint32_t type : {8u, 39u}) {
    expect_tensors_refused({{.ne = {33, 32}, .type = type}}, 4096, "are no whole");
    expect_tensors_refused({{.ne = {16, 2}, .type = type}}, 4096, "are no whole");
  }
}
TEST_F(HostileGguf, GG_22_OffsetsThatLieElsewhere) {
  expect_tensors_refused({{.offset = 8}}, 64, "no multiple of the alignment");
  for (const uint64_t offset : {uint64_t{64}, UINT64_MAX - 31, uint64_t{1} << 63}) {
    expect_tensors_refused({{.offset = offset}}, 64, "reach beyond the file");
  }
  expect_tensors_refused({{.name = "a", .ne = {16}}, {.name = "b", .offset = 32}}, 64, "overlaps");
}
TEST_F(HostileGguf, GG_23_SizesWhoseSumWraps) {
  const uint64_t half = uint64_t{1} << 58;  // floats: 2^60 bytes
  std::vector<RawTensor> tensors;
  for (int i = 0; i < 16; ++i) {
    tensors.push_back({.name = fmt::format("t{}", i), .ne = {half}, .offset = i * half * 4});
  }
  expect_tensors_refused(tensors, 64, "reach beyond the file");
}
TEST_F(HostileGguf, GG_24_ALastByteThatIsMissing) {
  const GgufFile good = parsed(*good_);
  expect_refused(good_->substr(0, good.tensors.back().end - 1), "is it truncated?");
}
TEST_F(HostileGguf, GG_25_PartsThatDoNotBelongTogether) {
  const auto part = [&](int number) {
    return folder_ + fmt::format("/m-{:05}-of-00002.gguf", number);
  };
  const auto refused = [&](const std::string& file, const char* what,
                           ErrorCode code = ErrorCode::kBadCheckpoint) {
    expect_model_refused({.model = part(1), .file = file, .what = what, .code = code});
  };
  write(part(1), with("split.count", u32(2)));
  refused(part(2), "part 2 of 2 is missing", ErrorCode::kNotFound);
  write(part(2), *good_);  // the same tensors again
  refused(part(2), "is also in");
  const std::string other = key("general.architecture", GgufType::kString) + text("llama");
  write(part(2), front(0, 3) + other + key("split.count", GgufType::kU16) + raw(uint16_t{2}) +
                     key("split.no", GgufType::kU16) + raw(uint16_t{0}));
  refused(part(2), "split.no is 0, but by name this is part 2 of 2");
  write(part(1), with("split.count", u32(3)));
  refused(part(1), "split.count is 3, but there are 2 files by name");
  std::filesystem::rename(part(1), folder_ + "/m-00001-of-99999.gguf");
  expect_model_refused({.model = folder_ + "/m-00001-of-99999.gguf",
                        .file = "m-00001-of-99999.gguf",
                        .what = "names 99999 parts"});
}
TEST_F(HostileGguf, GG_26_KeysMissingOrOfAnotherType) {
  for (const char* name :
       {"gpt-oss.block_count", "gpt-oss.context_length", "gpt-oss.embedding_length",
        "gpt-oss.attention.head_count", "gpt-oss.attention.head_count_kv",
        "gpt-oss.attention.key_length", "gpt-oss.attention.sliding_window", "gpt-oss.expert_count",
        "gpt-oss.expert_used_count"}) {
    expect_refused(with(name, ""), fmt::format("{} is missing", name));
    expect_refused(with(name, string("4")), fmt::format("{} must be a whole number", name));
    expect_refused(with(name, raw(uint32_t{9}) + raw(uint32_t{4}) + raw(uint64_t{0})),
                   fmt::format("{} must be a whole number", name));
  }
  expect_refused(with("general.architecture", ""), "general.architecture is missing");
  expect_refused(with("general.architecture", u32(1)), "general.architecture must be a string");
  expect_refused(with("tokenizer.ggml.tokens", u32(1)), "must be an array of strings");
  expect_refused(with("gpt-oss.rope.freq_base", string("150000")), "gpt-oss.rope.freq_base");
}
TEST_F(HostileGguf, GG_27_HeadsThatCannotBe) {
  expect_refused(with("gpt-oss.attention.head_count", u32(0)), "gpt-oss.attention.head_count");
  for (const uint32_t count : {0u, 1000u}) {
    expect_refused(with("gpt-oss.attention.head_count_kv", u32(count)),
                   "gpt-oss.attention.head_count");
  }
  expect_refused(with("gpt-oss.attention.key_length", u32(0)), "gpt-oss.attention.");
}
TEST_F(HostileGguf, GG_28_SizesThatCannotBe) {
  expect_refused(with("gpt-oss.block_count", u32(1'000'000'000)), "gpt-oss.block_count");
  expect_refused(with("gpt-oss.block_count", u32(0)), "gpt-oss.block_count");
  expect_refused(with("gpt-oss.context_length", u32(1u << 31)), "gpt-oss.context_length");
  expect_refused(with("gpt-oss.embedding_length", u32(0)), "gpt-oss.embedding_length");
  expect_refused(with("gpt-oss.expert_used_count", u32(1000)), "gpt-oss.expert_used_count");
  expect_refused(with("gpt-oss.attention.sliding_window", u32(0)),
                 "gpt-oss.attention.sliding_window");
}
TEST_F(HostileGguf, GG_29_VocabularyArraysOfOtherLengths) {
  const std::string one = raw(uint32_t{9}) + raw(uint32_t{5}) + raw(uint64_t{1}) + raw(int32_t{1});
  expect_refused(with("tokenizer.ggml.token_type", one), "tokenizer.ggml.token_type has 1 entries");
  expect_refused(with("tokenizer.ggml.token_type",
                      raw(uint32_t{9}) + raw(uint32_t{6}) + raw(uint64_t{1}) + raw(1.0f)),
                 "tokenizer.ggml.token_type");
}
TEST_F(HostileGguf, GG_30_TokenIdsOutsideTheVocabulary) {
  for (const char* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.bos_token_id",
                           "tokenizer.ggml.padding_token_id"}) {
    expect_refused(with(name, u32(512)), "");
    expect_refused(with(name, i32(-1)), "");
    expect_refused(with(name, u32(UINT32_MAX)), "");
  }
}
// A template is never run: gpt-oss is rendered by the chat room. It only lies in the file.
TEST_F(HostileGguf, GG_31_TemplatesAreNotRun) {
  for (const std::string& program : {std::string("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
                                     std::string(100'000'000, '{')}) {
    write(file_, with("tokenizer.chat_template", string(program)));
    const Result<Checkpoint> checkpoint =
        opened_within_bounds(folder_, [&] { return Checkpoint::open(file_); });
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  }
}

}  // namespace
}  // namespace pelton::checkpoint
