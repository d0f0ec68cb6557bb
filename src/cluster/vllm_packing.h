// Writes msgpack as vLLM's workers do, for tests.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include <msgpuck.h>

namespace pelton::cluster {

class Packer {
 public:
  Packer& array(uint32_t count) {
    return put([&](char* at) { return mp_encode_array(at, count); });
  }
  Packer& map(uint32_t count) {
    return put([&](char* at) { return mp_encode_map(at, count); });
  }
  Packer& nil() {
    return put([](char* at) { return mp_encode_nil(at); });
  }
  Packer& real(double value) {
    return put([&](char* at) { return mp_encode_double(at, value); });
  }
  Packer& number(int64_t value) {
    return put([&](char* at) {
      return value < 0 ? mp_encode_int(at, value)
                       : mp_encode_uint(at, static_cast<uint64_t>(value));
    });
  }
  Packer& text(std::string_view words) {
    put([&](char* at) { return mp_encode_strl(at, static_cast<uint32_t>(words.size())); });
    return raw(words);
  }
  Packer& binary(std::string_view data) {
    put([&](char* at) { return mp_encode_binl(at, static_cast<uint32_t>(data.size())); });
    return raw(data);
  }
  Packer& tokens(std::initializer_list<int64_t> ids) {
    array(static_cast<uint32_t>(ids.size()));
    for (const int64_t id : ids) number(id);
    return *this;
  }
  Packer& raw(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename Write>
  Packer& put(const Write& write) {
    std::array<char, 16> buffer{};
    bytes_.append(buffer.data(), write(buffer.data()));
    return *this;
  }

  std::string bytes_;
};

}  // namespace pelton::cluster
