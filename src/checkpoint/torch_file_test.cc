// Files as torch.save() writes them (tests/torch_state.py made those of testdata), and what no
// state dict has.
#include "checkpoint/torch_file.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "checkpoint/torch_pickle.h"

namespace pelton::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string file(const std::string& name) {
  return base::read_file(PELTON_SOURCE_DIR "/src/checkpoint/testdata/torch_file_fuzz/" + name,
                         size_t{1} << 20)
      .value();
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Result<std::vector<StoredTensor>> read(const std::string& name) {
  return parse_torch_file(bytes_of(file(name)), name);
}

TEST(TorchFile, TensorsLieWhereTheirStoragesDo) {
  const std::string text = file("two_tensors");
  const auto tensors = parse_torch_file(bytes_of(text), "two_tensors");
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2U);
  const StoredTensor& first = tensors->at(0);
  EXPECT_EQ(first.name, "a.weight");
  EXPECT_EQ(first.dtype, tensor::DType::kF32);
  EXPECT_THAT(first.shape, ElementsAre(2, 3));
  ASSERT_EQ(first.end - first.begin, 24U);
  EXPECT_EQ(text.substr(first.begin + 4, 4), std::string("\0\0\x80\x3f", 4));
  EXPECT_EQ(tensors->at(1).dtype, tensor::DType::kF16);
  EXPECT_EQ(text.substr(tensors->at(1).begin, 4), std::string("\0\x3c\0\x40", 4));
}

TEST(TorchFile, SeveralTensorsMayShareAStorage) {
  const auto tensors = read("one_storage");
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 3U);  // the text, the numbers and the list are left out
  EXPECT_EQ(tensors->at(0).begin + 12, tensors->at(1).begin);
  EXPECT_THAT(tensors->at(1).shape, IsEmpty());
  EXPECT_EQ(tensors->at(1).end - tensors->at(1).begin, 4U);
  EXPECT_EQ(tensors->at(2).begin, tensors->at(2).end);
}

TEST(TorchFile, WhatIsNoPlainStateDictIsRefused) {
  const auto refused = [](const std::string& name, ErrorCode code, const char* says) {
    const auto tensors = read(name);
    ASSERT_FALSE(tensors.ok()) << name;
    EXPECT_EQ(tensors.error().code, code) << name;
    EXPECT_THAT(tensors.error().message, HasSubstr(says)) << name;
  };
  refused("calls_system", ErrorCode::kUnsupported, "posix.system");
  refused("transposed", ErrorCode::kUnsupported, "in one piece");
  refused("beyond", ErrorCode::kBadCheckpoint, "beyond its storage");
  refused("compressed", ErrorCode::kUnsupported, "compressed");
  refused("pickle_alone", ErrorCode::kBadCheckpoint, "no zip archive");
}

TEST(TorchFile, CutAnywhereItIsAnError) {
  const std::string text = file("two_tensors");
  for (size_t size = 0; size < text.size(); size += 7) {
    EXPECT_FALSE(parse_torch_file(bytes_of(text.substr(0, size)), "cut").ok()) << size;
  }
}

// Each byte of a pickle that is no opcode of the list ends in an error that names it.
TEST(TorchPickle, OtherOpcodesAreNamed) {
  const std::string known = std::string("\x80.(N\x88\x89JKM\x8aX]ae)t\x85\x86\x87}suqrhjcRbQ");
  for (int byte = 0; byte < 256; ++byte) {
    const char opcode = static_cast<char>(byte);
    if (known.find(opcode) != std::string::npos) continue;
    const auto read = read_torch_pickle(bytes_of(std::string("\x80\x02", 2) + opcode), "x");
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::kUnsupported) << byte;
    EXPECT_THAT(read.error().message, HasSubstr("opcode")) << byte;
  }
}

TEST(TorchPickle, WhatGrowsIsBounded) {
  const auto says = [](const std::string& pickle) {
    const auto read = read_torch_pickle(bytes_of(pickle), "x");
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_THAT(says(std::string(kPickleValuesMax + 1, 'N')), HasSubstr("values"));
  std::string remembered = "Nq";
  remembered += '\0';
  for (size_t i = 0; i <= kPickleValuesMax; ++i) remembered += std::string("h\0", 2);
  EXPECT_THAT(says(remembered), HasSubstr("too often"));
  EXPECT_THAT(says(std::string("X\xff\xff\xff\xff", 5)), HasSubstr("too long a text"));
  EXPECT_THAT(says("c" + std::string(kPickleTextBytesMax + 1, 'a')), HasSubstr("too long a name"));
  EXPECT_THAT(says("R"), HasSubstr("empty stack"));
  EXPECT_THAT(says("t"), HasSubstr("mark"));
  EXPECT_THAT(says(std::string("\x80\x04", 2)), HasSubstr("protocol 4"));
  EXPECT_THAT(says("N."), HasSubstr("no dict"));
}

}  // namespace
}  // namespace pelton::checkpoint
