// A plan as people and programs read it: figures with the formula each came from, and tables, as
// text, as JSON and as a page that needs nothing else. Values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace pelton::planner {

enum class Unit { kBytes, kTokens, kCount, kSeconds, kPerSecond, kShare, kDollars, kRatio };

struct Figure {
  std::string key;    // "kv_bytes"
  std::string label;  // "left for the KV cache"
  double value = 0;
  Unit unit = Unit::kCount;
  std::string formula;  // with the numbers in it
  // Of a modelled number: where it lies if the assumptions are off. Such a number has two digits.
  struct Range {
    double low = 0;
    double high = 0;
  };
  std::optional<Range> range = {};
};

struct Cell {
  double value = 0;
  Unit unit = Unit::kCount;
  std::string text;       // instead of a number, if not empty
  bool modelled = false;  // then it has two digits
};

struct Table {
  std::string key;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Section {
  std::string key;
  std::string title;
  std::vector<Figure> figures;
  std::vector<Table> tables;
  std::vector<std::string> notes;
};

struct PlanReport {
  std::string title;
  // Read first: what this is worth, and the answer.
  std::vector<std::string> headline = {};
  bool fits = true;
  std::optional<bool> meets_objectives = {};  // some layout does; nothing: no load was given
  std::vector<Section> sections;
};

enum class Explain { kNo, kYes };

// "12.8 GiB (13.7 GB)": both, because they are mixed up so often.
std::string format(double value, Unit unit);
// Of a modelled number: two digits.
std::string format_modelled(double value, Unit unit);

// Within `width` columns; 0: as many as it takes.
std::string to_text(const PlanReport& report, Explain explain, int width);
Json to_json(const PlanReport& report);
std::string to_html(const PlanReport& report);

}  // namespace pelton::planner
