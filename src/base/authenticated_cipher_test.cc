#include "base/authenticated_cipher.h"

#include <gtest/gtest.h>

namespace pelton::base {
namespace {

TEST(AuthenticatedCipher, WhatIsSealedComesBack) {
  const AuthenticatedCipher cipher("a secret");
  for (const size_t size : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{100'000}}) {
    const std::string text(size, 'x');
    const std::string sealed = cipher.seal({.text = text, .context = "tenant"});
    EXPECT_EQ(cipher.open({.bytes = sealed, .context = "tenant"}), text);
    EXPECT_EQ(sealed.find("xxxx"), std::string::npos);
    EXPECT_NE(sealed, cipher.seal({.text = text, .context = "tenant"})) << "it tells equal texts";
  }
}

TEST(AuthenticatedCipher, ATextIsSealedAndOpenedWhereItLies) {
  constexpr size_t kSalt = AuthenticatedCipher::kSaltBytes;
  const AuthenticatedCipher cipher("a secret");
  for (const size_t size : {size_t{0}, size_t{1}, size_t{17}, size_t{100'000}}) {
    const std::string text(size, 'x');
    std::string bytes(size + AuthenticatedCipher::kSealBytes, '\0');
    bytes.replace(kSalt, size, text);
    const std::string_view inside = std::string_view(bytes).substr(kSalt, size);
    cipher.seal_into({.text = inside, .context = "tenant"}, bytes);
    EXPECT_EQ(cipher.open({.bytes = bytes, .context = "tenant"}), text);
    std::string changed = bytes;
    changed[size / 2] = static_cast<char>(changed[size / 2] ^ 1);
    const auto opens = [&](std::string& sealed, std::string_view context) {
      return cipher.open_into({.bytes = sealed, .context = context},
                              std::span(sealed).subspan(kSalt, size));
    };
    EXPECT_FALSE(opens(changed, "tenant"));
    std::string elsewhere = bytes;
    EXPECT_FALSE(opens(elsewhere, "another"));
    ASSERT_TRUE(opens(bytes, "tenant"));
    EXPECT_EQ(inside, text);
  }
}

TEST(AuthenticatedCipher, NothingCanBeChangedUnseen) {
  const AuthenticatedCipher cipher("a secret");
  const std::string sealed = cipher.seal({.text = "thought", .context = "tenant"});
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(cipher.open({.bytes = changed, .context = "tenant"}), std::nullopt) << i;
    EXPECT_EQ(cipher.open({.bytes = sealed.substr(0, i), .context = "tenant"}), std::nullopt);
  }
  EXPECT_EQ(cipher.open({.bytes = sealed + "x", .context = "tenant"}), std::nullopt);
  EXPECT_EQ(cipher.open({.bytes = sealed, .context = "another"}), std::nullopt);
  EXPECT_EQ(AuthenticatedCipher("another").open({.bytes = sealed, .context = "tenant"}),
            std::nullopt);
}

}  // namespace
}  // namespace pelton::base
