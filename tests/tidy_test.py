#!/usr/bin/env python3
"""tools/tidy sees what it is there to see."""
import importlib.machinery
import importlib.util
import pathlib
import unittest

PATH = pathlib.Path(__file__).resolve().parent.parent / "tools/tidy"
LOADER = importlib.machinery.SourceFileLoader("tidy", str(PATH))
tidy = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", LOADER))
LOADER.exec_module(tidy)

SOURCE = '''
namespace a {
struct Options { int x = 0; };
const char* const kText = R"({ not a brace })";
// } nor this one {
class B : public C<int> {
 public:
  explicit B(Options options) : x_{options.x} {
    for (;;) {
    }
  }
  int get() const noexcept { return x_; }
};
const std::map<int, int> kTable = {{1, 2}, {f(3), 4}};
TEST_F(Suite, Name) {
  call({.count = 1}, [&](int i) {
    return '}';
  });
}
template <typename T>
  requires(sizeof(T) == 4)
T twice(T x) {
  return x + x;
}
}  // namespace a
'''


class Functions(unittest.TestCase):
    def test_finds_each_function_with_its_lines(self):
        found = [(tidy.name_of(head), lines) for _, lines, head in tidy.functions(SOURCE)]
        self.assertEqual([("B", 4), ("get", 1), ("Suite.Name", 5)], found[:3])
        self.assertEqual(4, len(found))
        self.assertEqual(4, found[3][1] - 1)

    def test_every_long_function_is_allowed_by_name(self):
        allowed = tidy.read_lengths()
        self.assertTrue(allowed)
        for what, lines in allowed.items():
            self.assertGreater(lines, tidy.FUNCTION_LINES if ":" in what else tidy.FILE_LINES, what)


class GroupFields(unittest.TestCase):
    def test_a_field_for_one_kv_group_is_seen_wherever_it_stands(self):
        for text in ("int32_t full_blocks;", "std::vector<Item> window_items_;", "layout.full_slots", "window_tables_max"):
            self.assertTrue(tidy.GROUP_FIELDS.search(text), text)
        for text in ("int tail_blocks;", "is_full_run()", "sliding_window", "full_test"):
            self.assertFalse(tidy.GROUP_FIELDS.search(text), text)
        for path in ("src/cuda/device_abi.h", "src/models/device_model.cc", "src/gateway/block_view.cc"):
            self.assertFalse(tidy.GROUP_FIELDS_ALLOWED.search(path), path)


class Words(unittest.TestCase):
    def test_rows_have_a_pattern_that_counts(self):
        rows = tidy.read_words()
        self.assertGreater(len(rows), 30)
        counts = tidy.count_words()
        for pattern, allowed, words in rows:
            self.assertLessEqual(counts[pattern], allowed, pattern)
            self.assertTrue(words, pattern)
        self.assertTrue(any(counts.values()))


class FamilyWords(unittest.TestCase):
    def test_formats_and_channels_are_seen_outside_tests_only(self):
        self.assertEqual([], tidy.check_family_words())
        for line in ("chat::HarmonyTokens harmony;", "if (channel == chat::kFinal)", '#include "models/gpt_oss.h"',
                     "chat::chatml_format(tokenizer)", "config.family == &families::kGptOss",
                     'text += "<|channel|>final<|message|>";', '"<|im_start|>assistant"'):
            self.assertTrue(tidy.FAMILY_WORDS.search(line), line)
        for line in ("<|call|>", "kFinalAnswer", "FinishReason::kStop", "model.chat->parser()"):
            self.assertFalse(tidy.FAMILY_WORDS.search(line), line)
        self.assertTrue(tidy.FAMILY_WORDS_ALLOWED.search("src/server/grpc_test.cc"))
        self.assertFalse(tidy.FAMILY_WORDS_ALLOWED.search("src/server/server.cc"))


    def test_no_code_asks_which_family_a_model_is_of(self):
        self.assertEqual([], tidy.check_family_constants())
        self.assertTrue(tidy.FAMILY_CONSTANT.search("if (config.family != &families::kGptOss) {"))
        self.assertFalse(tidy.FAMILY_CONSTANT.search("checkpoint.has(families::kCoarseHead)"))


class Rooms(unittest.TestCase):
    def test_the_tree_is_seen(self):
        self.assertGreater(len(tidy.tracked("src/*/CMakeLists.txt")), 20)
        self.assertIn("src/base/check.h", tidy.tracked("*.h"))


if __name__ == "__main__":
    unittest.main()
