// Sets of tasks that are made here, by a seed: nothing is downloaded, and nobody has trained on
// them. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/task.h"

namespace pelton::eval {

// Their names: arithmetic, json, tools, retrieval, korean, french.
std::vector<std::string_view> generated_sets();

// What a set asks, in a sentence. Of a generated set only.
std::string_view describe_set(std::string_view name);

// `count` tasks of a set, the same for the same seed. Errors: kNotFound.
Result<std::vector<Task>> generate_tasks(std::string_view name, uint64_t seed, int count);

}  // namespace pelton::eval
