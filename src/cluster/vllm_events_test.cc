#include "cluster/vllm_events.h"

#include <gtest/gtest.h>
#include <msgpuck.h>

#include "cluster/vllm_packing.h"

namespace pelton::cluster {
namespace {

// One block of four tokens behind another one, as an array and as a map.
std::string stored_array(Packer p = {}) {
  return p.array(10)
      .text("BlockStored")
      .array(1)
      .number(7)
      .number(5)
      .tokens({1, 2, 3, 4})
      .number(4)
      .nil()
      .text("GPU")
      .nil()
      .nil()
      .number(0)
      .bytes();
}
std::string stored_map(Packer p = {}) {
  return p.map(6)
      .text("type")
      .text("BlockStored")
      .text("block_hashes")
      .array(1)
      .number(7)
      .text("parent_block_hash")
      .number(5)
      .text("token_ids")
      .tokens({1, 2, 3, 4})
      .text("block_size")
      .number(4)
      .text("something_new")
      .map(1)
      .text("a")
      .nil()
      .bytes();
}

std::string in_array(const std::string& event) {
  return Packer().array(3).real(1.5).array(1).raw(event).number(0).bytes();
}
std::string in_map(const std::string& event) {
  return Packer().map(2).text("ts").real(1.5).text("events").array(1).raw(event).bytes();
}

TEST(VllmEvents, ArraysAndMapsSayTheSameOutsideAndInside) {
  for (const std::string& event : {stored_array(), stored_map()}) {
    for (const std::string& batch : {in_array(event), in_map(event)}) {
      const auto events = parse_vllm_batch(batch);
      ASSERT_TRUE(events.ok()) << events.error().message;
      ASSERT_EQ(events->size(), 1u);
      const VllmEvent& one = events->front();
      EXPECT_EQ(one.kind, VllmEvent::Kind::kStored);
      EXPECT_EQ(one.hashes, std::vector<uint64_t>{7});
      EXPECT_EQ(one.parent, 5u);
      EXPECT_EQ(one.tokens, (std::vector<TokenId>{1, 2, 3, 4}));
      EXPECT_EQ(one.block_tokens, 4);
      EXPECT_FALSE(one.is_special);
    }
  }
}

TEST(VllmEvents, OlderOnesAreShorterAndHashesMayBeBytes) {
  const auto events = parse_vllm_batch(Packer()
                                           .array(2)
                                           .real(1)
                                           .array(4)
                                           .array(5)
                                           .text("BlockStored")
                                           .array(2)
                                           .binary("aaaa")
                                           .binary("bbbb")
                                           .nil()
                                           .tokens({1, 2})
                                           .number(1)
                                           .array(2)
                                           .text("BlockRemoved")
                                           .array(1)
                                           .binary("aaaa")
                                           .array(1)
                                           .text("AllBlocksCleared")
                                           .array(2)
                                           .text("SomethingNew")
                                           .number(3)
                                           .bytes());
  ASSERT_TRUE(events.ok()) << events.error().message;
  ASSERT_EQ(events->size(), 3u) << "what nobody knows is passed over";
  EXPECT_FALSE((*events)[0].parent);
  EXPECT_EQ((*events)[0].hashes.size(), 2u);
  EXPECT_EQ((*events)[1].kind, VllmEvent::Kind::kRemoved);
  EXPECT_EQ((*events)[1].hashes.front(), (*events)[0].hashes.front());
  EXPECT_EQ((*events)[2].kind, VllmEvent::Kind::kCleared);
}

TEST(VllmEvents, WhatHoldsMoreThanTokensOrLiesElsewhereIsSpecial) {
  const auto stored = [](const std::string& lora, const std::string& medium,
                         const std::string& extra) {
    const auto events = parse_vllm_batch(in_array(Packer()
                                                      .array(9)
                                                      .text("BlockStored")
                                                      .array(1)
                                                      .number(7)
                                                      .nil()
                                                      .tokens({1})
                                                      .number(1)
                                                      .raw(lora)
                                                      .raw(medium)
                                                      .nil()
                                                      .raw(extra)
                                                      .bytes()));
    return events.ok() && events->front().is_special;
  };
  const std::string nil = Packer().nil().bytes();
  const std::string gpu = Packer().text("GPU").bytes();
  EXPECT_FALSE(stored(nil, gpu, nil));
  EXPECT_FALSE(stored(nil, nil, Packer().array(1).nil().bytes()));
  EXPECT_TRUE(stored(Packer().number(1).bytes(), gpu, nil));
  EXPECT_TRUE(stored(nil, Packer().text("CPU").bytes(), nil));
  EXPECT_TRUE(stored(nil, gpu, Packer().array(1).array(1).text("salt").bytes()));
}

TEST(VllmEvents, WhatCannotBeIsRefused) {
  const auto refused = [](const std::string& batch) { return !parse_vllm_batch(batch).ok(); };
  const std::string whole = in_array(stored_array());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_TRUE(refused(whole.substr(0, bytes)));
  EXPECT_TRUE(refused(whole + "x"));
  EXPECT_TRUE(refused(Packer().number(1).bytes()));
  EXPECT_TRUE(refused(Packer().array(2).real(1).number(3).bytes()));
  EXPECT_TRUE(refused(in_array(Packer().text("BlockStored").bytes())));
  EXPECT_TRUE(refused(in_array(Packer()
                                   .array(5)
                                   .text("BlockStored")
                                   .array(1)
                                   .number(7)
                                   .nil()
                                   .tokens({1, 2, 3})
                                   .number(4)
                                   .bytes())))
      << "three tokens in a block of four";
  EXPECT_TRUE(refused(in_array(Packer()
                                   .array(5)
                                   .text("BlockStored")
                                   .array(1)
                                   .number(7)
                                   .nil()
                                   .tokens({-1})
                                   .number(1)
                                   .bytes())));
  EXPECT_TRUE(refused(in_array(
      Packer().array(5).text("BlockStored").array(1).nil().nil().tokens({1}).number(1).bytes())));
  EXPECT_TRUE(refused(
      in_array(Packer().array(5).text("BlockStored").array(0).nil().tokens({}).number(0).bytes())));
}

TEST(VllmEvents, WhatIsWrittenIsReadInBothForms) {
  using Kind = VllmEvent::Kind;
  const std::vector<VllmEvent> events = {
      {.kind = Kind::kStored,
       .hashes = {7, 0xFEDCBA9876543210},
       .parent = 5,
       .tokens = {1, 200'000, 3, 4},
       .block_tokens = 2},
      {.kind = Kind::kStored, .hashes = {9}, .parent = {}, .tokens = {1}, .block_tokens = 1},
      {.kind = Kind::kRemoved, .hashes = {7}, .parent = {}, .tokens = {}},
      {.kind = Kind::kCleared, .hashes = {}, .parent = {}, .tokens = {}}};
  for (const VllmForm form : {VllmForm::kMap, VllmForm::kArray}) {
    const auto read = parse_vllm_batch(encode_vllm_batch(events, form, 1.5));
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), events.size());
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ((*read)[i].kind, events[i].kind);
      EXPECT_EQ((*read)[i].hashes, events[i].hashes);
      EXPECT_EQ((*read)[i].parent, events[i].parent);
      EXPECT_EQ((*read)[i].tokens, events[i].tokens);
      EXPECT_EQ((*read)[i].block_tokens, events[i].block_tokens);
      EXPECT_FALSE((*read)[i].is_special);
    }
  }
  EXPECT_NE(encode_vllm_batch(events, VllmForm::kMap, 1),
            encode_vllm_batch(events, VllmForm::kArray, 1));
}

// Counts that are more than the bytes could hold, also those that a count of 32 bits wraps round:
// found by the replay of its fuzz target, one run in fifty.
TEST(VllmEvents, CountsBeyondTheirBytesAreNoMsgpack) {
  using namespace std::string_literals;
  for (const std::string& payload :
       {"\xdf\x80\x00\x00\x00"s, "\xdf\x80\x00\x00\x00\xa4type"s, "\xdd\xff\xff\xff\xff"s,
        "\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\xff\xff\xff\xff"s,
        "\x92\x01\x91\xdf\x80\x00\x00\x00"s, "\xdf\x7f\xff\xff\xff"s, "\xc1"s, ""s, "\xdb\xff"s,
        "\xc9\xff\xff\xff\xff\x01"s}) {
    EXPECT_FALSE(parse_vllm_batch(payload).ok()) << payload.size();
  }
}

}  // namespace
}  // namespace pelton::cluster
