// A plan as people and programs read it: figures with the formula each came from, and tables, as
// text, as JSON and as a page that needs nothing else. Values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace pelton::planner {

enum class Unit { kBytes, kTokens, kCount, kSeconds, kPerSecond, kShare, kDollars, kRatio };

struct Figure {
  std::string key;    // "kv_bytes"
  std::string label;  // "left for keys and values"
  double value = 0;
  Unit unit = Unit::kCount;
  std::string formula;  // with the numbers in it
};

struct Cell {
  double value = 0;
  Unit unit = Unit::kCount;
  std::string text;  // instead of a number, if not empty
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
  std::vector<Section> sections;
};

enum class Explain { kNo, kYes };

// "12.8 GiB (13.7 GB)": both, because they are mixed up so often.
std::string format(double value, Unit unit);

std::string to_text(const PlanReport& report, Explain explain);
Json to_json(const PlanReport& report);
std::string to_html(const PlanReport& report);

}  // namespace pelton::planner
