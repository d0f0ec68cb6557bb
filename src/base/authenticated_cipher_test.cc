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
