#include "base/terminal_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace pelton::base {
namespace {

constexpr int kGap = 2;  // between columns

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t blank = std::min(text.find(' '), text.size());
    if (blank > 0) words.emplace_back(text.substr(0, blank));
    text.remove_prefix(std::min(blank + 1, text.size()));
  }
  return words;
}

std::vector<std::string> wrapped_lines(std::string_view text, int width) {
  std::vector<std::string> lines;
  std::string line;
  for (const std::string& word : words_of(text)) {
    if (!line.empty() && width > 0 && text_columns(line) + 1 + text_columns(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

class TableLayout {
 public:
  TableLayout(const TextTable& table, int width, int indent)
      : table_(table), width_(width), indent_(indent) {
    for (const auto& row : table.rows) columns_ = std::max(columns_, row.size());
    columns_ = std::max(columns_, table.headers.size());
    measure(false);
    if (width_ > 0 && total() > width_) measure(true);
  }

  std::string text() const {
    std::string out;
    for (size_t from = 1; from < columns_ || from == 1;) {
      const size_t end = group_end(from);
      if (from > 1) out += '\n';
      add_group(from, end, out);
      from = std::max(end, from + 1);
    }
    return out;
  }

 private:
  static const std::string& cell(const std::vector<std::string>& row, size_t i) {
    static const std::string kEmpty;
    return i < row.size() ? row[i] : kEmpty;
  }

  void measure(bool headers_broken) {
    widths_.assign(columns_, 0);
    for (size_t i = 0; i < columns_; ++i) {
      const std::string& header = cell(table_.headers, i);
      if (!headers_broken) widths_[i] = text_columns(header);
      for (const std::string& word : words_of(header)) {
        widths_[i] = std::max(widths_[i], text_columns(word));
      }
      for (const auto& row : table_.rows) {
        widths_[i] = std::max(widths_[i], text_columns(cell(row, i)));
      }
    }
  }

  int total() const {
    int sum = indent_;
    for (const int width : widths_) sum += width + kGap;
    return sum - kGap;
  }

  // Columns from `from` on that stand beside the rows' names; at least one.
  size_t group_end(size_t from) const {
    if (width_ <= 0) return columns_;
    int used = indent_ + (columns_ > 0 ? widths_[0] : 0);
    size_t end = from;
    while (end < columns_ && (end == from || used + kGap + widths_[end] <= width_)) {
      used += kGap + widths_[end++];
    }
    return end;
  }

  void add_cell(size_t i, const std::string& text, std::string& line) const {
    const auto spare = static_cast<size_t>(std::max(widths_[i] - text_columns(text), 0));
    if (i == 0) {
      line += text + std::string(spare, ' ');
    } else {
      line += std::string(kGap + spare, ' ') + text;
    }
  }

  void add_line(const std::vector<std::string>& cells, size_t from, size_t end,
                std::string& out) const {
    std::string line(static_cast<size_t>(indent_), ' ');
    if (columns_ > 0) add_cell(0, cell(cells, 0), line);
    for (size_t i = from; i < end; ++i) add_cell(i, cell(cells, i), line);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }

  void add_group(size_t from, size_t end, std::string& out) const {
    if (!table_.headers.empty()) {
      std::vector<std::vector<std::string>> broken(columns_);
      size_t lines = 0;
      for (size_t i = 0; i < columns_; ++i) {
        if (i > 0 && (i < from || i >= end)) continue;
        broken[i] = wrapped_lines(cell(table_.headers, i), widths_[i]);
        lines = std::max(lines, broken[i].size());
      }
      for (size_t at = 0; at < lines; ++at) {
        std::vector<std::string> line(columns_);
        for (size_t i = 0; i < columns_; ++i) {
          // Ends stand on one line, above the numbers.
          const size_t above = lines - broken[i].size();
          if (at >= above && !broken[i].empty()) line[i] = broken[i][at - above];
        }
        add_line(line, from, end, out);
      }
    }
    for (const auto& row : table_.rows) add_line(row, from, end, out);
  }

  const TextTable& table_;
  const int width_;
  const int indent_;
  size_t columns_ = 0;
  std::vector<int> widths_;
};

}  // namespace

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0xC2 && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[i + 1]);
      if (next >= 0x80 && next < 0xA0) {
        ++i;
        continue;
      }
    }
    if (byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')) continue;
    out.push_back(text[i]);
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out = without_controls(replace_invalid_utf8(text));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return out;
}

int text_columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string wrapped_text(std::string_view text, int width, int indent) {
  std::string out;
  const int room = width > 0 ? std::max(width - indent, 1) : 0;
  for (const std::string& line : wrapped_lines(text, room)) {
    out += std::string(static_cast<size_t>(indent), ' ') + line + "\n";
  }
  return out;
}

std::string text_table(const TextTable& table, int width, int indent) {
  return TableLayout(table, width, indent).text();
}

}  // namespace pelton::base
