// Rows of the hardening plan by number (ST-xx) where a test covers one.
#include "checkpoint/safetensors.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::checkpoint {
namespace {

using testing::HasSubstr;
using Tensors = Result<std::vector<StoredTensor>>;

Tensors parse_bytes(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "x.st");
}

std::string file_of(uint64_t header_bytes, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&header_bytes), 8) + rest;
}

Tensors parse(const std::string& header, size_t data_bytes) {
  return parse_bytes(file_of(header.size(), header + std::string(data_bytes, '\0')));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

// A header of these members.
std::string object(const std::vector<std::string>& members) {
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

void expect_refused(const Tensors& tensors, const std::string& message) {
  ASSERT_FALSE(tensors.ok()) << message;
  EXPECT_EQ(tensors.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_THAT(tensors.error().message, HasSubstr(message));
  EXPECT_THAT(tensors.error().message, HasSubstr("x.st"));
  EXPECT_LT(tensors.error().message.size(), 600u);
}

// One tensor, four bytes.
void expect_entry_refused(const std::string& dtype, const std::string& shape,
                          const std::string& offsets, const std::string& message) {
  expect_refused(parse(object({entry("t", dtype, shape, offsets)}), 4), message);
}

TEST(Safetensors, ReadsTheGoldenTinyFile) {
  const std::string file =
      *base::read_file(PELTON_SOURCE_DIR "/testdata/golden/tiny/model.safetensors");
  const Tensors tensors = parse_bytes(file);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_EQ(tensors->size(), 41u);
  EXPECT_EQ(tensors->front().name, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(tensors->back().end, file.size());
}

// The plan is what the reader finds; the golden file's header was written by another program.
TEST(Safetensors, WritesTheHeaderThatItReads) {
  const std::string file =
      *base::read_file(PELTON_SOURCE_DIR "/testdata/golden/tiny/model.safetensors");
  const Tensors tensors = parse_bytes(file);
  ASSERT_TRUE(tensors.ok());
  std::vector<PlannedTensor> plan;
  for (const StoredTensor& tensor : *tensors) {
    plan.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const std::string header = safetensors_header(plan);
  EXPECT_EQ(header, file.substr(0, header.size()));
}

TEST(Safetensors, RefusesFilesWithoutAWholeHeader) {
  expect_refused(parse_bytes(""), "has 0 bytes");                                // ST-01
  expect_refused(parse_bytes("1234567"), "has 7 bytes");                         // ST-02
  expect_refused(parse("", 0), "expected '{'");                                  // ST-03
  expect_refused(parse_bytes(file_of(UINT64_MAX, "{}")), "limit is 100000000");  // ST-04
  expect_refused(parse_bytes(file_of(uint64_t{1} << 63, "{}")), "limit is 100000000");
  expect_refused(parse_bytes(file_of(100'000'001, "{}")), "limit is 100000000");  // ST-05
  expect_refused(parse_bytes(file_of(3, "{}")), "truncated");                     // ST-06
}

TEST(Safetensors, RefusesHeadersThatAreNoObjectOfTensors) {
  expect_refused(parse("{\"\xFF\":1}", 0), "not UTF-8");  // ST-07
  expect_refused(parse("[]", 0), "expected '{'");         // ST-08
  expect_refused(parse("3", 0), "expected '{'");
  expect_refused(parse("null", 0), "expected '{'");
  expect_refused(parse("{\"a\":{\"dtype\":\"F32\"", 0), "found the header's end");
  expect_refused(parse("{\"a", 0), "end of a string");
  expect_refused(parse("{\"a\\", 0), "end of a string");
  expect_refused(parse("{}{}", 0), "end of the header");
  expect_refused(parse("\xEF\xBB\xBF{}", 0), "expected '{'");  // ST-10
}

// ST-09: spaces may stand on both sides, as in the reference library.
TEST(Safetensors, AcceptsSpacesAroundTheHeader) {
  EXPECT_TRUE(parse("{} \r\n\t ", 0).ok());
  EXPECT_TRUE(parse("  {}", 0).ok());
  EXPECT_FALSE(parse(std::string("{}\0", 3), 0).ok());
}

TEST(Safetensors, RefusesDuplicates) {
  expect_refused(
      parse(object({entry("t", "U8", "[1]", "[0,1]"), entry("t", "U8", "[1]", "[1,2]")}), 2),
      "tensor \"t\" is there twice");  // ST-11
  expect_refused(parse("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0),
                 "\"dtype\" is there twice");
  expect_refused(parse("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "twice");
}

TEST(Safetensors, RefusesMetadataThatIsNotTexts) {
  std::string deep = "{\"__metadata__\":";  // ST-12
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  expect_refused(parse(deep, 0), "expected a string");
  expect_refused(parse("{\"__metadata__\":{\"a\":1}}", 0), "expected a string");
  expect_refused(parse("{\"__metadata__\":[]}", 0), "expected '{'");
}

TEST(Safetensors, AcceptsLargeMetadata) {  // ST-13, with 9 MB
  const std::string text(9'000'000, 'x');
  EXPECT_TRUE(parse(fmt::format(R"({{"__metadata__":{{"a":"{}"}}}})", text), 0).ok());
}

TEST(Safetensors, RefusesWrongOffsets) {  // ST-14
  expect_entry_refused("U8", "[4]", "[4,0]", "end before they begin");
  expect_entry_refused("U8", "[4]", "[-1,4]", "whole number");
  expect_entry_refused("U8", "[4]", "[0,4.5]", "whole number");
  expect_entry_refused("U8", "[4]", "[0,4e0]", "whole number");
  expect_entry_refused("U8", "[4]", "[0,\"4\"]", "whole number");
  expect_entry_refused("U8", "[4]", "[0,18446744073709551616]", "2^63");
  expect_entry_refused("U8", "[4]", "[0,9223372036854775808]", "2^63");
  expect_entry_refused("U8", "[4]", "[0,9223372036854775807]", "reach beyond the file");
  expect_entry_refused("U8", "[4]", "[0]", "[begin, end]");
  expect_entry_refused("U8", "[4]", "[00,4]", "whole number");
  expect_entry_refused("U8", "[5]", "[0,5]", "is it truncated?");
}

TEST(Safetensors, RefusesOverlapsGapsAndTrailingBytes) {
  std::vector<std::string> many;  // ST-15, a fiftieth of it
  for (int i = 0; i < 20'000; ++i) many.push_back(entry(std::to_string(i), "U8", "[4]", "[0,4]"));
  expect_refused(parse(object(many), 4), "overlap");
  const std::string a = entry("a", "U8", "[2]", "[0,2]");
  expect_refused(parse(object({a, entry("b", "U8", "[2]", "[1,3]")}), 3), "overlap");
  expect_refused(parse(object({a, entry("b", "U8", "[2]", "[3,5]")}), 5), "gap");  // ST-16
  expect_refused(parse(object({entry("b", "U8", "[2]", "[1,3]")}), 3), "gap");
  expect_refused(parse(object({a}), 3), "the tensors end at 2");  // ST-17
  expect_refused(parse("{}", 1), "the tensors end at 0");
}

TEST(Safetensors, RefusesShapesThatAreNotTheBytes) {
  expect_entry_refused("F32", "[4294967296,4294967296]", "[0,4]", "more than 2^63");  // ST-18
  expect_entry_refused("F32", "[2305843009213693952]", "[0,4]", "more than 2^63");
  expect_entry_refused("U8", "[3]", "[0,4]", "needs 3 bytes");  // ST-19
  expect_entry_refused("U8", "[5]", "[0,4]", "needs 5 bytes");
  expect_entry_refused("F33", "[1]", "[0,4]", "unknown dtype \"F33\"");                // ST-20
  expect_entry_refused("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", "more than 8 entries");  // ST-21
  expect_entry_refused("F32", "[-1]", "[0,4]", "whole number");
}

TEST(Safetensors, AcceptsScalarsAndEmptyTensors) {  // ST-21
  const Tensors tensors = parse(object({entry("e", "F32", "[0,4294967296,4294967296]", "[0,0]"),
                                        entry("s", "F32", "[]", "[0,4]")}),
                                4);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_EQ(tensors->size(), 2u);
}

TEST(Safetensors, RefusesNamesWithoutEndAndEscapesOthersInMessages) {  // ST-22
  expect_refused(parse(object({entry("", "U8", "[4]", "[0,4]")}), 4), "without a name");
  const std::string long_name(1 << 20, 'n');
  expect_refused(parse(object({entry(long_name, "U8", "[4]", "[0,4]")}), 4), "the limit is 1024");
  const Tensors escape = parse(object({entry("\\u001b[31m\\n", "U8", "[3]", "[0,4]")}), 4);
  expect_refused(escape, "\\u001b[31m\\n");
  EXPECT_EQ(escape.error().message.find('\x1b'), std::string::npos);
  expect_refused(parse("{\"a\nb\":{}}", 0), "no control character");
  expect_refused(parse("{\"\\uZZZZ\":{}}", 0), "wrong escape");
}

TEST(Safetensors, RefusesUnknownAndMissingFields) {
  expect_refused(parse("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0), "needs dtype");
  expect_refused(parse("{\"t\":{\"stride\":[1]}}", 0), "unknown field \"stride\"");
  expect_refused(parse("{\"t\":{}}", 0), "expected a string");
}

}  // namespace
}  // namespace pelton::checkpoint
