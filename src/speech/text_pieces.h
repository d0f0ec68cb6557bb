// A text in pieces that are said one after the other, whole or while it is still being written: the
// same pieces either way. Values, of one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::speech {

// Characters of a piece, some 25 s of speech: a model that was trained on single utterances loses
// its thread in much longer ones.
inline constexpr size_t kPieceCharsMax = 400;

// Cuts a text that comes bit by bit. A piece is cut as soon as it is known, whatever follows:
//
//   piece            1   2   3    4 and later
//   chars at least   1   60  120  240
//
// It ends where a sentence ends, behind the first that makes it so long: the first piece is the
// first sentence, so that it can be said early, and what is said meanwhile leaves time for longer
// ones. None is longer than `chars_max` characters (code points): before that it is cut behind the
// last sentence that fits, where there is none behind a comma or its like, where there is none at a
// blank, else anywhere between characters. Blanks around pieces are dropped.
class TextCutter {
 public:
  explicit TextCutter(size_t chars_max = kPieceCharsMax);

  // `text`: UTF-8, whole characters. Not after finish().
  void push(std::string_view text);
  // Nothing more comes: what is left is the last pieces.
  void finish() { finished_ = true; }

  // The next piece, if it is known. Cheap to ask again where nothing has come since.
  std::optional<std::string> next();

  // Characters that have come and are in no piece yet, without the blanks before them.
  size_t chars_waiting() const;
  // Nothing but blanks waits.
  bool is_empty() const { return text_.empty(); }

 private:
  size_t chars_max_;
  std::string text_;  // does not begin with a blank
  size_t pieces_ = 0;
  size_t looked_at_ = 0;  // bytes of text_ that were there when no piece was known
  bool finished_ = false;
};

// All pieces of a text. "One. Two? Three!" by 100 is "One." and "Two? Three!", a text of blanks has
// none.
std::vector<std::string> text_pieces(std::string_view text, size_t chars_max);

}  // namespace pelton::speech
