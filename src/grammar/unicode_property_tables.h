// Unicode 14's properties as unicode_property_tables.cc has them (made by
// tools/make_unicode_properties.py); unicode_properties.h reads them. Constants; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pelton::grammar {

// Runs: from this code point (the number's upper 24 bits) to the next run's all have one value.
extern const uint32_t kCategoryRuns[];
extern const size_t kCategoryRunsCount;
extern const uint32_t kScriptRuns[];  // value: place in kScriptNames, or their count for no script
extern const size_t kScriptRunsCount;

struct ScriptName {
  const char* long_name;
  const char* short_name;
};
extern const ScriptName kScriptNames[];
extern const size_t kScriptNamesCount;

struct BinaryProperty {
  const char* name;
  size_t begin, end;  // in kBinaryRanges, which has pairs of first and last code point
};
extern const uint32_t kBinaryRanges[];
extern const BinaryProperty kBinaryProperties[];
extern const size_t kBinaryPropertiesCount;

}  // namespace pelton::grammar
