#include "gateway/config_history.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "gateway/config_changes.h"
#include "gateway/config_edit.h"
#include "gateway/config_patch.h"

namespace pelton::gateway {
namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/pelton_history_XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file() const { return path_ + "/gateway.toml.history"; }

 private:
  std::string path_;
};

ConfigHistory::Entry entry(std::string text) {
  return {.unix_ms = 7,
          .who = "ann",
          .from = "10.0.0.7",
          .text = std::move(text),
          .changes = {"~ gateway: retries = 1 -> 2"}};
}

TEST(ConfigHistory, GoesOnBehindWhatTheFileHas) {
  const Folder folder;
  {
    ConfigHistory history(folder.file());
    history.note(entry("a = \"\\n\" # \xc3\xa9\r\n"));
    history.note(entry("a = \"\\n\" # \xc3\xa9\r\n"));
    history.note(entry(""));
    EXPECT_TRUE(history.is_on_disk());
    EXPECT_EQ(history.entries().size(), 2U) << "the same text is no change";
  }
  struct stat status {};
  ASSERT_EQ(::stat(folder.file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  ConfigHistory history(folder.file());
  ASSERT_EQ(history.entries().size(), 2U);
  ConfigHistory::Entry first = entry("a = \"\\n\" # \xc3\xa9\r\n");
  first.number = 1;
  EXPECT_EQ(history.entries().front(), first);
  history.note(entry("b"));
  EXPECT_EQ(history.entries().back().number, 3);
  EXPECT_EQ(history.find(2)->text, "");
  EXPECT_EQ(history.find(4), nullptr);
}

TEST(ConfigHistory, KeepsTheLastOnes) {
  const Folder folder;
  ConfigHistory history(folder.file());
  const int count = static_cast<int>(ConfigHistory::kEntriesMax) + 20;
  for (int i = 1; i <= count; ++i) history.note(entry("x = " + std::to_string(i)));
  EXPECT_EQ(history.entries().size(), ConfigHistory::kEntriesMax);
  EXPECT_EQ(history.find(20), nullptr);
  EXPECT_EQ(history.find(21)->text, "x = 21");
  const ConfigHistory again(folder.file());
  EXPECT_EQ(again.entries(), history.entries());
  // Nor more than so many bytes, in memory and in the file.
  const std::string large(size_t{1} << 20, 'x');
  for (int i = 0; i < 80; ++i) history.note(entry(large + std::to_string(i)));
  EXPECT_LE(history.entries().size(), ConfigHistory::kBytesMax / large.size());
  EXPECT_LE(std::filesystem::file_size(folder.file()), 5 * ConfigHistory::kBytesMax);
  EXPECT_EQ(ConfigHistory(folder.file()).entries(), history.entries());
}

TEST(ConfigHistory, ALineThatWasNotEndedIsLeftOut) {
  const Folder folder;
  {
    ConfigHistory history(folder.file());
    history.note(entry("a"));
    history.note(entry("b"));
  }
  const auto size = std::filesystem::file_size(folder.file());
  std::filesystem::resize_file(folder.file(), size - 5);
  {
    ConfigHistory history(folder.file());
    ASSERT_EQ(history.entries().size(), 1U);
    history.note(entry("c"));
  }
  ConfigHistory history(folder.file());
  ASSERT_EQ(history.entries().size(), 2U);
  EXPECT_EQ(history.find(2)->text, "c");
  std::ofstream(folder.file(), std::ios::app) << "no line of ours\n{\"n\":1,\"text\":\"d\"}\n";
  EXPECT_EQ(ConfigHistory(folder.file()).entries().size(), 2U) << "nor one of an old number";
}

TEST(ConfigHistory, WhereNothingMayBeWrittenItIsKeptInMemory) {
  ConfigHistory history("/proc/pelton/gateway.toml.history");
  history.note(entry("a"));
  history.note(entry("b"));
  EXPECT_FALSE(history.is_on_disk());
  EXPECT_NE(history.error(), "");
  EXPECT_EQ(history.find(1)->text, "a");
  ConfigHistory nowhere("");
  nowhere.note(entry("a"));
  EXPECT_EQ(nowhere.find(1)->text, "a");
}

// What is there and is not known is not written over: it is somebody's.
TEST(ConfigHistory, AFileThatCannotBeReadStaysAsItIs) {
  const Folder folder;
  const std::string far = R"({"n":9223372036854775807,"text":"x"})"
                          "\n";
  ASSERT_TRUE(base::write_file(folder.file(), R"({"n":3,"text":"w"})"
                                              "\n" +
                                                  far + "half")
                  .ok());
  {
    ConfigHistory history(folder.file());
    EXPECT_FALSE(history.is_on_disk());
    EXPECT_NE(history.error().find("9223372036854775807"), std::string::npos) << history.error();
    for (size_t i = 0; i < 3; ++i) history.note(entry("a" + std::to_string(i)));
    EXPECT_FALSE(history.is_on_disk());
    EXPECT_EQ(history.find(3)->text, "w");
    EXPECT_EQ(history.find(6)->text, "a2");
  }
  EXPECT_TRUE(base::read_file(folder.file())->ends_with(far + "half"));
  // Longer than any that is written here.
  std::filesystem::resize_file(folder.file(), size_t{65} << 20);
  ConfigHistory large(folder.file());
  large.note(entry("a"));
  EXPECT_FALSE(large.is_on_disk());
  EXPECT_NE(large.error(), "");
  EXPECT_EQ(large.find(1)->text, "a");
  EXPECT_EQ(std::filesystem::file_size(folder.file()), size_t{65} << 20);
  // What is no file at all.
  std::filesystem::remove(folder.file());
  std::filesystem::create_directory(folder.file());
  ConfigHistory none(folder.file());
  none.note(entry("a"));
  EXPECT_FALSE(none.is_on_disk());
  EXPECT_TRUE(std::filesystem::is_directory(folder.file()));
}

// Edits, patches, reverts and new starts in any order: each number has the text that it had, and
// the revert to the first one is that text byte for byte.
TEST(ConfigHistory, RandomEditsAndRevertsEndByteEqual) {
  const int cases = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 300;
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const Folder folder;
  const std::string begin =
      "# our fleet\n[gateway]\nlisten = \"127.0.0.1:0\"  # any\n\n# one\n[[pool]]\nname = \"a\"\n"
      "model = \"m\"\n# no line feed";
  auto history = std::make_unique<ConfigHistory>(folder.file());
  std::map<int64_t, std::string> noted;  // the whole truth
  std::string text = begin;
  const auto note = [&](const std::string& fresh, int64_t reverts_to) {
    history->note({.reverts_to = reverts_to, .text = fresh});
    text = fresh;
    const int64_t last = history->entries().back().number;
    const auto [place, is_new] = noted.try_emplace(last, fresh);
    EXPECT_EQ(place->second, fresh);
    while (noted.size() > ConfigHistory::kEntriesMax) noted.erase(noted.begin());
  };
  note(begin, 0);
  for (int i = 0; i < cases; ++i) {
    const std::string name(1, static_cast<char>('a' + below(4)));
    const std::string number = std::to_string(below(3));
    Result<std::string> fresh = text;
    switch (below(5)) {
      case 0:
        fresh =
            with_object(text, "f", {"pool", name},
                        "# put\n[[pool]]\nname = \"" + name + "\"\nmodel = \"" + number + "\"\n");
        break;
      case 1: {
        fresh = without_object(text, "f", {"pool", name});
        if (!fresh.ok()) fresh = text;  // it is not there
        break;
      }
      case 2: {
        const Result<Json> patch =
            Json::parse(R"({"gateway":{"retries":)" + number + R"(},"pool":{")" + name +
                        R"(":{"scale":{"max":)" + number + "}}}}");
        fresh = patched_config(text, "f", *patch);
        break;
      }
      case 3: {
        const auto& entries = history->entries();
        const ConfigHistory::Entry& to = entries[below(entries.size())];
        note(std::string(to.text), to.number);
        continue;
      }
      default:
        if (below(10) == 0) history = std::make_unique<ConfigHistory>(folder.file());
        continue;
    }
    ASSERT_TRUE(fresh.ok()) << fresh.error().message << text;
    note(*fresh, 0);
  }
  ASSERT_EQ(history->entries().size(), noted.size());
  for (const ConfigHistory::Entry& one : history->entries()) {
    ASSERT_EQ(one.text, noted.at(one.number)) << one.number;
  }
  const ConfigHistory::Entry oldest = history->entries().front();
  note(oldest.text, oldest.number);
  EXPECT_EQ(history->entries().back().text, noted.at(history->entries().back().number));
}

}  // namespace
}  // namespace pelton::gateway
