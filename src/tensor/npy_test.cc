#include "tensor/npy.h"

#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::tensor {
namespace {

using testing::HasSubstr;

const std::string kTiny = PELTON_SOURCE_DIR "/testdata/golden/tiny/";

std::string scratch(const std::string& name) {
  return testing::TempDir() + "npy_test_" + name;
}

Result<NpyArray> parse(std::string dictionary, size_t data_bytes, char major = 1) {
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  const auto length = static_cast<uint32_t>(dictionary.size());
  file.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  file += dictionary;
  file.append(data_bytes, '\0');
  return parse_npy({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "x.npy");
}

TEST(Npy, ReadsWhatNumpyWrote) {
  const Result<NpyArray> logits = read_npy(kTiny + "logits_exact.npy");
  ASSERT_TRUE(logits.ok()) << logits.error().message;
  EXPECT_EQ(logits->shape, (std::vector<int64_t>{160, 512}));
  EXPECT_EQ(logits->f32().size(), 160u * 512);
  const Result<NpyArray> experts = read_npy(kTiny + "experts.npy");
  ASSERT_TRUE(experts.ok()) << experts.error().message;
  EXPECT_EQ(experts->dtype, DType::kU8);
  EXPECT_EQ(experts->shape, (std::vector<int64_t>{2, 160, 2}));
}

// NumPy's files and ours are the same bytes, header included.
TEST(Npy, WritesWhatNumpyWouldWrite) {
  for (const char* name : {"logits_exact.npy", "experts.npy", "top_gap.npy", "hidden_exact.npy"}) {
    const Result<NpyArray> array = read_npy(kTiny + name);
    ASSERT_TRUE(array.ok()) << array.error().message;
    const std::string path = scratch(name);
    ASSERT_TRUE(write_npy(path, *array).ok());
    EXPECT_EQ(*base::read_file(path), *base::read_file(kTiny + name)) << name;
    std::filesystem::remove(path);
  }
}

TEST(Npy, WritesRowByRow) {
  const std::string path = scratch("rows.npy");
  {
    Result<NpyWriter> writer = NpyWriter::create(path, {3, 2});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    for (int row = 0; row < 3; ++row) {
      const float values[] = {static_cast<float>(row), 0.5f};
      ASSERT_TRUE(writer->append(values).ok());
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(writer->finish().ok());
  }
  const Result<NpyArray> array = read_npy(path);
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_THAT(array->f32(), testing::ElementsAre(0, 0.5f, 1, 0.5f, 2, 0.5f));
  std::filesystem::remove(path);
}

TEST(Npy, AnUnfinishedWriterLeavesNothing) {
  const std::string folder = scratch("unfinished");
  std::filesystem::create_directory(folder);
  { ASSERT_TRUE(NpyWriter::create(folder + "/a.npy", {4}).ok()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(Npy, ReadsScalarsEmptyArraysAndLaterVersions) {
  EXPECT_EQ(parse("{'descr': '<i8', 'fortran_order': False, 'shape': ()}", 8)->i64().size(), 1u);
  EXPECT_EQ(parse("{'descr':'<f4','fortran_order':False,'shape':(0,7),}\n", 0)->f32().size(), 0u);
  EXPECT_EQ(parse("{'descr':'|u1','fortran_order':False,'shape':(3,),}", 3, 2)->u8().size(), 3u);
}

TEST(Npy, RefusesBadFilesAndSaysWhy) {
  struct Case {
    const char* dictionary;
    size_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, "needs 8 bytes, but 7"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9, "needs 8 bytes, but 9"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", 8, "Fortran"},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", 8, "descr is none of"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 8, "descr is none of"},
      {"{'descr': '<f4', 'fortran_order': False}", 8, "needs descr"},
      {"{'descr': '<f4', 'descr': '<f4'}", 8, "repeated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 0, "2^63"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 0, "10^18"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, "whole number"},
      {"{'descr': '<f4", 8, "without an end"},
      {"", 8, "dictionary"},
      {"{}x", 8, "behind"},
  };
  for (const Case& c : cases) {
    const Result<NpyArray> array = parse(c.dictionary, c.data_bytes);
    ASSERT_FALSE(array.ok()) << c.dictionary;
    EXPECT_THAT(array.error().message, HasSubstr(c.message)) << c.dictionary;
    EXPECT_THAT(array.error().message, HasSubstr("x.npy"));
  }
}

TEST(Npy, RefusesTruncatedHeaders) {
  const std::string file = *base::read_file(kTiny + "top_gap.npy");
  for (size_t length = 0; length < file.size(); length += 3) {
    EXPECT_FALSE(parse_npy({reinterpret_cast<const uint8_t*>(file.data()), length}, "x").ok());
  }
}

}  // namespace
}  // namespace pelton::tensor
