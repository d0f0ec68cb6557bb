#include "cluster/vllm_events.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include <msgpuck.h>

#include "base/random.h"

namespace pelton::cluster {
namespace {

constexpr size_t kEventsMax = 65'536;
constexpr size_t kHashesMax = 65'536;
constexpr size_t kTokensMax = size_t{1} << 22;
constexpr uint64_t kBlockTokensMax = 1 << 16;
constexpr uint64_t kGroupsMax = 127;

Error bad(const char* what) {
  return {ErrorCode::kInvalidArgument, std::string("KV events ") + what};
}

// A position in bytes that is_whole() has found so: each value can be decoded or passed over.
using Cursor = const char*;

std::string_view read_text(Cursor& at) {
  uint32_t bytes = 0;
  const bool is_text = mp_typeof(*at) == MP_STR;
  const char* begin = is_text ? mp_decode_str(&at, &bytes) : mp_decode_bin(&at, &bytes);
  return {begin, bytes};
}

bool is_text(Cursor at) {
  return mp_typeof(*at) == MP_STR || mp_typeof(*at) == MP_BIN;
}

// The field's value, if it is of that kind; otherwise it has been passed over.
std::optional<int64_t> read_integer(Cursor& at) {
  if (mp_typeof(*at) == MP_UINT) {
    const uint64_t value = mp_decode_uint(&at);
    return value <= INT64_MAX ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
  }
  if (mp_typeof(*at) == MP_INT) return mp_decode_int(&at);
  mp_next(&at);
  return std::nullopt;
}

// A name of theirs: integers of up to 64 bits, or bytes.
std::optional<uint64_t> read_hash(Cursor& at) {
  if (mp_typeof(*at) == MP_UINT) return mp_decode_uint(&at);
  if (mp_typeof(*at) == MP_INT) return static_cast<uint64_t>(mp_decode_int(&at));
  if (is_text(at)) return base::fnv1a64(read_text(at));
  mp_next(&at);
  return std::nullopt;
}

Result<void> read_hashes(Cursor& at, VllmEvent& event) {
  if (mp_typeof(*at) != MP_ARRAY) return bad("have no list of block_hashes");
  const uint32_t count = mp_decode_array(&at);
  if (count > kHashesMax) return bad("name too many blocks");
  event.hashes.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const std::optional<uint64_t> hash = read_hash(at);
    if (!hash) return bad("have a block hash that is neither a number nor bytes");
    event.hashes.push_back(*hash);
  }
  return {};
}

Result<void> read_tokens(Cursor& at, VllmEvent& event) {
  if (mp_typeof(*at) != MP_ARRAY) return bad("have no list of token_ids");
  const uint32_t count = mp_decode_array(&at);
  if (count > kTokensMax) return bad("have too many tokens");
  event.tokens.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const std::optional<int64_t> token = read_integer(at);
    if (!token || *token < 0 || *token > INT32_MAX) return bad("have a token that is none");
    event.tokens.push_back(static_cast<TokenId>(*token));
  }
  return {};
}

Result<void> read_number(Cursor& at, uint64_t most, int& into) {
  if (mp_typeof(*at) == MP_NIL) {
    mp_next(&at);
    return {};
  }
  const std::optional<int64_t> value = read_integer(at);
  if (!value || *value < 0 || static_cast<uint64_t>(*value) > most) {
    return bad("have a number that is out of bounds");
  }
  into = static_cast<int>(*value);
  return {};
}

// Of those: nothing, an empty list.
bool is_nothing(Cursor& at) {
  if (mp_typeof(*at) == MP_ARRAY) {
    Cursor inside = at;
    bool all = true;
    const uint32_t count = mp_decode_array(&inside);
    for (uint32_t i = 0; i < count; ++i) {
      all = all && mp_typeof(*inside) == MP_NIL;
      mp_next(&inside);
    }
    at = inside;
    return all;
  }
  const bool is_nil = mp_typeof(*at) == MP_NIL;
  mp_next(&at);
  return is_nil;
}

bool is_on_device(Cursor& at) {
  if (!is_text(at)) return is_nothing(at);
  const std::string_view medium = read_text(at);
  return medium == "GPU" || medium == "gpu" || medium.empty();
}

enum class Field {
  kHashes,
  kParent,
  kTokens,
  kBlockTokens,
  kSpecial,  // nothing, or its blocks hold more than tokens
  kMedium,
  kGroup,
  kOther,
};

Result<void> read_field(Field field, Cursor& at, VllmEvent& event) {
  switch (field) {
    case Field::kHashes:
      return read_hashes(at, event);
    case Field::kParent:
      if (mp_typeof(*at) == MP_NIL) break;
      event.parent = read_hash(at);
      return event.parent ? Result<void>() : bad("have a parent that is no block hash");
    case Field::kTokens:
      return read_tokens(at, event);
    case Field::kBlockTokens:
      return read_number(at, kBlockTokensMax, event.block_tokens);
    case Field::kSpecial:
      event.is_special = !is_nothing(at) || event.is_special;
      return {};
    case Field::kMedium:
      event.is_special = !is_on_device(at) || event.is_special;
      return {};
    case Field::kGroup:
      return read_number(at, kGroupsMax, event.group);
    case Field::kOther:
      break;
  }
  mp_next(&at);
  return {};
}

struct Known {
  std::string_view name;
  Field field;
};
// In the order of their arrays; what a later version adds is passed over.
constexpr std::array<Known, 9> kStored = {{{"block_hashes", Field::kHashes},
                                           {"parent_block_hash", Field::kParent},
                                           {"token_ids", Field::kTokens},
                                           {"block_size", Field::kBlockTokens},
                                           {"lora_id", Field::kSpecial},
                                           {"medium", Field::kMedium},
                                           {"lora_name", Field::kSpecial},
                                           {"extra_keys", Field::kSpecial},
                                           {"group_idx", Field::kGroup}}};
constexpr std::array<Known, 3> kRemoved = {
    {{"block_hashes", Field::kHashes}, {"medium", Field::kMedium}, {"group_idx", Field::kGroup}}};

// None: of another kind.
std::optional<VllmEvent::Kind> kind_of(std::string_view tag) {
  if (tag == "BlockStored") return VllmEvent::Kind::kStored;
  if (tag == "BlockRemoved") return VllmEvent::Kind::kRemoved;
  if (tag == "AllBlocksCleared") return VllmEvent::Kind::kCleared;
  return std::nullopt;
}

template <typename Take>
void each_known(VllmEvent::Kind kind, const Take& take) {
  if (kind == VllmEvent::Kind::kStored) {
    for (const Known& one : kStored) take(one);
  } else if (kind == VllmEvent::Kind::kRemoved) {
    for (const Known& one : kRemoved) take(one);
  }
}

Field field_named(VllmEvent::Kind kind, std::string_view name) {
  Field field = Field::kOther;
  each_known(kind, [&](const Known& one) {
    if (one.name == name) field = one.field;
  });
  return field;
}

Field field_at(VllmEvent::Kind kind, uint32_t place) {
  Field field = Field::kOther;
  uint32_t at = 0;
  each_known(kind, [&](const Known& one) {
    if (at++ == place) field = one.field;
  });
  return field;
}

// Its hashes and tokens fit together.
Result<void> check(const VllmEvent& event) {
  if (event.kind != VllmEvent::Kind::kStored) return {};
  if (event.block_tokens < 1) return bad("have blocks of no tokens");
  const size_t whole = event.hashes.size() * static_cast<size_t>(event.block_tokens);
  if (event.tokens.size() != whole) return bad("have other tokens than their blocks hold");
  return {};
}

Result<std::optional<VllmEvent>> read_array_event(Cursor& at) {
  const uint32_t count = mp_decode_array(&at);
  if (count == 0 || !is_text(at)) return bad("begin with no name");
  const std::optional<VllmEvent::Kind> kind = kind_of(read_text(at));
  VllmEvent event{.kind = kind.value_or(VllmEvent::Kind::kCleared)};
  for (uint32_t i = 1; i < count; ++i) {
    TRY(read_field(kind ? field_at(*kind, i - 1) : Field::kOther, at, event));
  }
  if (!kind) return std::optional<VllmEvent>();
  TRY(check(event));
  return std::optional(std::move(event));
}

// The value behind one of a map's keys; null: it has none.
Cursor find(Cursor map, std::string_view key) {
  const uint32_t count = mp_decode_map(&map);
  for (uint32_t i = 0; i < count; ++i) {
    const bool is_key = is_text(map) && [&] {
      Cursor name = map;
      return read_text(name) == key;
    }();
    mp_next(&map);
    if (is_key) return map;
    mp_next(&map);
  }
  return nullptr;
}

Result<std::optional<VllmEvent>> read_map_event(Cursor& at) {
  Cursor tag = find(at, "type");
  if (tag == nullptr || !is_text(tag)) return bad("have no type");
  const std::optional<VllmEvent::Kind> kind = kind_of(read_text(tag));
  VllmEvent event{.kind = kind.value_or(VllmEvent::Kind::kCleared)};
  const uint32_t count = mp_decode_map(&at);
  for (uint32_t i = 0; i < count; ++i) {
    Field field = Field::kOther;
    if (is_text(at)) {
      const std::string_view name = read_text(at);
      if (kind) field = field_named(*kind, name);
    } else {
      mp_next(&at);
    }
    TRY(read_field(field, at, event));
  }
  if (!kind) return std::optional<VllmEvent>();
  TRY(check(event));
  return std::optional(std::move(event));
}

// Of a batch: its list of events; null: it has none.
Cursor events_of(Cursor at) {
  if (mp_typeof(*at) == MP_MAP) return find(at, "events");
  if (mp_typeof(*at) != MP_ARRAY || mp_decode_array(&at) < 2) return nullptr;
  mp_next(&at);  // the time
  return at;
}

// What follows a value's first byte: this many bytes of a number, which is how many bytes or values
// come next; and bytes whatever that says.
struct Header {
  int length_bytes = 0;
  int values_each = 0;  // 0: the number is of bytes
  int more_bytes = 0;
};

// Of the first bytes 0xc0 to 0xdf; none: it begins nothing.
std::optional<Header> header_of(uint8_t first) {
  constexpr int kFirst = 0xc0;
  constexpr std::array<Header, 32> kHeaders = {
      {{},        {},        {},        {},                     // nil, unused, false, true
       {1},       {2},       {4},                               // bin
       {1, 0, 1}, {2, 0, 1}, {4, 0, 1},                         // ext
       {0, 0, 4}, {0, 0, 8},                                    // float
       {0, 0, 1}, {0, 0, 2}, {0, 0, 4}, {0, 0, 8},              // uint
       {0, 0, 1}, {0, 0, 2}, {0, 0, 4}, {0, 0, 8},              // int
       {0, 0, 2}, {0, 0, 3}, {0, 0, 5}, {0, 0, 9}, {0, 0, 17},  // fixext
       {1},       {2},       {4},                               // str
       {2, 1},    {4, 1},    {2, 2},    {4, 2}}};               // array, map
  constexpr uint8_t kUnused = 0xc1;
  if (first == kUnused) return std::nullopt;
  return kHeaders[static_cast<size_t>(first - kFirst)];
}

// One value of msgpack and nothing else. mp_check() counts values in 32 bits, so that a map of 2^31
// passes it; here no more values may be due than there are bytes.
bool is_whole(std::string_view payload) {
  constexpr uint8_t kFixMap = 0x80;
  constexpr uint8_t kFixArray = 0x90;
  constexpr uint8_t kFixText = 0xa0;
  constexpr uint8_t kHeader = 0xc0;
  constexpr uint8_t kNegative = 0xe0;
  if (payload.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return false;
  size_t at = 0;
  uint64_t due = 1;
  while (due > 0) {
    if (due > payload.size() - at) return false;
    --due;
    const auto first = static_cast<uint8_t>(payload[at++]);
    uint64_t skipped = 0;
    if (first < kFixMap || first >= kNegative) continue;
    if (first < kFixArray) {
      due += 2 * static_cast<uint64_t>(first - kFixMap);
    } else if (first < kFixText) {
      due += static_cast<uint64_t>(first - kFixArray);
    } else if (first < kHeader) {
      skipped = static_cast<uint64_t>(first - kFixText);
    } else {
      const std::optional<Header> header = header_of(first);
      if (!header || static_cast<size_t>(header->length_bytes) > payload.size() - at) return false;
      uint64_t length = 0;
      for (int i = 0; i < header->length_bytes; ++i) {
        length = length << 8 | static_cast<uint8_t>(payload[at++]);
      }
      due += length * static_cast<uint64_t>(header->values_each);
      skipped = static_cast<uint64_t>(header->more_bytes) + (header->values_each == 0 ? length : 0);
    }
    if (skipped > payload.size() - at) return false;
    at += skipped;
  }
  return at == payload.size();
}

}  // namespace

Result<std::vector<VllmEvent>> parse_vllm_batch(std::string_view payload) {
  if (!is_whole(payload)) return bad("are no msgpack");
  Cursor at = events_of(payload.data());
  if (at == nullptr || mp_typeof(*at) != MP_ARRAY) return bad("have no list of events");
  const uint32_t count = mp_decode_array(&at);
  if (count > kEventsMax) return bad("are too many at once");
  std::vector<VllmEvent> events;
  for (uint32_t i = 0; i < count; ++i) {
    const bool is_array = mp_typeof(*at) == MP_ARRAY;
    if (!is_array && mp_typeof(*at) != MP_MAP) return bad("are neither arrays nor maps");
    TRY_ASSIGN(std::optional<VllmEvent> event,
               is_array ? read_array_event(at) : read_map_event(at));
    if (event) events.push_back(*std::move(event));
  }
  return events;
}

namespace {

// Appends msgpack to a string.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void array(size_t count) {
    put([&](char* at) { return mp_encode_array(at, static_cast<uint32_t>(count)); });
  }
  void map(size_t count) {
    put([&](char* at) { return mp_encode_map(at, static_cast<uint32_t>(count)); });
  }
  void number(uint64_t value) {
    put([&](char* at) { return mp_encode_uint(at, value); });
  }
  void real(double value) {
    put([&](char* at) { return mp_encode_double(at, value); });
  }
  void nil() {
    put([](char* at) { return mp_encode_nil(at); });
  }
  void text(std::string_view words) {
    put([&](char* at) { return mp_encode_strl(at, static_cast<uint32_t>(words.size())); });
    out_ += words;
  }

 private:
  template <typename Write>
  void put(const Write& write) {
    std::array<char, 16> buffer{};
    out_.append(buffer.data(), write(buffer.data()));
  }

  std::string& out_;
};

std::string_view tag_of(VllmEvent::Kind kind) {
  switch (kind) {
    case VllmEvent::Kind::kStored:
      return "BlockStored";
    case VllmEvent::Kind::kRemoved:
      return "BlockRemoved";
    case VllmEvent::Kind::kCleared:
      return "AllBlocksCleared";
  }
  return "";
}

void write_value(Field field, const VllmEvent& event, Writer& w) {
  switch (field) {
    case Field::kHashes:
      w.array(event.hashes.size());
      for (const uint64_t hash : event.hashes) w.number(hash);
      return;
    case Field::kParent:
      return event.parent ? w.number(*event.parent) : w.nil();
    case Field::kTokens:
      w.array(event.tokens.size());
      for (const TokenId token : event.tokens) w.number(static_cast<uint64_t>(token));
      return;
    case Field::kBlockTokens:
      return w.number(static_cast<uint64_t>(event.block_tokens));
    case Field::kMedium:
      return w.text("GPU");
    case Field::kGroup:
      return w.number(static_cast<uint64_t>(event.group));
    case Field::kSpecial:
    case Field::kOther:
      return w.nil();
  }
}

void write_event(const VllmEvent& event, VllmForm form, Writer& w) {
  size_t fields = 1;
  each_known(event.kind, [&](const Known&) { ++fields; });
  form == VllmForm::kMap ? w.map(fields) : w.array(fields);
  if (form == VllmForm::kMap) w.text("type");
  w.text(tag_of(event.kind));
  each_known(event.kind, [&](const Known& one) {
    if (form == VllmForm::kMap) w.text(one.name);
    write_value(one.field, event, w);
  });
}

}  // namespace

std::string encode_vllm_batch(const std::vector<VllmEvent>& events, VllmForm form, double unix_s) {
  std::string out;
  Writer w(out);
  const bool is_map = form == VllmForm::kMap;
  is_map ? w.map(3) : w.array(3);
  if (is_map) w.text("ts");
  w.real(unix_s);
  if (is_map) w.text("events");
  w.array(events.size());
  for (const VllmEvent& event : events) write_event(event, form, w);
  if (is_map) w.text("data_parallel_rank");
  w.number(0);
  return out;
}

}  // namespace pelton::cluster
