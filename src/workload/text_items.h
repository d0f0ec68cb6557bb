// Cuts large files into what is parsed one by one: the elements of a JSON array, lines. Nothing is
// copied. Internal to this room.
#pragma once

#include <optional>
#include <string_view>

namespace pelton::workload {

// The elements of the array that `text` holds, as text: what stands between brackets and commas on
// the outermost level. Whether an element is JSON is for its parser to say.
class ArrayItems {
 public:
  explicit ArrayItems(std::string_view text);

  bool is_array() const { return is_array_; }
  std::optional<std::string_view> next();  // empty: no more
  // After the last: whether the closing bracket was there.
  bool closed() const { return closed_; }

 private:
  std::string_view rest_;
  bool is_array_ = false;
  bool closed_ = false;
};

// Lines that are not blank, with their numbers from 1.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  std::optional<std::string_view> next();
  int number() const { return number_; }  // of the line last given

 private:
  std::string_view rest_;
  int number_ = 0;
};

std::string_view trimmed(std::string_view text);

}  // namespace pelton::workload
