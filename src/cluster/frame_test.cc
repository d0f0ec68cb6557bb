#include "cluster/frame.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

struct Kept {
  FrameType type;
  uint8_t flags;
  uint16_t choice;
  std::string payload;
  friend bool operator==(const Kept&, const Kept&) = default;
};

std::vector<Kept> read_all(FrameReader& reader) {
  std::vector<Kept> kept;
  for (;;) {
    const Result<std::optional<Frame>> frame = reader.next();
    EXPECT_TRUE(frame.ok());
    if (!frame.ok() || !*frame) return kept;
    kept.push_back(
        {(*frame)->type, (*frame)->flags, (*frame)->choice, std::string((*frame)->payload)});
  }
}

TEST(Frame, ComesBackHoweverItsBytesAreCut) {
  std::string wire;
  append_frame(wire, {.type = FrameType::kHead, .flags = Frame::kMore, .payload = "{}"});
  append_frame(wire, {.type = FrameType::kTokens, .choice = 517, .payload = std::string(300, 'x')});
  append_frame(wire, {.type = FrameType::kBytes, .flags = Frame::kLast, .payload = ""});
  const std::vector<Kept> whole = {{FrameType::kHead, Frame::kMore, 0, "{}"},
                                   {FrameType::kTokens, 0, 517, std::string(300, 'x')},
                                   {FrameType::kBytes, Frame::kLast, 0, ""}};
  for (size_t step = 1; step <= wire.size(); ++step) {
    FrameReader reader;
    std::vector<Kept> kept;
    for (size_t at = 0; at < wire.size(); at += step) {
      reader.push(std::string_view(wire).substr(at, step));
      for (Kept& one : read_all(reader)) kept.push_back(std::move(one));
    }
    EXPECT_EQ(kept, whole) << step;
    EXPECT_EQ(reader.left(), 0u);
  }
}

TEST(Frame, OneThatIsTooLongIsRefusedBeforeItComes) {
  std::string wire;
  append_frame(wire, {.type = FrameType::kBytes, .payload = std::string(100, 'x')});
  FrameReader reader(99);
  reader.push(std::string_view(wire).substr(0, kFrameHeaderBytes));
  EXPECT_EQ(reader.next().error().code, ErrorCode::kInvalidArgument);
}

TEST(Frame, UnknownTypesAreSkippedIfTheySayThatTheyMayBe) {
  std::string wire;
  append_frame(wire,
               {.type = static_cast<FrameType>(200), .flags = Frame::kOptional, .payload = "?"});
  append_frame(wire, {.type = FrameType::kBytes, .payload = "a"});
  append_frame(wire, {.type = static_cast<FrameType>(201), .payload = "?"});
  FrameReader reader;
  reader.push(wire);
  EXPECT_EQ((*reader.next())->payload, "a");
  EXPECT_FALSE(reader.next().ok());
}

}  // namespace
}  // namespace pelton::cluster
