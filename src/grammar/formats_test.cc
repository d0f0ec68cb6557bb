#include "grammar/formats.h"

#include <map>

#include <gtest/gtest.h>

namespace pelton::grammar {
namespace {

struct Instances {
  std::vector<std::string> valid, invalid;
};

const std::map<std::string, Instances>& instances() {
  static const std::map<std::string, Instances> all = {
      {"date",
       {{"2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30"},
        {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-1-1", "20230101", ""}}},
      {"time",
       {{"08:30:06Z", "23:20:50.52z", "08:30:06+00:20", "23:59:60Z", "01:29:60+01:30",
         "15:59:60-08:00", "00:29:60-23:30"},
        {"24:00:00Z", "08:30:06", "22:59:60Z", "23:59:60+01:00", "08:30:60Z", "01:02:03+24:00"}}},
      {"date-time",
       {{"1963-06-19T08:30:06.283185Z", "1998-12-31t23:59:60z", "2020-02-29T00:00:00-05:00"},
        {"1963-06-19 08:30:06Z", "1990-02-31T15:59:59Z", "1998-12-31T23:58:60Z", "2020-01-01"}}},
      {"duration",
       {{"P4DT12H30M5S", "P2W", "PT0S", "P1Y2M3D", "P1M2D", "PT1M2S"},
        {"P", "PT", "P1Y2D", "PT1H2S", "P2D1Y", "P1Y2W", "PT0.5S", "-P1D", "P1"}}},
      {"email",
       {{"a@b", "joe.bloggs@example.com", "\"joe@bloggs\"@example.com", "j@[127.0.0.1]",
         "j@[IPv6:::1]", "te~st@example.com"},
        {"2962", ".a@b.c", "a.@b.c", "a..b@c.d", "a@", "@b", "a b@c.d", "a@b_c", "j@[127.0.0.300]",
         "a@-b.c", std::string(65, 'a') + "@b.c", "\xC3\xA9@b.c"}}},
      {"idn-email", {{"실례@실례.테스트", "a@b.c"}, {"2962", "a＠b"}}},
      {"hostname",
       {{"www.example.com", "1host", "a--b.com", "a.b.c.d.e.f", std::string(63, 'a') + ".com"},
        {"", ".", ".a", "a.", "-a", "a-", "a_b", "xn--X", "ab--c", "x.AB--c",
         std::string(64, 'a')}}},
      {"ipv4", {{"127.0.0.1", "255.255.255.255"}, {"256.0.0.1", "01.2.3.4", "1.2.3", "1.2.3.4.5"}}},
      {"ipv6",
       {{"::", "::1", "d6::", "1:d6::42", "1:2:3:4:5:6:7:8", "::ffff:192.168.0.1",
         "1:2::192.168.0.1", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
         "1000:1000:1000:1000:1000:1000:255.255.255.255"},
        {"", ":", "1", "12345::", "1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "fe80::a%eth1",
         "::ffff:192.168.0.01", "1:2:3:4:5:::8", "127.0.0.1", "1:2:3:4:5:6:7::8"}}},
      {"uri",
       {{"http://foo.bar/?baz=qux#quux", "urn:oasis:names", "mailto:a@b.c",
         "ldap://[2001:db8::7]/c=GB", "file:/etc/hosts", "a:b",
         "http://-.~_!$&'()*+,;=:%40:80%2f::::::@example.com"},
        {"//foo.bar", "/abc", "abc", "a:", "http:// a", "1a:b", "http://a/%6G", "http://a:b/c",
         "http://a/{}", "http:/[::1]", "http://a/\xC3\xA9", "https://[@a/"}}},
      {"uri-reference",
       {{"", "//", "/abc", "#f", "?q", "./a:b", "http://a"}, {"1:b", "a\\b", "/%zz"}}},
      {"iri", {{"http://ƒøø.ßår/?∂éœ=πîx#πîüx", "urn:a"}, {"/abc", "âππ", "http://a\n"}}},
      {"iri-reference", {{"âππ", "#ƒrägmênt"}, {"#ƒräg\\mênt"}}},
      {"uri-template",
       {{"", "http://e.com/{term:1}/{term}", "{+x}{?a,b*}", "{a.b}", "a'b"},
        {"{}", "{a", "a}", "{a,}", "{v:0}", "{v:10000}", "a b", "{a..b}"}}},
      {"uuid",
       {{"2EB8AA08-aa98-11ea-b4aa-73b441d16380", "00000000-0000-0000-0000-000000000000"},
        {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa9811eab4aa73b441d16380"}}},
      {"json-pointer", {{"", "/", "/foo/0", "/a~1b~0", "//"}, {"a", "/~2", "/a~", "#/a"}}},
      {"relative-json-pointer", {{"1", "0/foo", "0#", "120"}, {"", "01", "/a", "0##", "-1"}}},
      {"regex",
       {{"", "([abc])+\\s+$", "^[a-zA-Z0-9_]{3,16}$", "a{2,2}b{0,3}", "a|b|(?:c|(d))*?", "(?=a)\\.",
         "[^\\]-]"},
        {"^(abc]", "(", "a**", "[", "\\", "[z-a]", "a{2,1}", "(?=a)*", "\\q", "*"}}},
  };
  return all;
}

TEST(Formats, AcceptInstancesAndNothingElse) {
  for (const auto& [name, texts] : instances()) {
    const auto language = language_of_format(name);
    ASSERT_TRUE(language.has_value() && language->ok()) << name;
    for (const std::string& text : texts.valid) {
      EXPECT_TRUE(language->value()->accepts(text)) << name << ": " << text;
    }
    for (const std::string& text : texts.invalid) {
      EXPECT_FALSE(language->value()->accepts(text)) << name << ": " << text;
    }
    if (name != "json-pointer") {  // where it is a character like others
      EXPECT_FALSE(language->value()->accepts(texts.valid.back() + "\n")) << name;
    }
    EXPECT_LT(language->value()->states(), 3000u) << name;
  }
}

TEST(Formats, UnknownOnesSayNothingUnsupportedOnesSaySo) {
  EXPECT_FALSE(language_of_format("int32").has_value());
  EXPECT_FALSE(language_of_format("").has_value());
  ASSERT_TRUE(language_of_format("idn-hostname").has_value());
  EXPECT_EQ(language_of_format("idn-hostname")->error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(language_of_format("uuid")->value(), language_of_format("uuid")->value());
}

// No name of 254 characters or more.
TEST(Formats, HostnamesAreShort) {
  const std::shared_ptr<const ByteDfa> names = language_of_format("hostname")->value();
  ASSERT_TRUE(names->longest_length().has_value());
  EXPECT_LE(*names->longest_length(), 253u);
}

}  // namespace
}  // namespace pelton::grammar
