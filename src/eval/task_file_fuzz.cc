// Files of tasks are foreign bytes: any of them is a set of tasks or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "eval/judge.h"
#include "eval/task_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<std::vector<eval::Task>> tasks = eval::parse_tasks(text, "fuzz");
  if (!tasks.ok()) return 0;
  for (const eval::Task& task : *tasks) {
    CHECK(task.request.is_object());
    // Any answer can be judged.
    (void)eval::is_right(task.expected, {.content = std::string(text), .calls = {}});
  }
  return 0;
}
