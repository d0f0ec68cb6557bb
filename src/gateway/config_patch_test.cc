#include "gateway/config_patch.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway/config_json.h"

namespace pelton::gateway {
namespace {

// With all that a hand may have written into it.
const std::string kText =
    "# our fleet\n\n[gateway]\nlisten = \"127.0.0.1:0\"  # any\nretries = 3  # no \"more\"\n\n"
    "# the large one\n[[pool]]\nname = \"a\"\nmodel = [\n  \"m\",  # first\n  \"n\",\n]\n"
    "  [pool.scale]\n  max = 3\n  # max = 5\n  [[pool.scale.schedule]]\n  at = \"08:00\"\n\n"
    "# ---- small ones ----\n\n"
    "[[pool]]\nname = \"b\"\nmodel = \"\"\"o\"\"\"\nscale = {min = 1, max = 2}\n"
    "[[route]]\nmodel = \"org/m\"\nto = [{pool = \"a\"}]\n"
    "[[worker]]\npool = \"b\"\nurl = \"http://10.0.0.1:9000\"\n";

Json json(std::string_view text) {
  Result<Json> parsed = Json::parse(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *std::move(parsed) : Json();
}

std::string patched(const std::string& text, std::string_view patch) {
  const Result<std::string> done = patched_config(text, "f", json(patch));
  return done.ok() ? *done : "! " + done.error().message;
}

std::string with(std::string text, std::string_view old, std::string_view fresh) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), fresh);
}

TEST(ConfigPatch, ObjectsAreMembersByTheirNames) {
  const Result<Json> all = config_json(kText, "f");
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->dump(),
            R"({"gateway":{"listen":"127.0.0.1:0","retries":3},"pool":{"a":{"name":"a",)"
            R"("model":["m","n"],"scale":{"max":3,"schedule":[{"at":"08:00"}]}},"b":{"name":"b",)"
            R"("model":"o","scale":{"min":1,"max":2}}},"route":{"org/m":{"model":"org/m",)"
            R"("to":[{"pool":"a"}]}},"worker":{"http://10.0.0.1:9000":{"pool":"b",)"
            R"("url":"http://10.0.0.1:9000"}}})");
  EXPECT_FALSE(config_json("[[pool]]\nname = \"a\"\n[[pool]]\nname = \"a\"\n", "f").ok());
}

// RFC 7396, appendix A.
TEST(ConfigPatch, MergesAsTheRfcHasIt) {
  const std::vector<std::vector<std::string>> cases = {
      {R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
      {R"({"a":"b"})", R"({"a":null})", "{}"},
      {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
      {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
      {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
      {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
      {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
      {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
      {R"({"a":"foo"})", "null", "null"},
      {R"({"a":"foo"})", R"("bar")", R"("bar")"},
      {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
      {"[1,2]", R"({"a":"b","c":null})", R"({"a":"b"})"},
      {"{}", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"}};
  for (const std::vector<std::string>& one : cases) {
    EXPECT_EQ(merged_json(json(one[0]), json(one[1])).dump(), one[2]) << one[0] << one[1];
  }
}

TEST(ConfigPatch, OnlyTheLinesOfAKeyThatChangesAreOthers) {
  EXPECT_EQ(patched(kText, R"({"gateway":{"retries":5}})"),
            with(kText, "retries = 3  #", "retries = 5  #"));
  EXPECT_EQ(patched(kText, R"({"gateway":{"retries":null}})"),
            with(kText, "retries = 3  # no \"more\"\n", ""));
  EXPECT_EQ(patched(kText, R"({"gateway":{"threads":2}})"),
            with(kText, "no \"more\"\n", "no \"more\"\nthreads = 2\n"));
  EXPECT_EQ(patched(kText, R"({"pool":{"a":{"scale":{"max":4,"min":1}}}})"),
            with(kText, "  max = 3\n", "  max = 4\n  min = 1\n"));
  EXPECT_EQ(patched(kText, R"({"pool":{"a":{"model":"m"}}})"),
            with(kText, "model = [\n  \"m\",  # first\n  \"n\",\n]\n", "model = \"m\"\n"));
  EXPECT_EQ(patched(kText, R"({"pool":{"b":{"scale":{"max":3}}}})"),
            with(kText, "{min = 1, max = 2}", "{min = 1, max = 3}"));
  EXPECT_EQ(patched(kText, R"({"pool":{"b":{"launch":{"kind":"process","lead":1.0}}}})"),
            with(kText, "max = 2}\n", "max = 2}\n[pool.launch]\nkind = \"process\"\nlead = 1.0\n"));
  EXPECT_EQ(patched(kText, R"({"pool":{"a":{"scale":null}}})"),
            with(kText,
                 "  [pool.scale]\n  max = 3\n  # max = 5\n  [[pool.scale.schedule]]\n"
                 "  at = \"08:00\"\n",
                 ""));
  for (const char* const nothing :
       {"{}", R"({"gateway":{}})", R"({"gateway":{"retries":3}})", R"({"pool":{"c":null}})",
        R"({"etcd":null})", R"({"pool":{"a":{"zone":null}}})"}) {
    EXPECT_EQ(patched(kText, nothing), kText) << nothing;
  }
}

// As an editor of another system saves.
TEST(ConfigPatch, LinesEndAsTheFilesDo) {
  const auto two = [](std::string text) {
    for (size_t i = 0; (i = text.find('\n', i)) != std::string::npos; i += 2) text.insert(i, "\r");
    return text;
  };
  const std::string crlf = two(kText);
  EXPECT_EQ(patched(crlf, R"({"gateway":{"retries":5}})"),
            with(crlf, "retries = 3  #", "retries = 5  #"));
  for (const char* const patch :
       {R"({"gateway":{"threads":2}})", R"({"pool":{"c":{"model":"p","scale":{"max":1}}}})",
        R"({"worker":{"http://10.0.0.1:9000":{"zone":"z"}}})", R"({"pool":{"a":null}})",
        R"({"pool":{"b":{"launch":{"kind":"process"}}}})"}) {
    EXPECT_EQ(patched(crlf, patch), two(patched(kText, patch))) << patch;
  }
  const std::string unended = crlf.substr(0, crlf.size() - 2);
  EXPECT_EQ(patched(unended, R"({"worker":{"http://10.0.0.1:9000":{"zone":"z"}}})"),
            unended + "\r\nzone = \"z\"");
  // With a mark before all of it.
  for (const std::string& text : {kText, kText.substr(kText.find("[gateway]"))}) {
    EXPECT_EQ(patched("\xEF\xBB\xBF" + text, R"({"gateway":{"retries":5}})"),
              "\xEF\xBB\xBF" + with(text, "retries = 3  #", "retries = 5  #"));
  }
}

TEST(ConfigPatch, ACommentStaysBehindLongQuotes) {
  const std::string text =
      "[gateway]\ntls_cert = \"\"\"a # \"b\" \\\" #\"\"\"  # one\nfile = ''  # two\n";
  EXPECT_EQ(patched(text, R"({"gateway":{"tls_cert":"c","file":"d"}})"),
            "[gateway]\ntls_cert = \"c\"  # one\nfile = \"d\"  # two\n");
}

TEST(ConfigPatch, WhatLinesDoNotShowIsWrittenAnewBelowItsComment) {
  EXPECT_EQ(patched(kText, R"({"pool":{"a":{"scale":{"schedule":[{"at":"09:00"}]}}}})"),
            with(kText,
                 "model = [\n  \"m\",  # first\n  \"n\",\n]\n  [pool.scale]\n  max = 3\n"
                 "  # max = 5\n  [[pool.scale.schedule]]\n  at = \"08:00\"\n",
                 "model = [\"m\", \"n\"]\n[pool.scale]\nmax = 3\nschedule = [{at = \"09:00\"}]\n"));
  const std::string dotted = "[[pool]]\nname = \"a\"\nscale.min = 1\nscale.max = 2\n";
  EXPECT_EQ(patched(dotted, R"({"pool":{"a":{"scale":{"min":0}}}})"),
            "[[pool]]\nname = \"a\"\nscale = {min = 0, max = 2}\n");
  const std::string apart = "[[pool]]\nname = \"a\"\nscale.min = 1\nzone = \"z\"\nscale.max = 2\n";
  EXPECT_EQ(patched(apart, R"({"pool":{"a":{"scale":{"min":0}}}})"),
            "[[pool]]\nname = \"a\"\nzone = \"z\"\n[pool.scale]\nmin = 0\nmax = 2\n");
}

TEST(ConfigPatch, ObjectsComeAndGo) {
  EXPECT_EQ(patched(kText, R"({"pool":{"c":{"model":"p","scale":{"max":1}}},"pool2":null})"),
            kText + "\n[[pool]]\nname = \"c\"\nmodel = \"p\"\n[pool.scale]\nmax = 1\n");
  EXPECT_EQ(patched(kText, R"({"worker":{"http://h:1":{"pool":"b"}}})"),
            kText + "\n[[worker]]\nurl = \"http://h:1\"\npool = \"b\"\n");
  EXPECT_EQ(patched(kText, R"({"route":{"x/y/t":{"tenant":"t"}}})"),
            kText + "\n[[route]]\nmodel = \"x/y\"\ntenant = \"t\"\n");
  EXPECT_EQ(patched(kText, R"({"zones":{"a b":1.5}})"), kText + "\n[zones]\n\"a b\" = 1.5\n");
  const std::string gone =
      patched(kText, R"({"pool":null,"worker":{"http://10.0.0.1:9000":null}})");
  EXPECT_EQ(gone.find("pool]]"), std::string::npos) << gone;
  EXPECT_EQ(gone.find("worker"), std::string::npos) << gone;
  EXPECT_NE(gone.find("# ---- small ones ----"), std::string::npos) << gone;
}

// What a text may have a patch may be of: objects, and keys of one.
TEST(ConfigPatch, AsManyAsAFileMayHave) {
  constexpr int kCount = 4000;
  std::string pools;
  std::string keys = "[zones]\n";
  Json changed = Json::Object();
  Json numbers = Json::Object();
  for (int i = 0; i < kCount; ++i) {
    pools += fmt::format("[[pool]]\nname = \"p{}\"  # {}\nmodel = \"m\"\n", i, i);
    keys += fmt::format("k{} = 1  # {}\n", i, i);
    // Every third one stays, goes, becomes another; and as many come.
    const std::string key = std::to_string(i);
    if (i % 3 == 1) changed.as_object().push_back({.key = "p" + key, .value = nullptr});
    if (i % 3 == 1) numbers.as_object().push_back({.key = "k" + key, .value = nullptr});
    if (i % 3 != 2) continue;
    changed.as_object().push_back({.key = "p" + key, .value = json(R"({"model":"n"})")});
    changed.as_object().push_back({.key = "q" + key, .value = json(R"({"model":"o"})")});
    numbers.as_object().push_back({.key = "k" + key, .value = 2});
    numbers.as_object().push_back({.key = "l" + key, .value = 3});
  }
  Json patch = Json::Object();
  patch.set("pool", std::move(changed)).set("zones", std::move(numbers));
  const Result<Json> before = config_json(pools + keys, "f");
  ASSERT_TRUE(before.ok());
  const Result<std::string> after = patched_config(pools + keys, "f", patch);
  ASSERT_TRUE(after.ok()) << after.error().message;
  const Result<Json> said = config_json(*after, "f");
  ASSERT_TRUE(said.ok()) << said.error().message;
  EXPECT_EQ(said->find("pool")->as_object().size(), kCount);
  EXPECT_EQ(said->find("zones")->as_object().size(), kCount);
  const Json wanted = merged_json(*before, patch);
  EXPECT_TRUE(is_same_json(*said->find("zones"), *wanted.find("zones")));
  EXPECT_EQ(said->find("pool")->find("p2")->dump(), R"({"name":"p2","model":"n"})");
  EXPECT_EQ(said->find("pool")->find("q2")->dump(), R"({"name":"q2","model":"o"})");
  EXPECT_NE(after->find("name = \"p2\"  # 2\nmodel = \"n\"\n"), std::string::npos);
  EXPECT_NE(after->find("k2 = 2  # 2\nk3 = 1  # 3\n"), std::string::npos);
}

TEST(ConfigPatch, SeveralAtOnceAreAsOneAfterTheOther) {
  std::string text = kText;
  for (const char* const one :
       {R"({"gateway":{"retries":null,"threads":2}})", R"({"pool":{"c":{"model":"p"}}})",
        R"({"pool":{"a":{"scale":{"max":4}}}})", R"({"pool":{"b":null}})",
        R"({"pool":{"d":{"model":"q"}}})", R"({"etcd":{"endpoint":"x"}})", R"({"route":null})",
        R"({"worker":{"http://10.0.0.1:9000":{"zone":"z"}}})"}) {
    text = patched(text, one);
  }
  EXPECT_EQ(patched(kText, R"({"gateway":{"retries":null,"threads":2},"pool":{"c":{"model":"p"},)"
                           R"("a":{"scale":{"max":4}},"b":null,"d":{"model":"q"}},)"
                           R"("etcd":{"endpoint":"x"},"route":null,)"
                           R"("worker":{"http://10.0.0.1:9000":{"zone":"z"}}})"),
            text);
}

TEST(ConfigPatch, WhatIsNoPatchIsRefused) {
  const auto code = [](std::string_view patch) {
    const Result<std::string> done = patched_config(kText, "f", json(patch));
    return done.ok() ? "" : std::string(error_code_name(done.error().code));
  };
  for (const char* const wrong :
       {"[]", "1", R"({"pool":[]})", R"({"pool":{"a":3}})", R"({"gateway":"x"})",
        R"({"pool":{"a":{"name":"b"}}})", R"({"pool":{"c":{"name":"d"}}})", R"({"a b":{"c":1}})",
        R"({"":{"c":1}})", R"({"pool":{"a":{"model":["m",null]}}})",
        R"({"pool":{"c":{"model":[null]}}})"}) {
    EXPECT_EQ(code(wrong), "invalid_argument") << wrong;
  }
  const Result<std::string> absent =
      patched_object(kText, "f", {.kind = "pool", .name = "c"}, json("{}"));
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(patched_object(kText, "f", {.kind = "pool", .name = "a"}, Json()).ok());
}

class RandomPatches {
 public:
  explicit RandomPatches(uint64_t seed) : random_(seed) {}

  size_t below(size_t bound) { return static_cast<size_t>(random_() % bound); }

  Json value(int depth) {
    switch (below(depth > 0 ? 8 : 5)) {
      case 0:
        return static_cast<int64_t>(below(5)) - 2;
      case 1:
        return static_cast<double>(below(9)) / 4;
      case 2:
        return below(2) == 0;
      case 3:
        return std::string("# \"'\x7f\\\n]\xc3\xa9").substr(below(6));
      case 4:
        return nullptr;
      case 5: {
        Json::Array items;
        for (size_t i = below(3); i > 0; --i) {
          Json item = value(depth - 1);
          if (!item.is_null()) items.push_back(merged_json({}, item));
        }
        return items;
      }
      default: {
        Json object = Json::Object();
        for (size_t i = below(4); i > 0; --i) object.set(key(), value(depth - 1));
        return object;
      }
    }
  }

 private:
  std::string key() {
    const std::vector<std::string> keys = {"min", "max", "scale", "a b", "model", "launch", ""};
    return keys[below(keys.size())];
  }

  std::mt19937_64 random_;
};

// A list within a list item may still hold a null, which TOML has not.
bool has_null(const Json& value) {
  if (value.is_array()) {
    for (const Json& one : value.as_array()) {
      if (has_null(one)) return true;
    }
  }
  if (value.is_object()) {
    for (const Json::Member& one : value.as_object()) {
      if (has_null(one.value)) return true;
    }
  }
  return value.is_null();
}

// Whatever is patched, the text says what RFC 7396 makes of the value it said before.
TEST(ConfigPatch, TheTextSaysWhatTheMergeSays) {
  const int cases = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 1000;
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  RandomPatches random(seed);
  std::string text = kText;
  int patched_count = 0;
  for (int i = 0; i < cases; ++i) {
    Json object = random.value(3);
    if (!object.is_object()) continue;
    if (const Json* name = object.find("model"); random.below(4) == 0 && name != nullptr) continue;
    const std::string name(1, static_cast<char>('a' + random.below(4)));
    Json pools = Json::Object();
    pools.set(name, random.below(8) == 0 ? Json() : object);
    Json patch = Json::Object();
    patch.set("pool", pools);
    const Result<Json> before = config_json(text, "f");
    ASSERT_TRUE(before.ok()) << before.error().message << text;
    const Result<std::string> after = patched_config(text, "f", patch);
    Json wanted = merged_json(*before, patch);
    if (has_null(wanted)) continue;
    ASSERT_TRUE(after.ok()) << after.error().message << patch.dump() << text;
    const Result<Json> said = config_json(*after, "f");
    ASSERT_TRUE(said.ok()) << said.error().message << patch.dump() << *after;
    // A new one is called what its patch calls it, and a kind of none is none.
    Json with_name = wanted;
    if (const Json* pool = wanted.find("pool")->find(name); pool != nullptr) {
      Json named = *pool;
      named.set("name", name);
      Json all = *wanted.find("pool");
      all.set(name, named);
      with_name.set("pool", all);
    }
    if (with_name.find("pool")->as_object().empty()) {
      with_name = merged_json(with_name, json(R"({"pool":null})"));
    }
    ASSERT_TRUE(is_same_json(*said, with_name)) << patch.dump() << text << *after;
    ++patched_count;
    text = random.below(40) == 0 ? kText : *after;
  }
  EXPECT_GT(patched_count, cases / 10);
}

}  // namespace
}  // namespace pelton::gateway
