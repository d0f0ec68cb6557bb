#include "kv_transfer/peer_messages.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.h"
#include "kv_transfer/slot_header.h"

namespace pelton::kv_transfer {
namespace {

enum class Type : uint8_t {
  kHello = 1,
  kWelcome,
  kRefuse,
  kWant,
  kHave,
  kData,
  kCredit,
  kCancel,
  kDone,
  kAwait,
};

constexpr size_t kTicketMax = 2048;
constexpr size_t kSumAt = 6;  // in a Data: type, transfer, group before it
constexpr size_t kNameAt = kSumAt + 4;

class Writer {
 public:
  explicit Writer(Type type) { number(static_cast<uint8_t>(type)); }

  template <typename Number>
  Writer& number(Number value) {
    for (size_t i = 0; i < sizeof(value); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
    return *this;
  }
  Writer& text(std::string_view text) {
    number(static_cast<uint16_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  Writer& name(const kv::BlockHash& name) { return number(name.low).number(name.high); }
  // 8 to a byte, the first in its lowest bit.
  Writer& bits(const std::vector<bool>& bits) {
    for (size_t at = 0; at < bits.size(); at += 8) {
      uint8_t byte = 0;
      for (size_t i = at; i < std::min(at + 8, bits.size()); ++i) {
        byte = static_cast<uint8_t>(byte | (bits[i] ? 1u : 0u) << (i - at));
      }
      number(byte);
    }
    return *this;
  }
  std::string finish() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Whoever reads past the end gets zeros, and finish() says so.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number() {
    const std::string_view raw = take(sizeof(Number));
    uint64_t value = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value |= uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    }
    return static_cast<Number>(value);
  }
  std::string_view take(size_t count) {
    if (bytes_.size() < count) {
      fail();
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string text(size_t most) {
    const auto size = number<uint16_t>();
    if (size > most) fail();
    return std::string(take(failed_ ? 0 : size));
  }
  kv::BlockHash name() {
    const auto low = number<uint64_t>();
    return {.low = low, .high = number<uint64_t>()};
  }
  std::vector<bool> bits(size_t count) {
    const std::string_view raw = take((count + 7) / 8);
    std::vector<bool> bits(raw.empty() ? 0 : count);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = (raw[i / 8] >> (i % 8) & 1) != 0;
    return bits;
  }
  std::string_view rest() { return take(bytes_.size()); }
  size_t left() const { return bytes_.size(); }
  void fail() {
    failed_ = true;
    bytes_ = {};
  }
  bool failed() const { return failed_; }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

PeerHello read_hello(Reader& reader) {
  PeerHello hello{.id = reader.text(PeerHello::kTextMax), .layout = {}};
  const auto count = reader.number<uint16_t>();
  if (count > PeerHello::kFieldsMax) reader.fail();
  for (size_t i = 0; i < count && !reader.failed(); ++i) {
    std::string name = reader.text(PeerHello::kTextMax);
    hello.layout.emplace_back(std::move(name), reader.text(PeerHello::kTextMax));
  }
  return hello;
}

// What is announced is looked at before room is made for it: each name has its bytes.
PeerWant read_want(Reader& reader) {
  PeerWant want;
  want.transfer = reader.number<uint32_t>();
  want.limit_ms = reader.number<uint32_t>();
  want.ticket = reader.text(kTicketMax);
  const auto names = reader.number<uint32_t>();
  if (names > kPeerNamesMax || size_t{names} * 16 > reader.left()) reader.fail();
  for (uint32_t i = 0; i < names && !reader.failed(); ++i) want.names.push_back(reader.name());
  const auto groups = reader.number<uint8_t>();
  if (groups > kv::kGroupsMax) reader.fail();
  for (int i = 0; i < groups && !reader.failed(); ++i) {
    want.held.push_back(reader.bits(want.names.size()));
  }
  return want;
}

PeerHave read_have(Reader& reader) {
  PeerHave have;
  have.transfer = reader.number<uint32_t>();
  have.prefix_blocks = reader.number<uint32_t>();
  have.blocks = reader.number<uint32_t>();
  have.refused = reader.text(PeerHello::kTextMax);
  if (have.prefix_blocks > kPeerNamesMax || have.blocks > kPeerNamesMax * kv::kGroupsMax) {
    reader.fail();
  }
  return have;
}

PeerData read_data(Reader& reader) {
  PeerData data;
  data.transfer = reader.number<uint32_t>();
  data.group = reader.number<uint8_t>();
  data.sum = reader.number<uint32_t>();
  data.name = reader.name();
  if (data.group >= kv::kGroupsMax) reader.fail();
  data.block = reader.rest();
  return data;
}

PeerMessage read(Type type, Reader& reader) {
  switch (type) {
    case Type::kHello:
      return read_hello(reader);
    case Type::kWelcome:
      return PeerWelcome{};
    case Type::kRefuse:
      return PeerRefuse{.why = reader.text(PeerHello::kTextMax)};
    case Type::kWant:
      return read_want(reader);
    case Type::kAwait: {
      PeerWant want = read_want(reader);
      want.ahead = true;
      return want;
    }
    case Type::kHave:
      return read_have(reader);
    case Type::kData:
      return read_data(reader);
    case Type::kCredit: {
      const auto transfer = reader.number<uint32_t>();
      return PeerCredit{.transfer = transfer, .bytes = reader.number<uint32_t>()};
    }
    case Type::kCancel:
      return PeerCancel{.transfer = reader.number<uint32_t>()};
    case Type::kDone:
      return PeerDone{.transfer = reader.number<uint32_t>()};
  }
  reader.fail();
  return PeerDone{};
}

struct Encoder {
  std::string operator()(const PeerHello& hello) const {
    Writer writer(Type::kHello);
    writer.text(hello.id).number(static_cast<uint16_t>(hello.layout.size()));
    for (const auto& [name, value] : hello.layout) writer.text(name).text(value);
    return writer.finish();
  }
  std::string operator()(const PeerWelcome&) const { return Writer(Type::kWelcome).finish(); }
  std::string operator()(const PeerRefuse& refuse) const {
    return Writer(Type::kRefuse).text(refuse.why.substr(0, PeerHello::kTextMax)).finish();
  }
  std::string operator()(const PeerWant& want) const {
    Writer writer(want.ahead ? Type::kAwait : Type::kWant);
    writer.number(want.transfer).number(want.limit_ms).text(want.ticket);
    writer.number(static_cast<uint32_t>(want.names.size()));
    for (const kv::BlockHash& name : want.names) writer.name(name);
    writer.number(static_cast<uint8_t>(want.held.size()));
    for (const std::vector<bool>& held : want.held) writer.bits(held);
    return writer.finish();
  }
  std::string operator()(const PeerHave& have) const {
    Writer writer(Type::kHave);
    writer.number(have.transfer).number(have.prefix_blocks).number(have.blocks);
    return writer.text(have.refused.substr(0, PeerHello::kTextMax)).finish();
  }
  std::string operator()(const PeerData& data) const {
    Writer writer(Type::kData);
    writer.number(data.transfer).number(data.group).number(data.sum).name(data.name);
    return writer.finish() + std::string(data.block);
  }
  std::string operator()(const PeerCredit& credit) const {
    return Writer(Type::kCredit).number(credit.transfer).number(credit.bytes).finish();
  }
  std::string operator()(const PeerCancel& cancel) const {
    return Writer(Type::kCancel).number(cancel.transfer).finish();
  }
  std::string operator()(const PeerDone& done) const {
    return Writer(Type::kDone).number(done.transfer).finish();
  }
};

uint32_t sum_of(std::string_view message) {
  return crc32c(message.substr(kNameAt));
}

}  // namespace

std::string difference(const PeerLayout& theirs, const PeerLayout& ours) {
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    if (i >= theirs.size()) return fmt::format("{}: not said there", ours[i].first);
    if (i >= ours.size()) return fmt::format("{}: not known here", theirs[i].first);
    if (theirs[i] == ours[i]) continue;
    if (theirs[i].first != ours[i].first) return fmt::format("{}: not said there", ours[i].first);
    return fmt::format("{}: {} there, {} here", ours[i].first, theirs[i].second, ours[i].second);
  }
  return {};
}

std::string encode(const PeerMessage& message) {
  return std::visit(Encoder{}, message);
}

Result<PeerMessage> decode_peer_message(std::string_view bytes) {
  Reader reader(bytes);
  const auto type = reader.number<uint8_t>();
  PeerMessage message = read(static_cast<Type>(type), reader);
  if (reader.failed() || reader.left() > 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("no message of type {}: {} bytes", type, bytes.size())};
  }
  return message;
}

void begin_data(std::span<char> message, uint32_t transfer, int group, const kv::BlockHash& name) {
  const std::string header = encode(PeerData{.transfer = transfer,
                                             .group = static_cast<uint8_t>(group),
                                             .sum = 0,
                                             .name = name,
                                             .block = {}});
  CHECK(header.size() == PeerData::kHeaderBytes && header.size() <= message.size());
  std::ranges::copy(header, message.begin());
}

void finish_data(std::span<char> message) {
  const uint32_t sum = sum_of({message.data(), message.size()});
  for (size_t i = 0; i < 4; ++i) message[kSumAt + i] = static_cast<char>(sum >> (8 * i));
}

bool is_whole(const PeerData& data, std::string_view message) {
  return data.sum == sum_of(message);
}

}  // namespace pelton::kv_transfer
