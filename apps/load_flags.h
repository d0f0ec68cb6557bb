// The flags of load tests against a server, under the names that vLLM's `bench serve` gave them,
// and what they come to. Shared by `bench serve` and `bench sweep`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load_generator.h"
#include "bench/probe.h"
#include "bench/question.h"
#include "bench/target.h"
#include "cli/command_line.h"
#include "report/serve_result.h"
#include "tokenizer/tokenizer.h"
#include "workload/arrivals.h"
#include "workload/conversation.h"
#include "workload/spec.h"
#include "workload/synthetic.h"
#include "workload/vocabulary.h"

namespace pelton::apps {

// All that a load test is, before it runs.
struct LoadPlan {
  bench::Target target;
  bench::QuestionOptions question;
  bench::LoadOptions load;
  workload::Arrivals arrivals;
  double ready_s = 0;
  int warmups = 0;
  bool progress = true;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: none was named
  std::vector<workload::Conversation> conversations;
  std::vector<report::Objective> objectives;
  report::Shown shown;
  std::string result_file;  // instead of the name made up
  report::RunInfo info;     // what is known before
  bench::Probed probed;     // of the server; filled by load_test.h's prepare()
};

std::vector<cli::Flag> load_flags();
// Asks no server; an empty model is found out by load_test.h's prepare().
Result<LoadPlan> read_load_plan(const cli::Arguments& arguments);

// What is asked, and when, as a workload file (workload/spec.h) says, instead of what the flags of
// data sets and arrivals have made. Errors: kInvalidArgument, kIo.
Result<void> use_workload(const std::string& workload, LoadPlan& plan);

// That a result is kept somewhere.
std::vector<cli::Circumstance> kept_results();

// The prompts that --dataset-name and its companions describe; also of `bench throughput`.
std::vector<cli::Flag> dataset_flags();
// When they come, of a test against a server: --turns --think-time --trace-speed.
std::vector<cli::Flag> dataset_time_flags();
struct DatasetTimes {
  workload::Turns turns;
  double trace_speed = 1;
};
DatasetTimes read_dataset_times(const cli::Arguments& arguments);
Result<std::vector<workload::Conversation>> read_dataset(const cli::Arguments& arguments,
                                                         const workload::Vocabulary& vocabulary,
                                                         const DatasetTimes& times);
// Whether prompts are invented: then answers have the length asked for, whatever the model says.
bool is_invented(const cli::Arguments& arguments);

// --save-result, --html, --history, --fail-if; see load_result.h.
std::vector<cli::Flag> saving_flags();

cli::Flag text_flag(std::string name, std::string value, std::string help,
                    std::string fallback = {});
cli::Flag number_flag(std::string name, std::string value, std::string help, std::string fallback,
                      double least, double most);
cli::Flag count_flag(std::string name, std::string value, std::string help, std::string fallback,
                     double least, double most);
cli::Flag switch_flag(std::string name, std::string help);

}  // namespace pelton::apps
