#include "net/multipart_form.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::net {
namespace {

constexpr std::string_view kType = "multipart/form-data; boundary=XX";

std::string part(std::string_view disposition, std::string_view content) {
  return std::string("--XX\r\nContent-Disposition: ")
      .append(disposition)
      .append("\r\nContent-Type: text/plain\r\n\r\n")
      .append(content)
      .append("\r\n");
}

TEST(MultipartForm, GivesPartsInTheirOrder) {
  const std::string body =
      part("form-data; name=\"purpose\"", "batch") +
      part("form-data; name=\"file\"; filename=\"a \\\"b\\\".jsonl\"", "{}\r\n--X\r\n{}\n") +
      part("form-data; name=empty", "") + "--XX--\r\n";
  const auto parts = parse_form(kType, body);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ(parts->at(0).name, "purpose");
  EXPECT_EQ(parts->at(0).content, "batch");
  EXPECT_FALSE(parts->at(0).file_name.has_value());
  EXPECT_EQ(parts->at(1).file_name, "a \"b\".jsonl");
  EXPECT_EQ(parts->at(1).content, "{}\r\n--X\r\n{}\n");
  EXPECT_EQ(parts->at(2).name, "empty");
  EXPECT_EQ(parts->at(2).content, "");
}

TEST(MultipartForm, TakesAQuotedBoundaryAndAPreamble) {
  const std::string body = "ignored\r\n" + part("form-data; name=\"a\"", "1") + "--XX--";
  const auto parts = parse_form("Multipart/Form-Data; charset=utf-8; boundary=\"XX\"", body);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_EQ(parts->at(0).content, "1");
}

TEST(MultipartForm, RefusesWhatIsNone) {
  const auto refused = [](std::string_view type, const std::string& body) {
    const auto parts = parse_form(type, body);
    return parts.ok() ? std::string("accepted") : parts.error().message;
  };
  const auto says = [&](std::string_view type, const std::string& body, std::string_view what) {
    const std::string message = refused(type, body);
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  says("application/json", "{}", "not multipart/form-data");
  says("multipart/form-data", "--XX--", "no boundary");
  says("multipart/form-data; boundary=" + std::string(71, 'a'), "", "no boundary");
  says(kType, "", "does not occur");
  says(kType, "--XXY\r\n", "line of its own");
  says(kType, "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1", "does not end");
  says(kType, "--XX\r\n" + std::string(kFormPartHeaderBytesMax, 'a'), "within 4096 bytes");
  says(kType, part("form-data", "1") + "--XX--", "no name");
  says(kType, part("attachment; name=\"a\"", "1") + "--XX--", "not form-data");
  says(kType, "--XX\r\nContent-Type: text/plain\r\n\r\n1\r\n--XX--", "no Content-Disposition");
  std::string many;
  for (size_t i = 0; i <= kFormPartsMax; ++i) many += part("form-data; name=\"a\"", "1");
  says(kType, many + "--XX--", "more than 32 parts");
}

}  // namespace
}  // namespace pelton::net
