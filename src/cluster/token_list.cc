#include "cluster/token_list.h"

#include <algorithm>
#include <limits>

#include "cluster/wire_numbers.h"

namespace pelton::cluster {
namespace {

Error bad_list(const char* what) {
  return Error{ErrorCode::kInvalidArgument, std::string("a token list ") + what};
}

bool is_id(TokenId id) {
  return id >= 0;
}

}  // namespace

std::string encode(const TokenList& list) {
  std::string out;
  append_u32(out, list.first);
  out += list.with_logprobs ? '\1' : '\0';
  for (const WireToken& token : list.tokens) {
    append_u32(out, static_cast<uint32_t>(token.token));
    if (!list.with_logprobs) continue;
    append_f32(out, token.logprob);
    const size_t count = std::min<size_t>(token.top.size(), std::numeric_limits<uint16_t>::max());
    append_u16(out, static_cast<uint16_t>(count));
    for (size_t i = 0; i < count; ++i) {
      append_u32(out, static_cast<uint32_t>(token.top[i].first));
      append_f32(out, token.top[i].second);
    }
  }
  return out;
}

Result<TokenList> decode_token_list(std::string_view payload) {
  WireReader reader(payload);
  TokenList list{.first = reader.u32(), .with_logprobs = false, .tokens = {}};
  const uint8_t with_logprobs = reader.u8();
  if (reader.overrun() || with_logprobs > 1) return bad_list("without its beginning");
  list.with_logprobs = with_logprobs == 1;
  while (reader.left() > 0) {
    WireToken& token = list.tokens.emplace_back();
    token.token = static_cast<TokenId>(reader.u32());
    if (list.with_logprobs) {
      token.logprob = reader.f32();
      const size_t count = reader.u16();
      if (count * 8 > reader.left()) return bad_list("is cut off");
      for (size_t i = 0; i < count; ++i) {
        const auto id = static_cast<TokenId>(reader.u32());
        token.top.emplace_back(id, reader.f32());
        if (!is_id(id)) return bad_list("holds a negative id");
      }
    }
    if (reader.overrun()) return bad_list("is cut off");
    if (!is_id(token.token)) return bad_list("holds a negative id");
  }
  return list;
}

}  // namespace pelton::cluster
